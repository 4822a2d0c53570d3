"""The JSONL logs, made durable in groups: one fsync for all that waits, whatever number of files it touches.

A group's lines go, with their paths, to one commit log that is fsynced, and then to their own logs (page cache only). A
checkpoint fsyncs those and empties the commit log; after a crash, ``open`` puts back what it has and a log lacks. So an
acknowledgement costs one fsync, and the logs stay plain JSONL that any tool can read.

All functions block and run in the writer's thread.
"""

import fcntl
import os
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import structlog

from klaw import atomic_file
from klaw.config.paths import ensure_private_dir, open_private
from klaw.store.engine.commit_log import CommitLog, LogEntry, read_groups
from klaw.store.engine.log_rewrite import LogRewrite

LOCK_FILE = "klaw.lock"
"""Locked by the process that writes to the folder. Never removed: two processes could lock two files of its name."""
_MAX_OPEN = 256

log = structlog.get_logger("klaw.journal")


class Journal:
    """Append-only logs below one folder; they want a checkpoint when the commit log has ``checkpoint_bytes``."""

    def __init__(self, root: Path, *, checkpoint_bytes: int, fsync: Callable[[int], None] = os.fsync) -> None:
        self._root = root
        self._checkpoint_bytes = checkpoint_bytes
        self._fsync = fsync
        self._files: OrderedDict[str, int] = OrderedDict()
        self._dirty: set[str] = set()
        self._new_folders: set[Path] = set()
        self._lock = -1
        self._commit_log: CommitLog | None = None
        self._undo: list[tuple[int, int]] = []
        self.is_read = False
        """A reindex is reading the logs, so none may be rewritten."""
        self.rewrites = 0

    def lock(self) -> None:
        """Take the folder for this process. Raises BlockingIOError while another one has it."""
        self._root.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = open_private(self._root / LOCK_FILE, os.O_RDWR)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._commit_log = CommitLog(self._root, self._fsync)

    def open(self) -> int:
        """Put back what a crash kept from the logs; ``lock`` comes first. Returns how many lines that were."""
        restored = self._replay()
        atomic_file.sync(self._root, self._fsync)
        self._checkpoint_logs()
        self._commit.clear()
        return restored

    def close(self) -> None:
        try:
            if self._commit_log is not None:
                self._checkpoint_logs()
                self._commit.clear(cut=True)
        finally:
            self.release()

    def release(self) -> None:
        """Close all files and let go of the folder, without a checkpoint. Idempotent."""
        for descriptor in (*self._files.values(), self._lock):
            if descriptor >= 0:
                os.close(descriptor)
        self._files.clear()
        self._lock = -1
        if self._commit_log is not None:
            self._commit_log.close()
            self._commit_log = None

    def append(self, entries: Sequence[LogEntry]) -> None:
        """Append a group, durably, until ``rollback``. When it raises OSError, nothing of it stays in any file."""
        self._undo = []
        self._commit.keep()
        try:
            lines_of: dict[str, list[bytes]] = {}
            for entry in entries:
                lines_of.setdefault(entry.path, []).append(entry.line.encode() + b"\n")
            self._commit.append(entries)
            for path, lines in lines_of.items():
                self._write(self._descriptor(path), b"".join(lines))
                self._dirty.add(path)
        except BaseException:
            self.rollback()
            raise

    def rollback(self) -> None:
        for descriptor, size in reversed(self._undo):
            os.ftruncate(descriptor, size)
        self._undo = []
        self._commit.take_back()

    def keep(self) -> None:
        """The last group is final: its database transaction is committed."""
        self._undo = []
        self._commit.keep()

    @property
    def dirty(self) -> int:
        return len(self._dirty) + len(self._new_folders)

    def note_durable(self, sizes: Mapping[str, int]) -> None:
        """Logs were made durable up to some bytes: those that have no more need no checkpoint."""
        for path, size in sizes.items():
            if path in self._dirty and self._size(path) == size:
                self._dirty.discard(path)

    @property
    def pending_bytes(self) -> int:
        return self._commit_log.size if self._commit_log is not None else 0

    @property
    def wants_checkpoint(self) -> bool:
        return self._commit.size >= self._checkpoint_bytes

    def checkpoint(self) -> None:
        if not self.dirty and self._commit.size == 0:
            return
        self._checkpoint_logs()
        self._commit.clear()

    def _checkpoint_logs(self) -> None:
        for path in sorted(self._dirty):
            self._fsync(self._descriptor(path))
        self._dirty.clear()
        for folder in sorted(self._new_folders):
            atomic_file.sync(folder, self._fsync)
        self._new_folders.clear()

    def rewrite(self, path: str, line_of: Callable[[bytes], bytes]) -> int:
        """Replace lines of a log, all or none, while nobody can append. Returns how many changed. Raises OSError."""
        rewrite = self.begin_rewrite(path, line_of)
        try:
            self.exchange(rewrite)
            return rewrite.changed
        finally:
            rewrite.close()

    def begin_rewrite(self, path: str, line_of: Callable[[bytes], bytes]) -> LogRewrite:
        """Begin to replace lines of a log, which ``exchange`` ends; one at a time. ``line_of``: what a line without its
        end becomes. Raises OSError: there is no such log."""
        return LogRewrite(self._root, path, line_of, end=self._size(path), fsync=self._fsync)

    def exchange_all(self, rewrites: Sequence[LogRewrite], *, most: int) -> list[LogRewrite]:
        """``exchange`` several; ``sync_folder`` or the next checkpoint makes their folders durable. Returns those to
        which more was appended."""
        left = [each for each in rewrites if not self.exchange(each, most=most, durable=False)]
        self._new_folders.update(each.folder for each in rewrites if each not in left)
        return left

    def exchange(self, rewrite: LogRewrite, *, most: int | None = None, durable: bool = True) -> bool:
        """Put a log's new content, with what was appended since, in its place. The commit log, which may have the lines
        too, is emptied first. False: more than ``most`` bytes were appended; take them in and come again. When it
        raises OSError, the log is as it was."""
        rewrite.end = self._size(rewrite.path)
        if most is not None and rewrite.left > most:
            return False
        self.checkpoint()
        rewrite.exchange(partial(self._close, rewrite.path))
        if durable:
            rewrite.sync_folder()
        self.rewrites += rewrite.changed > 0
        return True

    @property
    def _commit(self) -> CommitLog:
        assert self._commit_log is not None, "call lock() first"
        return self._commit_log

    def _size(self, path: str) -> int:
        return (self._root / path).stat().st_size

    def _close(self, path: str) -> None:
        descriptor = self._files.pop(path, -1)
        if descriptor >= 0:
            os.close(descriptor)

    def _write(self, descriptor: int, data: bytes) -> None:
        self._undo.append((descriptor, os.fstat(descriptor).st_size))
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]

    def _descriptor(self, path: str) -> int:
        descriptor = self._files.get(path)
        if descriptor is None:
            descriptor = self._open_log(path)
            self._files[path] = descriptor
            self._close_oldest()
        self._files.move_to_end(path)
        return descriptor

    def _open_log(self, path: str) -> int:
        full = self._root / path
        if not full.parent.is_dir():
            ensure_private_dir(full.parent)
            self._new_folders.update((full.parent.parent, self._root))
        if not full.exists():
            self._new_folders.add(full.parent)
        descriptor = open_private(full, os.O_RDWR | os.O_APPEND)
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            # A power cut tore the last line. Readers skip it; what follows begins on a line of its own.
            os.write(descriptor, b"\n")
            log.warning("torn_line", file=full.name)
        return descriptor

    def _close_oldest(self) -> None:
        held = {descriptor for descriptor, _ in self._undo}
        for path in [path for path in self._files if self._files[path] not in held]:
            if len(self._files) <= _MAX_OPEN:
                return
            if path in self._dirty:
                self._fsync(self._files[path])
                self._dirty.discard(path)
            os.close(self._files.pop(path))

    def _replay(self) -> int:
        lines_of: dict[str, list[bytes]] = {}
        for group in read_groups(self._root):
            for path, line in group:
                lines_of.setdefault(path, []).append(line)
        reach = sum(len(line) for lines in lines_of.values() for line in lines)
        return sum(self._put_back(path, lines, reach) for path, lines in lines_of.items())

    def _put_back(self, path: str, lines: list[bytes], reach: int) -> int:
        """Append the lines that the log lacks; a group that was cut off may stand behind them."""
        full = self._root / path
        missing = lines
        if full.exists():
            with full.open("rb+") as file:
                size = file.seek(0, os.SEEK_END)
                while True:
                    file.seek(max(0, size - reach))
                    tail = file.read()
                    present = set(tail.split(b"\n"))
                    missing = [line for line in lines if line not in present]
                    if not missing or reach >= size:
                        break
                    reach *= 4
                torn = tail.rsplit(b"\n", 1)[-1]
                if torn and any(line.startswith(torn) and line != torn for line in missing):
                    file.truncate(size - len(torn))  # the whole line follows below
        descriptor = self._descriptor(path)
        if missing:
            os.write(descriptor, b"\n".join(missing) + b"\n")
        # What a killed process wrote is there, and durable only with the checkpoint that empties the commit log.
        self._dirty.add(path)
        self._new_folders.update((full.parent, full.parent.parent, self._root))
        return len(missing)
