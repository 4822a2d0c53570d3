"""Opening the whole store: migrated database, replayed journal, reconciled logs, reader pool."""

import errno
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

import apsw
import attrs
import structlog
import trio

from klaw.actor.failure import error_class, where
from klaw.errors import KlawError, StorageError, StoreDamaged
from klaw.store import migrations
from klaw.store.engine import connect
from klaw.store.engine.connect import DAMAGE, DAMAGED, prepare_reader
from klaw.store.engine.database import CLOSE_S, Database, Readers, open_readers
from klaw.store.engine.journal import Journal
from klaw.store.engine.writer import Writer
from klaw.store.forget import logs as forget_logs
from klaw.store.kinds import core_memory
from klaw.store.rebuild.files import Places, recover
from klaw.store.rebuild.offline import is_missing, make_missing
from klaw.store.rebuild.reconcile import reconcile
from klaw.store.rebuild.values import Progress, Tally

P = ParamSpec("P")
T = TypeVar("T")

log = structlog.get_logger("klaw.store")


@attrs.frozen(kw_only=True)
class OpeningReport:
    schema_before: int
    schema: int
    restored_lines: int
    """Lines that the journal's commit log gave back to the logs."""
    reconciled: Tally


@attrs.frozen(kw_only=True)
class Store:
    """The open store. The writer actor is run by the composition root with ``database`` and ``journal``."""

    writer: Writer
    readers: Readers
    database: Database
    journal: Journal
    opened: OpeningReport


@asynccontextmanager
async def open_store(
    path: Path, journal: Journal, *, readers: int, report: Callable[[Progress], None] = lambda _step: None
) -> AsyncIterator[Store]:
    """Open the store at a database file, which is made from the logs if it is missing; the journal's root is its
    folder. ``readers``: connections for reading. ``report`` gets the progress of making it. Raises SchemaTooNew: the
    database is of a newer Klaw, and nothing was changed; StorageError: the files cannot be opened or written."""
    database = Database(path, connect.prepare_writer, apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
    try:
        with _refusing(path, OSError):
            journal.lock()  # before anything else: a reindex may be at work on the same files
            recover(Places(path))
        with _refusing(path, apsw.Error, OSError):
            made = await _make_missing(Places(path), journal, report)
        with _refusing(path, apsw.Error, *DAMAGE):
            await database.open()
        with _refusing(path, apsw.Error, OSError, *DAMAGE):
            opened = await database.run(_prepare, journal, path.parent, made)
        log.info("store_opened", schema=opened.schema, count=opened.restored_lines)
        try:
            async with open_readers(path, readers) as pool:
                yield Store(writer=Writer(), readers=pool, database=database, journal=journal, opened=opened)
        finally:
            with trio.move_on_after(CLOSE_S, shield=True):
                if database.is_open:  # not after a swap that failed half-way
                    await database.run(_close, journal)
    finally:
        try:
            await database.aclose()  # noqa: ASYNC102 - shielded with a deadline inside
        finally:
            journal.release()


async def _make_missing(places: Places, journal: Journal, report: Callable[[Progress], None]) -> Tally | None:
    """Returns what the logs held, if the database was missing."""
    tally = None
    if is_missing(places):
        journal.open()
        tally = await make_missing(places, report)
    connect.private(places.database)
    return tally


def _prepare(connection: apsw.Connection, journal: Journal, data_dir: Path, made: Tally | None) -> OpeningReport:
    before, now = migrations.migrate(connection)
    restored = journal.open()
    reconciled = reconcile(connection, data_dir)
    core_memory.settle(connection, data_dir)
    forget_logs.finish(connection, journal, data_dir)
    return OpeningReport(schema_before=before, schema=now, restored_lines=restored, reconciled=made or reconciled)


def _close(connection: apsw.Connection, journal: Journal) -> None:
    journal.close()
    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)


@contextmanager
def _refusing(path: Path, *errors: type[Exception]) -> Iterator[None]:
    try:
        yield
    except errors as error:
        raise _refusal(path, error) from error


def _refusal(path: Path, error: Exception) -> KlawError:
    if not isinstance(error, OSError):
        log.error("store_unusable", error=error_class(error), where=where(error))
    match error:
        case apsw.FullError():
            reason = "the disk is full"
        case apsw.ReadOnlyError() | apsw.CantOpenError():
            reason = "the file or its folder cannot be written"
        case apsw.BusyError():
            reason = "another process is writing to the database"
        case BlockingIOError():
            reason = "another Klaw server, a reindex or an import is using this folder"
        case OSError():
            reason = errno.errorcode.get(error.errno or 0, "I/O error") + f": {error.strerror}"
        case _ if isinstance(error, DAMAGE):
            return StoreDamaged(f"cannot open {path}: {DAMAGED}")
        case _:
            reason = f"SQLite says {type(error).__name__}"
    return StorageError(f"cannot open {path}: {reason}")


def read_offline(
    path: Path, function: Callable[Concatenate[apsw.Connection, P], T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Run a reading ``function(connection, ...)`` on a connection of its own. Raises StorageError: the file is not
    there, is no database, is damaged, or is of another schema."""
    try:
        with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
            prepare_reader(connection)
            return function(connection, *args, **kwargs)
    except apsw.Error as error:
        raise StorageError(f"cannot read {path}: SQLite says {type(error).__name__}") from error
    except DAMAGE as error:
        raise StorageError(f"cannot read {path}: a row is damaged ({type(error).__name__})") from error


@asynccontextmanager
async def offline_readers(path: Path) -> AsyncIterator[Readers]:
    """One connection in place of a server's readers. Raises StorageError, as ``read_offline``."""
    try:
        async with open_readers(path, 1) as readers:
            yield readers
    except apsw.Error as error:
        raise StorageError(f"cannot read {path}: SQLite says {type(error).__name__}") from error
