"""The process that reads one document. It may be attacked by what it reads, so it has little: an empty environment, the
document as an open file, and limits of memory, CPU, files and processes.

The format is told by a file's first bytes and by its name; where they differ, the content is right. The request is the
first line of standard input, the answer goes to standard output (``output``). It dies with its parent: the system sends
SIGIO, which ends a process, when the other end of its standard input is closed.
"""

import importlib
import json
import os
import re
import sys
import zipfile
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

from klaw.actor.process import die_with_parent, limit
from klaw.domain.charset import unicode_codec
from klaw.knowledge.reading.output import Output, UnreadableError

NICE = 10
HEAD_BYTES = 65_536
STRAY = 2
"""Control characters in a text, and one more for each 200 bytes."""
MAX_PARTS = 20_000
"""Files in an archive; one with more is not even listed."""

Reader = Callable[[BinaryIO, Output, Mapping[str, Any]], None]

READERS: Mapping[str, str] = {
    "txt": "text:read_plain",
    "md": "text:read_markdown",
    "html": "html:read_html",
    "epub": "html:read_epub",
    "pdf": "pdf:read",
    "docx": "word:read",
    "pptx": "office:read_pptx",
    "xlsx": "tables:read_xlsx",
    "csv": "tables:read_csv",
    "eml": "mail:read_mail",
    "mbox": "mail:read_mbox",
    "odt": "office:read_open_document",
    "ods": "office:read_open_document",
    "odp": "office:read_open_document",
    "rtf": "text:read_rtf",
    "ics": "calendars:read_calendar",
    "vcf": "calendars:read_contacts",
    "srt": "text:read_subtitles",
    "json": "text:read_json",
}
"""The function of each format, in ``formats``."""

SUFFIXES: Mapping[str, str] = {
    "txt": "txt", "text": "txt", "log": "txt", "md": "md", "markdown": "md", "html": "html", "htm": "html",
    "xhtml": "html", "pdf": "pdf", "docx": "docx", "docm": "docx", "dotx": "docx", "dotm": "docx", "pptx": "pptx",
    "pptm": "pptx", "xlsx": "xlsx", "xlsm": "xlsx", "csv": "csv", "tsv": "csv", "epub": "epub", "eml": "eml",
    "mbox": "mbox", "json": "json", "jsonl": "json", "ndjson": "json", "odt": "odt", "ott": "odt", "ods": "ods",
    "ots": "ods", "odp": "odp", "otp": "odp", "rtf": "rtf", "ics": "ics", "vcf": "vcf", "srt": "srt", "vtt": "srt",
}  # fmt: skip
_ARCHIVES = {
    "word/document.xml": "docx",
    "word/document2.xml": "docx",
    "ppt/presentation.xml": "pptx",
    "xl/workbook.xml": "xlsx",
    "META-INF/container.xml": "epub",
}
_OPEN_DOCUMENTS = {
    b"application/vnd.oasis.opendocument.text": "odt",
    b"application/vnd.oasis.opendocument.spreadsheet": "ods",
    b"application/vnd.oasis.opendocument.presentation": "odp",
}
_TEXTS = (
    (re.compile(r"\s*\{\\rtf"), "rtf"),
    (re.compile(r"\s*BEGIN:VCALENDAR", re.IGNORECASE), "ics"),
    (re.compile(r"\s*BEGIN:VCARD", re.IGNORECASE), "vcf"),
    (re.compile(r"\s*(?:WEBVTT\b|\d+\s*\n(?:\d+:)?\d\d:\d\d[.,]\d+\s*-->)"), "srt"),
    (re.compile(r"From \S+.*\d{4}\r?\n[A-Za-z-]+:"), "mbox"),
)
"""How texts begin that are something else, whatever they are called."""
_MAIL = re.compile(
    r"(?:(?:Received|Return-Path|From|To|Subject|Date|MIME-Version|Message-ID):.*\r?\n(?:[ \t].*\r?\n)*){3}"
)
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_ENCRYPTED = "EncryptedPackage".encode("utf-16-le")
_KNOWN = (
    (re.compile(rb"\x89PNG|\xff\xd8\xff|GIF8|RIFF.{4}WEBP|II\*\0|MM\0\*|BM.{4}\0{4}", re.DOTALL), "a picture"),
    (re.compile(rb"\x1f\x8b|BZh|\xfd7zXZ|7z\xbc\xaf|Rar!|.{257}ustar", re.DOTALL), "an archive"),
    (re.compile(rb"\x7fELF|MZ"), "a program"),
    (re.compile(rb"ID3|OggS|fLaC|RIFF|.{4}ftyp", re.DOTALL), "a recording"),
    (re.compile(rb"%!PS"), "PostScript: save it as PDF"),
)
_HTML = re.compile(
    r"\s*(?:<\?xml[^>]*>\s*)?(?:(?><!--.*?-->)\s*+)*+<(?:!doctype\s+html|html[\s>])", re.IGNORECASE | re.DOTALL
)
_CONTROLS = re.compile(rb"[\x00-\x08\x0e-\x19\x1c-\x1f]")


def find_format(file: BinaryIO, name: str) -> tuple[str, bool]:
    """The format of a file, and whether its name says another. Raises UnreadableError: it is none that is read."""
    said = SUFFIXES.get(name.rpartition(".")[2].lower()) if "." in name else None
    head = file.read(HEAD_BYTES)
    if not head.strip() and len(head) < HEAD_BYTES:
        raise UnreadableError("empty", "is empty")
    if head.startswith(b"%PDF-") or (said == "pdf" and b"%PDF-" in head[:1024]):
        found = "pdf"
    elif head.startswith(b"PK"):
        found = _archive(file)
    elif _is_text(head):
        found = _text(head, said)
    else:
        raise _unknown(file, head, said)
    return found, said is not None and said != found


def reader(name: str) -> Reader:
    module, _, function = READERS[name].partition(":")
    found: Reader = getattr(importlib.import_module(f"klaw.knowledge.reading.formats.{module}"), function)
    return found


def _archive(file: BinaryIO) -> str:
    try:
        with zipfile.ZipFile(file) as archive:
            parts = archive.infolist()
            kind = archive.open("mimetype").read(100).strip() if parts and parts[0].filename == "mimetype" else b""
    except zipfile.BadZipFile:
        raise UnreadableError("broken", "is a damaged archive, or only a part of one") from None
    if len(parts) > MAX_PARTS:
        raise UnreadableError("unpacks_too_large", f"holds {len(parts):,} files; {MAX_PARTS:,} are the limit")
    names = {part.filename for part in parts}
    if found := _OPEN_DOCUMENTS.get(kind.removesuffix(b"-template")):
        return found
    for part, found in _ARCHIVES.items():
        if part in names:
            return found
    raise UnreadableError("unknown_format", "is an archive: add the files that are in it")


def _is_text(head: bytes) -> bool:
    return unicode_codec(head) not in (None, "utf-8") or len(_CONTROLS.findall(head)) <= STRAY + len(head) // 200


def _text(head: bytes, said: str | None) -> str:
    """Which of the formats that are text, in which nothing but a name tells most of them."""
    begin = head[:4096].decode(unicode_codec(head) or "latin-1", "replace").removeprefix("\ufeff")
    if _HTML.match(begin):
        return said if said in ("html", "md", "eml") else "html"
    for pattern, found in _TEXTS:
        if said != "eml" and pattern.match(begin):
            return found
    if said is None:
        return "eml" if _MAIL.match(begin) else "txt"
    if said in ("pdf", *_ARCHIVES.values(), *_OPEN_DOCUMENTS.values()):
        raise UnreadableError("broken", f"is not {said.upper()}, but a text: rename it if it is one")
    return said


def _unknown(file: BinaryIO, head: bytes, said: str | None) -> UnreadableError:
    if head.startswith(_OLE):
        file.seek(0)
        if _ENCRYPTED in file.read(HEAD_BYTES * 16) or _ENCRYPTED in _tail(file):
            return UnreadableError("encrypted", "is protected by a password: save it without one")
        return UnreadableError("unknown_format", "is in the format of an old Office: save it as DOCX, PPTX or XLSX")
    for magic, what in _KNOWN:
        if magic.match(head):
            return UnreadableError("unknown_format", f"is {what}; readable formats are: {', '.join(READERS)}")
    if said is not None:
        return UnreadableError("broken", f"is not {said.upper()}: its content is damaged or something else")
    return UnreadableError("unknown_format", "has an unknown format" + f"; known are: {', '.join(READERS)}")


def _tail(file: BinaryIO) -> bytes:
    size = file.seek(0, 2)
    file.seek(max(0, size - HEAD_BYTES * 16))
    return file.read()


def read(file: BinaryIO, request: dict[str, Any], output: Output) -> None:
    """Raises UnreadableError, and whatever the libraries raise."""
    found, renamed = find_format(file, request["name"])
    output.format(found)
    if renamed:
        output.problem("renamed", f"is {found.upper()} by its content, and was read as that")
    file.seek(0)
    reader(found)(file, output, request)


def main() -> None:
    request = json.loads(sys.stdin.buffer.readline())
    if os.pread(request["file"], 5, 0) == b"%PDF-":  # a program can be started before the limits only
        request["ocr"] = importlib.import_module("klaw.knowledge.reading.ocr").Ocr.start()
    limit(request["memory_bytes"], request["cpu_s"], nice=NICE)
    die_with_parent()
    output = Output(os.fdopen(os.dup(1), "wb", buffering=65_536))
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)  # a library that prints must not be taken for us
    failed = None
    try:
        with os.fdopen(request["file"], "rb") as file:
            read(file, request, output)
    except UnreadableError as error:
        failed = error
    except MemoryError:
        failed = UnreadableError("too_much_memory", "needs more memory than a document may have")
    except RecursionError:
        failed = UnreadableError("too_deep", "is nested too deeply")
    except Exception as error:  # noqa: BLE001 - of a broken document anything may be raised; its text may quote it
        failed = UnreadableError("broken", f"is damaged, or not what its name says ({type(error).__name__})")
    output.end(failed)


if __name__ == "__main__":
    main()
