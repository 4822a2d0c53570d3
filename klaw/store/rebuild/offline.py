"""The reindex of a server that does not run, from the lock to the swap; and a start without a database, which makes it
by the same means before anything else opens it."""

import time
from collections.abc import Callable, Generator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

import apsw
import structlog
import trio

from klaw.actor.failure import error_class, where
from klaw.actor.threads import Threads
from klaw.errors import StorageError, StorageFull
from klaw.store import migrations
from klaw.store.engine import connect
from klaw.store.engine.connect import DAMAGE
from klaw.store.engine.journal import Journal
from klaw.store.engine.set_aside import SetAside
from klaw.store.rebuild.building import Building, take_over
from klaw.store.rebuild.compare import compare
from klaw.store.rebuild.files import Places, check_begin, check_room, decide, exchange, log_sizes, recover, remove, size
from klaw.store.rebuild.reconcile import cut, reconcile
from klaw.store.rebuild.values import (
    Progress,
    ReindexOptions,
    ReindexRefused,
    ReindexReport,
    TableComparison,
    Tally,
    Vectors,
)
from klaw.store.search import vectors

SLICE_S = 0.25
"""How long one transaction goes on, and so about how often progress is told."""
EMPTY_BYTES = 64 * 1024
"""A larger file without tables is damaged, and not as it was before its first table."""
REPORT_S = 5.0
"""Between two reports of a start."""
CLOSE_S = 10.0
_CHECKPOINT_BYTES = 1 << 22
Steps = Generator[Progress, None, ReindexReport]
log = structlog.get_logger("klaw.reindex")


def reindex(database: Path, options: ReindexOptions, min_tokens: int) -> Steps:
    """Rebuild the database, which may be missing or damaged, from the logs in its folder, and swap it in; a
    generator that reports its progress and returns how it ended. What was built is kept when it ends early, by an
    error, by a kill, or because the databases differ: the next run goes on with it. Messages with less than
    ``min_tokens`` have no vector. Raises ReindexRefused: it cannot begin; nothing was changed; SchemaTooNew: the
    database is of a newer Klaw; StorageError: a file cannot be read or written."""
    folder = database.parent
    if not folder.is_dir():
        raise ReindexRefused(f"there is no {folder}: nothing to make a database from")
    journal = Journal(folder, checkpoint_bytes=_CHECKPOINT_BYTES)
    try:
        journal.lock()
        return (yield from _rebuilt(Places(database), options, min_tokens, journal))
    except BlockingIOError as error:
        raise ReindexRefused(
            f"{folder} is in use: by a server that just starts or stops, or by another reindex"
        ) from error
    except apsw.FullError as error:
        raise _full(database) from error
    except OSError as error:
        raise StorageError(f"cannot use {error.filename or folder}: {error.strerror or error_class(error)}") from error
    except apsw.Error as error:
        log.error("reindex_failed", error=error_class(error), where=where(error))
        raise StorageError(f"cannot make {Places(database).building}: SQLite says {error_class(error)}") from error
    finally:
        journal.close()


def drop(database: Path) -> int:
    """Remove the database of before the last reindex; a running server does not mind. Returns the bytes freed; 0 if
    there was none. Raises StorageError: it is the only one, or cannot be removed."""
    old = Places(database).old
    if old.exists() and not database.exists():
        raise ReindexRefused(f"{database} is not there: {old.name} stays")
    try:
        return remove(old) if old.exists() else 0
    except OSError as error:
        raise StorageError(f"cannot remove {old}: {error.strerror}") from error


def _full(database: Path) -> StorageFull:
    return StorageFull(
        f"the disk is full; what was built is kept in {Places(database).building.name}: make room and start the reindex"
        " again, or remove that file"
    )


def _rebuilt(places: Places, options: ReindexOptions, min_tokens: int, journal: Journal) -> Steps:
    recover(places)
    begin, root = time.monotonic(), places.database.parent
    check_begin(places)
    journal.open()
    building, taken, taken_out = Building(places, slice_s=SLICE_S), 0, 0
    is_there, live = size(places.database) > 0, None
    tables: list[TableComparison] = []
    damage: Exception | None = None
    try:
        try:
            live = _opened(places.database) if is_there else None
        except DAMAGE as error:
            damage = error
        if live is None:  # else done with it
            cut(root, 0)
        yield from building.read_all(log_sizes(root), embed_again=options.embed_again)
        yield from building.check_transcripts()
        if live is not None:
            again = options.embed_again
            taken = yield from take_over(building.connection, live, embed_again=again, slice_s=SLICE_S)
            try:
                tables = yield from compare(live, building.connection)
            except DAMAGE as error:
                damage = error
        waiting = vectors.count_unembedded(building.connection, min_tokens)
        swapped = options.accept_differences or (damage is None and all(table.same for table in tables))
        if swapped:
            yield Progress("swap")
            _close(live)
            _put_in_place(building, places)
            log.info("reindexed", messages=building.tally.messages + building.tally.reused)
            taken_out = _take_out(building.aside, journal)
    finally:
        building.close()
        _close(live)
    reason = None if is_there else "there was no database to compare with"
    if damage is not None:
        log.warning("old_database_damaged", error=error_class(damage), where=where(damage))
        reason = f"the old database is damaged (SQLite says {error_class(damage)}) and cannot be compared"
    return ReindexReport(
        swapped=swapped,
        tally=building.tally,
        vectors=Vectors(taken_over=taken, waiting=waiting),
        tables=tuple(tables),
        compared=bool(tables),
        reason=reason,
        set_aside=taken_out,
        seconds=time.monotonic() - begin,
    )


def _opened(database: Path) -> apsw.Connection:
    """The database in use, brought up to date as by a start of the server. Raises one of DAMAGE; SchemaTooNew."""
    connection = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        connect.prepare_writer(connection)
        migrations.migrate(connection)
        reconcile(connection, database.parent)
    except BaseException:
        _close(connection)
        raise
    return connection


def _close(live: apsw.Connection | None) -> None:
    if live is not None:
        with suppress(*DAMAGE):
            live.close()


def _take_out(aside: SetAside, journal: Journal) -> int:
    """Take the lines that the new database was made without out of the logs; they are in ``set-aside/``. Returns how
    many."""
    count = 0
    for path in sorted(aside.lines):
        if not aside.has_all(path):
            continue  # the disk was full: they stay where they are
        try:
            aside.sync(path)
            count += journal.rewrite(path, partial(aside.without, path))
        except OSError as error:
            log.error("set_aside_failed", file=Path(path).name, error=error_class(error))
    return count


# -- a start without a database ----------------------------------------------------------------------------------------


def is_missing(places: Places) -> bool:
    """Whether there are logs and no database: no file, an empty one, or one that lost all with its write-ahead log. A
    file that cannot be read is not missing but damaged, and opening it says so."""
    return not _has_tables(places.database) and bool(log_sizes(places.database.parent))


def _has_tables(path: Path) -> bool:
    if size(path) == 0:
        return False
    if size(path) > EMPTY_BYTES:
        return True
    try:
        with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)) as connection:
            return bool(connection.execute("SELECT count(*) FROM sqlite_schema").get)
    except (apsw.Error, *DAMAGE):
        return True


async def make_missing(places: Places, report: Callable[[Progress], None]) -> Tally:
    """Make the database from the logs, whose journal is locked and opened; vectors are left to the embedder. Returns
    what the logs held. Raises StorageError: the disk is full; apsw.Error, OSError: files cannot be read or written.

    Cancellation: what was built is kept, and the next start goes on with it.
    """
    threads = Threads("making the database", 1)
    log.warning("database_missing", file=places.database.name)
    building = Building(places, slice_s=SLICE_S)
    work = _made_anew(places, building)
    begin, told = time.monotonic(), float("-inf")
    try:
        while (step := await threads.run(next, work, None)) is not None:
            if time.monotonic() - told >= REPORT_S:
                told = time.monotonic()
                log.info("making_database", state=step.phase, percent=step.percent)
                report(step)
    finally:
        with trio.move_on_after(CLOSE_S, shield=True):
            await threads.run(building.close)
    tally = building.tally
    log.info("database_made", messages=tally.messages + tally.reused, seconds=round(time.monotonic() - begin, 1))
    return tally


def _made_anew(places: Places, building: Building) -> Generator[Progress, None, None]:
    root = places.database.parent
    cut(root, 0)
    for step in building.read_all(log_sizes(root), embed_again=False):
        check_room(places)
        yield step
    yield Progress("swap")
    remove(places.database)  # an empty file, if any: nothing that is worth keeping beside the new one
    _put_in_place(building, places)


def _put_in_place(building: Building, places: Places) -> None:
    building.finish()
    decide(places)
    exchange(places)
