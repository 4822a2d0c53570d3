"""The lines of a PDF's pages, and what is the same on many of them."""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from klaw.knowledge.reading.output import Output, UnreadableError, one_line, tidy

MAX_PAGE_CHARS = 2_000_000
SAMPLE_PAIRS = 8
"""Neighbouring pages that are compared to find sizes of letters and running lines."""
MARGIN = 0.12
"""Share of a page's height, at its top and its bottom, where running lines stand."""
MAX_RUNNING = 150
"""Characters."""

_DIVIDED = "\ufffe"
_HYPHEN = re.compile(rf"(\w?){_DIVIDED}(\w?)")
_NUMBER = re.compile(r"\d+")


class PdfLine(NamedTuple):
    """A line of a page; two that a hyphen joins are one."""

    text: str
    bottom: float
    height: float
    """Size of its first letter; 0 where the page's letters cannot be located."""
    last: float
    """Bottom of the last of those that are joined."""


class Layout(NamedTuple):
    body: float
    """Height of most letters; 0: not known."""
    running: Mapping[tuple[str, int], int]
    """Lines that stand on many pages: their text without numbers, and where; and a page (from 0) on which each is
    kept."""

    def leaves_out(self, line: PdfLine, height: float, index: int) -> bool:
        """Whether a line of a page (from 0) of this height is a running line, and is kept on another page."""
        return _in_margin(line, height) and self.running.get(_place(line), index) != index


def layout(pdf: Any, pages: Sequence[int], output: Output) -> Layout:
    """By pages from all over the document, the same ones whenever it is read."""
    count = len(pages)
    pairs = min(SAMPLE_PAIRS, (count + 1) // 2)
    starts = {pair * max(1, count - 1) // pairs for pair in range(pairs)}
    sample = sorted({pages[at] for start in starts for at in (start, start + 1) if at < count})
    heights: Counter[float] = Counter()
    places: dict[tuple[str, int], list[int]] = defaultdict(list)
    for index in sample:
        output.look(index + 1)
        try:
            found, height = lines(pdf, index)
        except Exception:  # noqa: BLE001, S112 - it is reported when its turn comes
            continue
        for line in found:
            heights[round(line.height * 2) / 2] += len(line.text)
        for place in {_place(line) for line in found if _in_margin(line, height)}:
            places[place].append(index)
    heights.pop(0, None)
    enough = max(4, len(sample) // 3)
    running = {place: found[0] for place, found in places.items() if len(found) >= enough}
    return Layout(body=heights.most_common(1)[0][0] if heights else 0, running=running)


def _in_margin(line: PdfLine, height: float) -> bool:
    middle = line.bottom + line.height / 2
    return line.height > 0 and len(line.text) <= MAX_RUNNING and not MARGIN * height < middle < (1 - MARGIN) * height


def _place(line: PdfLine) -> tuple[str, int]:
    return _NUMBER.sub("#", one_line(line.text).casefold()), round(line.bottom / 3)


def lines(pdf: Any, index: int) -> tuple[list[PdfLine], float]:
    """The lines of a page that are not empty, and the page's height."""
    page = pdf[index]
    try:
        text_page = page.get_textpage()
        try:
            count = text_page.count_chars()
            if count > MAX_PAGE_CHARS:
                raise UnreadableError("too_much_text", f"has {count:,} characters; {MAX_PAGE_CHARS:,} are the limit")
            text = text_page.get_text_range() if count > 0 else ""
            located = len(text) == count
            found, at = [], 0
            for part in text.split("\r\n"):
                if stripped := _dehyphenated(tidy(part)).strip():
                    begin = at + len(part) - len(part.lstrip())
                    _, bottom, _, top = text_page.get_charbox(begin, loose=True) if located else (0, 0, 0, 0)
                    joined = at + part.rfind(_DIVIDED, 0, -1) + 1
                    last = text_page.get_charbox(joined, loose=True)[1] if located and joined > at else bottom
                    found.append(PdfLine(stripped, bottom, max(0.0, top - bottom), last))
                at += len(part) + 2
            return found, page.get_height()
        finally:
            text_page.close()
    finally:
        page.close()


def _dehyphenated(text: str) -> str:
    """PDFium joins a word that was divided at a line's end by U+FFFE; a hyphen that belongs to it has to stay."""

    def join(found: re.Match[str]) -> str:
        before, after = found[1], found[2]
        rest = text[found.end() :].partition(" ")[0]
        divided = before.islower() and after.islower() and "-" not in rest
        return before + ("" if divided else "-") + after

    return _HYPHEN.sub(join, text)
