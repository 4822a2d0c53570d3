"""A small pool of read-only connections, so that a long search never delays a write."""

from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

import apsw
import trio

from klaw.errors import StorageError
from klaw.store.engine.connect import prepare_reader
from klaw.store.engine.database import Database, open_database

REOPEN_S = 10.0

P = ParamSpec("P")
T = TypeVar("T")


class Readers:
    """Hands out connections in turn; a caller waits while all are busy."""

    def __init__(self, databases: list[Database]) -> None:
        self._all = tuple(databases)
        # The one that was used longest ago is next: after a search that was given up, and cannot be interrupted, its
        # connection is busy for a while.
        self._free = deque(databases)
        self._limit = trio.CapacityLimiter(len(databases))
        self._stale: set[Database] = set()

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
                await self._renew(database)
                return await database.run(function, *args, **kwargs)
            except apsw.Error as error:
                raise StorageError(f"the database could not be read ({type(error).__name__})") from error
            finally:
                self._free.append(database)

    def renew(self) -> None:
        """Say that another file has taken the place of the database's: what is asked from now on reads that one.

        What is running goes on with the file that it began with.
        """
        self._stale = set(self._all)

    async def renew_idle(self) -> None:
        """Open the new file on every connection that is free now, so that none keeps the old one for long.

        Raises:
            StorageError: it cannot be opened.
        """
        for _ in range(len(self._all)):
            async with self._limit:
                database = next((each for each in self._free if each in self._stale), None)
                if database is None:
                    continue
                self._free.remove(database)
                try:
                    await self._renew(database)
                except apsw.Error as error:
                    raise StorageError(f"the database could not be opened ({type(error).__name__})") from error
                finally:
                    self._free.append(database)

    async def _renew(self, database: Database) -> None:
        if database in self._stale:
            with trio.move_on_after(REOPEN_S, shield=True) as scope:  # half opened it would leave a thread behind
                await database.open()
                self._stale.discard(database)
            if scope.cancelled_caught:
                raise trio.TooSlowError


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
