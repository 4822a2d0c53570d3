"""Exports of ChatGPT: ``conversations.json``, or ``conversations-000.json`` and so on, of a ZIP or a folder.

A conversation is a tree of nodes: an edited question, or an answer that was made again, is a branch. What its user sees
is the way from the root to ``current_node``; the rest was replaced.
"""

import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import attrs

from klaw.domain.message import Role
from klaw.imports.events import Attached, Chat, Event, LeftOut, Message, Unread, moment
from klaw.imports.files import Export, File
from klaw.imports.json_stream import chats

SOURCE = "chatgpt"
FILES = r"conversations(?:[-_ ]?\d+)?\.json"
_ID = re.compile(r"file[-_][0-9A-Za-z]+")
"""In the name of a file of the export: its id, as messages name it."""
_SAID = {"user": Role.USER, "assistant": Role.ASSISTANT}
_MADE = frozenset(
    {
        *("thoughts", "reasoning_recap", "execution_output", "system_error", "model_editable_context"),
        *("user_editable_context", "tether_quote", "tether_browsing_display", "sonic_webpage", "computer_output"),
        "app_pairing_content",
    }
)
"""Contents that nobody said: what models think and tools return."""


def read(export: Export) -> Iterator[Event]:
    """All chats of an export."""
    stored: dict[str, File] = {}
    for file in export.files(r"[^/]*file[-_][^/]*") if export.has_several else ():
        if (own := _ID.search(file.name.rpartition("/")[2])) is not None:
            stored.setdefault(own[0], file)
    return chats(export, FILES, "conversations.json", partial(_chat, stored))


def _chat(stored: Mapping[str, File], found: Any, place: str) -> Iterator[Event]:
    try:
        title = str(found.get("title") or "")
        key = found.get("conversation_id") or found.get("id")
        nodes = _way(found["mapping"], found.get("current_node"))
        times = (found.get("create_time"), found.get("update_time"), *(each.get("create_time") for _, each in nodes))
        at = next(filter(None, map(moment, times)), None)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        yield Unread(place, f"is no chat of ChatGPT ({type(error).__name__})")
        return
    if not isinstance(key, str) or not key:
        yield Unread(place, "has no id")
        return
    yield Chat(key=key, title=title)
    for name, message in nodes:
        try:
            made = _message(name, message, at)
            if isinstance(made, Message):
                made = attrs.evolve(made, files=_files(message, stored))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            made = Unread(f"{place}, message {name}", f"has another form than is known ({type(error).__name__})")
        if isinstance(made, Message):
            at = made.at
        if made is not None:
            yield made


def _way(mapping: Any, current: Any) -> list[tuple[str, Any]]:
    """The messages from the root to the current node. Without one: to the leaf that was made last."""
    if current not in mapping:
        leaves = [name for name, node in mapping.items() if not node.get("children")]
        current = max(leaves or mapping, key=lambda name: (_made(mapping[name]), name), default=None)
    way: list[tuple[str, Any]] = []
    seen: set[str] = set()
    while current in mapping and current not in seen:
        seen.add(current)
        node = mapping[current]
        if node.get("message"):
            way.append((current, node["message"]))
        current = node.get("parent")
    return way[::-1]


def _made(node: Any) -> float:
    at = (node.get("message") or {}).get("create_time")
    return at if isinstance(at, (int, float)) else 0.0


def _message(name: str, message: Any, before: str | None) -> Event | None:
    role = _SAID.get(message["author"]["role"])
    about, content = message.get("metadata") or {}, message["content"]
    if about.get("is_visually_hidden_from_conversation") or about.get("is_user_system_message"):
        return LeftOut("hidden")
    if role is None or content["content_type"] in _MADE or message.get("recipient") not in (None, "all"):
        return LeftOut("instructions, tools and thoughts")
    files = {each.get("id"): each.get("name") for each in about.get("attachments") or ()}
    shown = content.get("parts") or ([content["text"]] if content.get("text") else [])
    texts = [_text(part, files) for part in shown if part is not None]
    named = [f"[file: {name}]" for name in files.values() if name and not any(f": {name}]" in text for text in texts)]
    text = "\n".join(each for each in (*texts, *named) if each.strip())
    if not text:
        return None
    at = moment(message.get("create_time")) or before
    return Message(key=name, role=role, text=text, at=at) if at else Unread(f"message {name}", "has no time")


def _files(message: Any, stored: Mapping[str, File]) -> tuple[Attached, ...]:
    """The files of a message that the export has."""
    listed = (message.get("metadata") or {}).get("attachments") or ()
    named = {str(each.get("id")): str(each.get("name") or "") for each in listed}
    parts = [each for each in message["content"].get("parts") or () if isinstance(each, dict)]
    for pointer in (str(each.get("asset_pointer") or "").rpartition("/")[2] for each in parts):
        named.setdefault(pointer, "")
    found = {own: stored[own] for own in named if own in stored}
    return tuple(attrs.evolve(file.attached(), name=named[own] or file.attached().name) for own, file in found.items())


def _text(part: Any, files: dict[Any, Any]) -> str:
    """A part as text; pictures and recordings are named."""
    if isinstance(part, str):
        return part
    kind, pointer = str(part.get("content_type")), str(part.get("asset_pointer") or "").rpartition("/")[2]
    if kind == "audio_transcription" or isinstance(part.get("text"), str):
        return str(part.get("text") or "")
    if "image" in kind:
        return f"[image: {files.get(pointer) or pointer}]"
    return f"[file: {files.get(pointer) or pointer}]" if pointer and "audio" not in kind else ""
