"""Lines of the logs become rows, in one way for a start and for a reindex.

A line that cannot be stored (no record of its kind, a value that SQLite or the parts above cannot hold, a place that
another record has) is skipped, counted and kept aside: one odd line must not stop a start. What is wrong with the
database itself is raised.

A start inserts what the tails of the logs have and the database lacks, in the writer's thread, after the journal put
back what its commit log kept. Every log that changed since the database was last compared with it (``log_stamps``) is
read from its end until a record that the database knows: lines and rows are written in one order, so a database that
lost something lost the newest. That holds for each log by itself and not between logs: a clock that went back puts the
newest records into old ones.
"""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import takewhile
from pathlib import Path
from typing import Any, TypeVar

import apsw
import attrs
import structlog

from klaw.domain.message import Message, TurnRecord
from klaw.store import changes
from klaw.store.changes import MEMORY, Change
from klaw.store.engine import log_files, meta
from klaw.store.engine.log_files import FAULTS, lines_backwards, parse
from klaw.store.engine.set_aside import SetAside
from klaw.store.engine.tables import Bound
from klaw.store.forget.execute import FORGET  # importing it adds it to KINDS
from klaw.store.kinds import messages, records, runs, tasks, turns
from klaw.store.kinds.inventory import last_numbers
from klaw.store.kinds.tasks import TASK
from klaw.store.rebuild.values import Phase, Tally

T = TypeVar("T")

FARTHEST = 1 << 32
"""A number that is this much higher than the highest is damage: new numbers could run out after it."""

MOST_TOGETHER = 500
"""Lines in one transaction of a start."""

log = structlog.get_logger("klaw.reconcile")


@attrs.frozen
class LogKind:
    """What the logs of a folder hold."""

    folder: str
    read: Callable[[dict[str, Any]], Any]
    """The record of a line's object. Raises one of FAULTS."""
    number: Bound | None
    """Field by which records are ordered over all logs; None: they have no order."""
    phase: Phase
    known: Callable[[apsw.Connection, Any], bool]
    """Whether the database has a record, or what came after it."""
    store: Callable[[apsw.Connection, Any], bool]
    """Stores a record, and returns whether it was not there. Raises apsw.ConstraintError: another has its place."""

    @property
    def messages(self) -> bool:
        return self.folder == messages.CONVERSATIONS

    def has(self, path: str) -> bool:
        """Whether a log, by its path below the data folder, is one of these; transcripts of runs are not."""
        return path.startswith(f"{self.folder}/") and not runs.is_transcript(path)


def _has_message(connection: apsw.Connection, message: Message) -> bool:
    found = messages.find(connection, message.user, message.id)
    return found is not None and found.rowid == message.rowid


@contextmanager
def _reading() -> Iterator[None]:
    """Around reading a row to compare a line with: what is wrong with the row is no fault of the line."""
    try:
        yield
    except FAULTS as error:
        raise apsw.CorruptError("a row cannot be read") from error


def _store_message(connection: apsw.Connection, message: Message) -> bool:
    with _reading():
        present = messages.whole(connection, [message.rowid])
    if present and present != [message]:
        raise apsw.ConstraintError("its row id is another message's")
    return not present and messages.restore(connection, message)


def _has_turn(connection: apsw.Connection, turn: TurnRecord) -> bool:
    return turns.exists(connection, turn.id)


def _store_turn(connection: apsw.Connection, turn: TurnRecord) -> bool:
    if turns.insert(connection, turn):
        return True
    with _reading():
        present = turns.get(connection, turn.user, turn.id)
    if present != turn:
        raise apsw.ConstraintError("its id is another turn's")
    return False


LOG_KINDS = (
    # By rowid, so that chats get their keys in the order in which they first spoke.
    LogKind(messages.CONVERSATIONS, messages.parse_message, "rowid", "messages", _has_message, _store_message),
    LogKind(turns.TURNS, turns.parse, None, "turns", _has_turn, _store_turn),
    LogKind(runs.RUNS, runs.parse_run, "change", "runs", runs.is_known, runs.restore),
    # Last: what was forgotten is taken out of all that is there.
    LogKind(MEMORY, records.read, "entry", "tasks", changes.is_known, changes.apply),
)


class LineInserter:
    def __init__(self, root: Path) -> None:
        self.tally = Tally()
        self.aside = SetAside(root)
        self._highest: dict[Bound, int] = {}
        self._runs: set[str] = set()
        self._entry: tuple[int, bytes] = (0, b"")
        """Number and line of the last change of memory."""

    def insert(self, kind: LogKind, connection: apsw.Connection, path: str, line: bytes) -> int | None:
        """Insert a line of a log, unless its record is there. Returns the record's number; None when there is none, or
        no use for the line."""
        record = self.parsed(path, line, kind.read)
        if record is None:
            return None
        number: int | None = getattr(record, kind.number) if kind.number else None
        if kind.number and number is not None and not self._near(connection, path, line, kind.number, number):
            return None
        try:
            with connection:
                stored = kind.store(connection, record)
        except apsw.ConstraintError:
            self._taken(path, line, number)
            return None
        except FAULTS as error:
            self.skip(path, line, type(error).__name__)
            return None
        if kind.folder == MEMORY:
            if not stored and self._entry[0] == number and self._entry[1] != line:
                self._taken(path, line, number)
                return None
            self._entry = (number or 0, line)
            self.count(**{record.kind.counted: int(stored)})
        elif kind.folder == runs.RUNS:  # a run is counted once, whatever its states
            self.count(runs=int(stored and record.run.id not in self._runs))
            self._runs.add(record.run.id)
        elif stored:
            self.count(**{kind.phase: 1})
        elif kind.messages:
            self.count(reused=1)
        return number

    def skip(self, path: str, line: bytes, reason: str) -> None:
        """Leave out a line that is no record of its kind."""
        log.warning("malformed_line", file=Path(path).name, error=reason)
        self.aside.keep(path, line)
        self.count(malformed=1)

    def count(self, **more: int) -> None:
        changed = {name: getattr(self.tally, name) + number for name, number in more.items()}
        self.tally = attrs.evolve(self.tally, **changed)

    def _taken(self, path: str, line: bytes, number: int | None) -> None:
        log.error("log_conflict", file=Path(path).name, line=number)
        self.aside.keep(path, line)
        self.count(conflicts=1)

    def parsed(self, path: str, line: bytes, read: Callable[[dict[str, Any]], T]) -> T | None:
        """The record of a line; None when it is skipped."""
        try:
            return read(parse(line))
        except FAULTS as error:
            self.skip(path, line, type(error).__name__)
            return None

    def _near(self, connection: apsw.Connection, path: str, line: bytes, name: Bound, number: int) -> bool:
        """Whether a record's number can be one that Klaw gave."""
        self._highest = self._highest or last_numbers(connection)
        highest = self._highest[name]
        if not 0 < number <= highest + FARTHEST:
            self.skip(path, line, "TooLargeANumber")
            return False
        self._highest[name] = max(highest, number)
        return True


# -- a start -----------------------------------------------------------------------------------------------------------


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
        for place in range(0, len(found), MOST_TOGETHER):
            with connection:
                for _, path, line in found[place : place + MOST_TOGETHER]:
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
        record = lines.parsed(path, line, kind.read)
        if record is not None:
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
                elif change.kind is FORGET and change.value is not None:
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
        half = [line for _, _, line in takewhile(lambda each: top < each[1], end)]
        if half:
            _truncate(path, half[-1])
            count += len(half)
    if count:
        log.warning("half_change_dropped", count=count)
    return count


def _end_of(path: Path) -> Iterator[tuple[int, int, bytes]]:
    """Entry, ``until`` and bytes of the lines at the end, the last one first, that may be a part of the last change."""
    for place, line in enumerate(lines_backwards(path)):
        try:
            record = json.loads(line)
            entry, until = int(record["entry"]), int(record.get("until", 0))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue  # torn: of no change that anybody reads
        yield entry, until, line
        if not until or place > MOST_LINES:
            return


def _truncate(path: Path, line: bytes) -> None:
    """Cut the log before the last line of these bytes; what is torn behind goes too."""
    with path.open("rb+") as file:
        file.truncate(file.read().rfind(line))
        os.fsync(file.fileno())
