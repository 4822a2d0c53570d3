"""A small pool of read-only connections, so that a long search never delays a write."""

from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

import apsw
import trio

from klaw.errors import StorageError
from klaw.store.connect import prepare_reader
from klaw.store.database import Database, open_database

P = ParamSpec("P")
T = TypeVar("T")


class Readers:
    """Hands out connections in turn; a caller waits while all are busy."""

    def __init__(self, databases: list[Database]) -> None:
        # The one that was used longest ago is next: after a search that was given up, and cannot be interrupted, its
        # connection is busy for a while.
        self._free = deque(databases)
        self._limit = trio.CapacityLimiter(len(databases))

    async def run(self, function: Callable[Concatenate[apsw.Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a reading ``function(connection, ...)`` on a free connection.

        Raises:
            StorageError: SQLite refused.
            trio.TooSlowError: the caller's deadline passed while SQL was running.

        Cancellation: the query is interrupted.
        """
        async with self._limit:
            database = self._free.popleft()
            try:
                return await database.run(function, *args, **kwargs)
            except apsw.Error as error:
                raise StorageError(f"the database could not be read ({type(error).__name__})") from error
            finally:
                self._free.append(database)


@asynccontextmanager
async def open_readers(path: Path, count: int) -> AsyncIterator[Readers]:
    """Open the pool on an existing database.

    Raises:
        apsw.Error: the file cannot be opened.
    """
    async with AsyncExitStack() as stack:
        databases = [
            await stack.enter_async_context(open_database(path, prepare_reader, apsw.SQLITE_OPEN_READONLY))
            for _ in range(count)
        ]
        yield Readers(databases)
