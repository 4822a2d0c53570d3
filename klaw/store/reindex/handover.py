"""The writer's part of a reindex while the server runs: marks between two groups, and the last steps of the swap.

Both run in the writer's thread, while nothing is being written. The swap takes in whatever is still missing, so it
always ends; acknowledgements wait for it, and the brake sees to it that little is left.
"""

from functools import partial
from typing import Literal

import apsw
import structlog
import trio

from klaw.actor.failure import error_class, where
from klaw.errors import StorageError
from klaw.store.reindex.building import Building
from klaw.store.reindex.compare import Bounds, compare_tail
from klaw.store.reindex.places import Places, decide, exchange
from klaw.store.reindex.values import Committed, Handover, Ready
from klaw.store.sql import content, memory_journal, vectors
from klaw.store.transaction import Stopped

log = structlog.get_logger("klaw.writer")


class Brake:
    """Slows the writer down for a reindex that is outrun by what is being written: one group in ``most_s`` seconds.

    Nobody is refused anything; who writes waits. The reindexer lets go of it when it has caught up, and whatever
    becomes of it.
    """

    def __init__(self) -> None:
        self._released: trio.Event | None = None
        self._most_s = 0.0

    def put_on(self, most_s: float) -> None:
        """Slow down from now on; 0 changes nothing."""
        if most_s:
            self._released, self._most_s = trio.Event(), most_s

    def release(self) -> None:
        """Let go; idempotent."""
        if self._released is not None:
            self._released.set()
            self._released = None

    async def wait(self) -> None:
        """Before a group: at once without a brake."""
        if self._released is not None:
            with trio.move_on_after(self._most_s):
                await self._released.wait()


def mark_commits(stopped: Stopped, step: Literal["begin", "next", "end"]) -> Committed:
    """How far the store is, and what was committed since the mark before; for the reindexer, the only one who may
    watch."""
    connection, journal, watched = stopped.connection, stopped.journal, stopped.watched
    sizes = journal.take_touched() if step == "next" else {}
    found = frozenset(watched.vectors or ())
    watched.vectors = set() if step != "end" else None
    if step != "next":
        journal.watch(on=step == "begin")
    last_rowid, last_turn, last_change = content.last_rowids(connection)
    last_entry = memory_journal.last_entry(connection)
    return Committed(
        sizes=sizes,
        last_rowid=last_rowid,
        last_turn=last_turn,
        last_change=last_change,
        last_entry=last_entry,
        vectors=found,
        model=vectors.model(connection),
    )


def hand_over(stopped: Stopped, places: Places, ready: Ready) -> Handover:
    """Go on with the new database: bring it up to the last commit, compare what is new, and decide for it.

    Raises:
        StorageError: nothing was decided; the present one stays.
    """
    try:
        outcome = _hand_over(stopped, places, ready)
    except (apsw.Error, OSError) as error:
        log.error("swap_failed", error=error_class(error), where=where(error))
        raise StorageError(f"the new database could not be finished ({error_class(error)})") from error
    if outcome == "swapped":
        stopped.exchange = partial(exchange, places)
    return outcome


def _hand_over(stopped: Stopped, places: Places, ready: Ready) -> Handover:
    connection = stopped.connection
    newest = mark_commits(stopped, "next")
    building = Building(places, slice_s=float("inf"))
    try:
        building.reopen(ready.positions)
        if vectors.model(building.connection) != newest.model:
            _put_back(stopped, newest)
            return "other_model"
        for _step in building.read(newest.sizes, whole=False):
            pass
        if not ready.options.embed_again:
            building.copy_vectors(connection, sorted(newest.vectors))
        bounds = Bounds.up_to(ready.compared)
        small = not ready.options.accept_differences
        if not compare_tail(connection, building.connection, bounds, small=small):
            return "differs"
        building.finish()
    finally:
        building.close()
    # What running readers do not need is brought into the file; the rest stays in the log that moves with it.
    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
    decide(places)
    return "swapped"


def _put_back(stopped: Stopped, newest: Committed) -> None:
    """Let the next mark tell again what this one told."""
    stopped.journal.touch_again(newest.sizes)
    if stopped.watched.vectors is not None:
        stopped.watched.vectors |= newest.vectors
