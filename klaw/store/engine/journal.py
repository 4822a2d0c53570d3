"""The JSONL logs, made durable in groups: one fsync for all that waits, whatever number of files it touches.

A group's lines go, with their paths, to one commit log that is fsynced; from that moment they survive a power cut. Then
they go to their own logs (page cache only). A checkpoint fsyncs the logs themselves and empties the commit log. At
start, ``open`` puts back what the commit log has and a log lacks. So an acknowledgement costs one fsync, and the logs
stay plain JSONL, one folder a chat, that any tool can read.

A group counts as a whole: an answer without its turn would be given again. A kill in the middle of writing it leaves
its first lines in the commit log only, where all lines of a group but the last have a space before them.

All functions block and run in the writer's thread.
"""

import fcntl
import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path, PurePosixPath

import attrs
import structlog

from klaw import atomic_file
from klaw.config.paths import ensure_private_dir, open_private
from klaw.store.engine.log_rewrite import LogRewrite
from klaw.store.engine.set_aside import SetAside

COMMIT_LOG = "commit.log"
LOCK_FILE = "klaw.lock"
"""Held by whoever writes to the folder. Empty, and never removed: two processes could lock two files of its name."""
LOG_FOLDERS = ("conversations", "turns", "memory", "runs")
"""Below the data folder; every log is in one of them."""
_NAME_MAX = 255
"""Bytes that a file's name may have."""
_MAX_OPEN = 256
"""Logs kept open; chats beyond that are reopened when they speak."""

log = structlog.get_logger("klaw.journal")


@attrs.frozen
class Entry:
    """One line for one log."""

    path: str
    """Relative to the journal's root, with ``/``; made by Klaw from encoded names."""
    line: str
    """JSON without a line break."""


class Journal:
    """Append-only logs below one folder.

    Args:
        checkpoint_bytes: size of the commit log that makes ``wants_checkpoint`` true.
        fsync: makes a file descriptor's data durable; benchmarks replace it to imitate a slow disk.
    """

    def __init__(self, root: Path, *, checkpoint_bytes: int, fsync: Callable[[int], None] = os.fsync) -> None:
        self._root = root
        self._checkpoint_bytes = checkpoint_bytes
        self._fsync = fsync
        self._files: OrderedDict[str, int] = OrderedDict()
        self._dirty: set[str] = set()
        self._new_folders: set[Path] = set()
        self._lock = -1
        self._commit = -1
        self._commit_size = 0
        self._undo: list[tuple[int, int]] = []
        self.is_read = False
        """By a reindex: no log is rewritten now."""
        self.rewrites = 0
        """How many logs were rewritten; a backup is made of those that were not."""

    # -- life cycle ------------------------------------------------------------------------------------------------

    def lock(self) -> None:
        """Take the folder for this process.

        Raises:
            BlockingIOError: another process has it.
            OSError: the folder cannot be written.
        """
        self._root.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = open_private(self._root / LOCK_FILE, os.O_RDWR)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._commit = self._open_commit_log()

    def open(self) -> int:
        """Put back what a crash kept from the logs; call ``lock`` first. Returns how many lines that were.

        Raises:
            OSError: the folder cannot be written.
        """
        restored = self._replay(self._root / COMMIT_LOG)
        atomic_file.sync(self._root, self._fsync)
        self._commit_size = os.fstat(self._commit).st_size
        self.checkpoint()
        return restored

    def close(self) -> None:
        """Checkpoint and close all files."""
        try:
            if self._commit >= 0:
                self.checkpoint()
        finally:
            self.release()

    def release(self) -> None:
        """Close all files and let go of the folder, without a checkpoint. Idempotent."""
        for descriptor in (*self._files.values(), self._commit, self._lock):
            if descriptor >= 0:
                os.close(descriptor)
        self._files.clear()
        self._commit = self._lock = -1

    # -- writing ---------------------------------------------------------------------------------------------------

    def append(self, entries: Sequence[Entry]) -> None:
        """Append a group; when this returns, it is durable. ``rollback`` may still take it back.

        Raises:
            OSError: nothing of the group stays in any file.
        """
        self._undo = []
        if _is_removed(self._commit):
            self._renew_commit_log()
        try:
            lines_of: dict[str, list[bytes]] = {}
            for entry in entries:
                lines_of.setdefault(entry.path, []).append(entry.line.encode() + b"\n")
            self._write(self._commit, _commit_lines(entries))
            self._fsync(self._commit)
            for path, lines in lines_of.items():
                self._write(self._descriptor(path), b"".join(lines))
                self._dirty.add(path)
        except BaseException:
            self.rollback()
            raise
        self._commit_size = os.fstat(self._commit).st_size

    def rollback(self) -> None:
        """Take the last group back out of all files (its database transaction failed)."""
        for descriptor, size in reversed(self._undo):
            os.ftruncate(descriptor, size)
        self._undo = []

    def keep(self) -> None:
        """The last group is final: its database transaction is committed."""
        self._undo = []

    @property
    def dirty(self) -> int:
        """How many files and folders a checkpoint has to make durable."""
        return len(self._dirty) + len(self._new_folders)

    @property
    def wants_checkpoint(self) -> bool:
        return self._commit_size >= self._checkpoint_bytes

    def checkpoint(self) -> None:
        """Make the logs themselves durable and empty the commit log."""
        if not self._dirty and not self._new_folders and self._commit_size == 0:
            return
        for path in sorted(self._dirty):
            self._fsync(self._descriptor(path))
        self._dirty.clear()
        for folder in sorted(self._new_folders):
            atomic_file.sync(folder, self._fsync)
        self._new_folders.clear()
        os.ftruncate(self._commit, 0)
        self._fsync(self._commit)
        self._commit_size = 0

    def rewrite(self, path: str, line_of: Callable[[bytes], bytes]) -> int:
        """Replace lines of a log, all or none of them; nobody can append meanwhile.

        Args:
            path, line_of: as of ``begin_rewrite``.

        Returns:
            How many lines changed.

        Raises:
            OSError: the log is as it was.
        """
        rewrite = self.begin_rewrite(path, line_of)
        try:
            self.exchange(rewrite)
            return rewrite.changed
        finally:
            rewrite.close()

    def begin_rewrite(self, path: str, line_of: Callable[[bytes], bytes]) -> LogRewrite:
        """Begin to replace lines of a log, which ``exchange`` ends. One rewriting of a log at a time.

        Args:
            path: relative to the root.
            line_of: what a line without its end becomes; the same when it stays.

        Raises:
            OSError: there is no such log.
        """
        return LogRewrite(self._root, path, line_of, end=self._size(path), fsync=self._fsync)

    def exchange(self, rewrite: LogRewrite, *, most: int | None = None) -> bool:
        """Put a log's new content, with what was appended since, in its place. The commit log, which may have the lines
        too, is emptied first.

        Args:
            rewrite: begun by this journal; its ``end`` becomes that of the log.
            most: bytes that may be taken in here.

        Returns:
            False: more was appended; take it in and come again.

        Raises:
            OSError: the log is as it was.
        """
        rewrite.end = self._size(rewrite.path)
        if most is not None and rewrite.left > most:
            return False
        self.checkpoint()
        rewrite.exchange(partial(self._close, rewrite.path))
        self.rewrites += rewrite.changed > 0
        return True

    # -- inside ----------------------------------------------------------------------------------------------------

    def _open_commit_log(self) -> int:
        """Open it, and lock it too: a server of an earlier Klaw locks nothing else."""
        descriptor = open_private(self._root / COMMIT_LOG, os.O_RDWR | os.O_APPEND)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _renew_commit_log(self) -> None:
        """Somebody removed it: what it kept is made durable in the logs, and what follows goes into a new one."""
        log.error("log_removed", file=COMMIT_LOG)
        self.checkpoint()
        os.close(self._commit)
        self._commit = self._open_commit_log()
        atomic_file.sync(self._root, self._fsync)

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
        if descriptor is not None and _is_removed(descriptor):
            log.error("log_removed", file=PurePosixPath(path).name)
            os.close(self._files.pop(path))
            descriptor = None
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

    def _replay(self, commit_log: Path) -> int:
        data = commit_log.read_bytes()
        aside, odd = SetAside(self._root), False
        lines_of: dict[str, list[bytes]] = {}
        group: list[tuple[str, bytes]] = []
        for number, raw in enumerate(data.split(b"\n")[:-1], 1):  # a torn last line was never acknowledged
            path, tab, line = raw.partition(b"\t")
            if not tab or not _is_log(path):
                log.warning("malformed_line", file=COMMIT_LOG, line=number)
                aside.store(COMMIT_LOG, raw)  # the commit log is emptied in the end
                odd = True
                continue
            group.append((path.decode(), line.lstrip(b" ")))
            if not line.startswith(b" "):
                for name, whole in group:
                    lines_of.setdefault(name, []).append(whole)
                group = []
        if group:
            log.warning("half_group_dropped", count=len(group))
        if odd:
            aside.sync(COMMIT_LOG)
        return sum(self._put_back(path, lines, len(data)) for path, lines in lines_of.items())

    def _put_back(self, path: str, lines: list[bytes], reach: int) -> int:
        """Append those lines that the log lacks. They are looked for in its last ``reach`` bytes, and farther back as
        long as some are not found: a group that was cut off may stand behind them."""
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


def _is_removed(descriptor: int) -> bool:
    """Whether no folder names the file any more: what is written to it goes with its last descriptor."""
    return os.fstat(descriptor).st_nlink == 0


def _commit_lines(group: Sequence[Entry]) -> bytes:
    return "".join(
        f"{entry.path}\t{' ' if number < len(group) else ''}{entry.line}\n" for number, entry in enumerate(group, 1)
    ).encode()


def _is_log(path: bytes) -> bool:
    """Whether a path from the commit log is one that Klaw makes (the log may be damaged)."""
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
