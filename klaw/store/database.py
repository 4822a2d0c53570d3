"""One connection to klaw.db in apsw's async mode: a worker thread of its own, entered by one hop per transaction."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar, cast

import apsw
import apsw.aio
import trio

if TYPE_CHECKING:
    from apsw import AsyncConnection  # exists for type checkers only

P = ParamSpec("P")
T = TypeVar("T")

CLOSE_S = 10.0


class Database:
    """An open connection. Made by ``open_database``."""

    def __init__(self, connection: "AsyncConnection") -> None:
        self._connection = connection

    async def run(self, function: Callable[Concatenate[apsw.Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run ``function(connection, ...)`` in the connection's thread.

        Raises:
            trio.TooSlowError: the caller's deadline passed while SQL was running.

        Cancellation: what a function wrote may be committed or not; reads are interrupted.
        """
        # Within its thread the object is an ordinary synchronous Connection.
        connection = cast("apsw.Connection", self._connection)
        return cast("T", await self._connection.async_run(function, connection, *args, **kwargs))


@asynccontextmanager
async def open_database(path: Path, prepare: Callable[[apsw.Connection], None], flags: int) -> AsyncIterator[Database]:
    """Open a connection and close it in the end, whatever happens.

    A cancelled ``aclose`` would leave the connection's non-daemon thread alive and the process hanging: hence the
    shield.

    Raises:
        apsw.Error: the file cannot be opened or is no database.
    """
    with_controller = apsw.async_controller.set(apsw.aio.Trio)  # type: ignore[arg-type]  # the class is the factory
    try:
        connection = await apsw.Connection.as_async(str(path), flags=flags)
    finally:
        apsw.async_controller.reset(with_controller)
    database = Database(connection)
    try:
        await database.run(prepare)
        yield database
    finally:
        with trio.move_on_after(CLOSE_S, shield=True):
            await connection.aclose()
