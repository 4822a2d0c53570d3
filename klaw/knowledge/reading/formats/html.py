"""What is written in HTML: pages of the web, electronic books, which are archives of such pages, and messages."""

import email
import email.policy
import posixpath
from collections.abc import Mapping
from email.message import EmailMessage
from typing import Any, BinaryIO, cast
from urllib.parse import unquote

from klaw.domain.text import decode, plural
from klaw.knowledge.reading.archive import Archive
from klaw.knowledge.reading.formats.text import Markdown, paragraphs
from klaw.knowledge.reading.output import Output, UnreadableError
from klaw.toolbox.html_text import convert

MAX_PAGE_BYTES = 16 * 1024 * 1024
"""A page as a tree takes some thirty times its size."""
MAX_PARTS = 1000
MAX_HEADER_CHARS = 20_000
"""Some five hundred addresses: the library takes quadratic time for one, and a minute for 20,000 parameters."""
_HEADERS = ("From", "To", "Cc", "Date", "Subject")
_CONTAINER = "{urn:oasis:names:tc:opendocument:xmlns:container}"
_OPF = "{http://www.idpf.org/2007/opf}"
_DC = "{http://purl.org/dc/elements/1.1/}"
_PAGES = ("application/xhtml+xml", "text/html")


def read_html(file: BinaryIO, output: Output, _request: Mapping[str, Any]) -> None:
    """One page: its title, and its text under its headings."""
    data = file.read(MAX_PAGE_BYTES + 1)
    if len(data) > MAX_PAGE_BYTES:
        raise UnreadableError("too_large", f"is larger than {MAX_PAGE_BYTES >> 20} MB, which is the limit for HTML")
    _read_page(decode(data, None), output, is_title=True)


def _read_page(html: str, output: Output, *, is_title: bool, under: tuple[str, ...] = ()) -> None:
    converted = convert(html, "", plain=True)
    if is_title:
        output.title(converted["title"])
    Markdown(output, first_is_title=is_title, under=under).read(converted["text"].splitlines())


def read_epub(file: BinaryIO, output: Output, request: Mapping[str, Any]) -> None:
    """The chapters in the order of the book's spine."""
    with Archive(file, request["unpacked_bytes"]) as archive:
        rootfile = archive.xml("META-INF/container.xml").find(f".//{_CONTAINER}rootfile")
        where = rootfile.get("full-path", "") if rootfile is not None else ""
        package = archive.xml(where)
        for title in package.iter(f"{_DC}title"):
            output.title(title.text)
        if "META-INF/encryption.xml" in archive.names and b"font" not in archive.read("META-INF/encryption.xml"):
            raise UnreadableError("encrypted", "is protected against copying (DRM)")
        known = set()
        items = {item.get("id"): item for item in package.iter(f"{_OPF}item")}
        for number, reference in enumerate(package.iter(f"{_OPF}itemref"), 1):
            item = items.get(reference.get("idref"))
            if item is None or item.get("media-type") not in _PAGES:
                continue
            name = posixpath.normpath(posixpath.join(posixpath.dirname(where), unquote(item.get("href", ""))))
            if name in known:
                continue
            known.add(name)
            try:
                _read_page(decode(archive.read(name, MAX_PAGE_BYTES), None), output, is_title=False)
            except UnreadableError as error:
                output.problem("part_broken", f"chapter {number} {error}")
            except (KeyError, RecursionError) as error:
                output.problem("part_broken", f"chapter {number} is missing or damaged ({type(error).__name__})")


class _Policy(email.policy.EmailPolicy):
    def header_fetch_parse(self, name: str, value: str) -> Any:
        return super().header_fetch_parse(name, value[:MAX_HEADER_CHARS])


def read_mail(file: BinaryIO, output: Output, _request: Mapping[str, Any]) -> None:
    """Who wrote when to whom about what, and the text. Attachments are named only."""
    message = cast("EmailMessage", email.message_from_binary_file(file, policy=_Policy()))
    if sum(1 for _ in message.walk()) > MAX_PARTS:
        raise UnreadableError("too_much_text", f"has more than {MAX_PARTS:,} parts")
    if not any(name in message for name in _HEADERS):
        raise UnreadableError("broken", "is not a message: it has no sender, date or subject")
    if any(len(value) > MAX_HEADER_CHARS for _, value in message.raw_items()):
        output.problem(
            "header_cut", f"has headers of more than {MAX_HEADER_CHARS:,} characters; their rest is left out"
        )
    subject = str(message.get("Subject", ""))
    headings = (subject,) if subject.strip() else ()
    output.title(subject)
    lines = [f"{name}: {message[name]}" for name in _HEADERS if message.get(name)]
    attached = [name for part in message.iter_attachments() if (name := part.get_filename())]
    if attached:
        text = f"has {plural(len(attached), 'attachment')}, not read: add each of them as a file"
        output.problem("attachments", text)
    lines += [f"Attachment: {name}" for name in attached]
    output.block("\n".join(lines), headings=headings)
    body = message.get_body(("plain", "html"))
    if body is None:
        return
    data = body.get_payload(decode=True)
    text = decode(data if isinstance(data, bytes) else b"", body.get_content_charset())
    if body.get_content_subtype() == "html":
        _read_page(text, output, is_title=False, under=headings)
    else:
        paragraphs(text.splitlines(), output, headings)
