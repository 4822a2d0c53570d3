"""Plain text, Markdown and JSON, read as a stream in whatever charset."""

import io
import re
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from typing import Any, BinaryIO

from klaw.domain.text import BYTE_ORDER_MARKS, guess, plural, python_name
from klaw.knowledge.reading.output import BlockKind, Output, UnreadableError, one_line

CHUNK_BYTES = 1 << 20
LONGEST_LINE = MAX_PARAGRAPH = 8192
"""Characters: what is longer is taken in pieces."""


def open_text(file: BinaryIO, label: str | None = None) -> io.TextIOWrapper:
    """A file as text; what does not fit its charset, declared by ``label`` or guessed, becomes U+FFFD."""
    return io.TextIOWrapper(file, encoding=_charset(file, label), errors="replace")


def _charset(file: BinaryIO, label: str | None) -> str:
    """By its mark, by the label, as UTF-8 if all of it is that, else by the bytes that are not."""
    head = file.read(4)
    file.seek(0)
    for mark, name in BYTE_ORDER_MARKS:
        if head.startswith(mark):
            return "utf-8-sig" if name == "utf-8" else "utf-16"
    found = python_name(label)
    pending = b""
    while found is None:
        chunk = file.read(CHUNK_BYTES)
        try:
            (pending + chunk).decode()
            pending = b""
        except UnicodeDecodeError as error:
            data = pending + chunk
            if error.start < len(data) - 3:
                found = guess(data[max(0, error.start - 1000) :])
            pending = data[error.start :]  # a character may be cut in two
        if not chunk:
            found = found or "utf-8"
    file.seek(0)
    return found


def lines(text: io.TextIOBase) -> Iterator[str]:
    while line := text.readline(LONGEST_LINE):
        yield line.rstrip("\n")


def read_plain(file: BinaryIO, output: Output, _request: Mapping[str, Any]) -> None:
    paragraphs(lines(open_text(file)), output)


def paragraphs(source: Iterable[str], output: Output, headings: tuple[str, ...] = ()) -> None:
    """What stands between empty lines."""
    paragraph: list[str] = []
    size = 0
    for line in source:
        if not line.strip() or size > MAX_PARAGRAPH:
            output.block("\n".join(paragraph), headings=headings)
            paragraph, size = [], 0
        paragraph.append(line)
        size += len(line)
    output.block("\n".join(paragraph), headings=headings)


def read_markdown(file: BinaryIO, output: Output, _request: Mapping[str, Any]) -> None:
    Markdown(output).read(lines(open_text(file)))


_HEADING = re.compile(r" {0,3}(#{1,6})\s+(.*)")
_UNDERLINE = re.compile(r" {0,3}(=+|-+)\s*$")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_ROW = re.compile(r"\s*\|")
_RULE = re.compile(r"(?=.*-)[\s|:+-]*+$")
"""Below the first row of a table."""


class Markdown:
    """Reads Markdown into blocks, under some headings; the first heading of its own may be the document's title."""

    def __init__(self, output: Output, *, first_is_title: bool = True, under: tuple[str, ...] = ()) -> None:
        self._output = output
        self._first_is_title = first_is_title
        self._under = under
        self._path: list[tuple[int, str]] = []
        self._kept: list[str] = []
        self._size = 0
        self._is_table = False

    def read(self, source: Iterable[str]) -> None:
        fence = ""
        for line in source:
            if fence:
                if line.strip().startswith(fence) and not line.strip().strip(fence[0]):
                    self._flush("code")
                    fence = ""
                else:
                    self._keep(line, "code")
            elif opened := _FENCE.match(line):
                self._flush()
                fence = opened[1]
            else:
                self._line(line)
        self._flush("code" if fence else "text")

    def _line(self, line: str) -> None:
        if heading := _HEADING.match(line):
            self._flush()
            self._heading(len(heading[1]), heading[2].rstrip().rstrip("#").rstrip())
        elif len(self._kept) == 1 and not self._is_table and (under := _UNDERLINE.match(line)):
            title = self._kept.pop()
            self._heading(1 if under[1][0] == "=" else 2, title)
        elif not line.strip():
            self._flush()
        else:
            is_row = bool(_ROW.match(line))
            if is_row != self._is_table:
                self._flush()
                self._is_table = is_row
            if not (is_row and _RULE.match(line)):
                self._keep(line, "text")

    def _heading(self, level: int, text: str) -> None:
        if not text.strip():
            return
        while self._path and self._path[-1][0] >= level:
            self._path.pop()
        self._path.append((level, text.strip()))
        if self._first_is_title:
            self._output.title(text)
        self._kept = [text]
        self._flush()

    def _keep(self, line: str, kind: BlockKind) -> None:
        if self._size > MAX_PARAGRAPH:
            table = self._is_table
            self._flush(kind)
            self._is_table = table
        self._kept.append(line)
        self._size += len(line)

    def _flush(self, kind: BlockKind = "text") -> None:
        headings = (*self._under, *(text for _, text in self._path))
        if kind == "text" and self._is_table:
            kind = "table"
        self._output.block("\n".join(self._kept), headings=headings, kind=kind)
        self._kept, self._size, self._is_table = [], 0, False


MAX_DEPTH = 100
_OPENS = ("start_map", "start_array")
_CLOSES = ("end_map", "end_array")


class _Bytes:
    """A text in whatever charset as UTF-8."""

    def __init__(self, text: io.TextIOWrapper) -> None:
        self._text = text

    def read(self, size: int = -1, /) -> bytes:
        return self._text.read(size).encode("utf-8", "replace")


def read_json(file: BinaryIO, output: Output, _request: Mapping[str, Any]) -> None:
    """Each value as a line, behind its path; those of one object are a paragraph. A damaged value ends the reading."""
    ijson = import_module("ijson")
    path: list[str | int] = []
    lines: list[str] = []
    size = whole = 0
    try:
        for event, value in ijson.basic_parse(_Bytes(open_text(file)), multiple_values=True):
            if event in _CLOSES:
                path.pop()
            if event == "map_key":
                path[-1] = value
                continue
            if event not in _CLOSES and path and isinstance(path[-1], int):
                path[-1] += 1
            if event in _OPENS:
                path.append(-1 if event == "start_array" else "")
                if len(path) > MAX_DEPTH:
                    raise UnreadableError("too_deep", f"is nested more than {MAX_DEPTH} deep")
            elif event not in _CLOSES and value is not None:
                text = str(value).lower() if isinstance(value, bool) else one_line(str(value))
                lines.append(f"{_written(path)}{text}")
                size += len(lines[-1])
            if event in _CLOSES or size > MAX_PARAGRAPH:
                output.block("\n".join(lines), kind="table")
                lines, size = [], 0
            whole += not path
    except (ijson.JSONError, OverflowError):
        output.block("\n".join(lines), kind="table")
        if not whole:
            raise UnreadableError("broken", "is not valid JSON") from None
        output.problem("part_broken", f"is not valid JSON behind {plural(whole, 'value')}")
        return
    output.block("\n".join(lines), kind="table")


def _written(path: list[str | int]) -> str:
    parts = [f"[{part}]" if isinstance(part, int) else f".{one_line(part)}" for part in path]
    return f"{''.join(parts).removeprefix('.')}: " if parts else ""
