"""One group of requests as one transaction and one fsync. Runs in the writer's thread; knows nothing of trio."""

import errno
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import apsw
import attrs
import structlog

from klaw.actor.failure import error_class
from klaw.domain.message import Message
from klaw.errors import IdConflict, KlawError, StorageError, StorageFull, VectorsDamaged
from klaw.store import records
from klaw.store.journal import Entry, Journal
from klaw.store.requests import (
    Append,
    Appended,
    EncodeVectors,
    EndReembedding,
    OfVectors,
    PrepareVectors,
    RepairIndex,
    Request,
    StoreVectors,
)
from klaw.store.sql import coverage, messages, turns, vector_codes, vectors

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
        apsw.Error, OSError: the store is broken; the writer must not go on.
    """
    try:
        return _commit_group(connection, journal, requests)
    except apsw.CorruptError as error:
        # A damaged page of the vector table makes even COMMIT fail. Without what touched it, the rest can be stored.
        rest = [request for request in requests if not isinstance(request, OfVectors)]
        if len(rest) == len(requests):
            raise
        refused = Outcome(error=VectorsDamaged(f"the vector table is damaged ({error_class(error)})"))
        outcomes = iter(_commit_group(connection, journal, rest))
        return [refused if isinstance(request, OfVectors) else next(outcomes) for request in requests]


def _commit_group(connection: apsw.Connection, journal: Journal, requests: Sequence[Request]) -> list[Outcome]:
    entries: list[Entry] = []
    try:
        connection.execute("BEGIN IMMEDIATE")
        outcomes = [_execute_alone(connection, request, entries) for request in requests]
        if entries:
            journal.append(entries)
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
    if journal.wants_checkpoint:
        checkpoint(connection, journal)
    return outcomes


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
    entries += mine
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
                count = vectors.store(connection, request.vectors)
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
        case _:
            return None


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
    appended = []
    for new in request.messages:
        known = messages.find(connection, new.user, new.id)
        if known is not None and known.chat != new.chat:
            raise IdConflict("this message id is already used in another chat")
        message: Message = known or messages.append(connection, new)
        if known is None:
            entries.append(Entry(records.message_path(message), records.message_line(message)))
        appended.append(Appended(message, repeated=known is not None))
    if request.turn is not None and turns.insert(connection, request.turn):
        entries.append(Entry(records.turn_path(request.turn), records.turn_line(request.turn)))
    return tuple(appended)
