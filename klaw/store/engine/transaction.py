"""What a function that the writer runs works with, and committing a group of them with one fsync."""

import errno
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import attrs
import structlog

from klaw.actor.failure import error_class, where
from klaw.actor.mailbox import Reply
from klaw.domain.message import Message
from klaw.domain.names import UserId
from klaw.errors import KlawError, SourceForgotten, StorageError, StorageFull, StoreDamaged, VectorsDamaged
from klaw.store import changes
from klaw.store.changes import Change
from klaw.store.engine import meta
from klaw.store.engine.commit_log import LogEntry
from klaw.store.engine.connect import BROKEN_FILE, DAMAGED
from klaw.store.engine.journal import Journal

_FULL_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG})

log = structlog.get_logger("klaw.writer")


@attrs.define(eq=False)
class Transaction:
    """One request's part of a group's transaction; undone when its function raises."""

    connection: apsw.Connection
    entries: list[LogEntry] = attrs.Factory(list)
    """Lines for the logs, in order."""
    published: list[Message] = attrs.Factory(list)
    """New messages, published to the listeners after the commit."""
    after_commit: list[Callable[[], object]] = attrs.Factory(list)
    """Called in the writer's thread when all is durable; a KlawError of theirs is the request's answer."""
    touches_vectors: bool = False

    @property
    def data_dir(self) -> Path:
        return _data_dir(self.connection)

    def write(self, path: str, line: str) -> None:
        line.encode()  # a lone surrogate is refused here, for this request only
        self.entries.append(LogEntry(path, line))

    def journal(self, change: Change[Any]) -> int:
        """Carry out a change of memory and add its line to the journal. Returns its number, the next one."""
        numbered = attrs.evolve(change, entry=meta.last_entry(self.connection) + 1)
        self.write(changes.path(numbered), changes.line(numbered))
        changes.apply(self.connection, numbered)
        return numbered.entry

    def forgotten_since(self, user: UserId, as_of: int | None) -> bool:
        return as_of is not None and meta.last_forgetting(self.connection, user) > as_of

    def check_nothing_forgotten(self, user: UserId, as_of: int | None) -> None:
        """Raise SourceForgotten if a user has forgotten something since an entry of the memory journal."""
        if self.forgotten_since(user, as_of):
            raise SourceForgotten("something was forgotten since it was read: nothing was changed, ask again")

    @contextmanager
    def touching_vectors(self) -> Iterator[None]:
        """Around what touches the vector tables, which can be made again: damage is refused as VectorsDamaged."""
        self.touches_vectors = True
        try:
            yield
        except (apsw.SQLError, apsw.CorruptError, apsw.ConstraintError) as error:
            raise VectorsDamaged(f"the vector table is damaged ({error_class(error)})") from error


@attrs.define(eq=False)
class StoppedStore:
    """What a function works with that runs alone, between two groups."""

    connection: apsw.Connection
    journal: Journal
    exchange: Callable[[], None] | None = None
    """Set by a function that replaces the database: called while nothing is open."""

    @property
    def data_dir(self) -> Path:
        return _data_dir(self.connection)


def _data_dir(connection: apsw.Connection) -> Path:
    """The database is in the data folder, as the logs are."""
    return Path(connection.filename).parent


@attrs.frozen(eq=False)
class WriteRequest:
    function: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = attrs.field(factory=dict)
    alone: bool = False
    """See ``Writer.run_alone``; its first argument is ``StoppedStore``."""
    reply: Reply[Any] = attrs.Factory(Reply)


@attrs.frozen
class RequestOutcome:
    """Result of one request of a group: a value, or an error that concerns this request only."""

    transaction: Transaction
    """An empty one if the request was refused."""
    value: Any = None
    error: KlawError | None = None


def commit_group(
    connection: apsw.Connection, journal: Journal, requests: Sequence[WriteRequest]
) -> list[RequestOutcome]:
    """Execute the requests in order and make them durable together. Raises StorageFull: the disk is full or read-only,
    and nothing was kept. After any other error the writer must not go on."""
    transactions: dict[WriteRequest, Transaction] = {}
    try:
        return _commit_group(connection, journal, requests, transactions)
    except BROKEN_FILE as error:
        # A damaged page of the vector table makes even COMMIT fail. Without what touched it, the rest can be stored.
        touched = {request for request, transaction in transactions.items() if transaction.touches_vectors}
        if not touched:
            log.error("database_damaged", error=error_class(error), where=where(error))
            raise StoreDamaged(DAMAGED) from error
        refused = VectorsDamaged(f"the vector table is damaged ({error_class(error)})")
        rest = iter(commit_group(connection, journal, [request for request in requests if request not in touched]))
        return [
            RequestOutcome(transactions[request], error=refused) if request in touched else next(rest)
            for request in requests
        ]


def _commit_group(
    connection: apsw.Connection,
    journal: Journal,
    requests: Sequence[WriteRequest],
    transactions: dict[WriteRequest, Transaction],
) -> list[RequestOutcome]:
    entries: list[LogEntry] = []
    outcomes: list[RequestOutcome] = []
    try:
        connection.execute("BEGIN IMMEDIATE")
        for request in requests:
            transaction = transactions[request] = Transaction(connection)
            outcomes.append(_execute(request, transaction))
            entries += outcomes[-1].transaction.entries
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
    outcomes = [_finish(outcome) for outcome in outcomes]
    if journal.wants_checkpoint:
        checkpoint(connection, journal)
    return outcomes


def _execute(request: WriteRequest, transaction: Transaction) -> RequestOutcome:
    refusal: KlawError
    try:
        with transaction.connection:
            return RequestOutcome(transaction, request.function(transaction, *request.args, **request.kwargs))
    except KlawError as error:
        refusal = error
    except (apsw.ConstraintError, ValueError, TypeError, LookupError, OverflowError) as error:
        # A value that cannot be stored is no reason to end the process for all.
        log.error("request_refused", name=request.function.__name__, error=error_class(error), where=where(error))
        refusal = StorageError(f"the values cannot be stored ({error_class(error)})")
    return RequestOutcome(Transaction(transaction.connection), error=refusal)


def _finish(outcome: RequestOutcome) -> RequestOutcome:
    if outcome.error is None:
        try:
            for function in outcome.transaction.after_commit:
                function()
        except KlawError as error:
            return attrs.evolve(outcome, error=error)
    return outcome


def checkpoint(_connection: apsw.Connection, journal: Journal) -> None:
    """Empty the commit log, on a full disk the next time. Raises OSError: the writer must not go on."""
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
