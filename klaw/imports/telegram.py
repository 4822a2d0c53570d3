"""Exports of Telegram Desktop as JSON: ``result.json`` of one chat, or of the whole account.

A chat of many years is one list, so its messages are read one by one, and what stands before the list is its head.
"""

import datetime as dt
from collections.abc import Iterator
from typing import Any

import attrs

from klaw.domain.message import Role
from klaw.domain.text import cut, normalized, one_line
from klaw.imports.events import Chat, Event, ImportRefused, LeftOut, Message, Unread, moment
from klaw.imports.files import UNREADABLE, Export, File
from klaw.imports.json_stream import walk

SOURCE = "telegram"
FILES = r"result\.json"
_LISTS = ("", "chats.list.item.", "left_chats.list.item.")
_MESSAGES = frozenset(f"{each}messages.item" for each in _LISTS)
_HEADS = {f"{each}{name}": name for each in _LISTS for name in ("name", "type", "id")}
_OWN_ID = "personal_information.user_id"
MOST_NAMED = 12
"""Senders who are named where somebody has to say who they are."""


def read(export: Export, me: str | None, zone: dt.tzinfo | None) -> Iterator[Event]:
    """All chats of an export.

    Args:
        export: what was given.
        me: the name of the person whose export it is, where the export does not say it.
        zone: of times without one, in exports of earlier versions; None: the machine's own.

    Raises:
        ImportRefused: the export does not say whose it is, and nobody else did.
    """
    for file in export.files(FILES, "result.json"):
        reader = _Reader(file, me, zone)
        try:
            with file.open() as stream:
                for place, value in walk(stream, _MESSAGES):
                    yield from reader.take(place, value)
            yield from reader.begin()
        except UNREADABLE as error:
            yield Unread(f"{file.name}, after message {reader.last} of {reader.title}", str(error))


@attrs.define(eq=False)
class _Reader:
    _file: File
    _me: str | None
    _zone: dt.tzinfo | None
    last: object = 0
    _own: str = ""
    """The account's own ``from_id``, where the export has it."""
    _head: dict[str, Any] = attrs.Factory(dict)
    _begun: bool = True

    @property
    def title(self) -> str:
        head = self._head
        if head.get("type") == "saved_messages":
            return str(head.get("name") or "Saved messages")
        return str(head.get("name") or f"Deleted account {head.get('id', '')}".rstrip())

    def take(self, place: str, value: Any) -> Iterator[Event]:
        """Take a value of the document."""
        if place == _OWN_ID:
            self._own = f"user{value}"
        elif place in _HEADS:
            name = _HEADS[place]
            if name in self._head or self._begun:
                self._head = {}
            self._head[name], self._begun = value, False
        elif place in _MESSAGES:
            yield from self.begin()
            try:
                self.last = value.get("id")
                yield from self._message(value)
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                what = f"{self.title}, message {self.last}"
                yield Unread(what, f"has another form than is known ({type(error).__name__})")

    def begin(self) -> Iterator[Event]:
        """Begin the chat whose head was read, unless that was done."""
        if not self._begun:
            self._begun = True
            yield Chat(key=str(self._head.get("id", self.title)), title=self.title, people=True)

    def _message(self, found: Any) -> Iterator[Event]:
        if found.get("type") != "message":
            yield LeftOut("notices")
            return
        text = _text(found)
        if not text:
            return
        at = moment(_number(found.get("date_unixtime"))) or moment(found.get("date"), self._zone)
        if at is None:
            yield Unread(f"{self.title}, message {self.last}", "has no time")
            return
        files = []
        for name in _files(found):
            file = self._file.beside(name)
            if file is not None:
                files.append(file)
            else:
                yield Unread(f"{self.title}, message {self.last}", f"{cut(one_line(name), 60)} is not in the export")
        own, sender = self._is_own(found), one_line(str(found.get("from") or "Deleted account"))
        role = Role.USER if own else Role.ASSISTANT
        yield Message(
            key=str(found["id"]), role=role, text=text if own else f"{sender}: {text}", at=at, files=tuple(files)
        )

    def _is_own(self, found: Any) -> bool:
        """Whether the person whose export it is wrote a message."""
        name, kind, sender = one_line(str(found.get("from") or "")), self._head.get("type"), found.get("from_id")
        if isinstance(sender, int):  # of earlier versions
            sender = f"user{sender}"
        if self._me is not None:
            return _alike(self._me) in (_alike(name), _alike(str(sender)))
        if kind == "saved_messages":
            return True
        if self._own:
            return bool(sender == self._own)
        if kind in ("personal_chat", "bot_chat"):  # its id is that of the other one
            return bool(sender != f"user{self._head.get('id')}")
        raise ImportRefused(f"{self._file.name}: does not say who you are: give --me NAME; in it are {self._senders()}")

    def _senders(self) -> str:
        names: dict[str, None] = {}
        with self._file.open() as stream:
            for place, value in walk(stream, _MESSAGES):
                if place in _MESSAGES and isinstance(value, dict) and value.get("from"):
                    names[cut(one_line(str(value["from"])), 40)] = None
                if len(names) > MOST_NAMED:
                    return f"{', '.join(list(names)[:MOST_NAMED])} and others"
        return ", ".join(names)


def _alike(name: str) -> str:
    return normalized("NFC", name).casefold()


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def _files(found: Any) -> list[str]:
    """Where the files of a message are; not of stickers, and not those of which the export says that it has none."""
    if found.get("media_type") == "sticker":
        return []
    return [name for key in ("photo", "file") if isinstance(name := found.get(key), str) and not name.startswith("(")]


def _text(found: Any) -> str:
    """What a message says; media are named."""
    parts = found.get("text") or found.get("text_entities") or ""
    said = "".join(map(_part, parts if isinstance(parts, (str, list)) else [parts]))
    named = []
    if found.get("forwarded_from"):
        named.append(f"[forwarded from {one_line(str(found['forwarded_from']))}]")
    for key, kind in (("photo", "photo"), ("file", found.get("media_type") or "file")):
        if found.get(key):
            name = str(found.get("file_name") or found[key])
            named.append(
                f"[{str(kind).replace('_', ' ')}{'' if name.startswith('(') else ': ' + name.rpartition('/')[2]}]"
            )
    if found.get("poll"):
        named.append(f"[poll: {found['poll'].get('question', '')}]")
    if found.get("location_information"):
        place = found["location_information"]
        named.append(f"[place: {place.get('latitude')}, {place.get('longitude')}]")
    if found.get("contact_information"):
        named.append(f"[contact: {' '.join(str(each) for each in found['contact_information'].values() if each)}]")
    return "\n".join([*named, *([said] if said.strip() else [])])


def _part(part: Any) -> str:
    """A piece of a text: a string, or what it is besides."""
    if isinstance(part, str):
        return part
    text, link = str(part.get("text") or ""), part.get("href")
    return f"{text} ({link})" if link and link != text else text
