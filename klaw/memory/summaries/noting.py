"""Notes on tool calls: one or two sentences for what each call of a period brought (``summaries.toolCalls``). Pure."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from klaw.context.repair import calls_of
from klaw.context.shorten import shorten
from klaw.domain.message import Kind, Message
from klaw.domain.quoting import quoted, tagged
from klaw.domain.summary import MAX_NOTE, ToolNote
from klaw.domain.text import clean_output
from klaw.llm.types import ChatMessage, JsonSchema
from klaw.memory.summaries.rendering import TOOL_TOKENS, plain_name
from klaw.prompts import prompt

MAX_CALLS = 40
"""Of one summary; the newest are noted."""
NOTE_TOKENS = 80
"""What the answer may use for each."""

SCHEMA = JsonSchema(
    name="tool_notes",
    schema={
        "type": "object",
        "properties": {
            "notes": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"call": {"type": "string"}, "text": {"type": "string"}},
                    "required": ["call", "text"],
                    "additionalProperties": False,
                },
            }
        },
        "required": ["notes"],
        "additionalProperties": False,
    },
)

_FENCE = re.compile(r"\A\s*```[a-zA-Z]*\n(.*?)\n?```\s*\Z", re.DOTALL)


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


def notes_prompt(wanted: Sequence[Call], problem: str = "") -> tuple[ChatMessage, ...]:
    """The request for notes on some calls.

    Args:
        wanted: the calls.
        problem: what was wrong with the first answer.
    """
    blocks = [
        f"[{call.key}: call of the tool {plain_name(call.tool)}]\n"
        f"{tagged('arguments', _shown(call.arguments))}\n{tagged('result', _shown(call.result))}"
        for call in wanted
    ]
    if problem:
        blocks.append(f"Your last answer could not be used: {problem}. Answer again, with JSON only.")
    return (
        ChatMessage(role="system", content=prompt("summarize_tools")),
        ChatMessage(role="user", content="\n\n".join(blocks)),
    )


def _shown(text: str) -> str:
    return quoted(shorten(text, TOOL_TOKENS))


class BadNotes(ValueError):
    """The answer is not what was asked for; says what is wrong, for the model, and quotes nothing."""


def read_notes(answer: str, wanted: Sequence[Call]) -> tuple[ToolNote, ...]:
    """The notes of an answer. Unknown ids, second notes on a call and empty ones are left out.

    Raises:
        BadNotes: it is not JSON of that form, or has no note on any of the calls.
    """
    fenced = _FENCE.match(answer)
    try:
        value: Any = json.loads(fenced.group(1) if fenced else answer)
    except (ValueError, RecursionError):
        raise BadNotes("it is not JSON") from None
    items = value.get("notes") if isinstance(value, Mapping) else None
    if not isinstance(items, list):
        raise BadNotes('it has no list "notes"')
    by_key = {call.key: call for call in wanted}
    found = []
    for item in items:
        if not isinstance(item, Mapping) or not isinstance(item.get("text"), str):
            continue
        call = by_key.pop(str(item.get("call")), None)
        text = clean_output(item["text"]).strip()[:MAX_NOTE].strip()
        if call is not None and any(character.isalnum() for character in text):
            found.append(ToolNote(seq=call.seq, call=call.id, tool=call.tool, text=text))
    if not found:
        raise BadNotes("it has no note on any of the calls; use their ids")
    return tuple(sorted(found, key=lambda note: note.seq))
