"""Lines that cannot be stored: a start and a reindex copy them to ``set-aside/`` and go on. ``klaw reindex`` on a
stopped server takes them out of the logs once the database made without them is in use."""

import hashlib
import os
from pathlib import Path

import structlog

from klaw import atomic_file
from klaw.config.paths import ensure_private_dir, open_private

FOLDER = "set-aside"
"""Below the data folder."""

log = structlog.get_logger("klaw.journal")


class SetAside:
    """Keeps lines; each of them once, however often it is met. One thread at a time."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._kept: dict[str, set[bytes]] = {}
        self.lines: dict[str, set[bytes]] = {}
        """Digests of the lines that were met, by the path of their log below the data folder."""

    def keep(self, path: str, line: bytes) -> None:
        """Keep a line (without its end) of a log, whose path is relative to the data folder."""
        self.lines.setdefault(path, set()).add(_digest(line))
        try:
            self.store(path, line)
        except OSError as error:
            log.error("set_aside_failed", file=Path(path).name, error=type(error).__name__)

    def store(self, path: str, line: bytes) -> None:
        """Write a line, unless it is there. Raises OSError."""
        kept = self._kept.get(path)
        if kept is None:
            kept = self._kept[path] = self._read(path)
        if (digest := _digest(line)) in kept:
            return
        full = self._root / FOLDER / path
        ensure_private_dir(full.parent)
        with os.fdopen(open_private(full, os.O_WRONLY | os.O_APPEND), "ab") as file:
            file.write(line + b"\n")
        kept.add(digest)

    def sync(self, path: str) -> None:
        """Make what is kept of a log durable. Raises OSError."""
        full = self._root / FOLDER / path
        for each in (full, *full.parents[: len(Path(path).parts) + 1]):
            atomic_file.sync(each)

    def has_all(self, path: str) -> bool:
        """Whether every line of a log that was met is kept."""
        return self.lines.get(path, set()) <= self._kept.get(path, set())

    def without(self, path: str, line: bytes) -> bytes:
        """A line of a log, empty if it was met."""
        return b"" if _digest(line) in self.lines.get(path, ()) else line

    def _read(self, path: str) -> set[bytes]:
        try:
            with (self._root / FOLDER / path).open("rb") as file:
                return {_digest(line.rstrip(b"\n")) for line in file}
        except FileNotFoundError:
            return set()


def count(root: Path) -> int:
    total = 0
    for path in (root / FOLDER).rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                total += sum(1 for _ in file)
    return total


def _digest(line: bytes) -> bytes:
    return hashlib.sha256(line).digest()
