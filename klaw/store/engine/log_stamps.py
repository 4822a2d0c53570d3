"""Which logs may have something that a database lacks: those that changed since it was compared with them.

The database itself keeps how every log was when all its lines had been looked for. A database that lost its newest rows
(its write-ahead log was removed, a power cut, an old copy) then says so of fewer logs, never of too many; names and
times of logs prove nothing, because a clock may go back.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import apsw

from klaw.store.engine import meta
from klaw.store.engine.journal import LOG_FOLDERS

KEY = "log_stamps"
"""In ``meta``."""

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
    """How the logs are now."""
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
