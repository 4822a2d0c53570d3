"""What text Klaw accepts and keeps. Pure."""

import re
import unicodedata
from typing import Literal


def has_forbidden(text: str) -> bool:
    """Whether a text holds NUL or a lone surrogate: neither can be stored or sent as UTF-8 faithfully."""
    return "\0" in text or any("\ud800" <= character <= "\udfff" for character in text)


def plural(count: int, one: str, many: str | None = None) -> str:
    """A number with its noun: ``1 message``, ``2 messages``, ``1,000 messages``."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def printable(text: str) -> str:
    """The text with escapes for all that does not print as itself: nothing in it hides, by control characters, by
    invisible ones or by turning the direction of writing."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def clean(text: str) -> str:
    """A model's text with NUL and lone surrogates replaced by U+FFFD."""
    if not has_forbidden(text):
        return text
    return "".join("\ufffd" if c == "\0" or "\ud800" <= c <= "\udfff" else c for c in text)


_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,1000}(?:\x07|\x1b\\)|[@-Z\\-_])")
"""What programs write to colour and move about on terminals."""
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


def clean_output(text: str) -> str:
    """Text of a tool or a program as plain data.

    Line ends become line feeds, terminal codes and control characters are left out, and what cannot be stored is
    replaced (see ``clean``).
    """
    plain = _ESCAPES.sub("", clean(text)).replace("\r\n", "\n").replace("\r", "\n")
    return _CONTROLS.sub("", plain)


_MARKS = re.compile(r"(?:[^\w\x00-\x7f]|[\uff9e\uff9f]){30}")
"""So many characters that may be combining marks, one behind the other; no word of any language has so many (UAX #15,
"stream-safe": 30)."""


def normalized(form: Literal["NFC", "NFKC"], text: str) -> str:
    """``unicodedata.normalize`` in linear time.

    It sorts the marks of a character, which takes the square of their number: 10 s and the interpreter's lock for 64 KB
    of nothing else. So a long run of marks is normalised in pieces.
    """
    if text.isascii():
        return text
    pieces, done = [], 0
    for run in _MARKS.finditer(text):
        pieces.append(unicodedata.normalize(form, text[done : run.end()]))
        done = run.end()
    return "".join([*pieces, unicodedata.normalize(form, text[done:])])
