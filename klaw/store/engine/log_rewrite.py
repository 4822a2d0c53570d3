"""A log's new content, made beside it in steps while lines are appended to it; only the exchange needs the writer.

Below the size that a log has between two groups nothing changes, so any thread can read it up to there. A kill leaves
the old log or the new one, and maybe a draft, which the next rewriting replaces.
"""

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

from klaw import atomic_file

STEP_BYTES = 1 << 18
"""Bytes of the log that are read at once; a longer line is read whole."""
DRAFT = ".{}.new"


class LogRewrite:
    """Made by ``Journal.begin_rewrite``; ``close`` it in the end. Up to ``end`` the log is final; ``line_of`` says what
    a line without its end becomes."""

    def __init__(
        self, root: Path, path: str, line_of: Callable[[bytes], bytes], *, end: int, fsync: Callable[[int], None]
    ) -> None:
        self.path, self.end = path, end
        self.taken = 0
        """Bytes of the log that the draft has."""
        self.changed = 0
        self._line_of, self._fsync = line_of, fsync
        self._full = root / path
        self._draft = self._full.with_name(DRAFT.format(self._full.name))
        self._lock = threading.Lock()
        """A cancelled caller closes it, perhaps while the writer uses it."""
        self._log = self._new = -1
        self._closed = False
        self._durable = 0

    @property
    def folder(self) -> Path:
        return self._full.parent

    @property
    def left(self) -> int:
        return self.end - self.taken

    def step(self) -> None:
        """Take in the next lines. Raises OSError."""
        with self._open():
            self._step()

    def sync(self) -> None:
        """Make what was taken in durable, so that the exchange has little to do. Raises OSError."""
        with self._open():
            self._sync()

    def sync_folder(self) -> None:
        """Make it durable that the draft has the log's name. Raises OSError."""
        if self.changed:
            atomic_file.sync(self.folder, self._fsync)

    def exchange(self, close: Callable[[], None]) -> None:
        """Take in the rest and put the draft in the log's place, if a line changed; ``sync_folder`` comes next. In the
        writer's thread. ``close`` closes the log for appending. Raises OSError."""
        with self._open():
            while self.left:
                self._step()
            self._sync()
            if not self.changed:
                return
            if not os.path.samestat(os.fstat(self._log), self._full.stat()):
                raise OSError(errno.ESTALE, "somebody replaced the log")
            close()
            self._draft.replace(self._full)

    def close(self) -> None:
        """Leave nothing open, and no draft. Idempotent."""
        with self._lock:
            for descriptor in (self._log, self._new):
                if descriptor >= 0:
                    os.close(descriptor)
            if self._new >= 0:
                self._draft.unlink(missing_ok=True)
            self._log = self._new = -1
            self._closed = True

    @contextmanager
    def _open(self) -> Iterator[None]:
        with self._lock:
            if self._closed:
                raise OSError(errno.ECANCELED, os.strerror(errno.ECANCELED))
            if self._log < 0:
                self._log = os.open(self._full, os.O_RDONLY | os.O_CLOEXEC)
            if self._new < 0:
                self._new = os.open(self._draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            yield

    def _sync(self) -> None:
        if self._durable < self.taken:
            self._fsync(self._new)
            self._durable = self.taken

    def _step(self) -> None:
        size, lines = STEP_BYTES, b""
        while not lines:
            data = os.pread(self._log, min(size, self.left), self.taken)
            if not data:
                raise OSError(errno.EIO, "somebody made the log shorter")
            lines = data if len(data) == self.left else data[: data.rfind(b"\n") + 1]
            size *= 2
        new = []
        for raw in BytesIO(lines):
            line = raw.rstrip(b"\n")
            kept = self._line_of(line)
            self.changed += kept != line
            new.append(kept + raw[len(line) :])
        view = memoryview(b"".join(new))
        while view:
            view = view[os.write(self._new, view) :]
        self.taken += len(lines)
