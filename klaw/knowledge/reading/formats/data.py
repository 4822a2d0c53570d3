"""JSON, read as a stream: each value as a line, behind its path. Several values one after the other are read, too."""

import io
from collections.abc import Mapping
from importlib import import_module
from typing import Any, BinaryIO

from klaw.domain.text import plural
from klaw.knowledge.reading.formats.text import MAX_PARAGRAPH, open_text
from klaw.knowledge.reading.output import Output, UnreadableError, one_line

MAX_DEPTH = 100
_OPENS = ("start_map", "start_array")
_CLOSES = ("end_map", "end_array")


class _Bytes:
    """A text in whatever charset as UTF-8."""

    def __init__(self, text: io.TextIOWrapper) -> None:
        self._text = text

    def read(self, size: int = -1, /) -> bytes:
        return self._text.read(size).encode("utf-8", "replace")


def read(file: BinaryIO, output: Output, _request: Mapping[str, Any]) -> None:
    """Values that belong to one object are one paragraph. Of several values those before a damaged one are read."""
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
            if event not in _CLOSES:
                _next(path)
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


def _next(path: list[str | int]) -> None:
    if path and isinstance(path[-1], int):
        path[-1] += 1


def _written(path: list[str | int]) -> str:
    parts = [f"[{part}]" if isinstance(part, int) else f".{one_line(part)}" for part in path]
    return f"{''.join(parts).removeprefix('.')}: " if parts else ""
