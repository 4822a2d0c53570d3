"""Notes on tool calls: one or two sentences for what each call of a period brought (``summaries.toolCalls``). Pure."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated

import attrs

from klaw.context.repair import calls_of
from klaw.context.shorten import shorten
from klaw.convert import Form
from klaw.domain.message import Kind, Message
from klaw.domain.summary import MAX_NOTE, ToolNote
from klaw.domain.text import quoted, tagged
from klaw.llm.ask_json import BadAnswer, Items, Text, Usable, usable
from klaw.llm.types import ChatMessage
from klaw.memory.asking import question
from klaw.memory.summaries.rendering import TOOL_TOKENS, plain_name

MAX_CALLS = 40
"""Of one summary; the newest are noted."""
NOTE_TOKENS = 80
"""What the answer may use for each."""


@attrs.frozen
class Note:
    """One entry of the answer; ``call`` is the call's key in the prompt."""

    call: Text
    text: Text


@attrs.frozen
class Notes:
    """What the model answers."""

    notes: Annotated[Usable[Note], Form(partial(usable, cls=Note), list), Items(Note)]


@attrs.frozen(kw_only=True)
class Call:
    """A tool call with its result."""

    key: str
    """c1, c2 … in the prompt."""
    seq: int
    id: str
    tool: str
    arguments: str
    result: str


def calls(messages: Sequence[Message]) -> list[Call]:
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
        Call(key=f"c{place}", seq=seq, id=call.id, tool=call.name, arguments=call.arguments, result=results[call.id])
        for place, (seq, call) in enumerate(found[-MAX_CALLS:], 1)
    ]


def notes_prompt(wanted: Sequence[Call]) -> tuple[ChatMessage, ...]:
    """The request for notes on some calls."""
    blocks = (
        f"[{call.key}: call of the tool {plain_name(call.tool)}]\n"
        f"{tagged('arguments', _shown(call.arguments))}\n{tagged('result', _shown(call.result))}"
        for call in wanted
    )
    return question("summarize_tools", "\n\n".join(blocks))


def _shown(text: str) -> str:
    return quoted(shorten(text, TOOL_TOKENS))


def notes_of(answer: Notes, wanted: Sequence[Call]) -> tuple[ToolNote, ...]:
    """The notes of an answer. Unknown ids, second notes on a call and empty ones are left out.

    Raises:
        BadAnswer: it has no note on any of the calls.
    """
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
