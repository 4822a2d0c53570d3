"""One group of requests as one transaction and one fsync. Runs in the writer's thread; knows nothing of trio."""

import errno
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import apsw
import attrs
import structlog

from klaw.actor.failure import error_class, where
from klaw.errors import KlawError, StorageError, StorageFull, StoreDamaged, VectorsDamaged
from klaw.store import records
from klaw.store.appending import append_message
from klaw.store.background_requests import OfBackground, execute_of_background
from klaw.store.damage import BROKEN_FILE, DAMAGED
from klaw.store.forget_commit import execute_of_forgetting
from klaw.store.forget_requests import Forget, OfForgetting
from klaw.store.halves import joined
from klaw.store.journal import Entry, Journal
from klaw.store.memory_commit import execute_of_memory, settle_core
from klaw.store.memory_requests import (
    ChangeCore,
    NoteFailure,
    PutFact,
    PutMemoryFile,
    PutSummary,
    RemoveFact,
    StorePassageVectors,
)
from klaw.store.person_commit import execute_of_people
from klaw.store.person_requests import ChangePeople
from klaw.store.requests import (
    Append,
    Appended,
    AppendTranscript,
    BeginRun,
    EncodeVectors,
    EndReembedding,
    OfTasks,
    OfVectors,
    PrepareVectors,
    PutTask,
    Remembered,
    RemoveTask,
    RepairIndex,
    Request,
    SaveRun,
    StoreVectors,
)
from klaw.store.sql import coverage, turns, vector_codes, vectors
from klaw.store.task_commit import execute_of_tasks
from klaw.store.topic_commit import execute_of_topics
from klaw.store.topic_requests import OfTopics

_FULL_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG})
FLOAT_BYTES = 4

log = structlog.get_logger("klaw.writer")


@attrs.frozen
class Outcome:
    """Result of one request of a group: a value, or an error that concerns this request only."""

    value: Any = None
    error: KlawError | None = None


def commit_group(connection: apsw.Connection, journal: Journal, requests: Sequence[Request]) -> list[Outcome]:
    """Execute the requests in order and make them durable together.

    Raises:
        StorageFull: no space or a read-only file system; nothing of the group was kept.
        StoreDamaged: the database file is; the writer must not go on.
        apsw.Error, OSError: the store is broken; the writer must not go on.
    """
    try:
        return _commit_group(connection, journal, requests)
    except BROKEN_FILE as error:
        # A damaged page of the vector table makes even COMMIT fail. Without what touched it, the rest can be stored.
        rest = [request for request in requests if not isinstance(request, OfVectors)]
        if len(rest) == len(requests):
            log.error("database_damaged", error=error_class(error), where=where(error))
            raise StoreDamaged(DAMAGED) from error
        refused = Outcome(error=VectorsDamaged(f"the vector table is damaged ({error_class(error)})"))
        outcomes = iter(commit_group(connection, journal, rest))
        return [refused if isinstance(request, OfVectors) else next(outcomes) for request in requests]


def _commit_group(connection: apsw.Connection, journal: Journal, requests: Sequence[Request]) -> list[Outcome]:
    entries: list[Entry] = []
    try:
        connection.execute("BEGIN IMMEDIATE")
        outcomes = [_execute_alone(connection, request, entries) for request in requests]
        if entries:
            journal.append(_messages_first(entries))
        connection.execute("COMMIT")
    except (apsw.FullError, apsw.ReadOnlyError, OSError) as error:
        _undo(connection, journal)
        if isinstance(error, OSError) and error.errno not in _FULL_ERRNOS:
            raise
        raise StorageFull("the disk is full or read-only: the message was not stored, please send it again") from error
    except BaseException:
        _undo(connection, journal)
        raise
    journal.keep()
    if any(isinstance(request, ChangeCore | Forget) for request in requests) and not settle_core(connection):
        outcomes = [_not_written(request, outcome) for request, outcome in zip(requests, outcomes, strict=True)]
    if journal.wants_checkpoint:
        checkpoint(connection, journal)
    return outcomes


def _not_written(request: Request, outcome: Outcome) -> Outcome:
    if not isinstance(request, ChangeCore) or outcome.error is not None:
        return outcome
    return Outcome(error=StorageError("the change is kept, but core_memory.json cannot be written; it is when it can"))


def _messages_first(entries: Sequence[Entry]) -> list[Entry]:
    """The order in which a group's lines are written: what is said before what refers to it.

    A process that is killed between two logs leaves some of the lines, and the next start takes what it finds. Then a
    message may stand there without the turn or the run that it belongs to: it is found by its id, and not said twice.
    The other way round a turn would be over, or a run would have delivered, and nobody would see the answer again.
    The journal writes each log once, in the order in which they are named here, so the whole group has to be sorted.
    """
    return sorted(entries, key=lambda entry: not entry.path.startswith(f"{records.CONVERSATIONS}/"))


def checkpoint(_connection: apsw.Connection, journal: Journal) -> None:
    """Empty the commit log; on a full disk leave it as it is, for the next time. It keeps all that the logs may lack.

    Takes the connection only because it has to run in its thread.

    Raises:
        OSError: the disk failed otherwise; the writer must not go on.
    """
    try:
        journal.checkpoint()
    except OSError as error:
        if error.errno not in _FULL_ERRNOS:
            raise
        log.warning("checkpoint_put_off", error=error_class(error))


def _undo(connection: apsw.Connection, journal: Journal) -> None:
    if connection.in_transaction:
        connection.execute("ROLLBACK")
    journal.rollback()


def _execute_alone(connection: apsw.Connection, request: Request, entries: list[Entry]) -> Outcome:
    """Run one request so that its refusal leaves the others of the group alone.

    A single message is refused before anything is written; only what has several steps needs a savepoint.
    """
    mine: list[Entry] = []
    try:
        if isinstance(request, Append) and len(request.messages) == 1 and request.turn is None:
            outcome = Outcome(value=_append(connection, request, mine))
            entries += mine
            return outcome
        with connection:
            outcome = Outcome(value=_execute(connection, request, mine))
    except KlawError as error:
        return Outcome(error=error)
    except (apsw.ConstraintError, ValueError, TypeError, LookupError, OverflowError) as error:
        if not isinstance(request, OfTasks | Remembered):
            raise
        # A value that is none: the scheduler's or a tool's, and no reason to end the process for all.
        log.error("request_refused", name=type(request).__name__, error=error_class(error), where=where(error))
        return Outcome(error=StorageError(f"the values cannot be stored ({error_class(error)})"))
    entries += joined(mine)
    return outcome


def _execute(connection: apsw.Connection, request: Request, entries: list[Entry]) -> Any:
    match request:
        case Append():
            return _append(connection, request, entries)
        case StoreVectors():
            stored = vectors.model(connection)
            if stored is None or stored[0] != request.model_id:
                return 0  # made by a model that was replaced meanwhile
            if any(len(vector) != stored[1] * FLOAT_BYTES for _, vector in request.vectors):
                raise StorageError(f"a vector has another dimension than {stored[1]}, the model's; none was stored")
            with _damage_named():
                count = vectors.store(connection, request.vectors, request.as_of)
                vector_codes.advance(connection)
                return count
        case PrepareVectors():
            with _damage_named():
                if request.anew:
                    vectors.make_anew(connection, request.model_id, request.dimension)
                return vectors.prepare_some(connection, request.model_id, request.dimension)
        case EndReembedding():
            return vectors.end_reembedding(connection)
        case EncodeVectors():
            with _damage_named():
                return vectors.model(connection) is not None and vector_codes.advance(connection)
        case RepairIndex():
            return _repair(connection, request)
        case PutTask() | RemoveTask() | BeginRun() | AppendTranscript() | SaveRun():
            return execute_of_tasks(connection, request, entries)
        case (
            PutFact()
            | RemoveFact()
            | ChangeCore()
            | StorePassageVectors()
            | PutMemoryFile()
            | PutSummary()
            | NoteFailure()
        ):
            return execute_of_memory(connection, request, entries)
        case _:
            return _execute_other(connection, request, entries)


def _execute_other(connection: apsw.Connection, request: Request, entries: list[Entry]) -> Any:
    if isinstance(request, OfForgetting):
        return execute_of_forgetting(connection, request, entries)
    if isinstance(request, ChangePeople):
        return execute_of_people(connection, request, entries)
    if isinstance(request, OfBackground):
        return execute_of_background(connection, request, entries)
    return execute_of_topics(connection, request, entries) if isinstance(request, OfTopics) else None


@contextmanager
def _damage_named() -> Iterator[None]:
    """Vectors can be made again: damage to their table is refused like one request, and does not end the process."""
    try:
        yield
    except (apsw.SQLError, apsw.CorruptError, apsw.ConstraintError) as error:
        raise VectorsDamaged(f"the vector table is damaged ({error_class(error)})") from error


def _repair(connection: apsw.Connection, request: RepairIndex) -> coverage.Repaired:
    """A damaged index must not end the process at every start: what cannot be repaired is refused and shown."""
    try:
        return coverage.repair(connection, request.damage)
    except (apsw.CorruptError, apsw.SQLError, apsw.ConstraintError) as error:
        raise StorageError(f"the index could not be repaired ({error_class(error)})") from error


def _append(connection: apsw.Connection, request: Append, entries: list[Entry]) -> tuple[Appended, ...]:
    appended = tuple(append_message(connection, new, entries) for new in request.messages)
    if request.turn is not None and turns.insert(connection, request.turn):
        entries.append(Entry(records.turn_path(request.turn), records.turn_line(request.turn)))
    return appended
