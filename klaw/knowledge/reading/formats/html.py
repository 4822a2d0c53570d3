"""Pages of the web, and electronic books, which are archives of such pages."""

import posixpath
from collections.abc import Mapping
from typing import Any, BinaryIO
from urllib.parse import unquote

from klaw.domain.charset import decode
from klaw.knowledge.reading.archive import Archive
from klaw.knowledge.reading.formats.text import Markdown
from klaw.knowledge.reading.output import Output, UnreadableError
from klaw.toolbox.html_text import convert

MAX_PAGE_BYTES = 16 * 1024 * 1024
"""A page as a tree takes some thirty times its size."""
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


def _read_page(html: str, output: Output, *, is_title: bool) -> None:
    converted = convert(html, "", plain=True)
    if is_title:
        output.title(converted["title"])
    Markdown(output, first_is_title=is_title).read(converted["text"].splitlines())


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
