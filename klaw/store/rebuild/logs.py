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
    """Where in the logs of one kind each record is. About 40 bytes a record.

    Args:
        number: name of the number that records are ordered by, with which Klaw begins a line; None: they stay in
            the order of the logs.
        skip: told path, line and reason of a line without a number.
    """

    def __init__(self, root: Path, number: str | None, skip: Callable[[str, bytes, str], None]) -> None:
        self._skip = skip
        self._root = root
        self._number = number
        self._begin = f'{{"{number}":'.encode()
        self._paths: list[str] = []
        self._numbers = array("q")
        self._files = array("q")
        self._offsets = array("q")
        self._lengths = array("q")

    def __len__(self) -> int:
        return len(self._numbers)

    def add(self, path: str, start: int, end: int) -> Iterator[int]:
        """Look through a part of a log; yields the offset reached after every line."""
        number = len(self._paths)
        self._paths.append(path)
        for offset, line in lines(self._root / path, start, end):
            found = self._number_in(line)
            if found is None:
                self._skip(path, line, "NoNumber")
            else:
                self._numbers.append(found)
                self._files.append(number)
                self._offsets.append(offset)
                self._lengths.append(len(line))
            yield offset + len(line)

    def lines(self) -> Generator[tuple[str, bytes], None, None]:
        """Path and line of every record, in the order of numbers; of equal ones the first that was added first."""
        # Python's own sort would keep the interpreter for a second with a million messages.
        order = np.argsort(np.frombuffer(self._numbers, np.int64), kind="stable")
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
    """Parts of logs that have not been read: from and to, by path. Transcripts of runs are in no database."""
    return {
        path: (positions.get(path, 0), size)
        for path, size in now.items()
        if size > positions.get(path, 0) and not runs.is_transcript(path)
    }
