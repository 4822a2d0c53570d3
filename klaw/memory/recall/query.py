"""What a query says of itself: what it asks for, of whom, of when; whether it is a command or small talk. Pure.

A query made of function words and small talk ("ok, thanks!", «ну ладно, спасибо», "好的，谢谢", "👍") recalls nothing.
The words are compared in their index form (folded, stemmed), so one entry covers its inflections. In a run of
characters without spaces, small talk counts when the whole run is made of it, and function words are where the run is
cut into parts.

Some words mean something in company ("the job interview") but not among themselves ("good job", "have a nice day"):
without a heavier word a query recalls nothing, unless it asks about the user ("What is my job?"). One heavier word
changes that only in a question about something else than the model.
"""

import re
from collections.abc import Iterable, Iterator
from datetime import date, tzinfo
from functools import lru_cache

import attrs

from klaw.domain.days import Period, find_periods, local_day
from klaw.store.engine import tokenizer
from klaw.store.engine.tokenizer import stem, words
from klaw.store.engine.traits import NAME, NUMBER, TIME

_COMMAND = re.compile(
    r"""\W*(?:please\s+|can\ you\s+|could\ you\s+|пожалуйста,?\s+)?
    (?:tell\ me\ an?\b|tell\ us\ an?\b|write\b|compose\b|translate\b|sing\b|generate\b|calculate\b|compute\b|convert\b
      |define\b|spell\b|count\b|rhyme\b|draw\b|explain\b|summari[sz]e\b
      |what\ time\ is\ it\b|what(?:'s|\ is)\ the\ (?:time|date)\b(?!\ of)|what\ day\ is\ (?:it|today)\b
      |расскажи\ (?:анекдот|шутку|сказку|что-нибудь)|напиши\b|сочини\b|переведи\b|спой\b|придумай\b|посчитай\b
      |вычисли\b|сгенерируй\b|нарисуй\b|объясни\b|который\ (?:сейчас\ )?час\b
      |сколько\ (?:сейчас\ )?времени\W*$|как(?:ое|ой)\ сегодня\ (?:число|день))""",
    re.VERBOSE | re.IGNORECASE,
)
_SUM = re.compile(r"\d\s*[+*×÷^]\s*\d|\d\s+[-−/]\s+\d|\d\s?%\s(?:of|от)\s\d")


def is_command(query: str) -> bool:
    """Whether a query tells the model to do something that needs nothing from the conversation: one that speaks of the
    user or of the conversation ("write to my sister about …") does not."""
    if is_sum(query):
        return True
    match = _COMMAND.match(query)
    return match is not None and not is_about_us(query, match.end())


def is_sum(query: str) -> bool:
    """Whether a query has something to calculate: its numbers then say nothing about the conversation."""
    return _SUM.search(query) is not None


MAX_WORDS = 64
"""Content words of a query that full text looks for; a longer query is cut."""
MAX_READ_CHARACTERS, MAX_NAMES_CHARACTERS = 8_000, 2_000
"""Only the beginning of a longer query (a pasted text) is read, and looked through for names: more takes too long."""


_ASKS_FOR = tuple(
    (trait, re.compile(rf"\b(?:{pattern})\b", re.IGNORECASE | re.VERBOSE))
    for trait, pattern in (
        (
            TIME,
            r"""when|what\ (?:day|date|time|year|month)|how\ (?:long|old)
            |когда|какого\ числа|в\ как(?:ом|ой|ие|ое)\ (?:год\w*|месяц\w*|день|дни|время)|во\ сколько|как\ давно
            |сколько\ (?:времени|лет|дней|недель|месяцев)|как(?:ой|ого|ое)\ (?:день|год\w*|месяц\w*|числ\w+)""",
        ),
        (
            NUMBER,
            r"""how\ (?:many|much|often|long|old|far|big|tall|high|heavy)
            |сколько|сколькими|скольких|как\ (?:часто|давно|долго|далеко)|насколько|как(?:ой|ого|ая|ое)\ (?:длин\w+
            |возраст\w*|рост\w*|вес\w*|номер\w*|сумм\w+|цен\w+)|почём|почем""",
        ),
        (
            NAME,
            r"""who|whom|whose|where|which|what\ (?:city|country|place|name|town)|what(?:'s|\ is)\ the\ name
            |кто|кого|кому|кем|ком|чей|чья|чь[её]|чьи|где|куда|откуда|в\ как(?:ом|ой|ую)\ (?:город\w*|стран\w+|мест\w+)
            |как\ (?:зовут|звали|называ\w+|назвал\w*)|какой\ город|какая\ страна""",
        ),
    )
)


@attrs.frozen(kw_only=True)
class Query:
    words: tuple[str, ...]
    content_stems: frozenset[str]
    stems: frozenset[str]
    """The stems of all its words: names may be among them."""
    command: bool
    periods: tuple[Period, ...]
    asks_for: int = 0
    """``store.engine.traits`` that an answer has: a time, a number, a name."""
    zone: tzinfo | None = None
    """Of ``periods``; None: the machine's."""


def read_query(text: str, now: float, latest: date | None, zone: tzinfo | None = None) -> Query:
    """``now`` (Unix seconds) says what "yesterday" is in a zone (None: the machine's), ``latest`` when something was
    last said in the scope."""
    text = text[:MAX_READ_CHARACTERS]
    today = local_day(now, zone)
    asked = _asked(text)
    return Query(
        words=tuple(asked),
        content_stems=frozenset(stem(word) for word in asked),
        stems=frozenset(stem(word) for word in words(text[:MAX_NAMES_CHARACTERS])),
        command=is_command(text),
        periods=find_periods(text, today=today, latest=latest or today),
        asks_for=sum(trait for trait, pattern in _ASKS_FOR if pattern.search(text[:MAX_NAMES_CHARACTERS])),
        zone=zone,
    )


def _asked(text: str) -> list[str]:
    asked = content_words(text, MAX_WORDS)
    if is_sum(text):
        asked = [word for word in asked if not word.isdecimal()]
    return [] if is_light(text, map(stem, asked)) else asked


def read_search_words(text: str) -> list[str]:
    """The words that a search which somebody asked for looks for: content words, or else whatever there is."""
    said: dict[str, str] = {}
    for word in search_words(text[:MAX_READ_CHARACTERS]):
        said.setdefault(stem(word), word)
    content = {stem(word) for word in content_words(text, MAX_WORDS)}
    telling = [word for form, word in said.items() if form in content or not any(map(str.isalnum, word))]
    return (telling or list(said.values()))[:MAX_WORDS]


_ENGLISH = """
a about above after again against all also am an and any anyone anything are as at be because been before below between
both but by can cannot could did do does done down during each either else ever every few for from further get give go
goes gone got had has have he her here herself him himself his how i if in into is it itself just know let like made
make many may maybe me might mine more most much must my myself never no nor not nothing now of off on once one only or
other our out over own please put rather really said same say see she should since so some someone something still such
take tell than that the their them then there these they thing this those though through to too under until up upon us
use very want was we well went were what whatever when where whether which while who whom whose why will with within
without would yes yet you your ve ll re don didn doesn isn aren wasn weren won wouldn shouldn couldn haven hasn t s d m
"""
_ENGLISH_SMALL_TALK = """
ok okay okey yeah yep yup nope nah sure thanks thx ty welcome hi hello hey bye goodbye morning evening night good great
nice cool fine awesome perfect wonderful lovely haha hahaha lol lmao hmm hm um uh oh ah wow alright right sounds help
appreciate glad continue proceed lot bit course worries problem cheers kidding funny sorry agreed exactly indeed true
"""
_RUSSIAN = """
а без более больше будем будет будешь будут бы был быть в вам вас ваш ведь весь во вот все всегда всего всем всех вы где
да даже для до его ее ему если есть еще же за здесь и из или им их к как ко когда который кто кого куда ли либо лишь мне
много мной могу может можно мой мы на над нам нас наш не него нельзя нет ни них но ну о об один одна он от очень перед
по под после потом почему при про с сам свой себе сейчас со так также там те тебе тем теперь то тобой тогда того тоже
только том тот тут ты у уже хочу хотел чего чей чем через что чтоб чье чья эта этот могла скажи расскажи напомни знаешь
нужно кем сколько я твой
"""
_RUSSIAN_SMALL_TALK = """
ок ага угу спасибо благодарю пожалуйста привет здравствуй пока хай доброе утро вечер день спокойной ночи хорошо ладно
ясно понятно понял круто класс классно супер отлично прекрасно здорово давай продолжай дальше хаха ахах лол хм эм ого
точно верно конечно согласен согласна рад помощь сделаем нормально
"""


_FUNCTION_RUNS = """
的 了 吗 呢 吧 啊 呀 嘛 是 我 你 您 他 她 它 们 很 我们 你们 他们 她们 咱们 这 那 这个 那个 这些 那些 这里 那里 什么
怎么 怎样 怎么样 为什么 哪 哪里 哪儿 哪个 哪些 谁 多少 是不是 有没有 在哪里 在哪儿 可以 告诉 知道 一下 请问 什么时候
时候 記得 记得 還 还是 因为 所以 但是 這 這個 那個 這裡 那裡 什麼 怎麼 怎麼樣 為什麼 哪裡 哪裏 誰 嗎 們 我們 你們 他們
告訴 什麼時候 時候 です ですか でした でしたか でしょう でしょうか ます ますか ました ましたか ません ませんか ください
くださいね ている ていた ています これ それ あれ この その あの ここ そこ どこ いつ だれ 何 なに なん なんですか どう
どうやって どの どれ どんな なぜ いくつ いくら ある あります ありますか いる います いますか という って について とは
には では から まで より こと もの 私 僕 俺 あなた わたし 教えて おしえて 覚えて ね よ อะไร ที่ไหน ไหน เมื่อไหร่ เมื่อไร ใคร
ทำไม อย่างไร ยังไง เท่าไหร่ เท่าไร ครับ ค่ะ ผม ฉัน ดิฉัน คุณ เรา เขา เธอ ของ ที่ และ หรือ เป็น อยู่ ไหม มั้ย แล้ว กับ นี้ นั้น ແມ່ນ
ຫຍັງ ຢູ່ ໃສ ຂອງ ຂ້ອຍ ເຈົ້າ តើ អ្វី ខ្ញុំ នៅ របស់ ឯណា ဘာ ဘယ် လဲ ကျွန်တော် ကျွန်မ 입니다 입니까 습니다 습니까 합니다 합니까 했습니다
인가요 나요 무엇 뭐예요 뭐야 어디 언제 누구 어떻게 어떤 우리 당신 그것 이것
"""
_HIRAGANA = "".join(map(chr, range(0x3041, 0x3097)))
_JAPANESE_PARTICLES = "はがをにでともへやかねよの"
_KOREAN_PARTICLES = """
에서는 에게서 으로는 이라고 에서 에게 한테 으로 이랑 하고 까지 부터 처럼 보다 은 는 이 가 을 를 에 의 도 로 과 와 만
"""
_SMALL_TALK_RUNS = """
好 好的 好吧 好啊 好呀 嗯 嗯嗯 哦 噢 喔 哈 哈哈 哈哈哈 嘿 嘿嘿 对 对的 對 对啊 不 不是 不对 不用 不客气 不客氣 没事
没关系 没问题 沒問題 沒關係 行 谢谢 謝謝 多谢 感谢 你好 您好 大家好 早 早安 早上好 晚安 晚上好 下午好 再见 再見 拜拜
明白 明白了 知道了 了解 收到 继续 繼續 太好了 太棒了 真棒 真的 不错 厉害 当然 當然 同意 辛苦 非常 麻烦 抱歉 对不起
對不起 是的 没有 有 はい いいえ うん ううん ええ いや ありがとう ありがとうございます ありがとうございました どうも
おはよう おはようございます こんにちは こんばんは おやすみ おやすみなさい さようなら またね じゃあね よろしく
よろしくお願いします お願いします お願い ごめん ごめんなさい すみません 了解です わかった わかりました 分かった
分かりました 承知しました なるほど そう そうだね そうですね そうなんだ すごい すごいね いいね いいですね 大丈夫
大丈夫です もちろん やった 笑 続けて なし オッケー オーケー ขอบคุณ ขอบคุณมาก มาก สวัสดี หวัดดี ใช่ ไม่ใช่ ไม่ ได้ โอเค ตกลง
เข้าใจ ดี ดีมาก ดีจัง เยี่ยม ลาก่อน ขอโทษ ไม่เป็นไร ราตรีสวัสดิ์ ฮ่า นะ คะ จ้า จ้ะ ຂອບໃຈ ສະບາຍດີ ຫຼາຍໆ ອໍເຄ អរគុណ សួស្តី
ជំរាបសួរ ច្រើន បាទ ចាស ကျေးဇူးတင်ပါတယ် ကျေးဇူး မင်္ဂလာပါ ဟုတ်ကဲ့ ခင်ဗျာ ရှင် 네 예 응 어 아니 아니요 아니오 고마워 고마워요 감사
감사합니다 감사해요 안녕 안녕하세요 안녕히 계세요 가세요 잘 자요 잘자 좋아 좋아요 좋습니다 그래 그래요 알겠습니다
알겠어요 알았어 오케이 미안 미안해요 죄송합니다 괜찮아 괜찮아요 물론 물론이죠 정말 진짜 ㅋㅋ ㅋㅋㅋ ㅎㅎ ㅎㅎㅎ ㅇㅇ
ㅇㅋ
"""


@lru_cache(maxsize=1)
def _empty_stems() -> frozenset[str]:
    lists = (_ENGLISH, _ENGLISH_SMALL_TALK, _RUSSIAN, _RUSSIAN_SMALL_TALK)
    return frozenset(stem(word) for text in lists for word in text.split())


@lru_cache(maxsize=1)
def _small_talk_at() -> tuple[re.Pattern[str], ...]:
    said = set((_SMALL_TALK_RUNS + _FUNCTION_RUNS).split())
    lengths = sorted({len(word) for word in said})
    return tuple(re.compile(_any_of(" ".join(word for word in said if len(word) == length))) for length in lengths)


def _is_small_talk(run: str) -> bool:
    """Whether a run is made of such words, each place looked at once: a repeated pattern never ends on a long one."""
    ends = {0}
    for place in range(len(run)):
        if place > max(ends):
            return False
        if place in ends:
            ends.update(found.end() for each in _small_talk_at() if (found := each.match(run, place)))
    return len(run) in ends


def _any_of(text: str) -> str:
    """Pattern of any of the words of a list, the longest first, never ending inside a character."""
    ordered = sorted(set(text.split()), key=len, reverse=True)
    return f"(?:{'|'.join(map(re.escape, ordered))})(?!{tokenizer.MARK})"


@lru_cache(maxsize=1)
def _cuts() -> re.Pattern[str]:
    hangul, hiragana = "[\uac00-\ud7a3]", f"[{_HIRAGANA}]"
    particle = f"(?<!{hiragana})[{_JAPANESE_PARTICLES}](?!{hiragana})"  # one that stands between other characters
    ending = f"(?<={hangul}{{2}})(?:{'|'.join(_KOREAN_PARTICLES.split())})$"
    return re.compile(f"{_any_of(_FUNCTION_RUNS)}|{particle}|{ending}")


def _parts(run: str) -> Iterator[str]:
    """What is left of a run between its function words, in pairs of characters; nothing when it is all small talk."""
    if _is_small_talk(run):
        return
    begin = 0
    for function_word in (*_cuts().finditer(run), None):
        end = function_word.start() if function_word else len(run)
        part = run[begin:end]
        if not (len(part) == 1 and part in _HIRAGANA):
            yield from tokenizer.pairs(part)
        begin = function_word.end() if function_word else end


def search_words(text: str) -> Iterator[str]:
    """The words of a query as written, also function words, small talk and emoji; runs in pairs of characters."""
    for segment, is_run in tokenizer.segments(text):
        if is_run:
            yield from tokenizer.pairs(segment)
        else:
            yield segment


def content_words(text: str, limit: int) -> list[str]:
    """The first ``limit`` words of a text that say what it is about, as written, each stem once; runs in pairs of
    characters. Emoji are no content, nor is a text of a single letter ("k")."""
    found: dict[str, str] = {}
    if len(text) == 1 and not tokenizer.is_lone(text) and not text.isdigit():
        return []
    for word in _said(text[:MAX_READ_CHARACTERS]):
        found.setdefault(stem(word), word)
        if len(found) == limit:
            break
    return list(found.values())


def _said(text: str) -> Iterator[str]:
    empty = _empty_stems()
    for segment, is_run in tokenizer.segments(text):
        if is_run:
            yield from _parts(segment)
        elif stem(segment) not in empty and any(map(str.isalnum, segment)):
            yield segment


_LIGHT_ENGLISH = """
today tomorrow tonight week weekend month year day hour minute moment second sec time date noon afternoon later soon
next last first back ahead wait stop start begin keep try retry repeat finish end ready example detail short shorter
long longer brief briefly simple simpler simply easy easier hard clear clearer sense mean mind forget bad worse worst
better best fun amazing incredible brilliant excellent fantastic terrific super beautiful interesting boring sad happy
tired busy hungry sleepy hate hope wish guess suppose think thought idea believe feel certain disagree absolutely
definitely totally completely probably possibly perhaps literally honestly seriously actually basically job work news
weather music song story joke poem fact riddle quote word sentence text answer question reply message language english
french german spanish russian italian chinese japanese number robot bot ai human name plan way kind sort type stuff part
point issue trouble matter case fault wrong correct mistake error fair enough congrats congratulations oops ouch yay
hooray phew ugh meh huh eh aha btw omg idk tbh imo brb ttyl gtg pls plz lmk np yw rofl xd merci danke gracias ciao adios
hola bonjour salut meet talk chat speak hear listen look watch read ask show bring create write rewrite rephrase
translate summarize summarise explain describe draw sing count calculate spell convert generate compose play game care
luck fast slow slowly quick little big old new different another don't doesn't didn't won't can't couldn't isn't aren't
wasn't i'm i'll i'd i've they're gotta gonna wanna merry specific elaborate sleep rock deal noted hmmm monday tuesday
wednesday thursday friday saturday sunday christmas easter birthday holiday
"""
_LIGHT_RUSSIAN = """
сегодня сегодняшнее завтра неделя выходные дня дней час минута минутку секунда время времени полдень позже скоро снова
опять раз разок назад вперед следующий стоп стой хватит подожди погоди начни начинай продолжи повтори попробуй закончи
готово готов пример подробнее деталь короче покороче коротко длиннее проще попроще просто легко легче сложно смысл вид
иметь имеешь значит понимаю забудь забей неважно важно плохо хуже лучше весело смешно забавно интересно скучно грустно
устал занят люблю любишь нравится нравлюсь ненавижу думаю подумаю кажется знаю знать уверен правда правильно неправильно
неправ ошибка ошибся прав определенно наверно возможно честно серьезно действительно вообще кстати дело работа новость
новое музыка песня сказка история анекдот шутка стих стихотворение факт загадка цитата слово предложение текст ответ
вопрос сообщение язык английский французский немецкий испанский русский итальянский китайский японский число робот бот
человек звать зовут план идея штука способ тип часть проблема проблем беда вина поздравляю ура ух ничего блин извини
жаль помоги помогло спс пжлст плз хз имхо пон увидимся встретимся поговорим покажи дайте напиши перепиши перефразируй
переведи объясни опиши нарисуй спой посчитай сочини придумай умеешь уметь делаешь играть игра слушай смотри читай жду
удачи молодец молодцы погнали поехали договорились быстро медленно старый другой годится принято пойдет обожаю слышать
уточни встречи пора днем разницы обычно серьезен лет понедельник вторник среда четверг пятница суббота воскресенье
рождество пасха рождения праздником
"""

_ABOUT_US = re.compile(
    r"""\b(?:my|mine|our|ours|we|us|i|i'm|i've|remember|earlier|before|again|last|previous|said|told|discussed|talked
      |мой|моя|моё|мое|мои|моей|моего|моему|моих|мне|меня|мной|мы|нас|нам|наш\w*|я|раньше|ранее|снова|опять|помнишь
      |прошл\w+|говорил\w*|обсуждал\w*|сказал\w*)\b""",
    re.VERBOSE | re.IGNORECASE,
)
_QUESTION = re.compile(
    r"""[?？]|^\W*(?:(?:by|at|in|on|for|from|with|to|of|since|until|до|с|со|в|во|на|у|к|ко|о|об|от|из|за|по|для)\s+)?
      (?:what|who|whom|whose|where|when|which|why|how|did|do|does|is|are|was|were|have|has|remind|recall
      |что|чего|чему|чем|ч[её]м|кто|кого|кому|кем|ком|где|куда|откуда|когда|почему|зачем|как|как(?:ой|ая|ое|ие|ую)
      |как(?:ого|ому|им|ом|их|ими)|котор\w+|сколько|чей|чь[яёеи]|напомни)\b""",
    re.VERBOSE | re.IGNORECASE,
)
_AGAIN = re.compile(r"\b(?:again|last|снова|опять)\b", re.IGNORECASE)
_TO_THE_MODEL = re.compile(
    r"\b(?:you|your|yours|ты|тебя|тебе|тобой|твой|твоя|твоё|твое|твои|вы|вас|ваш\w*)\b", re.IGNORECASE
)
_NAMES = re.compile(
    r"\b(?:(?:my|our)(?!\s+(?:god|goodness|gosh|pleasure|apolog))"
    r"|(?<!боже\ )мо(?:й|я|ё|е|и|ю|его|ей|ему|их|им|ими)|наш\w*|имя|имени|(?<!добрый\ )день)\b",
    re.VERBOSE | re.IGNORECASE,
)
"""Before what is asked for by its name alone: "my address", «имя кошки», «день переезда»."""
_ON_A_TOPIC = re.compile(
    r"\b(?:about|regarding|concerning|tell|show|find|search|look\ up|remind"
    r"|про|о|об|обо|насч[её]т|расскажи|покажи|найди|вспомни|напомни)\b",
    re.IGNORECASE,
)


def is_about_us(text: str, begin: int = 0) -> bool:
    return _ABOUT_US.search(text, begin) is not None


def is_light(text: str, content_stems: Iterable[str]) -> bool:
    """Whether a query is small talk although it has content words, whose stems are given."""
    contents = set(content_stems)
    heavy = contents - _light_stems()
    asks, about_us = _QUESTION.search(text) is not None, is_about_us(_AGAIN.sub("", text))
    if not heavy:
        return not (asks and about_us)
    if len(heavy) > 1 or _ON_A_TOPIC.search(text):
        return False
    if asks:
        return _TO_THE_MODEL.search(text) is not None and not about_us
    # "Kazan" is a topic, "you rock" a remark; "the gate code" has another word that says something.
    return len(contents) == 1 and len(text.split()) > 1 and not _NAMES.search(text)


@lru_cache(maxsize=1)
def _light_stems() -> frozenset[str]:
    return frozenset(stem(word) for text in (_LIGHT_ENGLISH, _LIGHT_RUSSIAN) for word in words(text))
