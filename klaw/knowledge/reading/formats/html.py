"""What is written in HTML: pages of the web, and electronic books, which are archives of such pages."""

import posixpath
import re
from collections.abc import Mapping
from typing import Any, BinaryIO
from urllib.parse import unquote

from klaw.domain.text import plural
from klaw.knowledge.reading.archive import Archive
from klaw.knowledge.reading.formats.text import Markdown, decoded
from klaw.knowledge.reading.output import Output, UnreadableError
from klaw.toolbox.html_text import convert

MAX_PAGE_BYTES = 16 * 1024 * 1024
"""A page as a tree takes some thirty times its size."""
_DECLARED = re.compile(r"<!DOCTYPE[^<>\[]{0,500}\[.{0,10000}?\]\s*>", re.IGNORECASE | re.DOTALL)
"""Entities of its own, which would be taken for text."""
_PAGES = ("application/xhtml+xml", "text/html")
_PAGE_NAMES = (".xhtml", ".html", ".htm")


def read_html(file: BinaryIO, output: Output, _request: Mapping[str, Any]) -> None:
    data = file.read(MAX_PAGE_BYTES + 1)
    if len(data) > MAX_PAGE_BYTES:
        raise UnreadableError("too_large", f"is larger than {MAX_PAGE_BYTES >> 20} MB, which is the limit for HTML")
    read_page(decoded(data, output), output, is_title=True)


def read_page(html: str, output: Output, *, is_title: bool = False) -> None:
    converted = convert(_DECLARED.sub("<!DOCTYPE html>", html, count=1), "", plain=True)
    if is_title:
        output.title(converted["title"])
    Markdown(output, first_is_title=is_title).read(converted["text"].splitlines())


def read_epub(file: BinaryIO, output: Output, request: Mapping[str, Any]) -> None:
    """The chapters in the order of the book's spine."""
    with Archive(file, request["unpacked_bytes"]) as archive:
        rootfile = archive.xml("META-INF/container.xml").find(".//{*}rootfile")
        where = rootfile.get("full-path", "") if rootfile is not None else ""
        package = archive.xml(where)
        for title in package.iter("{*}title"):
            output.title(title.text)
        encrypted = _encrypted(archive)
        known, locked = set(), 0
        items = {item.get("id"): item for item in package.iter("{*}item")}
        for number, reference in enumerate(package.iter("{*}itemref"), 1):
            item = items.get(reference.get("idref"))
            if item is None:
                output.problem("part_broken", f"chapter {number} is missing")
                continue
            href = unquote(item.get("href", "").partition("#")[0])
            if item.get("media-type") not in _PAGES and not href.lower().endswith(_PAGE_NAMES):
                continue
            name = posixpath.normpath(posixpath.join(posixpath.dirname(where), href))
            if name in known:
                continue
            known.add(name)
            if name in encrypted:
                locked += 1
                continue
            try:
                read_page(decoded(archive.read(name, MAX_PAGE_BYTES), output), output)
            except UnreadableError as error:
                output.problem("part_broken", f"chapter {number} {error}")
            except (KeyError, RecursionError) as error:
                output.problem("part_broken", f"chapter {number} is missing or damaged ({type(error).__name__})")
        if locked:
            text = "is protected against copying (DRM)"
            if locked == len(known):
                raise UnreadableError("encrypted", text)
            output.problem("encrypted", f"{text} in {plural(locked, 'chapter')}")


def _encrypted(archive: Archive) -> set[str]:
    """The parts that nobody can read who has not bought the book; fonts are often among them."""
    if "META-INF/encryption.xml" not in archive.names:
        return set()
    found = archive.xml("META-INF/encryption.xml").iter("{*}CipherReference")
    return {posixpath.normpath(unquote(each.get("URI", ""))) for each in found}
