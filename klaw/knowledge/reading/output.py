"""What the child says about a document: lines of JSON, each an object of one key: ``format``, ``title``, ``look`` and
``page`` (what is done with this page begins), ``block``, ``problem``, ``waited``, at last ``end``. Imports nothing
heavy."""

import json
import re
from typing import BinaryIO, Literal, TypeAlias

from klaw.domain.text import clean_output

MAX_BLOCK_CHARS = 16_384
"""A longer block is sent in pieces: bounds the parent's memory."""
MAX_HEADING_CHARS = 200
MAX_HEADINGS = 12
MAX_TITLE_CHARS = 300
SAMPLE_CHARS = 200_000
"""Beginning of the text by which its language is guessed."""

_LETTERS = str.maketrans({
    "ﬀ": "ff", "ﬁ": "fi", "ﬂ": "fl", "ﬃ": "ffi", "ﬄ": "ffl", "ﬅ": "st", "ﬆ": "st",
    "\xad": "", "\u200b": "", "\ufeff": "", "\xa0": " ", "\u2028": "\n", "\u2029": "\n\n", "\f": "\n\n", "\t": " ",
})  # fmt: skip
"""Ligatures that no search would find, and marks that nobody sees."""
_NO_TITLE = re.compile(
    r"\s*(?:word document|microsoft word\b.*|документ(?: microsoft)?(?: word)?|(?:document|документ|untitled) ?\d*"
    r"|без имени.*|powerpoint presentation|презентация powerpoint|slide 1|слайд 1|unknown|title)\s*$",
    re.IGNORECASE,
)
"""What programs call a document to which nobody gave a title."""
_BLANKS = re.compile(r" {2,}")
_LINE_ENDS = re.compile(r" ?\n ?")


BlockKind: TypeAlias = Literal["text", "table", "code"]


class UnreadableError(Exception):
    """The document cannot be read (any further). Its text is for people and never quotes the document."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class Output:
    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._title = ""
        self._pages = 0
        self._sample: list[str] = []
        self._sampled = 0
        self.under: tuple[str, ...] = ()
        """Headings above those of each block: of a document in another one."""

    def format(self, name: str) -> None:
        self._line({"format": name})

    def page(self, number: int) -> None:
        self._pages = max(self._pages, number)
        self._line({"page": number})

    def look(self, number: int) -> None:
        """A page is examined before the reading begins, which may be too much for this process."""
        self._line({"look": number})

    def waited(self, seconds: float) -> None:
        """So long another program worked for this one."""
        self._line({"waited": seconds})

    def pages(self, count: int) -> None:
        self._pages = count

    def title(self, text: str | None) -> None:
        """Set the title; the first that is not empty counts."""
        if _NO_TITLE.match(text or ""):
            return
        if not self._title and (title := one_line(text or "")[:MAX_TITLE_CHARS]):
            self._title = title
            self._line({"title": title})

    def block(
        self, text: str, *, page: int | None = None, headings: tuple[str, ...] = (), kind: BlockKind = "text"
    ) -> None:
        """A piece of the document. What is not visible is left out; an empty one is not sent."""
        cleaned = (clean_output(text) if kind == "code" else tidy(text)).strip("\n " if kind != "code" else "\n")
        if not cleaned.strip():
            return
        if self._sampled < SAMPLE_CHARS:
            self._sample.append(cleaned[: SAMPLE_CHARS - self._sampled])
            self._sampled += len(cleaned)
        path = [one_line(each)[:MAX_HEADING_CHARS] for each in (*self.under, *headings)[-MAX_HEADINGS:]]
        for piece in _pieces(cleaned):
            self._line({"block": {"text": piece, "page": page, "headings": path, "kind": kind}})

    def problem(self, code: str, text: str, *, page: int | None = None) -> None:
        """Something could not be read; what follows is read nevertheless."""
        self._line({"problem": {"code": code, "text": text, "page": page}})

    def end(self, failed: UnreadableError | None = None) -> None:
        end: dict[str, object] = {"pages": self._pages, "language": language_of("".join(self._sample))}
        if failed is not None:
            end["failed"] = {"code": failed.code, "text": str(failed)}
        self._line({"end": end})
        self._stream.flush()

    def _line(self, value: dict[str, object]) -> None:
        self._stream.write(json.dumps(value).encode("ascii") + b"\n")
        if "page" in value or "look" in value:  # the parent has to know where the reading is
            self._stream.flush()


def tidy(text: str) -> str:
    """Prose as it is kept: no control characters, no blanks in a row, none at the end of a line."""
    return _LINE_ENDS.sub("\n", _BLANKS.sub(" ", clean_output(text).translate(_LETTERS)))


def one_line(text: str) -> str:
    return " ".join(clean_output(text).translate(_LETTERS).split())


def _pieces(text: str) -> list[str]:
    pieces = []
    while len(text) > MAX_BLOCK_CHARS:
        ends = (text.rfind(mark, MAX_BLOCK_CHARS // 2, MAX_BLOCK_CHARS) for mark in "\n ")
        at = next((end for end in ends if end > 0), MAX_BLOCK_CHARS)
        pieces.append(text[:at])
        text = text[at:]
    return [*pieces, text]


_CYRILLIC = re.compile("[а-яё]", re.IGNORECASE)
_NOT_RUSSIAN = re.compile("[іїєґўђћљњџјѕѓќәғқңөұүһ]", re.IGNORECASE)
_LATIN = re.compile("[a-z]", re.IGNORECASE)
_ACCENTED = re.compile("[\xc0-\xd6\xd8-\xf6\xf8-\u024f]")


def language_of(text: str) -> str:
    """``ru`` or ``en``, by the letters; empty for another language, or when there are few letters."""
    cyrillic, latin, accented = (len(each.findall(text)) for each in (_CYRILLIC, _LATIN, _ACCENTED))
    if cyrillic + latin < 20:
        return ""
    if cyrillic >= latin:
        return "ru" if len(_NOT_RUSSIAN.findall(text)) * 100 <= cyrillic else ""
    return "en" if accented * 200 <= latin else ""
