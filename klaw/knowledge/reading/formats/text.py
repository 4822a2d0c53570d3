"""Plain text, Markdown, JSON, RTF and subtitles, in whatever charset."""

import codecs
import io
import re
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from typing import Any, BinaryIO

from klaw.domain.charset import BYTE_ORDER_MARKS, guess
from klaw.domain.text import decode, find_charset, plural
from klaw.knowledge.reading.output import BlockKind, Output, UnreadableError, one_line

CHUNK_BYTES = 1 << 20
LONGEST_LINE = MAX_PARAGRAPH = 8192
"""Characters: what is longer is taken in pieces."""
UNSURE = "does not say in which charset it is, and it cannot be told for sure: save it as UTF-8 if letters are wrong"


def open_text(file: BinaryIO, output: Output) -> io.TextIOWrapper:
    """A file as text, in the charset that its bytes look like; what does not fit becomes U+FFFD."""
    codec, sure = _charset(file)
    if not sure:
        output.problem("charset", UNSURE)
    return io.TextIOWrapper(file, encoding=codec, errors="replace")


def decoded(data: bytes, output: Output, header: str | None = None, *, declares: bool = True) -> str:
    """A text that was taken in as a whole; ``header``: the charset that is declared outside of it."""
    if not find_charset(data, header, declares=declares)[1]:
        output.problem("charset", UNSURE)
    return decode(data, header, declares=declares)


def _charset(file: BinaryIO) -> tuple[str, bool]:
    """By its mark, as UTF-8 if all of it is that, else by the bytes that are not."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    data = file.read(CHUNK_BYTES)
    for mark, codec in BYTE_ORDER_MARKS:
        if data.startswith(mark):
            file.seek(0)
            return "utf-8-sig" if codec == "utf-8" else "utf-16", True
    found = guess(data)
    while data and found[0] == "utf-8":
        try:
            decoder.decode(data)
        except UnicodeDecodeError:
            found = guess(data)
        data = file.read(CHUNK_BYTES)
    file.seek(0)
    return found


def lines(text: io.TextIOBase) -> Iterator[str]:
    while line := text.readline(LONGEST_LINE):
        yield line.rstrip("\n")


def read_plain(file: BinaryIO, output: Output, _request: Mapping[str, Any]) -> None:
    paragraphs(lines(open_text(file, output)), output)


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
    Markdown(output).read(lines(open_text(file, output)))


_HEADING = re.compile(r" {0,3}(#{1,6})\s+(.*)")
_UNDERLINE = re.compile(r" {0,3}(=+|-+)\s*$")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_ROW = re.compile(r"\s*\|")
_RULE = re.compile(r"(?=.*-)[\s|:+-]*+$")
"""Below the first row of a table."""


class Markdown:
    """Reads Markdown into blocks; its first heading may be the document's title."""

    def __init__(self, output: Output, *, first_is_title: bool = True) -> None:
        self._output = output
        self._first_is_title = first_is_title
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
        headings = tuple(text for _, text in self._path)
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
        for event, value in ijson.basic_parse(_Bytes(open_text(file, output)), multiple_values=True):
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


_RTF_PICTURE = re.compile(r"[0-9a-fA-F\r\n]{1000,}")
_RTF_TITLE = re.compile(r"\{\\title ([^{}]*)\}")
_RTF_BESIDE = re.compile(r"\\(?:footnote|header[lrf]?|footer[lrf]?|annotation)\b ?")
"""Before text that is no part of the running one."""
_RTF_DELETED = re.compile(r"\{[^{}]{0,200}\\(?:deleted|v)\b(?!0)[^{}]*\}")
STEP_S = 60
"""How often the time is said."""
_CUE = re.compile(r"\s*(?:(\d+):)?(\d\d):(\d\d)[.,]\d+\s*-->")
_VOICE = re.compile(r"<v(?:\.[^ >]*)? ([^>]+)>")
_TAG = re.compile(r"<[^>]*>|\{\\[^}]*\}")


def read_rtf(file: BinaryIO, output: Output, _request: Mapping[str, Any]) -> None:
    rtf_to_text = import_module("striprtf.striprtf").rtf_to_text
    source = _RTF_PICTURE.sub("", file.read().decode("latin-1"))
    if title := _RTF_TITLE.search(source):
        output.title(rtf_to_text(r"{\rtf1\ansi\ansicpg1251 " + title[1] + "}", errors="replace"))
    source = _RTF_BESIDE.sub(lambda _: "\\par ", _RTF_DELETED.sub("", source))
    paragraphs("\n\n".join(rtf_to_text(source, errors="replace").splitlines()).splitlines(), output)


def read_subtitles(file: BinaryIO, output: Output, _request: Mapping[str, Any]) -> None:
    """What is said, with the time (``[1:02:30]``) each minute; a line that stays on the screen is taken once."""
    said: list[str] = []
    seconds, told, before, size = 0, -STEP_S, "", 0
    in_cue = False
    for line in lines(open_text(file, output)):
        if cue := _CUE.match(line):
            hours, minutes, rest = (int(each or 0) for each in cue.groups())
            seconds, in_cue = (hours * 60 + minutes) * 60 + rest, True
        elif not line.strip():
            in_cue = False
        elif in_cue and (text := _TAG.sub("", _VOICE.sub(r"\1: ", line)).strip()) and text != before:
            if seconds >= told + STEP_S or size > MAX_PARAGRAPH:
                output.block("\n".join(said))
                said, size, told = [f"[{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}]"], 0, seconds
            said.append(text)
            before, size = text, size + len(text)
    output.block("\n".join(said))
