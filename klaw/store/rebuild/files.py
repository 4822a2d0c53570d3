"""The files of a reindex beside klaw.db, and the swap of two databases that a kill at any point cannot spoil.

``klaw.db.reindex`` is being built. Renaming it to ``klaw.db.new`` is the decision to swap: from then on every start
finishes what is left of it. ``klaw.db.old`` is the database that was in use before, kept until somebody drops it.
"""

import shutil
from pathlib import Path

import attrs
import structlog

from klaw import atomic_file
from klaw.store.engine.log_files import files
from klaw.store.kinds import runs
from klaw.store.rebuild.values import ReindexRefused

RESERVE_BYTES = 64 << 20
"""Space that a reindex leaves free: the server needs it for messages."""
_WAL, _SHM = "-wal", "-shm"

log = structlog.get_logger("klaw.reindex")


def beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


@attrs.frozen
class Places:
    database: Path
    building: Path = attrs.Factory(lambda self: beside(self.database, ".reindex"), takes_self=True)
    ready: Path = attrs.Factory(lambda self: beside(self.database, ".new"), takes_self=True)
    old: Path = attrs.Factory(lambda self: beside(self.database, ".old"), takes_self=True)


def log_sizes(root: Path) -> dict[str, int]:
    """Size of every log by its path below the data folder, but for transcripts of runs: no database has them."""
    return {path: found.st_size for path, found in files(root) if not runs.is_transcript(path)}


def remove(path: Path) -> int:
    """Remove a database file with what SQLite keeps beside it. Returns the bytes that were freed."""
    freed = 0
    for each in (beside(path, _SHM), beside(path, _WAL), path):  # what is cut off here can be repeated
        freed += size(each)
        each.unlink(missing_ok=True)
    atomic_file.sync(path.parent)
    return freed


def decide(places: Places) -> None:
    """Declare the built database, which nobody has open, complete: from now on the swap will be finished. Raises
    OSError: nothing was decided."""
    for suffix in (_WAL, _SHM):
        beside(places.building, suffix).unlink(missing_ok=True)  # empty: it was closed by its only connection
    atomic_file.sync(places.building)
    places.building.rename(places.ready)
    atomic_file.sync(places.database.parent)


def exchange(places: Places) -> None:
    """Put the decided database in the place of the live one. Can be repeated from any point at which it was cut off.
    Raises OSError: the swap is half done; the next start finishes it.

    The live one's write-ahead log moves with it: connections that still read have it open, and a file of that name
    would be taken for the new database's. Its shared memory is made again when the file is opened.
    """
    live, old = places.database, places.old
    if live.exists():
        if beside(live, _WAL).exists():
            beside(live, _WAL).replace(beside(old, _WAL))
        beside(live, _SHM).unlink(missing_ok=True)
        atomic_file.sync(live.parent)
        live.replace(old)
    for suffix in (_WAL, _SHM):
        beside(live, suffix).unlink(missing_ok=True)  # of a database that somebody moved away
    places.ready.rename(live)
    atomic_file.sync(live.parent)


def recover(places: Places) -> None:
    """Finish a swap that was cut off, if one was. Call it with the store's lock, before opening. Raises OSError: the
    files cannot be renamed."""
    if places.ready.exists():
        exchange(places)
        log.warning("swap_finished", file=places.database.name)


def check_begin(places: Places) -> None:
    """Raises ReindexRefused where a reindex could not end; the text says what to do."""
    if places.old.exists():
        raise ReindexRefused(
            f"{places.old} of an earlier reindex is still there: remove it with `klaw reindex --drop-old` first"
        )
    present = size(places.database) + size(beside(places.database, _WAL))
    # Without a database to judge by: rows, indexes and vectors are up to three times what the logs are.
    needed = present + present // 8 if present else 3 * sum(log_sizes(places.database.parent).values())
    needed = max(0, needed - size(places.building)) + RESERVE_BYTES
    free = shutil.disk_usage(places.database.parent).free
    if free < needed:
        raise ReindexRefused(
            f"a second database needs {_mebi(needed)} MiB in {places.database.parent} and {_mebi(free)} MiB are free:"
            " make room first; nothing was changed"
        )


def check_room(places: Places) -> None:
    """Raises ReindexRefused when the disk has got so full that the server would soon have no space."""
    free = shutil.disk_usage(places.database.parent).free
    if free < RESERVE_BYTES // 2:
        raise ReindexRefused(
            f"only {_mebi(free)} MiB are free in {places.database.parent}: the reindex stopped, and what it has is kept"
            f" in {places.building.name}; make room and start it again, or remove that file"
        )


def size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _mebi(count: int) -> int:
    return -(-count >> 20)
