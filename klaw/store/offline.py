"""Reading the database of a server that does not run: for commands, which have nothing else to do and may block."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

import apsw

from klaw.errors import StorageError
from klaw.store.engine.connect import prepare_reader
from klaw.store.engine.damage import DAMAGE
from klaw.store.engine.readers import Readers, open_readers

P = ParamSpec("P")
T = TypeVar("T")


def read_offline(
    path: Path, function: Callable[Concatenate[apsw.Connection, P], T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Run a reading ``function(connection, ...)`` on a read-only connection of its own. A running server is not
    disturbed.

    Raises:
        StorageError: the file is not there, is no database, is damaged, or is of another schema.
    """
    try:
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            prepare_reader(connection)
            return function(connection, *args, **kwargs)
        finally:
            connection.close()
    except apsw.Error as error:
        raise StorageError(f"cannot read {path}: SQLite says {type(error).__name__}") from error
    except DAMAGE as error:
        raise StorageError(f"cannot read {path}: a row is damaged ({type(error).__name__})") from error


@asynccontextmanager
async def offline_readers(path: Path) -> AsyncIterator[Readers]:
    """One connection that reads the database, for what asks a server's readers otherwise.

    Raises:
        StorageError: as ``read_offline``.
    """
    try:
        async with open_readers(path, 1) as readers:
            yield readers
    except apsw.Error as error:
        raise StorageError(f"cannot read {path}: SQLite says {type(error).__name__}") from error
