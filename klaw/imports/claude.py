"""Exports of Claude: ``conversations.json``, one list; 175 MB are not unusual. Newer ones also have memories and
projects, or come as a list of parts (``manifest-0001.json``), each a ZIP, also with a chat in each line (``.jsonl``). A
file that is given alone may be any of these."""

import hashlib
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from klaw.actor.clock import iso
from klaw.domain.fact import MAX_TEXT, Fact, FactId, FactSource, Origin
from klaw.domain.message import Role
from klaw.domain.names import LOCAL_USER
from klaw.domain.text import clean_output, cut, one_line
from klaw.imports import events
from klaw.imports.export_files import UNREADABLE, OpenedExport, opened
from klaw.imports.json_stream import chats, way

SOURCE = "claude"
FILES = (
    r"(?:(?:conversations?|memories|projects|manifest)(?:[-_ ][^/]+|\d+)?"
    r"|(?:conversations|projects|memories)/[^/]+)\.json|[^/]+\.jsonl"
)
_MEMBERS = frozenset({"chat_messages", "conversations_memory", "project_memories", "docs", "data_files"})
"""They tell what an entry is."""
_PART = re.compile(r"(?:conversations|memories|projects)-\d{1,6}\.zip", re.IGNORECASE)
_ROOT = "00000000-0000-4000-8000-000000000000"
"""The parent of a first message."""
_SAID = {"human": Role.USER, "assistant": Role.ASSISTANT}
_MADE = frozenset({"thinking", "redacted_thinking", "tool_use", "tool_result", "token_budget"})
_TEXTS = frozenset({"text", "voice_note"})
_STANDS_FOR = re.compile(
    r"^(?:```[^\n`]*\n+)?(?:This block is not supported on your current device yet"
    r"|Viewing artifacts created via the Analysis Tool web feature preview isn[’']t yet supported on mobile)"
    r"\.?[ \t]*(?:\n+```[ \t]*)?$",
    re.MULTILINE,
)
_THOUGHT = re.compile(r"<antThinking>.*?(?:</antThinking>|\Z)", re.DOTALL)
_ARTIFACT = re.compile(r"</?antArtifact\b[^<>]*>")


def read(export: OpenedExport) -> Iterator[events.Event]:
    """Chats, then Claude's memories, and the documents of projects."""
    parts = [each for each in export.files(r"[^/]+\.zip") if _PART.fullmatch(each.name.rpartition("/")[2])]
    if not export.has_several or not parts or export.files(FILES):
        yield from chats(export, FILES, "conversations.json", partial(_entry, export), _MEMBERS)
    for part in parts if export.has_several else ():
        yield from _part(part.name, part.as_export())


def _part(name: str, opening: AbstractContextManager[OpenedExport]) -> Iterator[events.Event]:
    try:
        with opening as inner:
            yield from read(inner)
            yield from inner.others()
    except (events.ImportRefused, *UNREADABLE) as error:
        yield events.Unread(name, str(error) or type(error).__name__)


def _entry(export: OpenedExport, found: Any, place: str) -> Iterator[events.Event]:
    is_object = isinstance(found, dict)
    if is_object and isinstance(found.get("data_files"), list):
        yield from _parts(export, found["data_files"])
    elif is_object and ("conversations_memory" in found or "project_memories" in found):
        yield from _memories(found)
    elif is_object and "chat_messages" not in found and ("docs" in found or "prompt_template" in found):
        yield from _project(found, place)
    else:
        yield from _chat(found, place)


def _parts(export: OpenedExport, listed: list[Any]) -> Iterator[events.Event]:
    """The listed parts of an export: those of a folder are read with it."""
    names = [one_line(str(each.get("filename"))) for each in listed if isinstance(each, dict)]
    found = {name: export.path.parent / name for name in names if _PART.fullmatch(name)}
    if export.has_several:  # also unpacked
        files = [each.name.rpartition("/")[2] for each in export.files(r"[^/]+\.(?:zip|json)")]
        there = {name for name in found if name in files or f"{name.partition('-')[0]}.json" in files}
    else:
        there = {name for name, path in found.items() if export.path.name != "-" and path.is_file()}
    if not there & found.keys() and not export.has_several:
        told = cut(", ".join(names), 400)
        raise events.ImportRefused(
            f"{export.path}: only lists the parts: download them ({told}) into one folder, and name it"
        )
    for name, path in found.items():
        if name not in there:
            yield events.Unread(name, "is a part of the export, and not beside its list: download it")
        elif not export.has_several:
            yield from _part(name, opened(str(path)))


def _chat(found: Any, place: str) -> Iterator[events.Event]:
    try:
        key, title, messages = found["uuid"], str(found.get("name") or ""), list(found["chat_messages"])
        at = events.moment(found.get("created_at"))
        shown = _way(messages, found.get("current_leaf_message_uuid"))
    except events.OTHER_FORM as error:
        yield events.Unread(place, f"is not a Claude conversation ({type(error).__name__})")
        return
    if not isinstance(key, str) or not key:
        yield events.Unread(place, "has no id")
        return
    yield events.ExportedChat(key=key, title=title)
    for number, message in enumerate(messages, 1):
        try:
            made = list(_message(message, at))
        except events.OTHER_FORM as error:
            made = [events.other_form(f"{place}, message {number}", error)]
        if number not in shown:
            made = [events.LeftOut(events.REPLACED) for each in made if isinstance(each, events.ExportedMessage)]
        for each in made:
            at = each.at if isinstance(each, events.ExportedMessage) else at
            yield each


def _way(messages: list[Any], current: Any) -> frozenset[int]:
    """The numbers of the messages that the user saw: those on the way to the newest, where they name their parents."""
    known = {number: each for number, each in enumerate(messages, 1) if isinstance(each, dict) and each.get("uuid")}
    if not any(each.get("parent_message_uuid") for each in known.values()):
        return frozenset(range(1, len(messages) + 1))
    parents = {
        str(each["uuid"]): None if (parent := str(each.get("parent_message_uuid") or "")) == _ROOT else parent
        for each in known.values()
    }
    times = {str(each["uuid"]): events.moment(each.get("created_at")) or "" for each in known.values()}
    order = {at: float(number) for number, at in enumerate(sorted({*times.values()}))}
    shown = {*way(parents, {key: order[at] for key, at in times.items()}, current)}
    return frozenset(
        number for number in range(1, len(messages) + 1) if number not in known or str(known[number]["uuid"]) in shown
    )


def _message(message: Any, before: str | None) -> Iterator[events.Event]:
    key, role = str(message["uuid"]), _SAID[message["sender"]]
    content = message.get("content") or ()
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else [*filter(None, content)]
    made = [each for each in blocks if each.get("type") in _MADE]
    if made:
        yield events.LeftOut("tools and thoughts")
    yield from (events.LeftOut("no text") for each in blocks if each.get("type") not in _MADE | _TEXTS)
    texts = [str(each.get("text") or "") for each in blocks if each.get("type") in _TEXTS]
    # `text` repeats the blocks in words of its own.
    texts = texts or [str(message.get("text") or "")]
    texts = texts if role is Role.USER else [*map(_shown, texts)]
    texts += filter(None, map(_document, made))
    for each in message.get("attachments") or ():
        texts += [f"[file: {each.get('file_name') or 'pasted text'}]\n{each.get('extracted_content') or ''}".rstrip()]
    files = message.get("files") or message.get("files_v2") or ()
    texts += [f"[file: {each['file_name']}]" for each in files if each.get("file_name")]
    text = "\n".join(each for each in texts if each.strip())
    at = events.moment(message.get("created_at")) or before
    if text and at is None:
        yield events.Unread(f"message {key}", "has no time")
    elif text and at is not None:
        yield events.ExportedMessage(key=key, role=role, text=text, at=at)
    elif not made:
        yield events.LeftOut("no text")


def _shown(text: str) -> str:
    """Take placeholders and thoughts out of a text."""
    if "<antThinking>" in text:
        text = _THOUGHT.sub("", text)
    if "<antArtifact" in text:
        text = _ARTIFACT.sub("", text)
    kept = _STANDS_FOR.sub("", text)
    return text if kept == text else re.sub(r"\n{3,}", "\n\n", kept).strip("\n")


def _document(block: Mapping[str, Any]) -> str:
    """The document, or a part of one, that a tool call wrote for the user; empty for other calls."""
    given = block.get("input")
    if block.get("type") != "tool_use" or not isinstance(given, dict):
        return ""
    name = given.get("title") or str(given.get("path") or "").rpartition("/")[2] or given.get("id")
    if block.get("name") == "artifacts":
        whole, changed = given.get("content"), given.get("new_str")
    elif block.get("name") == "create_file":
        whole, changed = given.get("file_text"), None
    else:
        return ""
    named = f": {one_line(str(name))}" if name else ""
    if isinstance(whole, str) and whole.strip():
        return f"[document{named}]\n{whole}"
    return f"[document, changed{named}]\n{changed}" if isinstance(changed, str) and changed.strip() else ""


def _memories(found: Mapping[str, Any]) -> Iterator[events.Event]:
    projects = found.get("project_memories")
    for text in (found.get("conversations_memory"), *(projects.values() if isinstance(projects, dict) else ())):
        for statement in _statements(text if isinstance(text, str) else ""):
            yield events.ExportedRecord("fact", _fact(statement))


def _statements(text: str) -> Iterator[str]:
    """The lines of a text without headings, and not longer than a fact may be."""
    for line in clean_output(text).splitlines():
        said = re.sub(r"^(?:[-*+•]|\d{1,3}[.)])\s+", "", line.strip())
        if said.startswith("#") or re.fullmatch(r"(\*{1,3}|_{1,3})[^*_]+\1:?", said):
            continue
        while len(said) > MAX_TEXT:
            end = said.rfind(". ", 0, MAX_TEXT) + 1 or said.rfind(" ", 0, MAX_TEXT) + 1 or MAX_TEXT
            yield said[:end].strip()
            said = said[end:].strip()
        if any(map(str.isalnum, said)):
            yield said


def _fact(text: str) -> Fact:
    """A model wrote it down, out of conversations."""
    now = iso(time.time())
    return Fact(
        id=FactId(f"{SOURCE}-{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"),
        user=LOCAL_USER,
        text=text,
        category="other",
        source=FactSource.ARCHIVIST,
        origin=Origin.ASSISTANT,
        created_at=now,
        updated_at=now,
    )


def _project(found: Mapping[str, Any], place: str) -> Iterator[events.Event]:
    name = one_line(str(found.get("name") or found.get("uuid") or "project"))
    key = str(found.get("uuid") or name)
    if found.get("prompt_template"):
        yield events.LeftOut("instructions of a project")
    for number, each in enumerate(found.get("docs") or (), 1):
        if isinstance(each, dict) and isinstance(text := each.get("content"), str):
            yield events.ProjectDocument(key, name, str(each.get("filename") or f"{number}.md"), text)
        else:
            yield events.Unread(f"{place}, document {number}", "has an unknown form")
