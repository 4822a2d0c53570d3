"""Connections to klaw.db in apsw's async mode: each a worker thread of its own, entered by one hop per transaction. The
writer has one; readers share a small pool, so that a long search never delays a write."""

from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar, cast

import apsw
import apsw.aio
import trio

from klaw.actor.threads import Threads
from klaw.errors import StorageError
from klaw.store.engine.connect import prepare_reader

if TYPE_CHECKING:
    from apsw import AsyncConnection  # exists for type checkers only

P = ParamSpec("P")
T = TypeVar("T")

CLOSE_S = REOPEN_S = 10.0
REPLACE_S = 30.0


class Database:
    """A connection, which ``open`` opens and ``prepare`` sets up, in its thread; ``aclose`` it in the end."""

    def __init__(self, path: Path, prepare: Callable[[apsw.Connection], None], flags: int) -> None:
        self._path = path
        self._prepare = prepare
        self._flags = flags
        self._connection: AsyncConnection | None = None

    async def run(self, function: Callable[Concatenate[apsw.Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run ``function(connection, ...)`` in the connection's thread. Cancelled, it is interrupted, and what it wrote
        may be committed or not. Raises trio.TooSlowError: the caller's deadline passed while SQL was running;
        apsw.ConnectionClosedError: ``replace`` failed half-way."""
        if self._connection is None:
            raise apsw.ConnectionClosedError
        return await _run(self._connection, function, *args, **kwargs)

    @property
    def is_open(self) -> bool:
        return self._connection is not None

    async def open(self) -> None:
        """Open the file in place of what was open, which stays when this raises apsw.Error."""
        connection = await _connect(self._path, self._flags)
        try:
            await _run(connection, self._prepare)
        except BaseException:
            await _close(connection)  # noqa: ASYNC102 - shielded with a deadline inside
            raise
        before, self._connection = self._connection, connection
        if before is not None:
            await _close(before)

    async def replace(self, between: Callable[[], None]) -> None:
        """Close the connection, call ``between`` in a thread, and open the file again. It cannot be cancelled. When it
        raises apsw.Error, OSError or trio.TooSlowError, nothing is open any more."""
        with trio.CancelScope(deadline=trio.current_time() + REPLACE_S, shield=True) as scope:
            before, self._connection = self._connection, None
            if before is not None:
                await before.aclose()
            await Threads("files of the database", 1).run(between)
            await self.open()
        if scope.cancelled_caught:
            raise trio.TooSlowError

    async def aclose(self) -> None:
        before, self._connection = self._connection, None
        if before is not None:
            await _close(before)


async def _run(
    connection: "AsyncConnection",
    function: Callable[Concatenate[apsw.Connection, P], T],
    *args: P.args,
    **kwargs: P.kwargs,
) -> T:
    # Within its thread the object is an ordinary synchronous Connection.
    return cast("T", await connection.async_run(function, cast("apsw.Connection", connection), *args, **kwargs))


async def _connect(path: Path, flags: int) -> "AsyncConnection":
    with_controller = apsw.async_controller.set(apsw.aio.Trio)  # type: ignore[arg-type]  # the class is the factory
    try:
        return await apsw.Connection.as_async(str(path), flags=flags)
    finally:
        apsw.async_controller.reset(with_controller)


async def _close(connection: "AsyncConnection") -> None:
    """Close a connection: a cancelled ``aclose`` would leave its thread alive and the process hanging."""
    with trio.move_on_after(CLOSE_S, shield=True):
        await connection.aclose()


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
        """Run a reading ``function(connection, ...)`` on a free connection; cancelled, the query is interrupted. Raises
        StorageError where SQLite refuses, trio.TooSlowError when the caller's deadline passed while SQL was running."""
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
        """Another file has taken the database's place: read that one from now on."""
        self._stale = set(self._all)

    async def renew_idle(self) -> None:
        """Open the new file on every connection that is free now. Raises StorageError."""
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
    """Open the pool on an existing database. Raises apsw.Error."""
    async with AsyncExitStack() as stack:
        databases = [Database(path, prepare_reader, apsw.SQLITE_OPEN_READONLY) for _ in range(count)]
        for database in databases:
            await database.open()
            stack.push_async_callback(database.aclose)
        yield Readers(databases)
