"""Stops a text that repeats itself without end, as small models' texts do. Pure.

Refrains, lists, tables, code and separators must pass, so a repetition only counts when it stands at the end, is made
of words, and has gone on for a while. Three kinds are known: one piece, copy behind copy, numbers aside (``1. I'm glad.
2. I'm glad.``); two sentences that take turns in any order; and the same few phrases with small changes.
"""

import re
from collections import Counter
from collections.abc import Sequence

import attrs

TAIL_CHARS = 2400
HOLD_CHARS = 16
"""The end of a text is held back while it repeats what came before, so that no loop is shown; this much always is."""

COPIES = 4
LONG_COPIES = 3
LONG_CHARS = 400
"""A loop is a piece with four copies, a long piece with three ..."""
SHORT_PIECE_CHARS = 24
NUMBERED_COPIES = 8
MIN_CHARS = 300
"""... a short piece or one with numbers in it with more; it must fill so much ..."""
CODE_COPIES = 12
CODE_CHARS = 800
"""... and in code and tables, where lines are the same for good reason, more still."""
MIN_LETTERS = 3

WORDS = 100
GROUP = 5
OLD_SHARE = 0.7
"""The share of the groups of ``GROUP`` words among the last ``WORDS`` that must be there in ``COPIES``."""

SENTENCES = 6
SENTENCE_WORDS = 4
"""So many sentences or lines of so many words each have no more than two different ones among them."""

_WORD = re.compile(r"[^\W\d_]+")
_WORD_OR_NUMBER = re.compile(r"\w+")
_NUMBER_OR_SPACE = re.compile(r"\d+|\s+")
_CLOSING = re.compile(r"[.!?…)»”\"]*")
_SENTENCE = re.compile(r"(?:\d+[.)]\s*)?[^.!?…\n]+[.!?…\n]")
_FENCE = re.compile(r"^ {0,3}(```|~~~).*", re.MULTILINE)


class RepetitionStop:
    """Feed it a text as it is written; it gives what may be shown."""

    def __init__(self) -> None:
        self._text = ""
        self._given = 0
        self.looped = False
        """The text repeats itself: write no more. What was given holds it once."""

    def feed(self, piece: str) -> str:
        if self.looped:
            return ""
        self._text += piece
        begin, plain = _block(self._text)
        start = max(begin, len(self._text) - TAIL_CHARS)
        tail = _Tail.of(self._text[start:])
        loop = tail.loop(plain=plain)
        self.looped = loop is not None
        return self._give(start + (tail.before_repeated() if loop is None else loop))

    def end(self) -> str:
        """Give what was held back, unless it is a repetition."""
        return "" if self.looped else self._give(len(self._text))

    def _give(self, until: int) -> str:
        given = self._text[self._given : until]
        self._given += len(given)
        return given


@attrs.frozen
class _Tail:
    text: str
    flat: str
    """The text with one sign in place of each number and each run of white space."""
    places: Sequence[int]
    """Where the characters of ``flat`` stand in the text, and the end of the text."""
    repeated: Sequence[int]
    """For each length of its end, how much of that end stands there twice, once at the beginning and once at the end
    (the failure function of Knuth, Morris and Pratt, read backwards)."""

    @classmethod
    def of(cls, text: str) -> "_Tail":
        parts: list[str] = []
        places: list[int] = []
        place = 0
        for run in _NUMBER_OR_SPACE.finditer(text):
            parts += text[place : run.start()], " " if run[0].isspace() else "0"
            places += range(place, run.start() + 1)
            place = run.end()
        parts.append(text[place:])
        places += range(place, len(text) + 1)
        flat = "".join(parts)
        return cls(text, flat, places, _borders(flat[::-1]))

    def before_repeated(self) -> int:
        """The text up to here holds nothing twice of what may be the beginning of a loop."""
        held = max(HOLD_CHARS, max(self.repeated, default=0))
        return self.places[max(0, len(self.flat) - held)]

    def loop(self, *, plain: bool) -> int | None:
        """Where the second copy begins if the text repeats itself."""
        found = [
            len(self.flat) - repeated
            for length, repeated in enumerate(self.repeated, start=1)
            if 2 * repeated >= length and self._is_loop(length, length - repeated, plain=plain)
        ]
        if found:
            # What stands before the first copy may end as a copy does.
            begin = min(found)
            closed = _CLOSING.match(self.flat, begin)
            return self.places[closed.end() if closed else begin]
        if not plain:
            return None
        again = _phrases_again(self.text)
        return _sentences_again(self.text) if again is None else again

    def _is_loop(self, length: int, piece: int, *, plain: bool) -> bool:
        """Whether an end of that length, filled with copies of a piece of so many characters, is a loop."""
        copies = length // piece
        if copies < LONG_COPIES:
            return False
        unit = self.flat[-piece:]
        if not plain:
            enough = "0" not in unit and copies >= CODE_COPIES and length >= CODE_CHARS
        elif "0" in unit:
            enough = copies >= NUMBERED_COPIES and length >= MIN_CHARS and piece >= SHORT_PIECE_CHARS
        elif piece < SHORT_PIECE_CHARS:
            enough = copies >= COPIES and length >= MIN_CHARS
        else:
            enough = copies >= COPIES or piece >= LONG_CHARS
        return enough and sum(map(len, _WORD.findall(unit))) >= MIN_LETTERS


def _borders(text: str) -> list[int]:
    borders = [0] * len(text)
    matched = 0
    for place in range(1, len(text)):
        while matched and text[place] != text[matched]:
            matched = borders[matched - 1]
        matched += text[place] == text[matched]
        borders[place] = matched
    return borders


def _block(text: str) -> tuple[int, bool]:
    """Where the block begins in which the text ends, and whether it is neither code nor a table."""
    fences = list(_FENCE.finditer(text))
    begin = fences[-1].end() if fences else 0
    if len(fences) % 2:
        return begin, False
    place = begin
    lines = text[begin:].splitlines(keepends=True)
    for number, line in enumerate(lines):
        place += len(line)
        if line.count("|") >= 2 or line.startswith(("    ", "\t")):
            begin = place
            if number >= len(lines) - 2:
                return 0, False
    return begin, True


def _sentences_again(text: str) -> int | None:
    found = [each for each in _SENTENCE.finditer(text) if len(each[0].split()) >= SENTENCE_WORDS]
    said = [" ".join(_WORD_OR_NUMBER.findall(each[0].lower())) for each in found]
    turns = set(said[-SENTENCES:])
    if len(said) < SENTENCES or len(turns) > 2:
        return None
    begin = len(said)
    while begin and said[begin - 1] in turns:
        begin -= 1
    again = next(place for place in range(begin + 1, len(said)) if said[place] in said[begin:place])
    return found[again].start()


def _phrases_again(text: str) -> int | None:
    words = list(_WORD_OR_NUMBER.finditer(text))
    if len(words) < WORDS:
        return None
    spoken = [word[0].lower() for word in words]
    groups = [tuple(spoken[place : place + GROUP]) for place in range(len(spoken) - GROUP + 1)]
    recent, counts = groups[-(WORDS - GROUP + 1) :], Counter(groups)
    if sum(counts[group] >= COPIES for group in recent) < OLD_SHARE * len(recent):
        return None
    seen: set[tuple[str, ...]] = set()
    old = []
    for group in groups:
        old.append(group in seen)
        seen.add(group)
    place = len(groups)
    # Back to the last place where so many groups in a row were new that something was said.
    while place and any(old[max(0, place - GROUP) : place]):
        place -= 1
    return words[place].start()
