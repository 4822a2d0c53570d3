"""Exports of ``klaw export``: chats as ``klaw chats export --json`` writes them, and lists of what else is kept, each
in a file that is called like its kind (``Kind.plural``)."""

import json
from collections.abc import Iterator
from typing import Any

import attrs

from klaw.convert import FRAMES, wire_names
from klaw.domain.message import MessageKind, Role
from klaw.domain.names import LOCAL_USER
from klaw.domain.text import cut, one_line
from klaw.imports import events
from klaw.imports.export_files import UNREADABLE, ExportEntry, OpenedExport, each_file
from klaw.imports.json_stream import items, walk
from klaw.store.changes import Kind
from klaw.store.kinds.imports import checked
from klaw.store.kinds.records import KINDS

SOURCE = "klaw"
CHATS = r"chats/[^/]+\.json"
KEPT: dict[str, Kind[Any]] = {kind.plural: kind for kind in KINDS if kind.moves}
MAX_CHARS = 34_000
"""Of one thing as JSON: the request of a task may have 16,384, each of them two as a line end or a quotation mark."""


def read(export: OpenedExport) -> Iterator[events.Event]:
    """All chats, then what else is kept, with its own ids."""
    named = [each for name in KEPT for each in export.files(rf"{name}\.json") if each.stem == name]
    kept = [each for each in named if _is_list(each)]
    alone = bool(kept) and not export.has_several
    if not alone:
        yield from each_file(export.files(CHATS, "" if kept else "chats/NAME.json, facts.json or people.json"), _chat)
    yield from each_file(kept, _kept)
    for each in named if export.has_several else ():
        if each not in kept and "chats" not in each.name.split("/")[-2:-1]:
            yield events.Unread(each.name, "is no list")


def _is_list(file: ExportEntry) -> bool:
    """Tells a list from a chat of the same name, which is an object."""
    try:
        with file.open() as stream:
            return stream.read(64).lstrip().startswith(b"[")
    except UNREADABLE:
        return True  # reading it says what is wrong


def _chat(file: ExportEntry) -> Iterator[events.Event]:
    head, begun = {"name": file.stem, "title": ""}, False
    with file.open() as stream:
        for place, value in walk(stream, frozenset({"messages.item"})):
            if place in head and isinstance(value, str):
                head[place] = value
            elif place == "messages.item":
                if not begun:
                    begun = True
                    yield events.ExportedChat(key=head["name"], title=head["title"], name=head["name"], own_ids=True)
                if isinstance(value, dict) and value.get("replaced"):
                    yield events.LeftOut("variants of messages that were not shown")
                else:
                    yield _message(value, file.name)


def _kept(file: ExportEntry) -> Iterator[events.Event]:
    kind = KEPT[file.stem]
    with file.open() as stream:
        for number, found in enumerate(items(stream), 1):
            yield _of(kind, found, f"{file.name}, entry {number}")


def _of(kind: Kind[Any], found: Any, place: str) -> events.Event:
    """One thing, whose fields are called as in Klaw or as in its journal."""
    if not isinstance(found, dict):
        return events.Unread(place, "is no object")
    if isinstance(kind.moves, str):
        if isinstance(found.get("name"), str):
            return events.Unread(f"{place} ({cut(one_line(found['name']), 60)})", kind.moves)
        return events.LeftOut(f"{kind.plural}: {kind.moves}")
    if found.get("superseded_by") or found.get("merged_into"):
        return events.LeftOut("facts and people that are history")
    names = zip(wire_names(kind.cls), attrs.fields_dict(kind.cls), strict=True)
    fields = {wire: found.get(name, found.get(wire)) for wire, name in names if name in found or wire in found}
    fields |= {name: events.moment(value) for name, value in fields.items() if name.endswith("_at")}
    if wrong := next((name for name, value in fields.items() if name.endswith("_at") and value is None), None):
        return events.Unread(place, f"{wrong}: is not a possible time")
    try:
        value = checked(kind, {**fields, "user_id": LOCAL_USER})
    except ValueError as error:
        return events.Unread(place, str(error))
    too_long = len(json.dumps(FRAMES.write(value), ensure_ascii=False)) > MAX_CHARS
    return events.Unread(place, "is too long") if too_long else events.ExportedRecord(kind.what, value)


def _message(found: Any, place: str) -> events.Event:
    try:
        role, kind, metadata = Role(found["role"]), MessageKind(found["type"]), dict(found.get("metadata") or {})
        own, text, at = found["id"], found["content"], events.moment(found["created_at"])
    except events.OTHER_FORM as error:
        return events.Unread(place, f"a message has an unknown form ({type(error).__name__})")
    if at is None or not isinstance(text, str) or not isinstance(own, str):
        return events.Unread(place, "a message has an unknown form")
    return events.ExportedMessage(key=own, role=role, type=kind, text=text, at=at, metadata=metadata)
