"""The writer's part of a reindex while the server runs: marks between two groups, and the last steps of the swap. Both
run in the writer's thread, while nothing is being written; acknowledgements wait for them."""

from collections.abc import Mapping
from functools import partial

import apsw
import attrs
import structlog

from klaw.actor.failure import error_class, where
from klaw.errors import StorageError
from klaw.store.engine import vector_model
from klaw.store.engine.connect import DAMAGE
from klaw.store.engine.tables import Bound
from klaw.store.engine.transaction import StoppedStore
from klaw.store.kinds.inventory import last_numbers
from klaw.store.kinds.knowledge import document_copies
from klaw.store.rebuild import logs
from klaw.store.rebuild.building import Building
from klaw.store.rebuild.compare import compare_tail
from klaw.store.rebuild.files import Places, decide, exchange

log = structlog.get_logger("klaw.writer")


@attrs.frozen(kw_only=True)
class CommitMark:
    """How far the store was, between two commits."""

    sizes: Mapping[str, int]
    """Bytes of each log by its path below the data folder. Nothing below these sizes changes any more."""
    last: Mapping[Bound, int]
    """The highest numbers; that of turns is only for this very file."""


def mark_commits(stopped: StoppedStore, live: apsw.Connection | None = None) -> CommitMark:
    """How far the store is. From now on no line of a log changes, until ``end_reading``. Raises StorageError: the
    database cannot be read.

    Args:
        live: another connection, which reads the database as it is now until it ends its transaction.
    """
    try:
        if live is not None:
            live.execute("BEGIN")
            live.execute("SELECT count(*) FROM sqlite_schema").fetchall()
        last = last_numbers(stopped.connection)
    except (apsw.Error, *DAMAGE) as error:
        raise StorageError(f"the database in use cannot be read ({error_class(error)}): see klaw doctor") from error
    stopped.journal.is_read = True
    return CommitMark(sizes=logs.sizes(stopped.data_dir), last=last)


def end_reading(stopped: StoppedStore) -> None:
    """Let logs be rewritten again."""
    stopped.journal.is_read = False


def hand_over(
    stopped: StoppedStore, places: Places, positions: Mapping[str, int], compared: Mapping[Bound, int] | None
) -> str | None:
    """Bring the new database up to the last commit, compare what is new, and decide for it. Returns why that could not
    be.

    Args:
        positions: how far each log is in the new database.
        compared: up to these numbers everything is the same in both; None: differences were accepted.

    Raises:
        StorageError: nothing was decided; the present one stays.
    """
    building = Building(places, slice_s=float("inf"))
    try:
        building.reopen(positions)
        if vector_model.current(building.connection) != vector_model.current(stopped.connection):
            return "the embedding model is being changed: run it again when that has ended"
        for _step in building.read(logs.sizes(stopped.data_dir), whole=False):
            pass
        if compared is not None and not compare_tail(stopped.connection, building.connection, compared):
            return "the newest rows, the chats or the tasks are not the same in both databases"
        document_copies.hand_over(building.connection, stopped.connection)
        building.finish()
        # What running readers do not need is brought into the file; the rest stays in the log that moves with it.
        stopped.connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        decide(places)
    except (apsw.Error, OSError) as error:
        log.error("swap_failed", error=error_class(error), where=where(error))
        raise StorageError(f"the new database could not be finished ({error_class(error)})") from error
    finally:
        building.close()
    stopped.exchange = partial(exchange, places)
    return None
