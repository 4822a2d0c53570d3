"""From the stream of an export to requests of a bounded size that store it."""

import base64
import io
import json
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any, TypeAlias

import attrs

from klaw.convert import REQUESTS
from klaw.domain.attachment import MAX_FILES
from klaw.domain.fact import Fact
from klaw.domain.forget import FORGOTTEN
from klaw.domain.imported import MAX_CHARS, WITH_TOPICS, ImportedMessage, chat_prefix, message_id, name_for
from klaw.domain.knowledge import MAX_NAME
from klaw.domain.message import MAX_TITLE, MessageKind, Role, chat_title
from klaw.domain.names import chat_id
from klaw.domain.task import Task
from klaw.domain.text import clean, cut
from klaw.errors import BadValue, InvalidValue, KlawError
from klaw.imports import events
from klaw.imports.export_files import UNREADABLE
from klaw.store.kinds.messages import CHOICES
from klaw.store.kinds.records import kind_of

PART_MESSAGES = 200
PART_BYTES = 400_000
PART_KEPT = 25
MAX_BYTES = 800_000
"""The admin socket takes a mebibyte."""
UPLOAD_BYTES = 600_000
REFUSED = frozenset({"file_too_large", "files_full", "empty_file"})
"""The file is left out, and its message stored."""
MOST_TOLD, MAX_GIVEN = 50, 1_000
DOCUMENTS = "project documents"
_DROPPED = (FORGOTTEN, *CHOICES, WITH_TOPICS)

Ask: TypeAlias = Callable[[str, dict[str, Any]], dict[str, Any]]
"""Carries out an operation, without ``user``, and without ``origin`` for those of ``OF_IMPORT``."""
OF_IMPORT = frozenset({"import_put", "import_remember"})


@attrs.define(kw_only=True)
class ImportReport:
    chats: int = 0
    messages: int = 0
    added: int = 0
    known: int = 0
    elsewhere: int = 0
    files: int = 0
    file_bytes: int = 0
    first_at: str = ""
    last_at: str = ""
    kept: Counter[str] = attrs.Factory(Counter)
    """How many facts, people, documents and so on the export has that could be read."""
    remembered: int = 0
    """Those of them that were new."""
    projects: dict[str, str] = attrs.Factory(dict)
    """Those that have documents, and the names of the knowledge bases that these are in."""
    left_out: Counter[str] = attrs.Factory(Counter)
    unread: list[events.Unread] = attrs.Factory(list)
    unread_count: int = 0

    def note(self, unread: events.Unread) -> None:
        self.unread_count += 1
        if len(self.unread) < MOST_TOLD:
            self.unread.append(unread)


def feed(
    found: Iterable[events.Event], source: str, ask: Ask | None, tell: Callable[[int], object], *, topics: bool = False
) -> ImportReport:
    """Store what an export holds. What was stored stays when ``ask`` raises; None only looks through it. ``tell`` gets
    the number of messages now and then. ``topics`` makes topics of them."""
    report = ImportReport()
    chat: _PendingMessages | None = None
    kept = _PendingRecords(ask, report)
    for event in found:
        if chat is not None and isinstance(event, events.ExportedChat | events.ExportedRecord):
            kept.places[chat.chat.name] = chat.end()
            chat = None
        match event:
            case events.ExportedChat():
                chat = _PendingMessages(event, source, ask, report, topics)
            case events.ExportedMessage():
                assert chat is not None
                chat.add(event)
                if report.messages % 100 == 0:
                    tell(report.messages)
            case events.ExportedRecord():
                kept.add(event.what, event.value)
            case events.ProjectDocument():
                report.kept[DOCUMENTS] += 1
                report.projects[event.key] = event.project
                if ask is not None:
                    _keep_document(ask, source, event, report)
            case events.Unread():
                report.note(event)
            case events.LeftOut(why=why):
                report.left_out[why if why in report.left_out or len(report.left_out) < MOST_TOLD else "others"] += 1
    if chat is not None:
        chat.end()
    kept.flush()
    tell(report.messages)
    return report


class _PendingMessages:
    def __init__(
        self, chat: events.ExportedChat, source: str, ask: Ask | None, report: ImportReport, topics: bool
    ) -> None:
        self.chat, self._source, self._ask, self._report, self._topics = chat, source, ask, report, topics
        self._prefix = "" if chat.own_ids else chat_prefix(source, chat.key)
        self._said: list[dict[str, Any]] = []
        self._files: dict[str, tuple[events.ExportedFile, ...]] = {}
        self._bytes = 0
        self._last = ""
        self._into: str | None = None
        self._began = False

    def add(self, message: events.ExportedMessage) -> None:
        report = self._report
        if not self._began:
            self._began = True
            report.chats += 1
        report.messages += message.type is not MessageKind.SESSION_BREAK
        report.first_at = min(report.first_at or message.at, message.at)
        report.last_at = max(report.last_at, message.at)
        report.files += len(message.files)
        report.file_bytes += sum(each.size for each in message.files)
        for number, said in enumerate(self._said_of(message)):
            try:
                size = len(json.dumps(said))
                REQUESTS.read(said, ImportedMessage)
                if size > MAX_BYTES:
                    raise InvalidValue("is too large")  # noqa: TRY301 - one place for what is not valid
            except (BadValue, InvalidValue, RecursionError) as error:
                report.note(events.Unread(f"{self.chat.name or self.chat.title}, message {message.key}", str(error)))
                continue
            if self._bytes + size > PART_BYTES or len(self._said) >= PART_MESSAGES:
                self._flush()
            self._said.append(said)
            self._bytes += size
            if not number and message.files:
                self._files[said["id"]] = message.files[:MAX_FILES]
        self._last = message.at

    def end(self) -> str | None:
        """Store the rest, and end the segment of a chat of people. Returns the name of the chat here."""
        if self.chat.people and self._last:
            own = message_id(self._prefix, "end", self._last)
            self._said.append(_said(own, Role.SYSTEM, MessageKind.SESSION_BREAK, "", self._last, {}))
        self._flush()
        return self._into

    def _said_of(self, message: events.ExportedMessage) -> Iterator[dict[str, Any]]:
        text = clean(message.text)
        metadata = {name: value for name, value in message.metadata.items() if name not in _DROPPED}
        if self.chat.own_ids:
            yield _said(message.key, message.role, message.type, text, message.at, metadata)
            return
        size = _piece_chars(text)
        for place in range(0, len(text), size):
            key = [message.key, *([str(place)] if place else [])]
            own, part = message_id(self._prefix, *key), text[place : place + size]
            yield _said(own, message.role, message.type, part, message.at, metadata)

    def _flush(self) -> None:
        said, self._said, self._bytes = self._said, [], 0
        files, self._files = self._files, {}
        if not said or self._ask is None:
            return
        missing = self._ask("import_missing", {"ids": list(files)})["missing"] if files else ()
        for each in (each for each in said if each["id"] in missing):
            each["files"] = [*filter(None, (self._kept(self._ask, file) for file in files[each["id"]]))]
        title = _title(self.chat.title)
        name = name_for(self.chat.name or self.chat.title, f"{self._source} {said[0]['created_at'][:10]}")
        given = {"prefix": self._prefix, "name": name, "title": "" if title == name else title, "topics": self._topics}
        answer = self._ask("import_put", {**given, "into": self._into, "said": said})
        self._into = answer["chat"]
        self._report.added += answer["added"]
        self._report.known += answer["known"]
        self._report.elsewhere += answer["elsewhere"]

    def _kept(self, ask: Ask, file: events.ExportedFile) -> dict[str, Any] | None:
        """Upload a file; None: it cannot be read, or is refused, which is reported."""
        try:
            with file.open() as stream:
                return ask("import_keep", {"upload": _uploaded(ask, stream), "name": file.name})
        except (*UNREADABLE, KlawError) as error:
            is_of_file = isinstance(error, (events.ImportRefused, *UNREADABLE)) or getattr(error, "code", "") in REFUSED
            if not is_of_file:
                raise
            self._report.note(events.Unread(f"{self.chat.name or self.chat.title}, {file.name}", str(error)))
            return None


class _PendingRecords:
    def __init__(self, ask: Ask | None, report: ImportReport) -> None:
        self._ask, self._report = ask, report
        self._what, self._plural, self._bytes = "", "", 0
        self._given: list[dict[str, Any]] = []
        self.places: dict[str, str | None] = {}
        """The names of the export's chats, and what they are called here."""

    def add(self, what: str, value: Any) -> None:
        kind = kind_of(what)
        assert kind is not None
        if isinstance(value, Fact) and value.chat is not None:
            here = self.places.get(value.chat.partition(":")[2])
            value = attrs.evolve(value, chat=chat_id(value.user, here) if here else None)
        elif isinstance(value, Task) and value.inject_into is not None:
            value = attrs.evolve(value, inject_into=self.places.get(value.inject_into) or value.inject_into)
        given = REQUESTS.write(value)
        size = len(json.dumps(given))
        if what != self._what or len(self._given) == PART_KEPT or self._bytes + size > PART_BYTES:
            self.flush()
        self._what, self._plural, self._bytes = what, kind.plural, self._bytes + size
        self._given.append(given)

    def flush(self) -> None:
        given, self._given, self._bytes = self._given, [], 0
        self._report.kept += Counter({self._plural: len(given)})
        if given and self._ask is not None:
            answer = self._ask("import_remember", {"what": self._what, "values": given})
            self._report.remembered += answer["added"]
            self._report.kept -= Counter({self._plural: len(answer["refused"])})
            for each in answer["refused"]:
                self._report.note(events.Unread(f"a {self._what}", each))


def _keep_document(ask: Ask, source: str, document: events.ProjectDocument, report: ImportReport) -> None:
    try:
        upload = _uploaded(ask, io.BytesIO(document.text.encode("utf-8", "replace")))
        given = {"key": f"{source}-{document.key}"[:MAX_GIVEN], "name": document.name[:MAX_GIVEN]}
        answer = ask(
            "import_document",
            {"upload": upload, "base": _title(document.project)[:MAX_NAME].strip() or "project", **given},
        )
    except KlawError as error:
        if getattr(error, "code", "") not in REFUSED:
            raise
        report.kept[DOCUMENTS] -= 1
        report.note(events.Unread(f"{document.project}, {document.name}", str(error)))
        return
    report.remembered += answer["added"]
    report.projects[document.key] = answer["base"]


def _uploaded(ask: Ask, stream: IO[bytes]) -> str:
    """Upload a file, and return the upload's id."""
    upload, offset = secrets.token_hex(16), 0
    while (piece := stream.read(UPLOAD_BYTES)) or not offset:
        data = base64.b64encode(piece).decode("ascii")
        ask("import_upload", {"upload": upload, "offset": offset, "data": data})
        offset += len(piece)
        if not piece:
            break
    return upload


def _said(own: str, role: Role, kind: MessageKind, text: str, at: str, metadata: dict[str, object]) -> dict[str, Any]:
    return {"id": own, "role": role, "type": kind, "content": text, "created_at": at, "metadata": metadata}


def _piece_chars(text: str) -> int:
    """Characters of one message: half as many where its JSON, with twelve bytes for an emoji, would be too large."""
    parts = (text[place : place + MAX_CHARS] for place in range(0, len(text), MAX_CHARS))
    fits = len(text) < MAX_BYTES // 24 or all(len(json.dumps(each)) < MAX_BYTES - 10_000 for each in parts)
    return MAX_CHARS if fits else MAX_CHARS // 2


def _title(text: str) -> str:
    shown = "".join(each for each in clean(text) if each.isprintable() or each in " \n\t\u200c\u200d")
    try:
        return chat_title(cut(" ".join(shown.split()), MAX_TITLE))
    except InvalidValue:
        return ""
