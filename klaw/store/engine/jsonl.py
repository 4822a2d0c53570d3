"""Reading JSONL logs from their end, line by line, in bounded memory."""

import os
from collections.abc import Iterator
from pathlib import Path

_BLOCK = 64 * 1024

TOO_LONG = b""
"""Stands for a line that is longer than the caller wants; no line of a file is empty here."""


def lines_backwards(path: Path, *, longest: int | None = None, at_most: int | None = None) -> Iterator[bytes]:
    """The file's lines, last first, without line breaks; empty lines are left out.

    Args:
        longest: a longer line is not kept in memory; ``TOO_LONG`` comes in its place.
        at_most: only so many bytes from the file's end are read; a line that begins before them is left out.
    """
    with path.open("rb") as file:
        position = file.seek(0, os.SEEK_END)
        end = 0 if at_most is None else max(0, position - at_most)
        pieces: list[bytes] = []  # of the line whose beginning is not reached yet, last first
        size = 0
        while position > end:
            step = min(_BLOCK, position - end)
            position -= step
            file.seek(position)
            first, *lines = file.read(step).split(b"\n")
            if lines:
                pieces.append(lines.pop())
                size += len(pieces[-1])
                yield from _whole(pieces, size, longest)
                for line in reversed(lines):
                    yield from _whole([line], len(line), longest)
                pieces, size = [], 0
            pieces.append(first)
            size += len(first)
            if longest is not None and size > longest:
                pieces.clear()
        if position == 0:
            yield from _whole(pieces, size, longest)


def _whole(pieces: list[bytes], size: int, longest: int | None) -> Iterator[bytes]:
    if longest is not None and size > longest:
        yield TOO_LONG
    elif size:
        yield b"".join(reversed(pieces))
