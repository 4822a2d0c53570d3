"""Text on a terminal: making foreign text harmless, how wide it is, and breaking it into rows."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import pairwise

_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Marks that reorder what follows them: text could pretend to be something else."""
_AS_EMOJI = "\ufe0f"
"""Makes the character before it an emoji of two cells, on terminals that know it."""
_HARMLESS = {
    **{code: chr(0x2400 + code) for code in range(0x20)},
    **dict.fromkeys([*range(0x80, 0xA0), *range(0xD800, 0xE000), *map(ord, _BIDI)], "\ufffd"),
    ord("\t"): "    ",
    ord("\n"): "\n",
    0x7F: "\u2421",
    0x2028: "\n",
    0x2029: "\n",
}


def harmless(text: str) -> str:
    """Text that cannot command a terminal: line ends stay, tabs become spaces, other control characters become visible
    symbols, and reordering marks and lone surrogates become U+FFFD."""
    return text.replace("\r\n", "\n").translate(_HARMLESS)


def width_of(character: str) -> int:
    """Cells that a printable character takes: 0, 1 or 2."""
    if "\x20" <= character <= "\x7e":
        return 1
    category = unicodedata.category(character)
    if category in ("Mn", "Me", "Cf") or "\u1160" <= character <= "\u11ff":
        return 0  # the last are the vowels and finals of Korean syllables that are written in parts
    if category == "Cn" and "\U0001f300" <= character <= "\U0001faff":
        return 2  # an emoji that is younger than this Python
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def width(text: str) -> int:
    """Cells of one line of printable text; where terminals differ, the larger number."""
    if text.isascii():
        return len(text)
    cells = sum(map(width_of, text))
    return cells + sum(width_of(before) == 1 and before != " " for before, mark in pairwise(text) if mark == _AS_EMOJI)


_JOINER = "\u200d"
_FLAG = re.compile("[\U0001f1e6-\U0001f1ff]")
_SKIN = re.compile("[\U0001f3fb-\U0001f3ff]")
_CLOSING = frozenset(".,:;!?%)]}»”’…。、，．：；！？）］｝」』】〉》〕ー々ぁぃぅぇぉっゃゅょァィゥェォッャュョ")
"""What does not begin a row."""
_OPENING = frozenset("([{«“‘（［｛「『【〈《〔")
"""What does not end one."""


def wrap(line: str, columns: int) -> list[str]:
    """The rows of one line of printable text, at least one. A word that fits no row is cut; the spaces at a break go.
    The last row keeps its spaces, so that ``wrap(last + more)`` goes on as ``wrap(line + more)`` would."""
    rows: list[str] = []
    row, used = "", 0
    for part in _parts(line):
        text = "".join(part)
        cells = width(text)
        if used + cells <= columns or text.isspace():
            row, used = row + text, used + cells
            continue
        if row.strip():
            rows.append(row.rstrip(" "))
        if cells <= columns:
            row, used = text, cells
        else:
            *full, row = _cut(part, columns)
            rows += full
            used = width(row)
    return [*rows, row]


def shown(row: str, columns: int) -> str:
    """A row as it is written, without spaces beyond its end."""
    beyond = width(row) - columns
    return row if beyond <= 0 else row[:-beyond] + row[-beyond:].rstrip(" ")


def least_width(row: str) -> int:
    """Cells that a row takes where a sign of several characters is shown as one."""
    return len(row) if row.isascii() else sum(map(sum, map(_least_cells, _signs(row))))


def height(row: str, columns: int) -> int:
    """Rows that a written row takes at least, on a terminal that may have become narrower."""
    if row.isascii():
        return max(1, -(-len(row) // columns))
    rows, used = 1, 0
    for sign in _signs(row):
        for cells in _least_cells(sign):
            if used and used + cells > columns:  # one of two cells that only half fits goes to the next row
                rows, used = rows + 1, 0
            used += cells
    return rows


def _least_cells(sign: str) -> Sequence[int]:
    """Cells of a sign where it is shown as one; together where they stay in one row on every terminal."""
    return (2,) if width_of(sign[0]) == 2 else (1,) * min(sum(map(width_of, sign)), 2)


def _parts(line: str) -> Iterator[list[str]]:
    """Words, runs of spaces, and signs that may stand apart; each as its signs."""
    part: list[str] = []
    apart = False
    for sign in _signs(line):
        alone = sign[0] not in _CLOSING and (width_of(sign[0]) == 2 or _JOINER in sign)
        if part and not _together(part[-1], sign, apart=apart or alone):
            yield part
            part = []
        if sign[0] not in _CLOSING or not part:
            apart = alone
        part.append(sign)
    if part:
        yield part


def _together(before: str, sign: str, *, apart: bool) -> bool:
    if before == " " or sign == " ":
        return before == sign
    return sign[0] in _CLOSING or before[0] in _OPENING or not apart


def _signs(line: str) -> Sequence[str]:
    """Characters with the marks that belong to them: what is one sign to a reader."""
    if line.isascii():
        return line
    signs: list[str] = []
    for character in line:
        if signs and _belongs(signs[-1], character):
            signs[-1] += character
        else:
            signs.append(character)
    return signs


def _belongs(sign: str, character: str) -> bool:
    if character.isascii() or sign == " " or len(sign) >= _MAX_SIGN:
        return False
    if width_of(character) == 0 or sign[-1] == _JOINER or _SKIN.match(character):
        return True
    return len(sign) == 1 and bool(_FLAG.match(sign) and _FLAG.match(character))


_MAX_SIGN = 32
"""Characters; a heap of marks above one letter is no sign."""


def _cut(word: Sequence[str], columns: int) -> list[str]:
    rows, used = [""], 0
    for sign in word:
        cells = width(sign)
        if used + cells > columns and rows[-1]:
            rows.append("")
            used = 0
        rows[-1] += sign
        used += cells
    return rows
