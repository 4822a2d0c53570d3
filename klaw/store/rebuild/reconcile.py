"""Start-up reconciliation: what the tails of the logs have and the database lacks is inserted.

Runs in the writer's thread after the journal put back what its commit log kept. Every log that changed since the
database was last compared with it (``log_stamps``) is read from its end until a record that the database knows: lines
and rows are written in one order, so a database that lost something lost the newest. That holds for each log by itself
and not between logs: a clock that went back puts the newest records into old ones.
"""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw
import structlog

from klaw.store.changes import MEMORY, Change
from klaw.store.engine import log_files, meta
from klaw.store.engine.log_files import FAULTS, lines_backwards, parse
from klaw.store.kinds import records, tasks
from klaw.store.kinds.tasks import TASK
from klaw.store.rebuild.line_inserter import LOG_KINDS, LineInserter, LogKind
from klaw.store.rebuild.values import Tally

BATCH = 500
"""Lines in one transaction."""

log = structlog.get_logger("klaw.reconcile")


def reconcile(connection: apsw.Connection, data_dir: Path) -> Tally:
    """Insert what is missing. Returns what that was. Raises OSError, apsw.Error: the logs cannot be read or the
    database cannot be written."""
    cut(data_dir, meta.last_entry(connection))
    before, now = log_files.compared(connection), log_files.stamps(data_dir)
    changed = sorted(path for path, stamp in now.items() if before.get(path) != stamp)
    lines = LineInserter(data_dir)
    for kind in LOG_KINDS:
        paths = [path for path in changed if kind.has(path)]
        found = [each for path in paths for each in reversed(list(_unknown(connection, lines, kind, data_dir, path)))]
        found.sort(key=lambda each: each[0])
        for place in range(0, len(found), BATCH):
            with connection:
                for _, path, line in found[place : place + BATCH]:
                    lines.insert(kind, connection, path, line)
    if now != before:
        with connection:
            log_files.remember(connection, now)
    _fill_task_history(connection, data_dir)
    tally = lines.tally
    left_out = tally.malformed + tally.conflicts
    count = tally.changes()
    if count or left_out:
        log.warning("reconciled", messages=tally.messages, count=count - tally.messages, missing=left_out)
    return tally


def _unknown(
    connection: apsw.Connection, lines: LineInserter, kind: LogKind, data_dir: Path, path: str
) -> Iterator[tuple[int, str, bytes]]:
    """The lines at a log's end that the database lacks, the newest first, each with its number and the log's path."""
    for line in lines_backwards(data_dir / path):
        try:
            record = kind.read(parse(line))
        except FAULTS as error:
            lines.skip(path, line, type(error).__name__)
            continue
        if kind.known(connection, record):
            return
        yield getattr(record, kind.number) if kind.number else 0, path, line


def _fill_task_history(connection: apsw.Connection, data_dir: Path) -> None:
    """Give tasks the history that a database of before migration 023 does not have."""
    if meta.get(connection, meta.NO_TASK_HISTORY) is None:
        return
    found: list[Change[Any]] = []
    for path in sorted((data_dir / MEMORY).glob("*.jsonl")):
        with path.open("rb") as file:
            for line in (line for line in file if b'"what":"task"' in line or b'"what":"forget"' in line):
                with suppress(*FAULTS):
                    found.append(records.read(parse(line)))
    last = meta.last_entry(connection)
    with connection:
        connection.execute(f"DELETE FROM {TASK.past}")  # noqa: S608 - a constant
        for change in sorted((each for each in found if each.entry <= last), key=lambda each: each.entry):
            with suppress(apsw.ConstraintError):
                if change.kind is TASK:
                    TASK.apply(connection, change)
                elif change.value is not None:
                    tasks.forget_past(connection, change.user, change.value.tasks)
        meta.remove(connection, meta.NO_TASK_HISTORY)


MOST_LINES = 10_000
"""Lines at a log's end that are looked at: far more than any change has."""


def cut(data_dir: Path, known: int) -> int:
    """Take a change without its end out of the memory journal. Returns how many lines that were. Raises OSError.

    The Klaw of commit 5dcae64 wrote a group without counting it as a whole: each line of a change but the last names
    the entry that ends it (``until``), and nobody was told of a change that has no end.

    Args:
        known: the last entry that the database has: that was whole.
    """
    ends = {path: list(_end_of(path)) for path in sorted((data_dir / MEMORY).glob("*.jsonl"))}
    top = max([known, *(entry for end in ends.values() for entry, _, _ in end)])
    count = 0
    for path, end in ends.items():
        half = []
        for entry, until, size in end:  # the last line first
            if not max(top, entry) < until:
                break
            half.append(size)
        if half:
            _truncate(path, half)
            count += len(half)
    if count:
        log.warning("half_change_dropped", count=count)
    return count


def _end_of(path: Path) -> Iterator[tuple[int, int, bytes]]:
    """Number, end and bytes of the last lines, as far back as one may be a part of the last change."""
    for place, line in enumerate(lines_backwards(path)):
        try:
            record = json.loads(line)
            entry, until = int(record["entry"]), int(record.get("until", 0))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue  # torn: of no change that anybody reads
        yield entry, until, line
        if not until or place > MOST_LINES:
            return


def _truncate(path: Path, half: Sequence[bytes]) -> None:
    """Cut the log before the first of its last lines; what is torn behind them goes too."""
    with path.open("rb+") as file:
        content = file.read()
        at = content.rfind(half[-1])
        file.truncate(at)
        os.fsync(file.fileno())
