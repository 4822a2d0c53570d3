"""Loading a task's last complete runs from its transcripts: from the end, and no more than is needed.

The transcripts are the truth here, not the database. All functions block; run them in a thread under a limiter.
"""

import json
import os
import re
import stat
from pathlib import Path
from typing import Any

import attrs
import structlog

from klaw.actor.failure import error_class
from klaw.domain.names import UserId, user_id
from klaw.domain.task import TaskName, run_folder, task_name
from klaw.store.jsonl import TOO_LONG, lines_backwards
from klaw.subagents.past import Collector, PastRun, read_line

MAX_LINE_BYTES = 1024 * 1024
"""A longer line would fill any model's context; it is left out."""
MAX_PARSED_BYTES = 16 * 1024 * 1024
"""Lines that are parsed for one history; reached only when many of the newest runs are incomplete or very long."""
MAX_SCANNED_BYTES = 256 * 1024 * 1024
"""Bytes that are read for one history, those of lines that are left out included."""

_LOG = re.compile(r"\d{4}-\d{2}-\d{2}\.jsonl", re.ASCII)
"""One file a day, so names sort by age."""

log = structlog.get_logger("klaw.subagents")


def load(conversations: Path, user: UserId, name: TaskName, *, runs: int, max_tokens: int) -> tuple[PastRun, ...]:
    """The last complete runs of a task, oldest first; empty when it has none.

    What cannot be read is left out, with one warning for each file.

    Args:
        conversations: the folder of all transcripts.
        runs: at most so many (``context.subagentHistory``).
        max_tokens: older runs are not looked for once those found have so many estimated tokens.

    Raises:
        InvalidName: ``user`` or ``name`` breaks its rule.
    """
    if runs <= 0 or max_tokens <= 0:
        return ()
    folder = conversations / run_folder(user_id(user), task_name(name))
    collector = Collector(runs=runs, max_tokens=max_tokens)
    left = _Left(parsed=MAX_PARSED_BYTES, scanned=MAX_SCANNED_BYTES)
    for file in _files(folder):
        if not _collect(folder / file, collector, left):
            break
        if left.parsed <= 0 or left.scanned <= 0:
            log.warning("history_cut", name=name, bytes=MAX_SCANNED_BYTES - max(0, left.scanned))
            break
    return collector.result()


@attrs.define
class _Left:
    """Bytes that may still be used."""

    parsed: int
    scanned: int


def _files(folder: Path) -> list[str]:
    """Names of the transcripts, newest first. Files of other names are not ours."""
    try:
        names = [name for name in os.listdir(folder) if _LOG.fullmatch(name)]  # noqa: PTH208 - thousands of names
    except FileNotFoundError:
        return []
    except OSError as error:
        log.warning("history_unreadable", file=folder.name, error=error_class(error))
        return []
    return sorted(names, reverse=True)


def _collect(path: Path, collector: Collector, left: _Left) -> bool:
    """Give the file's lines to the collector, last first. Returns False when no more are needed."""
    warned = False

    def warn(error: str) -> None:
        nonlocal warned
        if not warned:
            log.warning("malformed_line", file=path.name, error=error)
        warned = True

    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):  # opening a pipe would wait for its other side
            warn("NotAFile")
            return True
        for line in lines_backwards(path, longest=MAX_LINE_BYTES, at_most=left.scanned):
            if left.parsed <= 0:
                return True
            if line == TOO_LONG:
                warn("TooLong")
                continue
            left.parsed -= len(line)
            try:
                run, message = read_line(_object(line))
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                warn(error_class(error))
                continue
            if not collector.add(run, message):
                return False
    except OSError as error:
        warn(error_class(error))
        return True
    left.scanned -= status.st_size
    return True


def _object(line: bytes) -> dict[str, Any]:
    record = json.loads(line.decode())
    if not isinstance(record, dict):
        raise TypeError("not an object")
    return record
