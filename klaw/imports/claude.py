"""Exports of Claude: ``conversations.json``, one list, of a ZIP or a folder. 175 MB of it are nothing unusual."""

from collections.abc import Iterator
from typing import Any

from klaw.domain.message import Role
from klaw.imports.events import Chat, Event, LeftOut, Message, Unread, moment
from klaw.imports.files import Export
from klaw.imports.json_stream import chats

SOURCE = "claude"
FILES = r"conversations\.json"
_SAID = {"human": Role.USER, "assistant": Role.ASSISTANT}
_MADE = frozenset({"thinking", "redacted_thinking", "tool_use", "tool_result", "token_budget"})


def read(export: Export) -> Iterator[Event]:
    """All chats of an export."""
    return chats(export, FILES, "conversations.json", _chat)


def _chat(found: Any, place: str) -> Iterator[Event]:
    try:
        key, title, messages = found["uuid"], str(found.get("name") or ""), list(found["chat_messages"])
        at = moment(found.get("created_at"))
    except (AttributeError, KeyError, TypeError) as error:
        yield Unread(place, f"is no chat of Claude ({type(error).__name__})")
        return
    if not isinstance(key, str) or not key:
        yield Unread(place, "has no id")
        return
    yield Chat(key=key, title=title)
    for number, message in enumerate(messages, 1):
        try:
            made = list(_message(message, at))
        except (AttributeError, KeyError, TypeError) as error:
            made = [Unread(f"{place}, message {number}", f"has another form than is known ({type(error).__name__})")]
        for each in made:
            at = each.at if isinstance(each, Message) else at
        yield from made


def _message(message: Any, before: str | None) -> Iterator[Event]:
    key, role = str(message["uuid"]), _SAID[message["sender"]]
    blocks = [each for each in message.get("content") or () if each is not None]
    if any(each.get("type") in _MADE for each in blocks):
        yield LeftOut("tools and thoughts")
    # `text` repeats the blocks in words of its own: "This block is not supported …".
    shown = [each.get("text") for each in blocks if each.get("type") == "text"] or [message.get("text")]
    texts = [str(each or "") for each in shown]
    texts += [_attached(each) for each in message.get("attachments") or ()]
    texts += [f"[file: {each['file_name']}]" for each in message.get("files") or () if each.get("file_name")]
    text = "\n".join(each for each in texts if each.strip())
    at = moment(message.get("created_at")) or before
    if text and at is None:
        yield Unread(f"message {key}", "has no time")
    elif text and at is not None:
        yield Message(key=key, role=role, text=text, at=at)


def _attached(found: Any) -> str:
    """An attachment with the text that was read from it; what is pasted has no name."""
    return f"[file: {found.get('file_name') or 'pasted text'}]\n{found.get('extracted_content') or ''}".rstrip()
