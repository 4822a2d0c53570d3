"""Reading the logs forward in bounded memory: where each record is first, then the records in the order of numbers.

The order matters: chats get their short keys in the order in which they first spoke, as they did when it happened.
"""

import os
from array import array
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path

import numpy as np

from klaw.convert import JOURNAL
from klaw.store.engine.log_files import files, record_of
from klaw.store.kinds import runs

_MAX_OPEN = 64


def sizes(root: Path) -> dict[str, int]:
    """Size of every log by its path below the data folder, but for transcripts of runs: no database has them."""
    return {path: found.st_size for path, found in files(root) if not runs.is_transcript(path)}


def lines(file: Path, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Lines of a part of a file with their offsets, without line ends; empty ones are left out. A last line without its
    end counts: whether it is torn shows when it is parsed."""
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


class RecordIndex:
    """Where in the logs of one kind each record is. 32 bytes a record.

    Args:
        number: name of the number that records are ordered by, with which Klaw begins a line; None: they stay in
            the order of the logs.
        skip: called with path, line and reason of a line without a number.
    """

    def __init__(self, root: Path, number: str | None, skip: Callable[[str, bytes, str], None]) -> None:
        self._skip = skip
        self._root = root
        self._number = number
        self._begin = f'{{"{number}":'.encode()
        self._paths: list[str] = []
        self._places = array("q")
        """Number, log, offset and length of each record."""

    def __len__(self) -> int:
        return len(self._places) // 4

    def add(self, path: str, start: int, end: int) -> Iterator[int]:
        """Look through a part of a log; yields the offset reached after every line."""
        for offset, line in lines(self._root / path, start, end):
            number = self._number_in(line)
            if number is None:
                self._skip(path, line, "NoNumber")
            else:
                self._places.extend((number, len(self._paths), offset, len(line)))
            yield offset + len(line)
        self._paths.append(path)

    def lines(self) -> Generator[tuple[str, bytes], None, None]:
        """Path and line of every record, in the order of numbers; of equal ones the first that was added first."""
        places = np.frombuffer(self._places, np.int64).reshape(-1, 4)
        opened: OrderedDict[int, int] = OrderedDict()
        try:
            # Python's own sort would keep the interpreter for a second with a million messages.
            for place in np.argsort(places[:, 0], kind="stable"):
                _, log, offset, length = map(int, places[place])
                if log not in opened:
                    opened[log] = os.open(self._root / self._paths[log], os.O_RDONLY | os.O_CLOEXEC)
                    if len(opened) > _MAX_OPEN:
                        os.close(opened.popitem(last=False)[1])
                opened.move_to_end(log)
                yield self._paths[log], os.pread(opened[log], length, offset)
        finally:
            for descriptor in opened.values():
                os.close(descriptor)

    def _number_in(self, line: bytes) -> int | None:
        if self._number is None:
            return 0
        if line.startswith(self._begin):
            digits = line[len(self._begin) : line.find(b",")]
            if digits.isdigit() and len(digits) < 19:
                return int(digits)
        record = record_of(line) or {}
        try:
            return JOURNAL.read(record.get(self._number), int)
        except (TypeError, ValueError):
            return None


def grown(positions: Mapping[str, int], now: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """Parts of logs that have not been read: from and to, by path."""
    return {path: (positions.get(path, 0), size) for path, size in now.items() if size > positions.get(path, 0)}
