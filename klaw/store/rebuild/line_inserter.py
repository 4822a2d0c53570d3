"""Lines of the logs become rows, in one way for the start's reconciliation and for a reindex.

A line that cannot be stored (no record of its kind, a value that SQLite or the parts above cannot hold, a place that
another record has) is skipped, counted and kept aside: one odd line must not stop a start. What is wrong with the
database itself is raised.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import apsw
import attrs
import structlog

from klaw.domain.message import Message, TurnRecord
from klaw.store import changes
from klaw.store.changes import MEMORY
from klaw.store.engine import meta
from klaw.store.engine.log_files import FAULTS, parse
from klaw.store.engine.set_aside import SetAside
from klaw.store.forget import execute  # noqa: F401 - it adds the kind of its lines to KINDS
from klaw.store.kinds import messages, records, runs, turns
from klaw.store.kinds.inventory import last_numbers
from klaw.store.rebuild.values import Phase, Tally

T = TypeVar("T")

FARTHEST = 1 << 32
"""A number so far above the highest one is no record's: with it, the room for numbers would run out."""

log = structlog.get_logger("klaw.journal")


@attrs.frozen
class LogKind:
    """What the logs of a folder hold."""

    folder: str
    read: Callable[[dict[str, Any]], Any]
    """The record of a line's object. Raises one of FAULTS."""
    number: str | None
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
        present = messages.by_rowids(connection, [message.rowid])
    if present and present != [message]:
        raise apsw.ConstraintError("its row id is another message's")
    return not present and messages.restore(connection, message)


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
    LogKind(
        turns.TURNS, turns.parse, None, "turns", lambda connection, turn: turns.exists(connection, turn.id), _store_turn
    ),
    LogKind(
        runs.RUNS,
        runs.parse_run,
        "change",
        "runs",
        lambda connection, state: runs.change_of(connection, state.run.id) >= state.change,
        runs.restore,
    ),
    # Last: what was forgotten is taken out of all that is there.
    LogKind(
        MEMORY,
        records.read,
        "entry",
        "tasks",
        lambda connection, change: change.entry <= meta.last_entry(connection),
        changes.apply,
    ),
)


class LineInserter:
    def __init__(self, root: Path) -> None:
        self.tally = Tally()
        self.aside = SetAside(root)
        self._highest: dict[str, int] = {}
        self._runs: set[str] = set()
        self._entry: tuple[int, bytes] = (0, b"")
        """Number and line of the last change of memory."""

    def insert(self, kind: LogKind, connection: apsw.Connection, path: str, line: bytes) -> int | None:
        """Insert a line of a log, unless its record is there. Returns the record's number; None when there is none, or
        no use for the line."""
        record = self._parsed(path, line, kind.read)
        number: int | None = getattr(record, kind.number) if record is not None and kind.number else None
        if record is None or (number is not None and not self._near(connection, path, line, kind, number)):
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

    def transcript(self, path: str, line: bytes) -> None:
        """No database has what was said in runs; only whether it can be read is checked."""
        self._parsed(path, line, runs.parse_transcript)

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

    def _parsed(self, path: str, line: bytes, read: Callable[[dict[str, Any]], T]) -> T | None:
        try:
            return read(parse(line))
        except FAULTS as error:
            self.skip(path, line, type(error).__name__)
            return None

    def _near(self, connection: apsw.Connection, path: str, line: bytes, kind: LogKind, number: int) -> bool:
        """Whether a record's number can be one that Klaw gave."""
        if not self._highest:
            last = last_numbers(connection)
            self._highest = {messages.CONVERSATIONS: last["rowid"], runs.RUNS: last["change"], MEMORY: last["entry"]}
        highest = self._highest[kind.folder]
        if not 0 < number <= highest + FARTHEST:
            self.skip(path, line, "TooLargeANumber")
            return False
        self._highest[kind.folder] = max(highest, number)
        return True
