"""Messages: one in a file, or many in a mailbox."""

import base64
import email
import email.policy
import re
from collections.abc import Iterator, Mapping
from email.errors import HeaderParseError
from email.header import decode_header
from io import BytesIO
from typing import Any, BinaryIO

from klaw.domain.text import decode, plural
from klaw.knowledge.reading.child import SUFFIXES, find_format, reader
from klaw.knowledge.reading.formats.html import read_page
from klaw.knowledge.reading.formats.text import decoded, paragraphs
from klaw.knowledge.reading.output import Output, UnreadableError, one_line
from klaw.toolbox.html_text import convert

MAX_PARTS = 1000
MAX_DEPTH = 10
"""Messages in messages."""
MAX_MESSAGE_BYTES = 64 * 1024 * 1024
MAX_HEADER_CHARS = 20_000
"""Some five hundred addresses: more are cut, because the library takes quadratic time."""
PLAIN_SHARE = 4
"""A plain text that has fewer than a quarter of the letters of its HTML only says to look there."""
_NO_BASE64 = re.compile("[^A-Za-z0-9+/]")
_HEADERS = ("From", "To", "Cc", "Date", "Subject")
_TEXTS = {"calendar": "ics", "vcard": "vcf", "x-vcard": "vcf", "rtf": "rtf", "csv": "csv"}
_BESIDE = ("pdf", "mbox")
"""Formats of attachments that are not read with their message."""


def read_mail(file: BinaryIO, output: Output, request: Mapping[str, Any]) -> None:
    """Who wrote when to whom about what, and the text, also that of forwarded messages and of documents attached."""
    message = _parsed(file.read())
    if not any(name in message for name in _HEADERS):
        raise UnreadableError("broken", "is not a message: it has no sender, date or subject")
    output.title(_header(message, "Subject"))
    _MailReading(output, request).whole(message)


def read_mbox(file: BinaryIO, output: Output, request: Mapping[str, Any]) -> None:
    """The messages one after the other."""
    for data in _messages(file):
        try:
            _MailReading(output, request).whole(_parsed(data))
        except UnreadableError as error:
            output.problem("part_broken", f"has a message that {error}")


def _messages(file: BinaryIO) -> Iterator[bytes]:
    """They begin with a line ``From …`` behind an empty one; other lines that begin so have a mark."""
    lines: list[bytes] = []
    size, before = 0, b"\n"
    while line := file.readline(MAX_MESSAGE_BYTES):
        size += len(line)
        if size > MAX_MESSAGE_BYTES:
            raise UnreadableError("too_large", f"has a message of more than {MAX_MESSAGE_BYTES >> 20} MB")
        if line.startswith(b"From ") and not before.strip():
            if lines:
                yield b"".join(lines)
            lines, size = [], 0
        else:
            lines.append(line[1:] if line.lstrip(b">").startswith(b"From ") else line)
        before = line
    if lines:
        yield b"".join(lines)


class _Policy(email.policy.Compat32):
    def header_fetch_parse(self, name: str, value: str) -> Any:
        return super().header_fetch_parse(name, value[:MAX_HEADER_CHARS])


def _parsed(data: bytes) -> Any:
    return email.message_from_bytes(data, policy=_Policy())


def _header(message: Any, name: str) -> str:
    """A header as people read it, also one that nobody encoded."""
    raw = next((str(value) for each, value in message.raw_items() if each.lower() == name.lower()), "")
    return _unencoded(raw[:MAX_HEADER_CHARS])


def _unencoded(raw: str) -> str:
    if not raw.isascii():
        raw = decode(raw.encode("utf-8", "surrogateescape"), declares=False)
    try:
        parts = decode_header(raw)
    except (ValueError, HeaderParseError):
        return raw
    return "".join(each if isinstance(each, str) else decode(each, charset, declares=False) for each, charset in parts)


def _file_name(part: Any) -> str:
    return one_line(_unencoded(part.get_filename() or ""))


def _own_parts(part: Any) -> Iterator[Any]:
    """The parts of a message without those of messages in it."""
    payload = part.get_payload()
    if part.get_content_maintype() == "message" or not isinstance(payload, list):
        yield part
    else:
        for each in payload:
            yield from _own_parts(each)


class _MailReading:
    """Takes in one message, and those in it."""

    def __init__(self, output: Output, request: Mapping[str, Any]) -> None:
        self._output = output
        self._request = request
        self._depth = 0
        self._unread = 0

    def whole(self, message: Any) -> None:
        if sum(1 for _ in message.walk()) > MAX_PARTS:
            raise UnreadableError("too_much_text", f"has more than {MAX_PARTS:,} parts")
        if any(len(value) > MAX_HEADER_CHARS for _, value in message.raw_items()):
            text = f"has headers of more than {MAX_HEADER_CHARS:,} characters; their rest is left out"
            self._output.problem("header_cut", text)
        self._message(message)
        if self._unread:
            text = f"has {plural(self._unread, 'attachment')}, not read: add each of them as a file"
            self._output.problem("attachments", text)

    def _message(self, message: Any) -> None:
        if self._depth == MAX_DEPTH:
            raise UnreadableError("too_deep", f"has messages in messages, more than {MAX_DEPTH} deep")
        headers = {name: text for name in _HEADERS if (text := _header(message, name).strip())}
        files = filter(None, map(_file_name, _own_parts(message)))
        lines = [*(f"{name}: {text}" for name, text in headers.items()), *(f"Attachment: {name}" for name in files)]
        above = self._output.under
        self._depth += 1
        self._output.under = (*above, *([headers["Subject"]] if "Subject" in headers else []))
        self._output.block("\n".join(lines))
        self._part(message)
        self._output.under = above
        self._depth -= 1

    def _part(self, part: Any) -> None:
        payload, kind = part.get_payload(), part.get_content_maintype()
        if isinstance(payload, list) and part.get_content_type() == "message/rfc822":
            self._message(payload[0])
        elif isinstance(payload, list) and kind == "message":  # what became of a message
            self._output.block("\n".join(str(each).strip() for each in payload))
        elif isinstance(payload, list) and part.get_content_subtype() == "alternative":
            for each in _best(payload):
                self._part(each)
        elif isinstance(payload, list):
            for each in payload:
                self._part(each)
        elif part.get_content_disposition() == "attachment" or kind not in ("text", "multipart", "message"):
            self._attachment(part)
        else:  # a text; or parts without the mark that divides them
            self._text(part)

    def _text(self, part: Any) -> None:
        data, charset = _bytes(part), part.get_content_charset()
        subtype = part.get_content_subtype()
        if subtype == "html":
            read_page(decoded(data, self._output, charset), self._output)
        elif found := _TEXTS.get(subtype):
            reader(found)(BytesIO(data), self._output, self._request)
        else:
            paragraphs(decoded(data, self._output, charset, declares=False).splitlines(), self._output)

    def _attachment(self, part: Any) -> None:
        data, name, above = _bytes(part), _file_name(part), self._output.under
        kind = SUFFIXES.get(name.rpartition(".")[2].lower(), "pdf")
        if kind == "eml":
            self._message(_parsed(data))
            return
        if kind in _BESIDE:
            self._unread += 1
            return
        try:
            found, _ = find_format(BytesIO(data), name)
            self._output.under = (*above, name)
            reader(found)(BytesIO(data), self._output, self._request)
        except (MemoryError, RecursionError):
            raise
        except Exception:  # noqa: BLE001 - the message is read without it
            self._unread += 1
        finally:
            self._output.under = above


def _bytes(part: Any) -> bytes:
    """The content of a part; of damaged base64 what can be read."""
    if str(part.get("Content-Transfer-Encoding", "")).strip().lower() == "base64":
        text = _NO_BASE64.sub("", str(part.get_payload()))
        whole = len(text) - (len(text) % 4 == 1)
        return base64.b64decode(text[:whole] + "=" * (-whole % 4))
    data = part.get_payload(decode=True)
    return data if isinstance(data, bytes) else b""


def _best(parts: list[Any]) -> list[Any]:
    """Of alternatives the plain text, unless it has little of what the HTML has; and an invitation, if there is one."""
    leaves = [leaf for part in parts for leaf in _own_parts(part)]
    plain, html = (
        next((leaf for leaf in leaves if leaf.get_content_type() == kind), None) for kind in ("text/plain", "text/html")
    )
    best = plain or html
    if plain is not None and html is not None:
        shown = convert(decode(_bytes(html), html.get_content_charset()), "", plain=True)["text"]
        if _letters(decode(_bytes(plain), plain.get_content_charset())) * PLAIN_SHARE < _letters(shown):
            best = html
    return [leaf for leaf in leaves if leaf is best or (leaf is not plain and leaf is not html)]


def _letters(text: str) -> int:
    return sum(map(str.isalnum, text))
