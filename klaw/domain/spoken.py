"""What is said aloud of a text in Markdown. Pure."""

import re
from collections.abc import Sequence
from functools import cache

from markdown_it import MarkdownIt
from markdown_it.token import Token

MARKUP = 8
"""So many characters of Markdown are read for each that is said."""
_CODE = {False: ("Here is code.", "Here is code in {}."), True: ("Здесь код.", "Здесь код на {}.")}
_ENDS = re.compile(r"[.!?…]+[\"'»”)]*(?=\s)")
_ADDRESS = re.compile(r"https?://(?:www\.)?([^/\s?#]+)\S*")
_WORDS = frozenset({"text", "code_inline", "image"})
_CITATION = re.compile(r"\s?\[\d{1,3}\](?!\()")


@cache
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark").enable(["table", "strikethrough"])


def spoken(markdown: str, most: int) -> str:
    """The words of a text: code is named and not read, of addresses the host, of a picture its description. At most
    ``most`` characters, to the end of a sentence."""
    tokens = _parser().parse(markdown[: MARKUP * most])
    prose = "".join(each.content for each in tokens if each.type == "inline")
    russian = len(re.findall(r"[а-яё]", prose, re.IGNORECASE)) > len(re.findall(r"[a-z]", prose, re.IGNORECASE))
    parts: list[str] = []
    row: list[str] | None = None
    for token in tokens:
        if token.type == "tr_open":
            row = []
        elif token.type == "tr_close":
            parts.append(_sentence(", ".join(filter(None, row or ()))))
            row = None
        elif token.type == "inline":
            text = _words(token.children or ())
            (parts if row is None else row).append(_sentence(text) if row is None else text)
        elif token.type in ("fence", "code_block"):
            plain, named = _CODE[russian]
            language = token.info.split(maxsplit=1)[0] if token.info.strip() else ""
            parts.append(named.format(language) if language.isalpha() else plain)
    return _cut(" ".join(filter(None, parts)), most)


def _words(tokens: Sequence[Token]) -> str:
    text = "".join(each.content if each.type in _WORDS else " " * each.type.endswith("break") for each in tokens)
    return " ".join(_ADDRESS.sub(r"\1", _CITATION.sub("", text)).split())


def _sentence(text: str) -> str:
    return f"{text}." if text and text[-1].isalnum() else text


def _cut(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    head = text[:most]
    ends = [found.end() for found in _ENDS.finditer(head)]
    return head[: ends[-1]] if ends else head.rpartition(" ")[0] or head
