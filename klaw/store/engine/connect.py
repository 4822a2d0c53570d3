"""Connections: pragmas, the vector extension, the tokenizer; snapshots; how damage shows. All in their own threads."""

import errno
import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import apsw

from klaw.config.paths import open_private
from klaw.store.engine import tokenizer
from klaw.store.engine.log_files import FAULTS

BUSY_TIMEOUT_MS = 5_000
"""Only ``klaw`` commands on a stopped server can collide with anything; the server has one writer."""
PAGE_BYTES = 2048
"""Page size of a new database; an old one keeps its own until it is rebuilt. A message touches about 18 pages, and each
goes whole into the WAL: half the size is half of what a card has to write, and costs a search some 10 % more."""
CHECKPOINT_PAGES = 2000
"""Pages of the WAL (4 MB, as with SQLite's own default for pages of 4096 bytes): what many messages touch is copied
into the database once for all of them."""
_VECTORS = str(Path(str(getattr(importlib.util.find_spec("sqlite_vec"), "origin", ""))).with_name("vec0"))
"""The extension. Its package, when it is imported, loads Python's own SQLite beside apsw's: 1.5 MB."""
READER_CACHE_KIB, WRITER_CACHE_KIB = 2_000, 4_000
"""Cache of each connection. With 8,000 each, turns on 100,000 messages took no less CPU, and the server 9 MB more. The
writer has more, because what finds no room is written to the WAL twice."""


def _common(connection: apsw.Connection) -> None:
    connection.set_busy_timeout(BUSY_TIMEOUT_MS)  # first: another process may just be closing the last connection
    connection.pragma("user_version")  # reads the file's header: a file that is no database is refused as such
    tokenizer.register(connection)
    connection.enable_load_extension(True)
    try:
        connection.load_extension(_VECTORS)
    finally:
        connection.enable_load_extension(False)


def prepare_writer(connection: apsw.Connection) -> None:
    """Set up the one read-write connection. In WAL mode with ``synchronous = NORMAL`` a commit costs no fsync: the
    journal's fsync makes a message durable; after a power cut the start-up reconciliation puts back what the database
    lost."""
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
    """A read-only connection that belongs to no pool, and may make temporary tables. Raises apsw.Error."""
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
    """The bytes of a database's file that may be in use, read through SQLite. Opening and closing the file itself would
    take SQLite's locks from the whole process (https://www.sqlite.org/howtocorrupt.html, 2.2): another process that
    opens the database then thinks that it is alone, cuts the shared memory off, and this one ends with SIGBUS. Raises
    OSError."""
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
