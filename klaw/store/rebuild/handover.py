"""The writer's part of a reindex while the server runs: marks between two groups, and the last steps of the swap.

Both run in the writer's thread, while nothing is being written. The swap takes in whatever is still missing, so it
always ends; acknowledgements wait for it.
"""

from collections.abc import Mapping
from functools import partial

import apsw
import structlog

from klaw.actor.failure import error_class, where
from klaw.errors import StorageError
from klaw.store.engine import meta
from klaw.store.engine.transaction import Stopped
from klaw.store.rebuild import content, logs
from klaw.store.rebuild.building import Building
from klaw.store.rebuild.compare import Bounds, compare_tail
from klaw.store.rebuild.files import Places, decide, exchange
from klaw.store.rebuild.values import Committed, Handover
from klaw.store.search import vectors

log = structlog.get_logger("klaw.writer")


def mark_commits(stopped: Stopped) -> Committed:
    """How far the store is. From now on no line of a log changes, until ``end_reading``."""
    stopped.journal.is_read = True
    last_rowid, last_turn, last_change = content.last_rowids(stopped.connection)
    return Committed(
        sizes=logs.sizes(stopped.data_dir),
        last_rowid=last_rowid,
        last_turn=last_turn,
        last_change=last_change,
        last_entry=meta.last_entry(stopped.connection),
    )


def end_reading(stopped: Stopped) -> None:
    """Let logs be rewritten again."""
    stopped.journal.is_read = False


def hand_over(
    stopped: Stopped, places: Places, positions: Mapping[str, int], compared: Bounds, *, small: bool
) -> Handover:
    """Go on with the new database: bring it up to the last commit, compare what is new, and decide for it.

    Args:
        stopped: the writer's.
        places: the files.
        positions: how far each log is in the new database.
        compared: everything up to here is the same in both.
        small: see ``compare_tail``.

    Raises:
        StorageError: nothing was decided; the present one stays.
    """
    try:
        outcome = _hand_over(stopped, Building(places, slice_s=float("inf")), places, positions, compared, small)
    except (apsw.Error, OSError) as error:
        log.error("swap_failed", error=error_class(error), where=where(error))
        raise StorageError(f"the new database could not be finished ({error_class(error)})") from error
    if outcome == "swapped":
        stopped.exchange = partial(exchange, places)
    return outcome


def _hand_over(
    stopped: Stopped, building: Building, places: Places, positions: Mapping[str, int], compared: Bounds, small: bool
) -> Handover:
    try:
        building.reopen(positions)
        if vectors.model(building.connection) != vectors.model(stopped.connection):
            return "other_model"
        for _step in building.read(logs.sizes(stopped.data_dir), whole=False):
            pass
        if not compare_tail(stopped.connection, building.connection, compared, small=small):
            return "differs"
        building.finish()
    finally:
        building.close()
    # What running readers do not need is brought into the file; the rest stays in the log that moves with it.
    stopped.connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
    decide(places)
    return "swapped"
