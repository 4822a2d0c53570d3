"""Sessions of OpenClaw: a folder ``~/.openclaw``, or one of its agents, with ``sessions/sessions.json`` and a file of
event lines ``SESSION.jsonl`` for each session; or one such file.

Events name their parents: where somebody went back and asked again, the way from the last event to the first is what
was said, and what lies beside it was replaced.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from klaw.domain.message import Role
from klaw.imports.events import Chat, Event, LeftOut, Message, Unread, moment
from klaw.imports.files import UNREADABLE, Export, File

SOURCE = "openclaw"
_SAID = {"user": Role.USER, "assistant": Role.ASSISTANT}
MAX_LINE = 32 << 20
MAX_INDEX = 32 << 20
"""Bytes of ``sessions.json``."""


def read(export: Export) -> Iterator[Event]:
    """All sessions of an export; a line that cannot be read does not stop the rest."""
    titles: dict[str, str] = {}
    for file in export.files(r"sessions\.json"):
        if not file.name.endswith(".jsonl"):
            titles |= _titles(file)
    for file in export.files(r"[^/]+\.jsonl", "session (SESSION.jsonl)"):
        try:
            yield from _session(file, titles)
        except UNREADABLE as error:
            yield Unread(file.name, str(error) or type(error).__name__)


def _titles(file: File) -> dict[str, str]:
    """What sessions are called, by their ids; an index that is broken names none."""
    try:
        with file.open() as stream:
            index = json.loads(stream.read(MAX_INDEX))
        return {str(each["sessionId"]): _title(key, each) for key, each in index.items() if each.get("sessionId")}
    except (ValueError, AttributeError, TypeError, KeyError, RecursionError, *UNREADABLE):
        return {}


def _title(key: str, entry: Mapping[str, Any]) -> str:
    named = next((entry[name] for name in ("label", "displayName", "subject", "title") if entry.get(name)), None)
    return str(named or key.removeprefix("agent:").replace(":", " "))


def _lines(file: File) -> Iterator[tuple[int, Any]]:
    """Numbers and values of the lines; None for one that is no JSON object."""
    with file.open() as stream:
        number = 0
        while line := stream.readline(MAX_LINE):
            number += 1
            if not line.strip():
                continue
            try:
                value = json.loads(line)
            except (ValueError, RecursionError):
                value = None
            yield number, value if isinstance(value, dict) else None


def _session(file: File, titles: Mapping[str, str]) -> Iterator[Event]:
    session, kept = PurePosixPath(file.name).stem, _way(file)
    for number, entry in _lines(file):
        if number == 1 and entry and entry.get("type") == "session":
            session = str(entry.get("id") or session)
            break
    yield Chat(key=session, title=titles.get(session, ""))
    for number, entry in _lines(file):
        place = f"{file.name}, line {number}"
        if entry is None:
            yield Unread(place, "is no event")
        elif entry.get("type") == "message" and (kept is None or entry.get("id") in kept):
            try:
                yield from _message(entry, number, place)
            except (AttributeError, KeyError, TypeError) as error:
                yield Unread(place, f"has another form than is known ({type(error).__name__})")


def _way(file: File) -> frozenset[str] | None:
    """Ids of the events from the first to the last. None where they do not lead there: then all were said."""
    parents: dict[str, str | None] = {}
    last = None
    for _, entry in _lines(file):
        if entry and isinstance(entry.get("id"), str) and entry.get("type") != "session":
            last, parent = entry["id"], entry.get("parentId")
            parents[last] = parent if parent is None or isinstance(parent, str) else ""
    if last is None:
        return None
    way: set[str] = set()
    while last is not None:
        if last in way or last not in parents:
            return None
        way.add(last)
        last = parents[last]
    return frozenset(way)


def _message(entry: Mapping[str, Any], number: int, place: str) -> Iterator[Event]:
    message = entry["message"]
    role, content = _SAID.get(message["role"]), message.get("content") or []
    if role is None:
        yield LeftOut("tools")
        return
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    texts = [str(each.get("text") or "") for each in blocks if each.get("type") == "text"]
    texts += ["[image]" for each in blocks if each.get("type") == "image"]
    text = "\n".join(each for each in texts if each.strip())
    if not text:
        return
    at = moment(entry.get("timestamp")) or moment(message.get("timestamp"))
    if at is None:
        yield Unread(place, "has no time")
    else:
        yield Message(key=str(entry.get("id") or f"line {number}"), role=role, text=text, at=at)
