"""Connections: pragmas, vector extension, tokenizer, traits; snapshots; how damage shows. All in their own threads."""

import errno
import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import apsw

from klaw.config.paths import open_private
from klaw.store.engine import tokenizer, traits
from klaw.store.engine.log_files import FAULTS

BUSY_TIMEOUT_MS = 5_000
PAGE_BYTES = 2048
"""A message touches about 18 pages, and each goes whole into the WAL: half of SQLite's default is half of what a card
has to write, and costs a search some 10 % more."""
CHECKPOINT_PAGES = 2000
"""4 MB of the WAL."""
_VECTORS = str(Path(str(getattr(importlib.util.find_spec("sqlite_vec"), "origin", ""))).with_name("vec0"))
"""The extension. Its package, when it is imported, loads Python's own SQLite beside apsw's: 1.5 MB."""
READER_CACHE_KIB, WRITER_CACHE_KIB = 2_000, 4_000
"""Cache of each connection. With 8,000 each, turns on 100,000 messages took no less CPU. What finds no room in the
writer's is written to the WAL twice."""


def _common(connection: apsw.Connection) -> None:
    connection.set_busy_timeout(BUSY_TIMEOUT_MS)  # first: another process may just be closing the last connection
    connection.pragma("user_version")  # reads the file's header: a file that is no database is refused as such
    tokenizer.register(connection)
    traits.register(connection)
    connection.enable_load_extension(True)
    try:
        connection.load_extension(_VECTORS)
    finally:
        connection.enable_load_extension(False)


def prepare_writer(connection: apsw.Connection) -> None:
    """Set up the one read-write connection. With ``synchronous = NORMAL`` a commit costs no fsync: that of the journal
    makes a message durable, and after a power cut reconciliation puts back what the database lost."""
    _common(connection)
    connection.pragma("page_size", PAGE_BYTES)
    connection.pragma("journal_mode", "wal")
    connection.wal_autocheckpoint(CHECKPOINT_PAGES)
    connection.pragma("synchronous", "normal")
    connection.pragma("foreign_keys", True)
    connection.pragma("secure_delete", True)  # what is forgotten leaves no bytes in the file
    connection.pragma("journal_size_limit", 16 * 1024 * 1024)
    connection.pragma("cache_size", -WRITER_CACHE_KIB)


def prepare_reader(connection: apsw.Connection) -> None:
    _common(connection)
    connection.pragma("query_only", True)
    connection.pragma("cache_size", -READER_CACHE_KIB)


def open_alone(path: Path) -> apsw.Connection:
    """A read-only connection outside of the pool, which may make temporary tables. Raises apsw.Error."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        _common(connection)
        connection.pragma("cache_size", -READER_CACHE_KIB)
    except BaseException:
        connection.close()
        raise
    return connection


def checkpoint(path: Path) -> None:
    """Bring what stands in the write-ahead log into the file, beside the writer, who then has little left to do."""
    with suppress(apsw.Error):
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            connection.pragma("schema_version")  # without having read it knows of no log, and does nothing
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        finally:
            connection.close()


def chunks(path: Path, size: int) -> Iterator[bytes]:
    """The bytes of a database's file, read through SQLite: closing the file itself would release SQLite's locks of the
    whole process (https://www.sqlite.org/howtocorrupt.html, 2.2), and another process that opens the database then
    would cut the shared memory off: this one ends with SIGBUS. Raises OSError."""
    try:
        file = apsw.VFSFile("", str(path), [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY, 0])
        try:
            for at in range(0, file.xFileSize(), size):
                yield file.xRead(size, at)
        finally:
            file.xClose()
    except apsw.Error as error:
        raise OSError(errno.EIO, f"SQLite says {type(error).__name__}", str(path)) from error


def private(path: Path) -> None:
    """Make sure that only the owner can read the database, also when SQLite creates it."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    os.close(open_private(path, os.O_RDONLY))


DAMAGED = "the database file is damaged; `klaw reindex --accept-differences` rebuilds it from the logs"
BROKEN_FILE = (apsw.CorruptError, apsw.NotADBError, apsw.FormatError)
"""Errors that nothing but a damaged file causes."""
DAMAGE = (
    *BROKEN_FILE,
    *(apsw.SQLError, apsw.IOError, apsw.ConstraintError, apsw.InternalError),
    apsw.NoFTS5Error,  # how an unreadable schema shows when the tokenizer is registered
    *FAULTS,  # rows with values that Klaw never stores: no JSON, no known word, no text, no number
)


MAX_COMPLAINTS = 100


def complaints(connection: apsw.Connection, *, whole: bool) -> list[str]:
    """What SQLite finds wrong; ``whole``: it compares every index with its table, which reads everything."""
    check = "integrity_check" if whole else "quick_check"
    found = [str(row[0]) for row in connection.execute(f"PRAGMA {check}({MAX_COMPLAINTS})")]
    return [] if found == ["ok"] else found


@contextmanager
def snapshot(connection: apsw.Connection) -> Iterator[None]:
    """A read transaction: all queries of the body see the same state of the database."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:  # an interrupted query ends it by itself
            connection.execute("ROLLBACK")
