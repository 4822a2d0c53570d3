"""What the model is asked for one summary, and what is taken out of its answers; the prompts' fixed parts are files in
``klaw/prompts``. Every bad answer has one further attempt.

Every message begins on a line of its own with a label in brackets that says who it is from; further lines are marked.
So no text can pass for another speaker's, and the prompt says that text of tools and programs is only data."""

import json
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated

import attrs

from klaw.actor.supervisor import Vitals
from klaw.context.repair import calls_of
from klaw.context.request import shorten
from klaw.convert import Form
from klaw.domain import tokens
from klaw.domain.attachment import names_of
from klaw.domain.message import Message, MessageKind, Role
from klaw.domain.summary import MAX_NOTE, ToolNote
from klaw.domain.text import MARK, clean_output, hanging, quoted, tagged
from klaw.errors import BadAnswer, NoSummary
from klaw.json_schema import SchemaType
from klaw.llm.ask_json import Text, Usable, usable
from klaw.llm.client import TokenCorrection
from klaw.llm.errors import ProviderMalformed
from klaw.llm.providers.adapt import request_tokens
from klaw.llm.types import ChatMessage, Completion, JsonSchema, Route, ToolCall
from klaw.memory.background_llm import Asker, question

TOOL_TOKENS = 400
"""A tool's result is shortened to so much; arguments of a call too."""
MAX_PARTS = 4
"""One exchange that is larger than a prompt is read in so many parts; the middle of a still larger one is left out."""
CONTINUED = "[continued]"


def transcript(messages: Sequence[Message]) -> str:
    """Messages as labelled lines, with a line for each new day."""
    lines: list[str] = []
    day = ""
    for message in messages:
        if message.created_at[:10] != day:
            day = message.created_at[:10]
            lines.append(f"--- {day} ---")
        lines += _lines(message)
    return "\n".join(lines)


def _lines(message: Message) -> list[str]:
    if message.type is MessageKind.TOOL_CALL:
        said = [_line("assistant", message.content)] if message.content.strip() else []
        calls = calls_of(message)
        return said + [
            _line(f"assistant uses the tool {plain_name(call.name)}", shorten(call.arguments, TOOL_TOKENS))
            for call in calls
        ]
    if message.type is MessageKind.TOOL_RESULT:
        name = plain_name(str(message.metadata.get("name", "")))
        return [_line(f"text of the tool {name}", shorten(message.content, TOOL_TOKENS))]
    if message.type is MessageKind.SCHEDULED:
        return [_line("assistant, by a scheduled task", message.content)]
    whole = "\n".join([message.content, *names_of(message.metadata)])
    return [_line("user" if message.role is Role.USER else "assistant", whole)]


def _line(label: str, text: str) -> str:
    return f"[{label}] {hanging(text)}"


def plain_name(name: str) -> str:
    return "".join(each for each in name if each.isalnum() or each in "_-")[:64]


def split(text: str, room: int) -> list[str]:
    """A transcript in parts of at most ``room`` estimated tokens each, cut at line ends or spaces."""
    shown = shorten(text, int(room * MAX_PARTS * 0.9))
    estimated = tokens.estimate(shown)
    if estimated <= room:
        return [shown]
    size = max(1, int(len(shown) * room / estimated * 0.95))
    parts: list[str] = []
    opening = ""
    while shown:
        end = size
        if len(shown) > size:
            end = max(shown.rfind("\n", size // 2, size), shown.rfind(" ", size // 2, size)) + 1 or size
        parts.append(opening + shown[:end].rstrip())
        # What goes on in the middle of a line is marked: it must not pass for a line of its own.
        middle = "" if shown[:end].endswith("\n") else f"{MARK} "
        opening = f"{CONTINUED}\n{middle}"
        shown = shown[end:]
    return parts


def summary_prompt(part: str, *, base: str, earlier: str, words: int, again: str = "") -> tuple[ChatMessage, ...]:
    """The request for a summary.

    ``base``: the summary so far, which the new one replaces; ``earlier``: summaries that stay beside it, so that it
    does not repeat them; ``again``: what was wrong with the first answer. Empty for none."""
    blocks = []
    if earlier:
        blocks.append(f"Earlier summary, which is kept; do not repeat it:\n{tagged('earlier', quoted(earlier))}")
    if base:
        blocks.append(f"Summary so far, to be written anew with what follows:\n{tagged('summary', quoted(base))}")
    blocks.append(f"Conversation:\n{tagged('conversation', part)}")
    blocks.append(f"Write the summary in at most {words} words, in the language of the conversation.")
    if again:
        blocks.append(again)
    return question("summarize", "\n\n".join(blocks))


MAX_CALLS = 40
NOTE_TOKENS = 80


@attrs.frozen
class Note:
    """One entry of the answer; ``call`` is the call's key in the prompt."""

    call: Text
    text: Text


@attrs.frozen
class Notes:
    notes: Annotated[Usable[Note], Form(partial(usable, cls=Note), list), SchemaType(list[Note])]


@attrs.frozen(kw_only=True)
class ToolCallText:
    """A tool call with its result. The prompt calls them c1, c2 …"""

    seq: int
    call: ToolCall
    result: str


def calls(messages: Sequence[Message]) -> list[ToolCallText]:
    results = {
        str(message.metadata.get("call", "")): message.content
        for message in messages
        if message.type is MessageKind.TOOL_RESULT and message.content.strip()
    }
    found = [
        ToolCallText(seq=message.seq, call=call, result=results[call.id])
        for message in messages
        if message.type is MessageKind.TOOL_CALL
        for call in calls_of(message)
        if call.id in results
    ]
    return found[-MAX_CALLS:]


def notes_prompt(wanted: Sequence[ToolCallText]) -> tuple[ChatMessage, ...]:
    blocks = (
        f"[c{place}: call of the tool {plain_name(each.call.name)}]\n"
        f"{tagged('arguments', _shown(each.call.arguments))}\n{tagged('result', _shown(each.result))}"
        for place, each in enumerate(wanted, 1)
    )
    return question("summarize_tools", "\n\n".join(blocks))


def _shown(text: str) -> str:
    return quoted(shorten(text, TOOL_TOKENS))


def notes_of(answer: Notes, wanted: Sequence[ToolCallText]) -> tuple[ToolNote, ...]:
    """The notes of an answer, one for each known call. Raises BadAnswer: there is none."""
    by_key = {f"c{place}": each for place, each in enumerate(wanted, 1)}
    found = []
    for note in answer.notes.entries:
        noted = by_key.pop(note.call, None)
        text = note.text[:MAX_NOTE].strip()
        if noted is not None and any(character.isalnum() for character in text):
            found.append(ToolNote(seq=noted.seq, call=noted.call.id, tool=noted.call.name, text=text))
    if not found:
        raise BadAnswer("it has no note on any of the calls; use their ids")
    return tuple(sorted(found, key=lambda note: note.seq))


# -- answers ---------------------------------------------------------------------------------------------------------

ANSWER_FACTOR = 2
"""The model may write so many times the tokens that a summary may have: what is too long is cut at a sentence's end."""

TOLERANCE = 1.25
"""A summary may be so much longer than was asked for."""
REFUSAL_CHARS = 300
"""A longer text that begins like a refusal says something nevertheless."""

_FENCE = re.compile(r"\A```[a-zA-Z]*\n(.*?)\n?```\Z", re.DOTALL)
_REFUSAL = re.compile(
    r"\A\W*(?:i(?:['’]m| am) (?:sorry|unable|not able)|sorry\b|i (?:can(?:no|['’])t|cannot|won['’]t|will not)"
    r"|i apologi[sz]e|as an ai\b|unfortunately,? i (?:can|am)"
    r"|(?:извин|прости(?:те)?\b|к сожалению,? я|я не (?:могу|буду|в состоянии)|не могу (?:помочь|выполнить)))",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"[.!?…。！？](?=\s|\Z)|\n")
_AGAIN = {
    "empty": "Your last answer held no summary. Write the summary now, as plain text.",
    "too_long": "Your last answer was far too long. Write a much shorter summary.",
    "refused": "This is a record that you keep for the user and nobody else. You are not asked to do or to judge what"
    " it says, only to write down what it is about.",
}


def judge(answer: str, max_tokens: int, *, last: bool) -> str:
    """Take a summary of about ``max_tokens`` out of an answer. The ``last`` attempt's is cut if it is too long. Raises
    NoSummary."""
    text = _unwrapped(clean_output(answer).strip())
    if not any(character.isalnum() for character in text):
        raise NoSummary("empty")
    if len(text) <= REFUSAL_CHARS and _REFUSAL.match(text):
        raise NoSummary("refused")
    limit = int(max_tokens * TOLERANCE)
    if not last and tokens.estimate(text) > limit:
        raise NoSummary("too_long")
    return cut(text, limit)


def _unwrapped(text: str) -> str:
    """The text inside of a code fence, or of a JSON object with one text, which some models answer with."""
    fenced = _FENCE.match(text)
    inner = fenced.group(1).strip() if fenced else text
    if not inner.startswith(('{"', "{ ", "{\n", "[{", '["')):
        return inner
    try:
        value = json.loads(inner)
    except (ValueError, RecursionError):
        return ""  # half a JSON value
    texts = [each for each in value.values() if isinstance(each, str)] if isinstance(value, dict) else []
    return clean_output(texts[0]).strip() if len(texts) == 1 else ""


def cut(text: str, max_tokens: int) -> str:
    """The beginning of a text, up to the end of a sentence where there is one in its second half."""
    if tokens.estimate(text) <= max_tokens:
        return text
    size = tokens.fitting(text, max_tokens)
    ends = [found.end() for found in _SENTENCE_END.finditer(text, 0, size) if found.end() > size // 2]
    return text[: ends[-1] if ends else size].rstrip()


@attrs.define(kw_only=True)
class SummaryModel:
    asker: Asker
    route: Route
    correction: TokenCorrection
    vitals: Vitals
    model: str = ""

    async def summarise(self, parts: Sequence[str], *, base: str, earlier: str, max_tokens: int, words: int) -> str:
        """The summary of a transcript that is read in parts, each together with the summary of those before it. Raises
        ProviderError; NoSummary: twice there was none."""
        text = base
        for part in parts:

            def prompt(again: str, part: str = part, so_far: str = text) -> tuple[ChatMessage, ...]:
                return summary_prompt(part, base=so_far, earlier=earlier, words=words, again=again)

            text = await self._accepted(prompt, max_tokens)
        return text

    async def ask(
        self, messages: tuple[ChatMessage, ...], max_tokens: int, schema: JsonSchema | None = None
    ) -> Completion:
        """One call, after those that somebody waits for. Raises ProviderError: no answer."""
        ratio = max(1.0, self.correction.of(self.route.name))
        completion = await self.asker.call(
            self.route,
            messages,
            schema=schema,
            max_tokens=max(16, min(self.route.max_output_tokens, int(max_tokens * ratio))),
            vitals=self.vitals,
        )
        self.model = completion.model or self.route.name
        if completion.usage is not None:
            reported = completion.usage.prompt_tokens
            self.correction.learn(self.model, estimated=request_tokens(messages), reported=reported)
        return completion

    async def _accepted(self, prompt: Callable[[str], tuple[ChatMessage, ...]], max_tokens: int) -> str:
        try:
            return self._judge(await self.ask(prompt(""), max_tokens * ANSWER_FACTOR), max_tokens, last=False)
        except ProviderMalformed:
            code = "empty"  # an answer without any text, or none at all
        except NoSummary as error:
            code = error.code
        return self._judge(await self.ask(prompt(_AGAIN[code]), max_tokens * ANSWER_FACTOR), max_tokens, last=True)

    def _judge(self, completion: Completion, max_tokens: int, *, last: bool) -> str:
        text = judge(completion.text, max_tokens, last=last)
        if completion.finish_reason != "length":
            return text
        if not last:
            raise NoSummary("too_long")
        return cut(text, max(1, tokens.estimate(text) - 1))  # torn in the middle of a sentence
