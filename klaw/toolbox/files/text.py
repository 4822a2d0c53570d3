"""Files as text: decoding, cutting out lines, and search-and-replace edits. Pure.

An edit applies only where its search text occurs exactly once: what the model did not name clearly is not changed.
"""

import difflib
import re
from collections.abc import Sequence
from itertools import islice
from typing import Annotated

import attrs

from klaw.domain.text import one_line
from klaw.errors import ToolRefused

_LOOK_BYTES = 8192
"""A file with a NUL among its first bytes is no text."""


def is_binary(data: bytes) -> bool:
    return b"\0" in data[:_LOOK_BYTES]


def decode(data: bytes, path: str) -> str:
    """The text of a file, with its line ends. Raises ToolRefused: it is no UTF-8 text; a change would damage it."""
    if is_binary(data):
        raise ToolRefused(f"{path}: is binary, not text")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ToolRefused(f"{path}: byte {error.start} is not UTF-8; a change would damage the file") from None


def encode(text: str) -> bytes:
    """Raises ToolRefused: it holds a NUL, or is not valid Unicode."""
    if "\0" in text:
        raise ToolRefused("content: must not hold a NUL character")
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        raise ToolRefused("content: is not valid Unicode text") from None


def cut(data: bytes, path: str, *, offset: int, limit: int, max_chars: int, numbers: bool) -> str:
    """Lines of a file, and a note on what is not shown. Raises ToolRefused: it is binary, or ``offset`` too large.

    ``offset`` is the first line wanted, from 1 (-20: the last 20), ``limit`` how many. They are cut to whole lines of
    ``max_chars``, unless the first alone is longer. ``numbers``: put its number before each.
    """
    if is_binary(data):
        raise ToolRefused(f"{path}: is binary, not text")
    text = data.decode("utf-8", "replace")
    lines = text.removesuffix("\n").split("\n") if text else []
    total = len(lines)
    start = max(0, total + offset) if offset < 0 else max(0, offset - 1)
    if start >= total and start > 0:
        raise ToolRefused(f"offset: line {offset} does not exist, {path} has {total} lines")
    wanted = [line.removesuffix("\r") for line in lines[start : start + max(1, limit)]]
    if numbers:
        width = len(str(start + len(wanted)))
        wanted = [f"{number:>{width}}: {line}" for number, line in enumerate(wanted, start + 1)]
    shown = _fitting(wanted, max_chars)
    if not total:
        return "(the file is empty)"
    first, last = start + 1 if shown else 0, start + len(shown)
    notes = []
    if first > 1 or last < total:
        notes.append(f"lines {first} to {last} of {total}")
    if last < total:
        notes.append(f"continue with offset {last + 1}")
    if shown and len(shown[0]) > max_chars:
        notes.append(f"line {first} is longer than can be shown")
    if "\ufffd" in text and "\ufffd".encode() not in data:
        notes.append("bytes that are not UTF-8 are shown as \ufffd")
    told = "\n".join(shown)[:max_chars]
    return f"{told}\n[{'; '.join(notes)}]" if notes else told


def _fitting(lines: list[str], max_chars: int) -> list[str]:
    room = max_chars
    for count, line in enumerate(lines):
        room -= len(line) + 1
        if room < 0 and count > 0:
            return lines[:count]
    return lines


MAX_LINES_COMPARED = 20_000
MAX_LINE_CHARS = 400
"""Compared of each line; both bound the time of a failed search."""
_CONTEXT_LINES = 2
_SIMILAR = 0.6


@attrs.frozen(kw_only=True)
class TextEdit:
    """Replace the one place that has ``search``."""

    search: Annotated[str, "text that is in the file exactly once; whole lines are best"]
    replace: Annotated[str, "what stands there afterwards"]


def apply(text: str, edits: Sequence[TextEdit]) -> str:
    """The text after all edits, one after the other. The edits' line ends become CRLF in a text that has no others,
    else LF. Raises ToolRefused: an edit's search text is empty, missing, or there more than once."""
    if not edits:
        raise ToolRefused("edits: the list is empty")
    end = "\r\n" if "\r\n" in text and "\n" not in text.replace("\r\n", "") else "\n"
    for number, edit in enumerate(edits, 1):
        search, replace = (part.replace("\r\n", "\n").replace("\n", end) for part in (edit.search, edit.replace))
        which = f"edit {number} of {len(edits)}"
        if not search:
            raise ToolRefused(f"{which}: search is empty; write a new file with file_write")
        found = text.count(search)
        if found != 1:
            raise ToolRefused(f"{which}: {_missing(text, search) if not found else _several(text, search)}")
        text = text.replace(search, replace)
    return text


def _several(text: str, search: str) -> str:
    found = islice(re.finditer(re.escape(search), text), 10)
    lines = ", ".join(str(text.count("\n", 0, each.start()) + 1) for each in found)
    return f"search occurs {text.count(search)} times (lines {lines}); add lines around it to make it unique"


def _missing(text: str, search: str) -> str:
    lines = text.splitlines()[:MAX_LINES_COMPARED]
    wanted = [line for line in search.splitlines() if line.strip()]
    if not wanted or not lines:
        return "search does not occur; the file is empty" if not lines else "search does not occur"
    nearest = _nearest(lines, wanted[0])
    if nearest is None:
        return "search does not occur, nor anything like its first line; read the file again"
    first = max(0, nearest - _CONTEXT_LINES)
    last = nearest + len(search.splitlines()) + _CONTEXT_LINES
    shown = "\n".join(
        f"{number}: {line[:MAX_LINE_CHARS]}"
        for number, line in enumerate(lines[first : min(last, first + 20)], first + 1)
    )
    hint = " (only spaces differ)" if one_line(search) in one_line("\n".join(lines)) else ""
    return f"search does not occur exactly{hint}; the nearest lines are\n{shown}"


def _nearest(lines: Sequence[str], wanted: str) -> int | None:
    matcher = difflib.SequenceMatcher(autojunk=False)
    matcher.set_seq2(wanted.strip()[:MAX_LINE_CHARS])
    best, place = _SIMILAR, None
    for number, line in enumerate(lines):
        matcher.set_seq1(line.strip()[:MAX_LINE_CHARS])
        if matcher.real_quick_ratio() > best and matcher.quick_ratio() > best and (ratio := matcher.ratio()) > best:
            best, place = ratio, number
    return place
