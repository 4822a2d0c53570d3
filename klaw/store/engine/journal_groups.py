"""Changes that are several lines of the memory journal: all of them count, or none.

A kill or a power cut may leave the first lines of a group only: a fact that gave way to one that is not there, a person
who became another one without leaving them the names. So each line of such a change but the last names the entry that
ends it (``until``), and the start takes the lines of a change without its end out of the log again. Nobody was told of
it.
"""

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import structlog

from klaw.store.changes import MEMORY
from klaw.store.engine.journal import Entry
from klaw.store.engine.jsonl import lines_backwards

_UNTIL = ',"until":'
MOST_LINES = 10_000
"""Lines at a log's end that are looked at: far more than any change has."""

log = structlog.get_logger("klaw.journal")


def joined(entries: Sequence[Entry]) -> list[Entry]:
    """One request's lines, with those of the memory journal made one change. Pure."""
    memory = [place for place, entry in enumerate(entries) if entry.path.startswith(f"{MEMORY}/")]
    if len(memory) < 2:
        return list(entries)
    last = json.loads(entries[memory[-1]].line)["entry"]
    out = list(entries)
    for place in memory[:-1]:
        out[place] = Entry(entries[place].path, f"{entries[place].line[:-1]}{_UNTIL}{last}}}")
    return out


def cut(data_dir: Path, known: int) -> int:
    """Take a change without its end out of the memory journal. Returns how many lines that were.

    Args:
        data_dir: the data folder; nobody writes to its logs meanwhile.
        known: the last entry that the database has: that was whole.

    Raises:
        OSError: a log cannot be read or written.
    """
    ends = {path: list(_end_of(path)) for path in sorted((data_dir / MEMORY).glob("*.jsonl"))}
    top = max([known, *(entry for end in ends.values() for entry, _, _ in end)])
    count = 0
    for path, end in ends.items():
        half = []
        for entry, until, size in end:  # the last line first
            if not max(top, entry) < until:
                break
            half.append(size)
        if half:
            _truncate(path, half)
            count += len(half)
    if count:
        log.warning("half_change_dropped", count=count)
    return count


def _end_of(path: Path) -> Iterator[tuple[int, int, bytes]]:
    """Number, end and bytes of the last lines, as far back as one may be a part of the last change."""
    for place, line in enumerate(lines_backwards(path)):
        try:
            record = json.loads(line)
            entry, until = int(record["entry"]), int(record.get("until", 0))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue  # torn: of no change that anybody reads
        yield entry, until, line
        if not until or place > MOST_LINES:
            return


def _truncate(path: Path, half: Sequence[bytes]) -> None:
    """Cut the log before the first of its last lines; what is torn behind them goes too."""
    with path.open("rb+") as file:
        content = file.read()
        at = content.rfind(half[-1])
        file.truncate(at)
        os.fsync(file.fileno())
