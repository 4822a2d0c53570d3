"""How far the store is at one moment between two commits: up to there a backup is exact."""

import errno
import os
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import TypeAlias

import apsw
import attrs

from klaw.actor.failure import error_class
from klaw.errors import StorageError
from klaw.store import migrations
from klaw.store.engine import connect, meta
from klaw.store.engine.commit_log import COMMIT_LOG
from klaw.store.engine.connect import DAMAGE
from klaw.store.engine.journal import Journal
from klaw.store.engine.log_files import files
from klaw.store.engine.transaction import StoppedStore
from klaw.store.forget import execute
from klaw.store.kinds.inventory import count_messages, last_numbers
from klaw.store.rebuild.compare import digests
from klaw.store.rebuild.reconcile import reconcile

TRIES = 100
"""To look at the database in the moment of a mark, while a server goes on writing."""
NOT_IN_LOGS = frozenset({"vectors"})
"""A database that is made of the logs has none yet."""


@attrs.frozen(kw_only=True)
class BackupMark:
    server: str
    """Which process it is of; empty: no server runs."""
    writes: int
    rewrites: int
    """How many logs this process has rewritten."""
    forgetting: bool
    """Something is forgotten, and not in all logs yet."""
    last: Mapping[str, int]
    """See ``BackupManifest.last``."""
    logs: Mapping[str, int]
    """Bytes, in whole lines, of each log by its path below the data folder; empty where not asked for."""


NOTHING = BackupMark(server="", writes=0, rewrites=0, forgetting=True, last={}, logs={})
"""The mark of a store whose database cannot be read."""

Marker: TypeAlias = Callable[[bool], BackupMark]
"""Gives a mark, with or without the logs."""


def mark(stopped: StoppedStore, *, logs: bool) -> BackupMark:
    connection, journal = stopped.connection, stopped.journal
    return _mark(connection, journal, stopped.data_dir, server=str(os.getpid()), logs=logs)


def _mark(connection: apsw.Connection, journal: Journal, root: Path, *, server: str, logs: bool) -> BackupMark:
    return BackupMark(
        server=server,
        writes=connection.total_changes(),
        rewrites=journal.rewrites,
        forgetting=bool(execute.pending(connection)),
        last=dict[str, int](last_numbers(connection).items()),
        logs={path: found.st_size for path, found in files(root)} if logs else {},
    )


def mark_offline(database: Path) -> BackupMark:
    """The mark of a store that no server has open, brought up to its logs unless the disk is full or read-only. Raises
    StorageError: another process has it."""
    root = database.parent
    if (
        os.statvfs(root).f_flag & os.ST_RDONLY
    ):  # a card at its end: nothing changes any more, even if a server has it open
        return _as_it_is(root)
    journal = Journal(root, checkpoint_bytes=1 << 22)
    try:
        journal.lock()
        journal.open()
        found = NOTHING
        if database.exists():
            flags = apsw.SQLITE_OPEN_READWRITE
            with suppress(apsw.Error, *DAMAGE), closing(apsw.Connection(str(database), flags=flags)) as connection:
                connect.prepare_writer(connection)
                if migrations.current(connection) == migrations.latest():
                    reconcile(connection, root)
                    found = _mark(connection, journal, root, server="", logs=False)
        return attrs.evolve(found, writes=0, logs={path: each.st_size for path, each in files(root)})
    except BlockingIOError as error:
        raise StorageError(
            f"another process is using {root}: a server that does not answer, or a reindex; try again later"
        ) from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return _as_it_is(root)
        raise StorageError(f"cannot read {root}: {error.strerror or type(error).__name__}") from error
    finally:
        journal.release()


def _as_it_is(root: Path) -> BackupMark:
    """With the latest lines, which the logs may not have yet. Raises StorageError."""
    try:
        logs = {path: each.st_size for path, each in files(root)}
        latest = root / COMMIT_LOG
        return attrs.evolve(NOTHING, logs=logs | ({COMMIT_LOG: latest.stat().st_size} if latest.exists() else {}))
    except OSError as error:
        raise StorageError(f"cannot read {root}: {error.strerror or type(error).__name__}") from error


def digests_at(database: Path, marker: Marker) -> tuple[BackupMark, dict[str, str]]:
    """A mark, and the digests of the database's tables in its very moment; none where that cannot be had."""
    found = marker(True)
    if not found.last or found.forgetting:
        return found, {}
    try:
        with closing(connect.open_alone(database)) as connection:
            for _ in range(TRIES):
                with connect.snapshot(connection):
                    connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()  # here it begins
                    now = marker(False)
                    if (now.server, now.writes) == (found.server, found.writes):
                        return found, from_logs(connection)
                found = marker(True)
    except (apsw.Error, *DAMAGE):
        pass
    return found, {}


def from_logs(connection: apsw.Connection) -> dict[str, str]:
    """Digests of what a database has that is made of the logs. Raises apsw.Error."""
    return {name: each for name, each in digests(connection).items() if name not in NOT_IN_LOGS}


@attrs.frozen(kw_only=True)
class RebuiltContent:
    messages: int
    last: Mapping[str, int]
    digests: Mapping[str, str]


def read_made(database: Path) -> RebuiltContent:
    """Raises StorageError."""
    try:
        with closing(connect.open_alone(database)) as connection:
            return RebuiltContent(
                messages=count_messages(connection),
                last=dict[str, int](last_numbers(connection).items()),
                digests=from_logs(connection),
            )
    except (apsw.Error, *DAMAGE) as error:
        raise StorageError(f"the database cannot be read ({error_class(error)})") from error


def last_forgetting(database: Path) -> int:
    """Number of the last forgetting of anybody in the memory journal; 0: nothing was forgotten, or nobody knows."""
    try:
        with closing(connect.open_alone(database)) as connection:
            query = "SELECT max(CAST(value AS INTEGER)) FROM meta WHERE key GLOB ? || '*'"
            return int(connection.execute(query, (meta.LAST_FORGETTING,)).get or 0)
    except (apsw.Error, *DAMAGE):
        return 0
