"""Text on a terminal: making foreign text harmless, and how wide it is. Pure."""

import unicodedata
from itertools import pairwise

_TAB = "    "
_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Marks that reorder what follows them: text could pretend to be something else."""
_AS_EMOJI = "\ufe0f"
"""Makes the character before it an emoji of two cells, on terminals that know it."""


def harmless(text: str) -> str:
    """Text that shows on a terminal and cannot command it: line ends stay, tabs become spaces, other control
    characters become visible symbols, and reordering marks and lone surrogates become U+FFFD."""
    return "".join(_harmless_character(each) for each in text.replace("\r\n", "\n"))


def _harmless_character(character: str) -> str:
    if character == "\n" or "\x20" <= character <= "\x7e":
        return character
    if character == "\t":
        return _TAB
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\u2421"
    if code < 0xA0 or 0xD800 <= code <= 0xDFFF or character in _BIDI:
        return "\ufffd"
    return "\n" if character in "\u2028\u2029" else character


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
    """Cells of one line of printable text. Where terminals differ (emoji of several characters), the larger number."""
    if text.isascii():
        return len(text)
    cells = sum(map(width_of, text))
    return cells + sum(width_of(before) == 1 for before, mark in pairwise(text) if mark == _AS_EMOJI)
