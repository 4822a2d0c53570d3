"""The JSONL logs as files: which there are, their lines from either end in bounded memory, and how they were last.

The database keeps how every log was when all its lines had been looked for. One that lost its newest rows (a power cut,
an old copy) says so of fewer logs, never of too many; names and times prove nothing, because a clock may go back.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import apsw

from klaw.store.engine import meta
from klaw.store.engine.commit_log import LOG_FOLDERS

_BLOCK = 64 * 1024

TOO_LONG = b""
"""Stands for a line that is longer than the caller wants; no line of a file is empty here."""


def lines_backwards(path: Path, *, longest: int | None = None, at_most: int | None = None) -> Iterator[bytes]:
    """The file's lines, last first, without line breaks and empty ones; ``TOO_LONG`` for one that is longer than
    ``longest``. Only ``at_most`` bytes from the file's end are read; a line that begins before them is left out."""
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


_OF_VALUES = (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError)
FAULTS = (*_OF_VALUES, apsw.MismatchError, apsw.TooBigError)
"""Errors that a malformed line may cause."""


def parse(line: bytes) -> dict[str, Any]:
    """The JSON object in a line. Raises one of FAULTS."""
    record = json.loads(line)
    if not isinstance(record, dict):
        raise TypeError("no object")
    return record


def record_of(line: bytes) -> dict[str, Any] | None:
    """The JSON object in a line, None if it has no object."""
    try:
        return parse(line)
    except FAULTS:
        return None


KEY = "log_stamps"

Stamps: TypeAlias = Mapping[str, Sequence[int]]
"""Size, time of the last change and inode of each log, by its path below the data folder."""


def files(root: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Every log by its path below the data folder, which has ``/`` between its parts."""
    for folder in LOG_FOLDERS:
        for directory, _, names in os.walk(root / folder):
            for name in names:
                if name.endswith(".jsonl"):
                    path = Path(directory, name)
                    yield path.relative_to(root).as_posix(), path.stat()


def stamps(root: Path) -> Stamps:
    return {path: [found.st_size, found.st_mtime_ns, found.st_ino] for path, found in files(root)}


def compared(connection: apsw.Connection) -> Stamps:
    """How the logs were when the database had all that they had; empty when that is not known."""
    try:
        found = json.loads(meta.get(connection, KEY) or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def remember(connection: apsw.Connection, now: Stamps) -> None:
    """Note that the database has what the logs have."""
    meta.put(connection, KEY, json.dumps(now, separators=(",", ":")))
