"""The commit log: the lines of whole groups, with the paths of their logs, made durable by one fsync.

A group counts as a whole: an answer without its turn would be given again. All lines of a group but the last have a
space before them, which tells when a kill has left only the first ones.

Lines are written into zeros that are on the disk already, so their fsync changes no metadata: on a memory card, a file
system's own journal would take more blocks than the lines, and twice the time.

All functions block and run in the writer's thread.
"""

import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath

import attrs
import structlog

from klaw.config.paths import open_private
from klaw.store.engine.set_aside import SetAside

COMMIT_LOG = "commit.log"
LOG_FOLDERS = ("conversations", "turns", "memory", "runs")
"""Below the data folder; every log is in one of them."""
RESERVE_BYTES = 65_536
_NAME_MAX = 255

log = structlog.get_logger("klaw.journal")


@attrs.frozen
class LogEntry:
    path: str
    """The path of the log, relative to the journal's root."""
    line: str


class CommitLog:
    """The open file, locked against a server of an earlier Klaw. Raises BlockingIOError: another has it."""

    def __init__(self, root: Path, fsync: Callable[[int], None]) -> None:
        self._fsync = fsync
        self._fdatasync = os.fdatasync if fsync is os.fsync else fsync
        self._descriptor = open_private(root / COMMIT_LOG, os.O_RDWR)
        self.size = 0
        self._kept = self._reserved = 0
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            self.close()
            raise

    def append(self, group: Sequence[LogEntry]) -> None:
        """Make a group durable; until ``keep`` it may be taken back, also when this raises OSError."""
        lines = (f"{each.path}\t{' ' if n < len(group) else ''}{each.line}\n" for n, each in enumerate(group, 1))
        data = "".join(lines).encode()
        start, end = self.size, self.size + len(data)
        if end > self._reserved:
            reserved = end + RESERVE_BYTES
            self._write(bytes(reserved - self._reserved), self._reserved)
            self._fsync(self._descriptor)
            self._reserved = reserved
        self.size = end  # before it is written: half of it is taken back too
        self._write(data, start)
        self._fdatasync(self._descriptor)

    def keep(self) -> None:
        self._kept = self.size

    def take_back(self) -> None:
        if self.size > self._kept:
            self._cut(self._kept)

    def clear(self, *, cut: bool = False) -> None:
        """Empty it durably, so that after a power cut nothing old follows new lines. ``cut``: give the space back. When
        it raises OSError, it becomes durable with the next lines."""
        if 0 < self.size <= RESERVE_BYTES and not cut:
            try:
                self._write(bytes(self.size), 0)
                self._fdatasync(self._descriptor)
            except OSError:
                self._cut(0)
                raise
            self.size = self._kept = 0
        else:  # of much, or of what was there before
            self._cut(0)
            self._fsync(self._descriptor)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1

    def _cut(self, size: int) -> None:
        """The zeros that come before the next lines make it durable."""
        os.ftruncate(self._descriptor, size)
        self.size = self._kept = self._reserved = size

    def _write(self, data: bytes, start: int) -> None:
        view = memoryview(data)
        while view:
            count = os.pwrite(self._descriptor, view, start)
            view, start = view[count:], start + count


def read_groups(root: Path) -> Iterator[list[tuple[str, bytes]]]:
    """The whole groups of a commit log: paths of logs with their lines. What is no line of a log is set aside."""
    aside, odd, torn = SetAside(root), False, False
    group: list[tuple[str, bytes]] = []
    data = (root / COMMIT_LOG).read_bytes()
    for number, raw in enumerate(data.split(b"\n")[:-1], 1):  # a torn last line was never acknowledged; nor were zeros
        path, tab, line = raw.partition(b"\t")
        if b"\0" in raw:  # a power cut left out a block of a group that nobody was told of
            group, torn = [], line[:1] in (b"", b" ", b"\0")
        if b"\0" in raw or not tab or not _is_log(path):
            log.warning("malformed_line", file=COMMIT_LOG, line=number)
            aside.store(COMMIT_LOG, raw)  # the commit log is emptied in the end
            odd = True
            continue
        group.append((path.decode(), line.lstrip(b" ")))
        if not line.startswith(b" "):
            if not torn:
                yield group
            group, torn = [], False
    if group:
        log.warning("half_group_dropped", count=len(group))
    if odd:
        aside.sync(COMMIT_LOG)


def _is_log(path: bytes) -> bool:
    try:
        parts = PurePosixPath(path.decode()).parts
    except UnicodeDecodeError:
        return False
    return (
        len(parts) in (2, 3)
        and parts[0] in LOG_FOLDERS
        and parts[-1].endswith(".jsonl")
        and ".." not in parts
        and b"\0" not in path
        and all(len(os.fsencode(part)) <= _NAME_MAX for part in parts)
    )
