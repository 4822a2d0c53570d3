"""What ``klaw export`` and ``klaw chats export --json`` write: a file of JSON for each chat."""

from collections.abc import Iterator
from typing import Any

from klaw.domain.message import Kind, Role
from klaw.imports.events import Chat, Event, Message, Unread, moment
from klaw.imports.files import UNREADABLE, Export
from klaw.imports.json_stream import walk

SOURCE = "klaw"
FILES = r"chats/[^/]+\.json"


def read(export: Export) -> Iterator[Event]:
    """All chats of an export, with the ids that their messages have."""
    for file in export.files(FILES, "chats/NAME.json"):
        head, begun = {"name": file.stem, "title": ""}, False
        try:
            with file.open() as stream:
                for place, value in walk(stream, frozenset({"messages.item"})):
                    if place in head and isinstance(value, str):
                        head[place] = value
                    elif place == "messages.item":
                        if not begun:
                            begun = True
                            yield Chat(key=head["name"], title=head["title"], name=head["name"], own_ids=True)
                        yield _message(value, file.name)
        except UNREADABLE as error:
            yield Unread(file.name, str(error))


def _message(found: Any, place: str) -> Event:
    try:
        role, kind, metadata = Role(found["role"]), Kind(found["type"]), dict(found.get("metadata") or {})
        own, text, at = found["id"], found["content"], moment(found["created_at"])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        return Unread(place, f"a message has another form than is known ({type(error).__name__})")
    if at is None or not isinstance(text, str) or not isinstance(own, str):
        return Unread(place, "a message has another form than is known")
    return Message(key=own, role=role, type=kind, text=text, at=at, metadata=metadata)
