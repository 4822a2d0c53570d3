"""Reading the logs forward in bounded memory: where each record is first, then the records in the order of row ids.

The order matters: chats get their short keys in the order in which they first spoke, as they did when it happened.
"""

import json
import os
from array import array
from collections import OrderedDict
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import structlog

from klaw.store import records

_ROWID = b'{"rowid":'
"""How Klaw begins a message's line; other spellings are read too, only slower."""
_MAX_OPEN = 64

log = structlog.get_logger("klaw.reindex")


def sizes(root: Path) -> dict[str, int]:
    """Size of every log by its path below the data folder, which has ``/`` between its parts."""
    found = {}
    for folder in (root / records.CONVERSATIONS, root / records.TURNS):
        for directory, _, names in os.walk(folder):
            for name in names:
                if name.endswith(".jsonl"):
                    path = Path(directory, name)
                    found[path.relative_to(root).as_posix()] = path.stat().st_size
    return found


def is_turns(path: str) -> bool:
    return path.startswith(f"{records.TURNS}/")


def lines(file: Path, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Lines of a part of a file with their offsets, without line ends; empty ones are left out.

    A last line without its end counts as one: whether it is torn shows when it is parsed.
    """
    try:
        opened = file.open("rb")
    except FileNotFoundError:
        return  # its chat's folder was removed meanwhile
    with opened:
        opened.seek(start)
        while start < end and (line := opened.readline(end - start)):
            if content := line.rstrip(b"\n"):
                yield start, content
            start += len(line)


class MessageIndex:
    """Where in the logs each message is. About 40 bytes a message.

    Args:
        root: the data folder.
    """

    def __init__(self, root: Path) -> None:
        self.malformed = 0
        self._root = root
        self._paths: list[str] = []
        self._rowids = array("q")
        self._files = array("q")
        self._offsets = array("q")
        self._lengths = array("q")

    def __len__(self) -> int:
        return len(self._rowids)

    def add(self, path: str, start: int, end: int) -> Iterator[int]:
        """Look through a part of a log; yields the offset reached after every line."""
        number = len(self._paths)
        self._paths.append(path)
        for offset, line in lines(self._root / path, start, end):
            rowid = _rowid(line)
            if rowid is None:
                self.malformed += 1
                log.warning("malformed_line", file=Path(path).name, error="NoRowId")
            else:
                self._rowids.append(rowid)
                self._files.append(number)
                self._offsets.append(offset)
                self._lengths.append(len(line))
            yield offset + len(line)

    def lines(self) -> Generator[tuple[str, bytes], None, None]:
        """Path and line of every message, in the order of row ids; of equal ones the first that was added first."""
        # Python's own sort would keep the interpreter for a second with a million messages.
        order = np.argsort(np.frombuffer(self._rowids, np.int64), kind="stable")
        opened: OrderedDict[int, int] = OrderedDict()
        try:
            for place in map(int, order):
                number = self._files[place]
                if number not in opened:
                    opened[number] = os.open(self._root / self._paths[number], os.O_RDONLY | os.O_CLOEXEC)
                    if len(opened) > _MAX_OPEN:
                        os.close(opened.popitem(last=False)[1])
                opened.move_to_end(number)
                yield self._paths[number], os.pread(opened[number], self._lengths[place], self._offsets[place])
        finally:
            for descriptor in opened.values():
                os.close(descriptor)


def _rowid(line: bytes) -> int | None:
    """The row id in a message's line, None if there is none."""
    if line.startswith(_ROWID):
        digits = line[len(_ROWID) : line.find(b",")]
        if digits.isdigit() and len(digits) < 19:
            return int(digits)
    record = parse(line)
    rowid = record.get("rowid") if record else None
    return rowid if isinstance(rowid, int) and abs(rowid) < 1 << 62 else None


def parse(line: bytes) -> dict[str, Any] | None:
    """The JSON object in a line, None if there is none."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):  # also covers UnicodeDecodeError
        return None
    return record if isinstance(record, dict) else None


def grown(positions: Mapping[str, int], now: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """Parts of logs that have not been read: from and to, by path."""
    return {path: (positions.get(path, 0), size) for path, size in now.items() if size > positions.get(path, 0)}
