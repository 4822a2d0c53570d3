"""Exports of ``klaw export``: chats as ``klaw chats export --json`` writes them, facts and people.

Topics and summaries are left out: they name messages by numbers that are others here. ``--topics`` makes new topics.
"""

import json
from collections.abc import Iterator
from typing import Any

import attrs

from klaw.convert import FRAMES, wire_names
from klaw.domain import fact, person
from klaw.domain.fact import Fact
from klaw.domain.message import MessageKind, Role
from klaw.domain.names import LOCAL_USER
from klaw.domain.person import Person
from klaw.errors import BadValue, InvalidValue
from klaw.imports.events import (
    OTHER_FORM,
    Event,
    ExportedChat,
    ExportedMessage,
    ExportedRecord,
    LeftOut,
    Unread,
    moment,
)
from klaw.imports.export_files import ExportEntry, OpenedExport, each_file
from klaw.imports.json_stream import items, walk

SOURCE = "klaw"
CHATS = r"chats/[^/]+\.json"
KEPT: dict[str, type[Fact] | type[Person]] = {"facts": Fact, "people": Person}
MAX_BYTES = 15_000


def read(export: OpenedExport) -> Iterator[Event]:
    """All chats, then facts and people, with their own ids."""
    kept = [each for name in KEPT for each in export.files(rf"{name}\.json") if _is_kept(export, each, name)]
    alone = bool(kept) and not export.has_several
    if not alone:
        yield from each_file(export.files(CHATS, "" if kept else "chats/NAME.json, facts.json or people.json"), _chat)
    yield from each_file(kept, _kept)


def _is_kept(export: OpenedExport, file: ExportEntry, name: str) -> bool:
    """And not a chat of that name."""
    return file.stem == name and (not export.has_several or "chats" not in file.name.split("/")[-2:-1])


def _chat(file: ExportEntry) -> Iterator[Event]:
    head, begun = {"name": file.stem, "title": ""}, False
    with file.open() as stream:
        for place, value in walk(stream, frozenset({"messages.item"})):
            if place in head and isinstance(value, str):
                head[place] = value
            elif place == "messages.item":
                if not begun:
                    begun = True
                    yield ExportedChat(key=head["name"], title=head["title"], name=head["name"], own_ids=True)
                yield _message(value, file.name)


def _kept(file: ExportEntry) -> Iterator[Event]:
    with file.open() as stream:
        for number, found in enumerate(items(stream), 1):
            yield _of(KEPT[file.stem], found, f"{file.name}, entry {number}")


def _of(cls: type[Fact] | type[Person], found: Any, place: str) -> Event:
    """A fact or a person, with the fields as Klaw calls them."""
    if not isinstance(found, dict):
        return Unread(place, "is no object")
    if found.get("superseded_by") or found.get("merged_into"):
        return LeftOut("facts and people that are history")
    names = zip(wire_names(cls), attrs.fields(cls), strict=True)
    fields = {wire: found[field.name] for wire, field in names if field.name in found}
    for name in fields.keys() & {"created_at", "updated_at", "said_at"}:
        fields[name] = moment(fields[name]) or ""
        if not fields[name]:
            return Unread(place, f"{name}: is not a possible time")
    try:
        value = FRAMES.read({**fields, "user_id": LOCAL_USER}, cls)
        if isinstance(value, Fact):
            fact.check(value)
        else:
            person.check(value)
    except (BadValue, InvalidValue) as error:
        return Unread(place, str(error))
    return Unread(place, "is too long") if len(json.dumps(FRAMES.write(value))) > MAX_BYTES else ExportedRecord(value)


def _message(found: Any, place: str) -> Event:
    try:
        role, kind, metadata = Role(found["role"]), MessageKind(found["type"]), dict(found.get("metadata") or {})
        own, text, at = found["id"], found["content"], moment(found["created_at"])
    except OTHER_FORM as error:
        return Unread(place, f"a message has an unknown form ({type(error).__name__})")
    if at is None or not isinstance(text, str) or not isinstance(own, str):
        return Unread(place, "a message has an unknown form")
    return ExportedMessage(key=own, role=role, type=kind, text=text, at=at, metadata=metadata)
