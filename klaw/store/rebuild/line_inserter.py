"""Lines of the logs become rows, in one way for the start's reconciliation and for a reindex.

A line that cannot be stored (no record of its kind, a value that SQLite or the parts above cannot hold, a place that
another record has) is skipped, counted and kept aside: one odd line must not stop a start. What is wrong with the
database itself is raised.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import apsw
import attrs
import structlog

from klaw.domain.message import Message
from klaw.domain.turn import TurnRecord
from klaw.store import changes
from klaw.store.changes import MEMORY, Change
from klaw.store.engine import meta
from klaw.store.engine.log_files import FAULTS, parse
from klaw.store.engine.set_aside import SetAside
from klaw.store.forget import execute  # noqa: F401 - it adds the kind of its lines to KINDS
from klaw.store.kinds import messages, records, runs, turns
from klaw.store.kinds.inventory import last_numbers
from klaw.store.kinds.runs import RunState
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
    insert: Callable[["LineInserter", apsw.Connection, str, bytes], int | None]
    """Inserts a line of a log, by its path, and returns its record's number; None when there is no use for it."""

    @property
    def messages(self) -> bool:
        return self.folder == messages.CONVERSATIONS

    def has(self, path: str) -> bool:
        """Whether a log, by its path below the data folder, is one of these; transcripts of runs are not."""
        return path.startswith(f"{self.folder}/") and not runs.is_transcript(path)


class LineInserter:
    """Inserts lines and counts."""

    def __init__(self, root: Path) -> None:
        self.tally = Tally()
        self.aside = SetAside(root)
        self._highest: dict[str, int] = {}
        self._runs: set[str] = set()
        self._entry: tuple[int, bytes] = (0, b"")
        """Number and line of the last change of memory."""

    def message(self, connection: apsw.Connection, path: str, line: bytes) -> int | None:
        """Insert a line's message, unless it is there. Returns its row id, None if there is no use for it."""
        message = self._parsed(path, line, messages.parse_message)
        if message is None or not self._near(connection, path, line, messages.CONVERSATIONS, message.rowid):
            return None
        present = messages.by_rowids(connection, [message.rowid])
        if present:
            if present == [message]:
                self.count(reused=1)
                return message.rowid
            self._taken(path, line, message.rowid)
            return None

        if not self._stored(connection, path, line, lambda: messages.restore(connection, message), message.rowid):
            return None
        self.count(messages=1)
        return message.rowid

    def turn(self, connection: apsw.Connection, path: str, line: bytes) -> None:
        turn = self._parsed(path, line, turns.parse)
        if turn is None:
            return
        inserted = self._stored(connection, path, line, lambda: turns.insert(connection, turn))
        if inserted:
            self.count(turns=1)
        elif inserted is False and turns.get(connection, turn.user, turn.id) != turn:
            self._taken(path, line)

    def memory(self, connection: apsw.Connection, path: str, line: bytes) -> int | None:
        """Carry out a change of memory. Returns its number, None if there is no use for it."""
        entry = self._parsed(path, line, records.read)
        if entry is None or not self._near(connection, path, line, MEMORY, entry.entry):
            return None
        applied = self._stored(connection, path, line, lambda: changes.apply(connection, entry))
        if applied is None:
            return None
        if not applied and self._entry[0] == entry.entry and self._entry[1] != line:
            self._taken(path, line, entry.entry)
            return None
        self._entry = (entry.entry, line)
        self.count(**{entry.kind.counted: int(applied)})
        return entry.entry

    def run(self, connection: apsw.Connection, path: str, line: bytes) -> int | None:
        """A run's states come in their order, each in place of the one before. Returns the change's number."""
        state = self._parsed(path, line, runs.parse_run)
        if state is None or not self._near(connection, path, line, runs.RUNS, state.change):
            return None
        restored = self._stored(connection, path, line, lambda: runs.restore(connection, state))
        if restored is None:
            return None
        self.count(runs=int(restored and state.run.id not in self._runs))
        self._runs.add(state.run.id)
        return state.change

    def transcript(self, path: str, line: bytes) -> None:
        """No database has what was said in runs; only whether it can be read is checked."""
        self._parsed(path, line, runs.parse_transcript)

    # -- lines that are left out -----------------------------------------------------------------------------------

    def skip(self, path: str, line: bytes, reason: str) -> None:
        """Leave out a line that is no record of its kind."""
        log.warning("malformed_line", file=Path(path).name, error=reason)
        self.aside.keep(path, line)
        self.count(malformed=1)

    def count(self, **more: int) -> None:
        changed = {name: getattr(self.tally, name) + number for name, number in more.items()}
        self.tally = attrs.evolve(self.tally, **changed)

    def _taken(self, path: str, line: bytes, number: int | None = None) -> None:
        """Leave out a record whose place another one has."""
        log.error("log_conflict", file=Path(path).name, line=number)
        self.aside.keep(path, line)
        self.count(conflicts=1)

    def _parsed(self, path: str, line: bytes, read: Callable[[dict[str, Any]], T]) -> T | None:
        try:
            return read(parse(line))
        except FAULTS as error:
            self.skip(path, line, type(error).__name__)
            return None

    def _stored(
        self, connection: apsw.Connection, path: str, line: bytes, store: Callable[[], bool], number: int | None = None
    ) -> bool | None:
        """What storing a record returned; None when it cannot be stored."""
        try:
            with connection:
                return store()
        except apsw.ConstraintError:
            self._taken(path, line, number)
        except FAULTS as error:
            self.skip(path, line, type(error).__name__)
        return None

    def _near(self, connection: apsw.Connection, path: str, line: bytes, kind: str, number: int) -> bool:
        """Whether a record's number can be one that Klaw gave."""
        highest = self._highest.get(kind)
        if highest is None:
            last = last_numbers(connection)
            self._highest = {messages.CONVERSATIONS: last["rowid"], runs.RUNS: last["change"], MEMORY: last["entry"]}
            highest = self._highest[kind]
        if not 0 < number <= highest + FARTHEST:
            self.skip(path, line, "TooLargeANumber")
            return False
        self._highest[kind] = max(highest, number)
        return True


def _has_message(connection: apsw.Connection, message: Message) -> bool:
    found = messages.find(connection, message.user, message.id)
    return found is not None and found.rowid == message.rowid


def _has_turn(connection: apsw.Connection, turn: TurnRecord) -> bool:
    return turns.exists(connection, turn.id)


def _has_state(connection: apsw.Connection, state: RunState) -> bool:
    return runs.change_of(connection, state.run.id) >= state.change


def _has_entry(connection: apsw.Connection, change: Change[Any]) -> bool:
    return change.entry <= meta.last_entry(connection)


LOG_KINDS = (
    # By rowid, so that chats get their keys in the order in which they first spoke.
    LogKind(messages.CONVERSATIONS, messages.parse_message, "rowid", "messages", _has_message, LineInserter.message),
    LogKind(turns.TURNS, turns.parse, None, "turns", _has_turn, LineInserter.turn),
    LogKind(runs.RUNS, runs.parse_run, "change", "runs", _has_state, LineInserter.run),
    # Last: what was forgotten is taken out of all that is there.
    LogKind(MEMORY, records.read, "entry", "tasks", _has_entry, LineInserter.memory),
)
