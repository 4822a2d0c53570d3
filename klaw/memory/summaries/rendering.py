"""The prompts of the summarizer, and the notes on tool calls that it takes out of an answer. Pure; their fixed parts
are files in ``klaw/prompts``.

Every message begins on a line of its own with a label in brackets that says who it is from; further lines are marked.
So no text can pass for another speaker's, and the prompt says that text of tools and programs is only data."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated

import attrs

from klaw.context.repair import calls_of
from klaw.context.request import shorten
from klaw.convert import Form
from klaw.domain import tokens
from klaw.domain.attachment import names_of
from klaw.domain.message import Kind, Message, Role
from klaw.domain.summary import MAX_NOTE, ToolNote
from klaw.domain.text import MARK, hanging, quoted, tagged
from klaw.errors import BadAnswer
from klaw.json_schema import SchemaType
from klaw.llm.ask_json import Text, Usable, usable
from klaw.llm.types import ChatMessage
from klaw.memory.background_llm import question

TOOL_TOKENS = 400
"""A tool's result is shortened to so much; arguments of a call too."""
MAX_PARTS = 4
"""One exchange that is larger than a prompt is read in so many parts; the middle of a still larger one is left out."""
CONTINUED = "[continued]"
EMPTY_AGAIN = "Your last answer held no summary. Write the summary now, as plain text."
TOO_LONG_AGAIN = "Your last answer was far too long. Write a much shorter summary."
REFUSED_AGAIN = (
    "This is a record that you keep for the user and nobody else. You are not asked to do or to judge what it says,"
    " only to write down what it is about."
)


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
    if message.type is Kind.TOOL_CALL:
        said = [_line("assistant", message.content)] if message.content.strip() else []
        calls = calls_of(message)
        return said + [
            _line(f"assistant uses the tool {plain_name(call.name)}", shorten(call.arguments, TOOL_TOKENS))
            for call in calls
        ]
    if message.type is Kind.TOOL_RESULT:
        name = plain_name(str(message.metadata.get("name", "")))
        return [_line(f"text of the tool {name}", shorten(message.content, TOOL_TOKENS))]
    if message.type is Kind.SCHEDULED:
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
"""Calls that one summary notes: the newest."""
NOTE_TOKENS = 80
"""What the answer may use for each."""


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
    """A tool call with its result. ``key``: c1, c2 … in the prompt."""

    key: str
    seq: int
    id: str
    tool: str
    arguments: str
    result: str


def calls(messages: Sequence[Message]) -> list[ToolCallText]:
    """The calls of some whole exchanges that have a result."""
    results = {
        str(message.metadata.get("call", "")): message.content
        for message in messages
        if message.type is Kind.TOOL_RESULT and message.content.strip()
    }
    found = [
        (message.seq, call)
        for message in messages
        if message.type is Kind.TOOL_CALL
        for call in calls_of(message)
        if call.id in results
    ]
    return [
        ToolCallText(
            key=f"c{place}", seq=seq, id=call.id, tool=call.name, arguments=call.arguments, result=results[call.id]
        )
        for place, (seq, call) in enumerate(found[-MAX_CALLS:], 1)
    ]


def notes_prompt(wanted: Sequence[ToolCallText]) -> tuple[ChatMessage, ...]:
    blocks = (
        f"[{call.key}: call of the tool {plain_name(call.tool)}]\n"
        f"{tagged('arguments', _shown(call.arguments))}\n{tagged('result', _shown(call.result))}"
        for call in wanted
    )
    return question("summarize_tools", "\n\n".join(blocks))


def _shown(text: str) -> str:
    return quoted(shorten(text, TOOL_TOKENS))


def notes_of(answer: Notes, wanted: Sequence[ToolCallText]) -> tuple[ToolNote, ...]:
    """The notes of an answer. Unknown ids, second notes on a call and empty ones are left out. Raises BadAnswer: it has
    no note on any of the calls."""
    by_key = {call.key: call for call in wanted}
    found = []
    for note in answer.notes.entries:
        call = by_key.pop(note.call, None)
        text = note.text[:MAX_NOTE].strip()
        if call is not None and any(character.isalnum() for character in text):
            found.append(ToolNote(seq=call.seq, call=call.id, tool=call.tool, text=text))
    if not found:
        raise BadAnswer("it has no note on any of the calls; use their ids")
    return tuple(sorted(found, key=lambda note: note.seq))
