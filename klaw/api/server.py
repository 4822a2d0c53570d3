"""HTTP/1.1 for connections of the gateway that ask for no WebSocket: hypercorn speaks it, over the stream that the
gateway has begun to read. What is behind it is loaded by the first request: a Klaw that only chats never pays for it.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import structlog
import trio

from klaw.actor.threads import Threads
from klaw.gateway.connection_limits import Connection
from klaw.gateway.handshake import MAX_HEAD_BYTES

if TYPE_CHECKING:
    from hypercorn.config import Config
    from hypercorn.trio.tcp_server import TCPServer
    from hypercorn.trio.worker_context import WorkerContext
    from hypercorn.typing import AppWrapper

KEEP_ALIVE_S = 60.0
"""A connection without a request for so long is closed."""
SEND_S = 30.0
"""A client that does not take what is sent at once in this time is dropped …"""
SEND_AT_STOP_S = 2.0
"""… and once the server stops in this time: hypercorn shields what it sends from being cancelled."""

log = structlog.get_logger("klaw.api")


class HttpServer:
    """Implements ``gateway.services.HttpDoor``. ``make_app`` makes the ASGI application, in a thread, and imports
    what it needs itself."""

    def __init__(self, make_app: Callable[[], Any]) -> None:
        self._make_app = make_app
        self._making = trio.Lock()
        self._made: tuple[type[TCPServer], AppWrapper, Config, WorkerContext] | None = None
        self._streams: set[_StartedStream] = set()

    async def serve(self, stream: trio.abc.HalfCloseableStream, read: bytes, connection: Connection) -> None:
        async with self._making:
            if self._made is None:
                self._made = await Threads("making the API", 1).run(self._make)
        made, app, config, context = self._made
        begun = _StartedStream(stream, read)
        self._streams.add(begun)
        # The application finds the connection in the state of its requests.
        server = made(app, config, context, {"connection": connection}, cast("Any", begun))
        try:
            await server.run()
        finally:
            self._streams.discard(begun)
            vars(server).clear()  # it and its protocol refer to each other: only a garbage collection would free them

    async def serve_operator(self, stream: trio.abc.HalfCloseableStream, read: bytes) -> None:
        await self.serve(stream, read, Connection.of_operator(trio.current_time()))

    async def close(self) -> None:
        for stream in self._streams:
            stream.hurry()
        if self._made is not None:
            await self._made[3].terminated.set()

    def _make(self) -> "tuple[type[TCPServer], AppWrapper, Config, WorkerContext]":
        from hypercorn.app_wrappers import ASGIWrapper
        from hypercorn.config import Config
        from hypercorn.trio.worker_context import WorkerContext

        from klaw.api.http11 import Http11Server

        config = Config()
        config.accesslog = config.errorlog = None  # its lines quote paths and errors; ``app`` writes what may be told
        config.h11_max_incomplete_size = MAX_HEAD_BYTES
        config.keep_alive_timeout = KEEP_ALIVE_S
        config.include_server_header = False
        return Http11Server, ASGIWrapper(self._make_app()), config, WorkerContext(None)


class _StartedStream:
    """A stream whose first bytes were read already, and whose peer must take what is sent."""

    def __init__(self, stream: trio.abc.HalfCloseableStream, read: bytes) -> None:
        self._stream = stream
        self._read = read
        self._patience_s = SEND_S
        self._sending = trio.CancelScope()
        self.socket = cast("trio.SocketStream", stream).socket

    def hurry(self) -> None:
        """The server stops."""
        self._patience_s = SEND_AT_STOP_S
        self._sending.deadline = min(self._sending.deadline, trio.current_time() + SEND_AT_STOP_S)

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        if self._read:
            read, self._read = self._read, b""
            return read
        return await self._stream.receive_some(max_bytes)

    async def send_all(self, data: bytes) -> None:
        with trio.move_on_after(self._patience_s) as self._sending:
            try:
                await self._stream.send_all(data)
            except trio.BusyResourceError:  # hypercorn sends one after the other, but does not wait before its end
                raise trio.BrokenResourceError from None
        if self._sending.cancelled_caught:
            log.warning("client_too_slow")
            await trio.aclose_forcefully(self._stream)  # what else it asked for must not wait as long
            raise trio.BrokenResourceError

    async def send_eof(self) -> None:
        try:
            await self._stream.send_eof()
        except trio.BusyResourceError:  # see send_all
            raise trio.BrokenResourceError from None

    async def aclose(self) -> None:
        await self._stream.aclose()
