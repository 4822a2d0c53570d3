"""Cuts a document into passages of 200 to 300 tokens. Pure.

The document's text is that of its passages in order, with ``SEPARATOR`` between them: only white space is lost. Pages
are always cut apart, then headings, paragraphs, sentences, lines, words. What is too small for a passage of its own
joins its neighbour on the page.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import takewhile

import attrs

from klaw.domain import tokens
from klaw.domain.knowledge import Block, Passage

SEPARATOR = "\n\n"
HEADING_SEPARATOR = " > "

SMALL = 100
"""Tokens: a passage with fewer is joined to its neighbour, if there is one on the page."""
ENOUGH = 200
"""Tokens: with so many a passage ends where a paragraph ends that is followed by one that does not fit in."""
TARGET = 300
MOST = 400
"""Tokens: no passage has more."""


@attrs.define
class _Draft:
    text: str
    page: int | None
    under: tuple[str, ...]
    """The headings of what came last."""
    headings: tuple[str, ...] | None
    """Common to all its text, else those of the longer part; None while there are only headings."""

    @property
    def tokens(self) -> int:
        return tokens.estimate(self.text)

    def takes(self, text: str, most: int) -> bool:
        return _fits(self.text + SEPARATOR + text, most)

    def add(self, other: "_Draft") -> None:
        if self.headings is None or other.headings is None:
            self.headings = other.headings if self.headings is None else self.headings
        else:
            longer = self.headings if len(self.text) >= len(other.text) else other.headings
            self.headings = _common(self.headings, other.headings) or longer
        self.text += SEPARATOR + other.text
        self.under = other.under


class Cutter:
    def __init__(self) -> None:
        self._open: _Draft | None = None
        self._closed: _Draft | None = None
        """Waits for what may have to be joined to it; on the page of ``_open``."""
        self._count = 0
        self._offset = 0

    def add(self, block: Block) -> list[Passage]:
        """Returns the passages that are finished now."""
        done: list[Passage] = []
        before = self._open or self._closed
        if before is not None and before.page != block.page:
            self._close(done)
            self._emit(done)
        elif self._open is not None and self._open.under != block.headings and self._stands(self._open):
            self._close(done)
        for text in _paragraphs(block):
            self._paragraph(text, block, done)
        return done

    def finish(self) -> list[Passage]:
        """Returns the rest; nothing may be added afterwards."""
        done: list[Passage] = []
        self._close(done)
        self._emit(done)
        return done

    # -- inside ----------------------------------------------------------------------------------------------------

    def _stands(self, draft: _Draft) -> bool:
        """Whether a passage may end where another section begins, rather than be joined to that."""
        before = self._closed
        return draft.tokens >= SMALL or (
            before is not None and before.under == draft.under and before.takes(draft.text, MOST)
        )

    def _paragraph(self, text: str, block: Block, done: list[Passage]) -> None:
        while text:
            opened = self._open
            if opened is None and _fits(text, MOST):
                self._append(text, block)
                return
            if opened is not None:
                if opened.takes(text, TARGET):
                    self._append(text, block)
                    return
                if opened.tokens >= ENOUGH:
                    self._close(done)
                    continue
            room = TARGET - (tokens.estimate(opened.text + SEPARATOR) if opened is not None else 0)
            at = _cut(text, room, rows=block.kind != "text")
            self._append(text[:at].rstrip(), block)
            self._close(done)
            text = text[at:].lstrip()

    def _append(self, text: str, block: Block) -> None:
        is_heading = bool(block.headings) and text == block.headings[-1]
        piece = _Draft(text, block.page, block.headings, None if is_heading else block.headings)
        if self._open is None:
            self._open = piece
        else:
            self._open.add(piece)

    def _close(self, done: list[Passage]) -> None:
        draft, before = self._open, self._closed
        self._open = None
        if draft is None:
            return
        if before is not None and draft.tokens < SMALL and before.takes(draft.text, MOST):
            before.add(draft)
            return
        self._emit(done)
        self._closed = draft

    def _emit(self, done: list[Passage]) -> None:
        draft, self._closed = self._closed, None
        if draft is None:
            return
        end = self._offset + len(draft.text)
        done.append(
            Passage(
                ordinal=self._count,
                text=draft.text,
                heading=HEADING_SEPARATOR.join(draft.under if draft.headings is None else draft.headings),
                first_page=draft.page,
                last_page=draft.page,
                start=self._offset,
                end=end,
                tokens=draft.tokens,
            )
        )
        self._count += 1
        self._offset = end + len(SEPARATOR)


def _common(one: Sequence[str], other: Sequence[str]) -> tuple[str, ...]:
    both = takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
    return tuple(each for each, _ in both)


_BLANK_LINES = re.compile(r"\n\s*\n")


def _paragraphs(block: Block) -> Iterator[str]:
    parts = [block.text] if block.kind == "code" else _BLANK_LINES.split(block.text)
    return (stripped for part in parts if (stripped := part.strip()))


_SENTENCE_END = re.compile(
    r"(?:(?<![.!?…])[.!?…]+[\"'”’»)\]]*(?=\s+[\"'“‘«„(\[—–-]*\s?[A-ZА-ЯЁ0-9])|[。！？]|[!?…](?=\s)|\n\s*\n)"
)
_ABBREVIATED = re.compile(
    r"(?:^|[\s(\[\"«“])(?:[A-Za-zА-Яа-яЁё]|Mr|Mrs|Ms|Dr|Prof|St|No|Fig|Figs|Eq|Sec|vs|cf|al|Inc|Ltd|Co|approx|e\.g|i\.e"
    r"|U\.S|стр|рис|табл|гл|им|ул|пр|др|см|тыс|млн|млрд|руб|коп|акад|проф|т\.\s?[екдпн]|н\.\s?э)\.$"
)  # what a full stop stands behind without ending a sentence
_LONGEST_ABBREVIATION = 8


def _cut(text: str, room: int, *, rows: bool) -> int:
    """Where to cut so that the beginning has at most ``room`` tokens: behind the last sentence (in ``rows`` the last
    row) that ends in the last two thirds, else behind a line, a word, a character; at least 1."""
    longest = _fitting(text, room)
    if longest >= len(text):
        return len(text)
    least = longest // 3
    if not rows:
        ends = [each.end() for each in _SENTENCE_END.finditer(text, least, min(len(text), longest + 8))]
        for end in reversed(ends):
            if least < end <= longest and not _ABBREVIATED.search(text, max(0, end - _LONGEST_ABBREVIATION), end):
                return end
    for space in ("\n", " "):
        if (found := text.rfind(space, least + 1, longest + 1)) > 0:
            return found
    words = [each.start() for each in re.finditer(r"\s", text[1 : longest + 1])]
    return words[-1] + 1 if words else longest


def _fits(text: str, most: int) -> bool:
    return len(text) <= most * tokens.LATIN_CHARACTERS_PER_TOKEN and tokens.estimate(text) <= most


def _fitting(text: str, room: int) -> int:
    """How many characters have at most so many tokens; at least 1."""
    sizes = range(2, min(len(text), int(room * tokens.LATIN_CHARACTERS_PER_TOKEN) + 1) + 1)
    return bisect_right(sizes, room, key=lambda size: tokens.estimate(text[:size])) + 1
