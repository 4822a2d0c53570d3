"""The reindex of a server that does not run, from the lock to the swap."""

import time
from collections.abc import Callable, Generator
from contextlib import suppress
from functools import partial
from pathlib import Path

import apsw
import structlog

from klaw.actor.failure import error_class, where
from klaw.errors import ModelError, SchemaTooNew, StorageError, StorageFull
from klaw.store import migrations
from klaw.store.engine import connect
from klaw.store.engine.connect import DAMAGE
from klaw.store.engine.journal import Journal
from klaw.store.engine.reconcile import cut, reconcile
from klaw.store.rebuild import logs
from klaw.store.rebuild.building import Building
from klaw.store.rebuild.compare import Bounds, compare
from klaw.store.rebuild.files import Places, check_begin, check_room, decide, drop_old, exchange, recover, size
from klaw.store.rebuild.filling import embed_rest, take_over
from klaw.store.rebuild.values import Embeds, Options, Progress, ReindexRefused, Report, TableComparison, Vectors
from klaw.store.search import vectors

SLICE_S = 0.25
"""How long one transaction goes on, and so about how often progress is told."""
_CHECKPOINT_BYTES = 1 << 22
Steps = Generator[Progress, None, Report]
LoadModel = Callable[[], Embeds | None]
log = structlog.get_logger("klaw.reindex")


def reindex(database: Path, options: Options, load_model: LoadModel, min_tokens: int) -> Steps:
    """Make the database anew and swap it in; a generator that reports its progress and returns how it ended.

    Nothing else can use the folder meanwhile. What was built is kept when it ends early, by an error, by a kill, or
    because the databases differ: the next run goes on with it.

    Args:
        database: klaw.db; the logs are in its folder. It may be missing or damaged.
        options: what the person chose.
        load_model: gives what makes the missing vectors, when it is needed. None leaves them to the server, and so
            does a ModelError.
        min_tokens: shorter messages have no vector.

    Raises:
        ReindexRefused: it cannot begin; nothing was changed.
        SchemaTooNew: the database is of a newer Klaw.
        StorageError: a file cannot be read or written.
    """
    folder = database.parent
    if not folder.is_dir():
        raise ReindexRefused(f"there is no {folder}: nothing to make a database from")
    journal = Journal(folder, checkpoint_bytes=_CHECKPOINT_BYTES)
    try:
        journal.lock()
        return (yield from _Offline(Places(database), options, load_model, min_tokens).run(journal))
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
    """Remove the database of before the last reindex; a running server does not mind. Returns the bytes freed.

    Raises:
        StorageError: it is the only one, or cannot be removed.
    """
    try:
        return drop_old(Places(database))
    except OSError as error:
        raise StorageError(f"cannot remove {Places(database).old}: {error.strerror}") from error


def _full(database: Path) -> StorageFull:
    return StorageFull(
        f"the disk is full; what was built is kept in {Places(database).building.name}: make room and start the reindex"
        " again, or remove that file"
    )


class _Offline:
    """One run."""

    def __init__(self, places: Places, options: Options, load_model: LoadModel, min_tokens: int) -> None:
        self._places = places
        self._options = options
        self._load_model = load_model
        self._no_model: str | None = None
        self._min_tokens = min_tokens
        self._begin = time.monotonic()
        self._building = Building(places, slice_s=SLICE_S)
        self._live: apsw.Connection | None = None
        self._reason: str | None = None
        """Why there is no comparison."""
        self._damaged = False
        self._taken_out = 0
        self._tables: tuple[TableComparison, ...] = ()

    def run(self, journal: Journal) -> Steps:
        recover(self._places)
        root = self._places.database.parent
        check_begin(self._places, sum(logs.sizes(root).values()))
        journal.open()
        try:
            self._open_live()
            if self._live is None:  # else done with it
                cut(root, 0)
            yield from self._building.read_all(logs.sizes(root), embed_again=self._options.embed_again)
            yield from self._building.check_transcripts()
            made = yield from self._fill()
            yield from self._compare()
            swapped = self._may_swap()
            if swapped:
                yield Progress("swap")
                self._swap()
                self._take_out(journal)
        finally:
            self._building.close()
            self._close_live()
        return Report(
            swapped=swapped,
            tally=self._building.tally,
            vectors=made,
            tables=self._tables,
            compared=bool(self._tables),
            reason=self._reason,
            no_model=self._no_model,
            set_aside=self._taken_out,
            seconds=time.monotonic() - self._begin,
        )

    # -- the database in use ---------------------------------------------------------------------------------------

    def _open_live(self) -> None:
        """Bring it to the state that a start of the server would."""
        if size(self._places.database) == 0:
            self._reason = "there was no database to compare with"
            return
        try:
            self._live = apsw.Connection(str(self._places.database), flags=apsw.SQLITE_OPEN_READWRITE)
            connect.prepare_writer(self._live)
            migrations.migrate(self._live)
            reconcile(self._live, self._places.database.parent)
        except SchemaTooNew:
            self._close_live()
            raise
        except DAMAGE as error:
            self._give_up_live(error)

    def _give_up_live(self, error: Exception) -> None:
        log.warning("old_database_damaged", error=error_class(error), where=where(error))
        self._damaged, self._tables = True, ()
        self._reason = f"the old database is damaged (SQLite says {error_class(error)}) and cannot be compared"
        self._close_live()

    def _close_live(self) -> None:
        if self._live is not None:
            with suppress(*DAMAGE):
                self._live.close()
            self._live = None

    # -- steps -----------------------------------------------------------------------------------------------------

    def _fill(self) -> Generator[Progress, None, Vectors]:
        connection = self._building.connection
        stored = self._stored_model()
        model = self._loaded()
        wanted = (model.model_id, model.dimension) if model is not None else stored
        taken = made = 0
        if wanted is not None:
            with connection:
                vectors.prepare(connection, *wanted)
            if self._live is not None and stored == wanted and not self._options.embed_again:
                taken = yield from take_over(self._building, self._live, slice_s=SLICE_S)
        if model is not None:
            check_room(self._places)
            made = yield from embed_rest(self._building, model, self._min_tokens)
        waiting = vectors.count_unembedded(connection, self._min_tokens)
        return Vectors(taken_over=taken, made=made, waiting=waiting)

    def _stored_model(self) -> tuple[str, int] | None:
        try:
            return vectors.model(self._live) if self._live is not None else None
        except DAMAGE as error:
            self._give_up_live(error)
            return None

    def _loaded(self) -> Embeds | None:
        try:
            return self._load_model()
        except ModelError as error:
            self._no_model = str(error)
            return None

    def _compare(self) -> Generator[Progress, None, None]:
        if self._live is None:
            return
        try:
            self._tables = tuple((yield from compare(self._live, self._building.connection, Bounds(), whole=True)))
        except DAMAGE as error:
            self._give_up_live(error)

    def _may_swap(self) -> bool:
        same = not self._damaged and all(table.same for table in self._tables)
        return same or self._options.accept_differences

    def _swap(self) -> None:
        self._close_live()
        self._building.finish()
        decide(self._places)
        exchange(self._places)
        log.info("reindexed", messages=self._building.tally.messages + self._building.tally.reused)

    def _take_out(self, journal: Journal) -> None:
        """Take the lines that the new database was made without out of the logs; they are in ``set-aside/``."""
        aside = self._building.aside
        for path in sorted(aside.lines):
            if not aside.has_all(path):
                continue  # the disk was full: they stay where they are
            try:
                aside.sync(path)
                self._taken_out += journal.rewrite(path, partial(aside.without, path))
            except OSError as error:
                log.error("set_aside_failed", file=Path(path).name, error=error_class(error))
