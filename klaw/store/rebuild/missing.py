"""A database that is missing is made by the start, with the means of a reindex and before anything else opens it."""

import time
from collections.abc import Callable, Generator
from pathlib import Path

import apsw
import structlog
import trio

from klaw.actor.threads import Threads
from klaw.store.engine.connect import DAMAGE
from klaw.store.engine.reconcile import cut
from klaw.store.rebuild import logs
from klaw.store.rebuild.building import Building
from klaw.store.rebuild.files import Places, check_room, decide, exchange, remove, size
from klaw.store.rebuild.values import Progress, Tally

SLICE_S = 0.25
"""Work between two looks at the time."""
EMPTY_BYTES = 64 * 1024
"""A larger file without tables is damaged, and not as it was before its first table."""
REPORT_S = 5.0
"""Between two reports."""

CLOSE_S = 10.0

Report = Callable[[Progress], None]
log = structlog.get_logger("klaw.store")


def is_missing(places: Places) -> bool:
    """Whether there are logs and no database: no file, an empty one, or one that lost all with its write-ahead log.

    A file that cannot be read is not missing: it is damaged, and whoever opens it says so.
    """
    return not _has_tables(places.database) and bool(logs.sizes(places.database.parent))


def _has_tables(path: Path) -> bool:
    if size(path) == 0:
        return False
    if size(path) > EMPTY_BYTES:
        return True
    try:
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            return bool(connection.execute("SELECT count(*) FROM sqlite_schema").get)
        finally:
            connection.close()
    except (apsw.Error, *DAMAGE):
        return True


async def make_missing(places: Places, report: Report) -> Tally:
    """Make the database from the logs, whose journal is locked and opened. Vectors are left to the embedder.

    Args:
        places: its file; the logs are in the same folder.
        report: told how far it is, every few seconds.

    Returns:
        What the logs held.

    Raises:
        StorageError: the disk is full; what was built is kept.
        apsw.Error, OSError: files cannot be read or written.

    Cancellation: what was built is kept, and the next start goes on with it.
    """
    threads = Threads("making the database", 1)
    log.warning("database_missing", file=places.database.name)
    building = Building(places, slice_s=SLICE_S)
    work = _steps(places, building)
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


def _steps(places: Places, building: Building) -> Generator[Progress, None, None]:
    root = places.database.parent
    cut(root, 0)
    for step in building.read_all(logs.sizes(root), embed_again=False):
        check_room(places)
        yield step
    yield Progress("swap")
    remove(places.database)  # an empty file, if any: nothing that is worth keeping beside the new one
    building.finish()
    decide(places)
    exchange(places)
