"""Sessions of OpenClaw: ``~/.openclaw``, or one of its agents, with ``sessions/sessions.json`` and ``SESSION.jsonl``
for each session; or one such file. Events name their parents: what is not on the way from the last to the first was
replaced."""

import json
import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import PurePosixPath
from typing import Any

from klaw.domain.message import Role
from klaw.imports.events import OTHER_FORM, Event, ExportedChat, ExportedMessage, LeftOut, Unread, moment, other_form
from klaw.imports.export_files import UNREADABLE, ExportEntry, OpenedExport, each_file

SOURCE = "openclaw"
_SAID = {"user": Role.USER, "assistant": Role.ASSISTANT}
MAX_LINE = 32 << 20
MAX_INDEX = 32 << 20


def read(export: OpenedExport) -> Iterator[Event]:
    """A line that cannot be read does not stop the rest."""
    titles: dict[str, str] = {}
    for file in export.files(r"sessions\.json"):
        if not file.name.endswith(".jsonl"):
            titles |= _titles(file)
    yield from each_file(export.files(r"[^/]+\.jsonl", "session (SESSION.jsonl)"), partial(_session, titles))


def _titles(file: ExportEntry) -> dict[str, str]:
    try:
        with file.open() as stream:
            index = json.loads(stream.read(MAX_INDEX))
        return {str(each["sessionId"]): _title(key, each) for key, each in index.items() if each.get("sessionId")}
    except (ValueError, AttributeError, TypeError, KeyError, RecursionError, *UNREADABLE):
        return {}


def _title(key: str, entry: Mapping[str, Any]) -> str:
    named = next((entry[name] for name in ("label", "displayName", "subject", "title") if entry.get(name)), None)
    return str(named or key.removeprefix("agent:").replace(":", " "))


def _lines(file: ExportEntry) -> Iterator[tuple[int, Any]]:
    """None for a line that is no JSON object."""
    for number, line in enumerate(file.lines(MAX_LINE), 1):
        if line.strip():
            try:
                value = json.loads(line)
            except (ValueError, RecursionError):
                value = None
            yield number, value if isinstance(value, dict) else None


def _session(titles: Mapping[str, str], file: ExportEntry) -> Iterator[Event]:
    session, kept = PurePosixPath(file.name).stem, _way(file)
    for number, entry in _lines(file):
        if number == 1 and entry and entry.get("type") == "session":
            session = str(entry.get("id") or session)
            break
    yield ExportedChat(key=session, title=titles.get(session, ""))
    for number, entry in _lines(file):
        place = f"{file.name}, line {number}"
        if entry is None:
            yield Unread(place, "is no event")
        elif entry.get("type") == "message" and (kept is None or entry.get("id") in kept):
            try:
                yield from _message(entry, number, place)
            except OTHER_FORM as error:
                yield other_form(place, error)


def _way(file: ExportEntry) -> frozenset[str] | None:
    """Ids of the events from the first to the last; None where they do not lead there: then all are read."""
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
    texts = [_shown(str(each.get("text") or ""), role) for each in blocks if each.get("type") == "text"]
    texts += ["[image]" for each in blocks if each.get("type") == "image"]
    text = "\n".join(each for each in texts if each.strip())
    if any(each.get("type") not in ("text", "image") for each in blocks):
        yield LeftOut("tools and thoughts")
    if not text:
        if any(each.get("type") == "text" and each.get("text") for each in blocks):
            yield LeftOut("notices")
        return
    at = moment(entry.get("timestamp")) or moment(message.get("timestamp"))
    if at is None:
        yield Unread(place, "has no time")
    else:
        yield ExportedMessage(key=str(entry.get("id") or f"line {number}"), role=role, text=text, at=at)


_ABOUT = re.compile(
    r"^(?:[A-Z][a-z]+(?: [a-z]+){0,3} \(untrusted(?: metadata|, for context)\):\n```json\n[^`]*\n```\s*"
    r"|System: \[[^\]\n]{4,60}\][^\n]*(?:\n|\Z)"
    r"|\[(?:Telegram|WhatsApp|Signal|Discord|Slack|iMessage|BlueBubbles|WebChat|Matrix|Teams|Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
    r" (?:[^\]\n]{0,200} )?\d{4}-\d{2}-\d{2}[ T]\d{1,2}:\d{2}[^\]\n]{0,30}\] ?)+"
)
"""In front of a user's text: who wrote it, when, and what happened meanwhile."""
_ID = re.compile(r"^\[message_id: [^\]\n]{1,200}\]\s*$\n?", re.MULTILINE)
_TAG = re.compile(r"\[\[ ?(?:reply_to(?:_current)?(?: ?: ?[^\]\n]{1,100})?|audio_as_voice) ?\]\] ?")
_PROMPTS = (
    *("Read HEARTBEAT.md if it exists", "A new session was started via /new or /reset", "Pre-compaction memory flush"),
    "[cron:",
)
_SILENCE = frozenset({"HEARTBEAT_OK", "NO_REPLY"})


def _shown(text: str, role: Role) -> str:
    """The text, without what the program adds for the model."""
    if role is Role.ASSISTANT:
        said = _TAG.sub("", text)
        return "" if said.strip(" *`.\n") in _SILENCE else said
    said = _ID.sub("", _ABOUT.sub("", text, count=1))
    return "" if said.lstrip().startswith(_PROMPTS) else text if said == text else said.strip()
