"""Making a history a valid sequence of messages, whatever is missing in it. Pure.

Providers refuse a request in which a tool call has no result, a result no call, or two calls one id; a crash, a stop,
or a file that was edited by hand leaves exactly that. What is valid here is valid for OpenAI's and Anthropic's API:

- the first message is the user's, none but an assistant's with calls is empty, and neighbours differ in role, except
  for results;
- directly behind an assistant message with calls stand their results, one for each, in the order of the calls;
- ids are unique and plain, names plain, arguments JSON objects.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence

import attrs

from klaw.domain.message import Message, MessageKind, Role
from klaw.llm.providers.adapt import echo_of
from klaw.llm.types import ChatMessage, Image, ToolCall

INTERRUPTED = "[This call was interrupted: it has no result, and whether it had an effect is unknown.]"
OPENING = "[Earlier messages are left out.]"

EMPTY: Mapping[int, tuple[Image, ...]] = {}

_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def spoken(messages: Iterable[Message], beside: Mapping[int, tuple[Image, ...]] = EMPTY) -> list[ChatMessage]:
    """Stored messages as a request has them, with their pictures by row id; those of no dialogue are left out."""
    found = ((_said(message), beside.get(message.rowid, ())) for message in messages)
    return [
        attrs.evolve(said, images=images) if images and said.role == "user" else said  # no provider takes others
        for said, images in found
        if said is not None
    ]


def _said(message: Message) -> ChatMessage | None:
    match message.role, message.type:
        case (Role.ASSISTANT, MessageKind.TOOL_CALL):
            echo = echo_of(message.metadata)
            return ChatMessage(role="assistant", content=message.content, tool_calls=calls_of(message), echo=echo)
        case (Role.TOOL, MessageKind.TOOL_RESULT):
            return ChatMessage(role="tool", content=message.content, tool_call_id=str(message.metadata.get("call", "")))
        case (Role.USER | Role.ASSISTANT as role, MessageKind.TEXT | MessageKind.SCHEDULED):
            if role is Role.USER:
                return ChatMessage(role="user", content=message.content)
            return ChatMessage(role="assistant", content=message.content, echo=echo_of(message.metadata))
        case _:
            return None


def calls_of(message: Message) -> tuple[ToolCall, ...]:
    """The calls in a message's metadata; what does not look like one is left out."""
    found = message.metadata.get("calls")
    return tuple(
        ToolCall(id=call["id"], name=call["name"], arguments=call["arguments"])
        for call in (found if isinstance(found, list) else ())
        if isinstance(call, dict) and all(isinstance(call.get(part), str) for part in ("id", "name", "arguments"))
    )


def repair(messages: Sequence[ChatMessage]) -> tuple[ChatMessage, ...]:
    """Put a request's dialogue (without system messages) in order. Results are moved behind their calls, calls without
    one get ``INTERRUPTED``, results without a call are dropped, and neighbours of one role are joined."""
    out: list[ChatMessage] = []
    taken: set[str] = set()
    for message, results in _matched(messages):
        if not message.tool_calls and not message.content.strip():
            continue
        if not out and message.role != "user":
            out.append(ChatMessage(role="user", content=OPENING))
        calls = tuple(_plain_call(call, taken) for call in message.tool_calls)
        _add(out, attrs.evolve(message, tool_calls=calls, tool_call_id=None))
        for place, call in enumerate(calls):
            content = results.get(place, "")
            out.append(
                ChatMessage(role="tool", content=content if content.strip() else INTERRUPTED, tool_call_id=call.id)
            )
    return tuple(out)


def _matched(messages: Sequence[ChatMessage]) -> list[tuple[ChatMessage, dict[int, str]]]:
    """All messages but results, each with those of its calls by place; of calls with one id the newest comes first."""
    found: list[tuple[ChatMessage, dict[int, str]]] = []
    waiting: dict[str, list[tuple[dict[int, str], int]]] = {}
    for message in messages:
        if message.role == "tool":
            places = waiting.get(message.tool_call_id or "")
            if places:
                results, place = places.pop()
                results[place] = message.content
            continue
        results = {}
        found.append((message, results))
        # Reversed: two calls of one message with the same id get their results in order.
        for place, call in reversed(list(enumerate(message.tool_calls))):
            waiting.setdefault(call.id, []).append((results, place))
    return found


def _add(out: list[ChatMessage], message: ChatMessage) -> None:
    before = out[-1] if out else None
    if before is None or before.role != message.role:
        out.append(message)
        return
    content = "\n".join(part for part in (before.content, message.content) if part)
    images = before.images + message.images
    echo = message.echo or (None if message.tool_calls else before.echo)
    out[-1] = attrs.evolve(before, content=content, tool_calls=message.tool_calls, echo=echo, images=images)


def _plain_call(call: ToolCall, taken: set[str]) -> ToolCall:
    own = call.id if _ID.fullmatch(call.id) else "call"
    number, free = 2, own
    while free in taken:
        free, number = f"{own[:32]}_{number}", number + 1
    taken.add(free)
    name = call.name if _NAME.fullmatch(call.name) else "unknown"
    return ToolCall(id=free, name=name, arguments=call.arguments if _is_object(call.arguments) else "{}")


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False
