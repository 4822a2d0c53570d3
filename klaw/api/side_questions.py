"""What programs ask a model for themselves: a title for the conversation, tags, a summary for later, what to type next.

Nobody said such a text, so it is never stored. It is known by its first words (clients in the field, in the languages
they have), or by its form: it wants a title, of a conversation, within limits that people do not set. Pure.
"""

import re

HEAD, TAIL = 700, 400
"""Characters of a text in which its task stands: before the conversation that is to be titled, or behind it."""

_OPEN_WEBUI = (
    r"### task:\s*(?:generate a concise|generate 1-3 broad tags|generate a detailed prompt|predict 3-5 useful messages"
    r"|suggest 3-5 relevant follow-up|analyze the chat history to determine|you are an autocompletion system)"
)
"""Its own side prompts. Questions of people with a file begin with "### Task:" too."""
_FIRST_WORDS = (
    _OPEN_WEBUI,
    # LibreChat
    r"analyze this conversation and provide:",
    r"detect user language and write in the same language an extremely concise title",
    r"(?:please )?(?:provide|generate) a concise, 5-word-or-less title for the conversation",
    r"summarize the conversation by integrating new lines into the current summary",
    # NextChat
    r"please generate a four to five word title summarizing our conversation",
    r"summarize the discussion briefly in 200 words or less",
    r"使用四到五个字直接返回这句话的简要主题",
    r"简要总结一下对话内容，用作后续的上下文提示",
    r"кратко изложите (?:нашу )?дискуссию в 200 словах",
    # Chatbox, n8n, Page Assist, Continue
    r"based on the chat history, give this conversation a name",
    r"generate a concise and descriptive title for an ai chat conversation",
    r"here is the query:\s*-+[\s\S]*create a concise, 3-5 word phrase as a title",
    r"given the (?:following|past|chat)[^\n]{0,80}please reply with a title for the chat",
    # opencode, Zed, Cline, Claude Code and their kin
    r"generate a title for this conversation:",
    r"provide a detailed prompt for continuing our conversation above",
    r"generate a detailed summary of this conversation\. include:",
    r"your task is to create a detailed summary of the conversation so far",
    r"(?:please )?write a \d+-\d+ word title for the following conversation",
    r"analyze if this message indicates a new conversation topic",
    r"please write a brief title for the following request",
    r"summarize this coding conversation in under",
)
_TASK_SYSTEMS = (
    # Cherry Studio, LobeChat
    r"you are an assistant skilled in conversation\. you need to summarize the user's conversation into a title",
    r"(?:summarize the given session|将给定的对话总结|总结给出的会话)",
    r"你是一名擅长会话的助理，你需要将用户的会话总结为",
    r"you are an ai question rephraser",
    r"you are a professional conversation summarizer",
    r"you're an assistant who's good at extracting key takeaways from conversations and summarizing them",
    r"you are an emoji expert",
    # opencode, aider, Zed, Copilot, big-AGI, chat-ui, chatbots made from Vercel's template, Continue
    r"you are a title generator",
    r"you are a helpful ai assistant tasked with summarizing conversations",
    r"\*briefly\* summarize this partial conversation",
    r"you are an expert software engineer that generates concise, one-line git commit messages",
    r"you are an expert at writing git commits",
    r"you are an expert in crafting pithy titles",
    r"you are an ai conversation titles assistant",
    r"you are a summarization ai",
    r"you will generate a short title based on the first message",
    r"you are a hole filler",
)
_BEGINS = re.compile("|".join(_FIRST_WORDS), re.IGNORECASE)
_IS_TASK = re.compile("|".join(_TASK_SYSTEMS), re.IGNORECASE)
HOLE = "{{FILL_HERE}}"
_HOLE = re.compile(
    r"<[|｜]?fim[_▁](?:prefix|middle|suffix|begin|hole|end)[|｜]?>|\A\s*(?:<PRE>|\[SUFFIX\])|\{\{FILL_HERE\}\}"
)
"""The marks of models that complete code, and of Continue."""

_TITLE = r"\b(?:title|name|headline)s?\b"
_NUMBER = r"(?:\d+|one|two|three|four|five|six|seven|eight|ten)"
_TALK = (
    r"(?:\b(?:this|that|the|our|your|given|following|above|provided|current|entire|whole|previous|past)\s+"
    r"(?:[\w'-]+\s+){0,2}?(?:conversation|chat|discussion|dialog(?:ue)?|thread|session|exchange|messages above)"
    r"|\bfor (?:chats|conversations)"
    r"|\ba (?:chat|conversation)(?= that (?:start|beg)|\s+between (?:an? )?(?:user|human))"
    r"|\b(?:ai )?(?:chat|coding|agent) (?:conversation|history|session|thread))"
    rf"(?=\s*(?:$|[^\w\s'’-]|\n)|\s+-|\s+(?:above|below|so|history|based|using|without|within|by|as|and|from|start\w*"
    rf"|begin\w*|only|max\w*|at|no|under|(?:that|which) (?!I\b|my\b|we\b|takes\b)"
    rf"|in (?!my\b|his\b|her\b|an?\b(?! (?:few|short|{_NUMBER}))|which\b|the (?!same\b|lang|user))"
    r"|with (?:an? |the )?(?:max|user|assistant|no|at|up|emoji|\d)|between (?:an? |the )?(?:user|human|assistant|you)"
    r"|an? (?:\w+ )?(?:title|name))\b)"
)
"""The talk that the text belongs to, not one that people speak of: a book's, a club's, one with somebody."""
_VERB = (
    r"\b(?:(?:generate|create|write|provide|give|suggest|produce|make|propose|craft|choose|return)s?|come up with"
    r"|reply with|respond with|output|extract|pick|what would be|what(?:'s| is) an?)\b"
    r"(?:(?!\b(?:with|about|to|for)\b)[^.!?\n]){0,60}?"
)
_OF = (
    r"[^.!?\n\"'«»“”]{0,40}\b(?=for|of|summari[sz]\w+|that (?:captures|describes|summari[sz]es|fits)|describing"
    r"|based on|from|capturing)\b[^.!?\n]{0,60}?"
)
_WANTS = (
    rf"{_VERB}{_TITLE}{_OF}{_TALK}|\b(?:summari[sz]e|name|give)\b[^.!?\n]{{0,20}}?{_TALK}[^.!?\n]{{0,40}}?"
    rf"{_TITLE}|\bname {_TALK}|\b(?:conversation|chat|session|thread) titles?\b"
)
_LIMITS = (
    rf"\b{_NUMBER}(?:\s*(?:-|–|to|or)\s*{_NUMBER})?[\s-]*(?:words?|char(?:acter)?s?|letters?|tokens?)\b"
    r"|\bwords? or (?:less|fewer)|\b(?:only|just)\b[^.\n]{0,30}\b(?:title|name)|\bnothing else\b"
    r"|\bno (?:quotes|quotation|punctuation)|\b(?:without|omitting) (?:any )?(?:lead-in|punctuation|quot|preamble)"
)
_EXTRAS = (
    rf"\b(?:tags|follow-?\s?ups?)\b[^.!?\n]{{0,60}}?(?:{_TALK}|\bthe user (?:could|might|may|would|can) (?:ask|say))"
    rf"|{_TALK}[^.!?\n]{{0,60}}?\b(?:tags|follow-?\s?ups?)\b"
)
"""Tags, and what the user might ask next; a program wants them as JSON."""
_RU_TITLE = r"(?:заголов|назван|назв[ау]|озаглав|тем[ау]\b)"
_RU_TALK = r"(?:бесед\w{1,2}|разговора?|диалога?|чата?|обсуждени[еюя]|переписк\w)"
_RU_THIS = r"(?:эт(?:ой|ого|ому|от|у|а|о)|данн\w+|наш\w*|следующ\w+|предыдущ\w+|текущ\w+|истори\w+)"
_UK_TITLE = r"(?:заголов|назв[аиу]|озаглав|тем[ау]\b)"
_UK_TALK = r"(?:бесід\w|розмов\w|діалогу?|чату?)"
_UK_THIS = r"(?:ц(?:ієї|ього|ій|ьому|ей|ю|я)|дан\w+|наш\w*|наступн\w+|попередн\w+|поточн\w+|істор\w+)"


def _near(title: str, this: str, talk: str, based: str) -> str:
    """A title of this talk, or of the talk and no other word behind it."""
    end = rf"\b(?=\s*(?:$|[^\w\s-])|\s+(?:{based}|\d))"
    near = rf"{title}[^.!?\n]{{0,60}}?\b{this}\s+{talk}\b(?!-)|\b{this}\s+{talk}\b(?!-)[^.!?\n]{{0,60}}?{title}"
    return rf"{near}|{title}\w*\s+(?:для\s+)?{talk}{end}|\b{talk}\s+(?:в|у)\s+{title}"


_FORMS = (
    (_WANTS, _LIMITS),  # English, by its grammar
    (_EXTRAS, r"\bjson\b|\barray\b"),
    (_near(_RU_TITLE, _RU_THIS, _RU_TALK, "на основе|по|из|длиной|не|до|в"), r"\bслов|символ|\bтолько\b|\bбез\b"),
    (_near(_UK_TITLE, _UK_THIS, _UK_TALK, "на основі|за|з|із|до|не|у|в"), r"\bсл[іо]в|символ|\bлише\b|\bбез\b"),
    # the languages of such clients, by the words that meet: title and conversation near each other, and a limit
    *(
        (rf"(?:{title})[^.!?。\n]{{0,60}}?(?:{talk})|(?:{talk})[^.!?。\n]{{0,60}}?(?:{title})", limit)
        for title, talk, limit in (
            (r"标题|主题|標題|主題|话题|命名", r"对话|会话|對話|會話|聊天|讨论|这句话", r"个?字|個字|不要|仅|只|以内"),
            (r"タイトル|題名|トピック", r"会話|対話|チャット", r"文字|語|のみ|だけ"),
            (r"제목", r"대화|채팅", r"단어|글자|없이|만 "),
            (
                r"\btitel\b|\büberschrift",
                r"\b(?:diese[mnrs]?|unser\w*|folgende\w*|das|de[ms]) (?:gespräch|unterhaltung|konversation|chat)",
                r"wört|zeichen|\bnur\b|\bohne\b",
            ),
            (
                r"\btítulo\b",
                r"\b(?:est[ae]|la|el|del|nuestr[ao]|siguiente) (?:conversación|charla|chat)",
                r"palabras|caracteres|\bsolo\b|\bsin\b",
            ),
            (
                r"\btítulo\b",
                r"\b(?:d?est[ae]|d?[ao]|noss[ao]|seguinte) (?:conversa|chat)\b",
                r"palavras|caracteres|\bapenas\b|\bsem\b",
            ),
            (
                r"\btitre\b",
                r"\b(?:cette|ce|la|le|du|notre) (?:conversation|discussion|chat)",
                r"\bmots\b|caractères|\bsans\b|uniquement",
            ),
            (
                r"\btitolo\b",
                r"\b(?:quest[ao]|la|della|nostra|seguente) (?:conversazione|chat)",
                r"\bparole\b|caratteri|\bsolo\b|\bsenza\b",
            ),
        )
    ),
)
_BY_FORM = tuple((re.compile(form, re.IGNORECASE), re.compile(limit, re.IGNORECASE)) for form, limit in _FORMS)


def has_hole(text: str) -> bool:
    """Whether an editor wants to know what belongs in a place of a text."""
    return _HOLE.search(text) is not None


def is_side_question(text: str, instructions: str = "") -> bool:
    """Whether a program asks for itself, by the last message and the first system text that came with it."""
    text, instructions = text.lstrip(), instructions.lstrip()
    if _BEGINS.match(text) or has_hole(text) or _IS_TASK.match(instructions):
        return True
    places = (text[:HEAD], text[-TAIL:], instructions[:HEAD])
    return any(form.search(place) and limit.search(place) for place in places for form, limit in _BY_FORM)
