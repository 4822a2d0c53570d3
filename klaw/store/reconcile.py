"""Start-up reconciliation: what the tails of the logs have and the database lacks is inserted.

Runs in the writer's thread after the journal put back what its commit log kept. Each chat's logs are read from their
end until a message that the database knows; a lost database is so rebuilt from nothing by the same walk. Likewise the
logs of turns and runs and the memory journal. Transcripts of runs are no chats' logs and are left alone.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import apsw
import attrs
import structlog

from klaw.domain.message import Message
from klaw.store import halves, memory_records, records, run_records
from klaw.store.jsonl import records_backwards
from klaw.store.sql import memory_journal, messages, runs, turns

T = TypeVar("T")

KNOWN_LOGS = 3
"""Logs of a folder whose end the database knows, after which the walk stops."""

log = structlog.get_logger("klaw.reconcile")


@attrs.frozen(kw_only=True)
class Reconciled:
    """What the walk did."""

    messages: int
    turns: int
    tasks: int = 0
    """Changes of tasks."""
    facts: int = 0
    """Changes of facts."""
    core: int = 0
    """Changes of core memory."""
    summaries: int = 0
    topics: int = 0
    """Changes of topics."""
    people: int = 0
    """Changes of people, and mentions."""
    runs: int = 0
    """States of runs."""
    conflicts: int
    """Lines that could not be inserted because another row has their place; they stay in the logs."""


def reconcile(connection: apsw.Connection, data_dir: Path) -> Reconciled:
    """Insert what is missing.

    Raises:
        OSError, apsw.Error: the logs cannot be read or the database cannot be written.
    """
    found: list[Message] = []
    conversations = data_dir / records.CONVERSATIONS
    if conversations.is_dir():
        for folder in sorted(conversations.iterdir()):
            if folder.is_dir() and not run_records.is_transcript(folder.relative_to(data_dir).as_posix()):
                found += _unknown_messages(connection, folder)
    # By rowid, so that chats get their keys in the order in which they first spoke.
    found.sort(key=lambda message: message.rowid)
    restored = sum(_insert(connection, message) for message in found)
    turns_restored = _restore_turns(connection, data_dir / records.TURNS)
    runs_restored = _restore_runs(connection, data_dir / run_records.RUNS)
    # Last: what was forgotten is taken out of all that is there.
    memory = _restore_memory(connection, data_dir / memory_records.MEMORY)
    outcome = Reconciled(
        messages=restored,
        turns=turns_restored,
        tasks=memory["tasks"],
        facts=memory["facts"],
        core=memory["core"],
        summaries=memory["summaries"],
        topics=memory["topics"],
        people=memory["people"],
        runs=runs_restored,
        conflicts=len(found) - restored,
    )
    rows = outcome.turns + memory.total() + outcome.runs
    if restored or rows or outcome.conflicts:
        log.warning("reconciled", messages=restored, count=rows, missing=outcome.conflicts)
    return outcome


def _unknown_messages(connection: apsw.Connection, folder: Path) -> list[Message]:
    """The messages at the ends of a folder's logs that the database lacks."""

    def known(message: Message) -> bool:
        return messages.find(connection, message.user, message.id) is not None

    return list(_unknown(folder, records.parse_message, known))


def _unknown(folder: Path, parse: Callable[[dict[str, Any]], T], known: Callable[[T], bool]) -> Iterator[T]:
    """Records at the ends of a folder's logs that are not known, each log's newest first.

    Ends after ``KNOWN_LOGS`` logs whose last record is known: a clock that went back may have put the newest record
    into an older day's log.
    """
    quiet = 0
    for path in sorted(folder.glob("*.jsonl"), reverse=True):
        found = False
        for record in _parsed(path, parse):
            if known(record):
                break
            found = True
            yield record
        quiet += not found
        if quiet == KNOWN_LOGS:
            return


def _insert(connection: apsw.Connection, message: Message) -> bool:
    try:
        with connection:
            messages.restore(connection, message)
    except apsw.ConstraintError as error:
        log.error("log_conflict", rowid=message.rowid, seq=message.seq, error=type(error).__name__)
        return False
    return True


def _restore_turns(connection: apsw.Connection, folder: Path) -> int:
    restored = 0
    for turn in _unknown(folder, records.parse_turn, lambda turn: turns.exists(connection, turn.id)):
        try:
            with connection:
                restored += turns.insert(connection, turn)
        except apsw.ConstraintError as error:
            log.error("log_conflict", turn=turn.id, error=type(error).__name__)
    return restored


def _restore_memory(connection: apsw.Connection, folder: Path) -> Counter[str]:
    """Carry out what the database lacks of the memory journal, in the order of its numbers."""
    last = memory_journal.last_entry(connection)
    halves.cut(folder.parent, last)
    unknown = _unknown(folder, memory_records.parse_memory, lambda entry: entry.entry <= last)
    restored: Counter[str] = Counter()
    for entry in sorted(unknown, key=lambda entry: entry.entry):
        try:
            with connection:
                restored[memory_journal.kind(entry)] += memory_journal.apply(connection, entry)
        except apsw.ConstraintError as error:
            log.error("log_conflict", line=entry.entry, error=type(error).__name__)
    return restored


def _restore_runs(connection: apsw.Connection, folder: Path) -> int:
    def known(state: run_records.RunState) -> bool:
        return runs.change_of(connection, state.run.id) >= state.change

    restored = 0
    for state in sorted(_unknown(folder, run_records.parse_run, known), key=lambda state: state.change):
        try:
            with connection:
                restored += runs.restore(connection, state)
        except apsw.ConstraintError as error:
            log.error("log_conflict", line=state.change, error=type(error).__name__)
    return restored


def _parsed(path: Path, parse: Callable[[dict[str, Any]], T]) -> Iterator[T]:
    """All records of a log, the newest first; malformed ones are skipped with a warning."""
    for record in records_backwards(path):
        try:
            yield parse(record)
        except (KeyError, TypeError, ValueError) as error:
            log.warning("malformed_line", file=path.name, error=type(error).__name__)
