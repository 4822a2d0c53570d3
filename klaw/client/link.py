"""One WebSocket connection of a client, from dialling to its loss. Knows the wire, not the chats.

The only module of the client that touches the network. Called again and again by ``connection``. trio-websocket waits
for ever when a stream ends before the handshake, and leaves the socket of a broken connection open; so the stream is
made, watched and closed here.
"""

import ssl
from collections.abc import Awaitable, Callable
from typing import Any, cast
from urllib.parse import urlsplit

import structlog
import trio
from trio_websocket import ConnectionClosed, ConnectionRejected, WebSocketConnection, wrap_client_stream
from wsproto.utilities import ProtocolError as WebSocketProtocolError

from klaw.client.client import Client
from klaw.client.events import Loss
from klaw.errors import ProtocolError
from klaw.wire.codec import decode_server, encode
from klaw.wire.frames import Error, Hello, Notice, Welcome


async def run_until_first_ends(*tasks: Callable[[], Awaitable[None]]) -> None:
    """Run tasks side by side; when one returns or raises, the others are cancelled.

    Raises:
        Exception: what that task raised, as itself; errors of the others while they were cancelled are lost.

    Cancellation: cancels them all.
    """
    errors: list[Exception] = []

    async def run(task: Callable[[], Awaitable[None]], scope: trio.CancelScope) -> None:
        try:
            await task()
        except Exception as exc:  # noqa: BLE001  raised below: a nursery would wrap it in a group
            errors.append(exc)
        scope.cancel(reason="another of these tasks has ended")

    async with trio.open_nursery() as nursery:
        for task in tasks:
            nursery.start_soon(run, task, nursery.cancel_scope)
    if errors:
        raise errors[0]


MAX_FRAME_CHARACTERS = 32 * 1024 * 1024
"""A page of long messages is many times as large as what a client may send."""
READ_BYTES = 64 * 1024
QUEUE_FRAMES = 64
"""Frames between the WebSocket library and the reader, which never waits for anything else."""


class WatchedStream(trio.abc.Stream):
    """A stream that says when nothing more can be read from it."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self.over = trio.Event()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        try:
            data = await self._stream.receive_some(max_bytes)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self.over.set()
            raise
        if not data:
            self.over.set()
        return data

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        await self._stream.aclose()


async def dial(url: str) -> WatchedStream:
    """Connect to the host of a ``ws:`` or ``wss:`` URL. Raises OSError."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme == "wss":
        context = ssl.create_default_context()
        tls = await trio.open_ssl_over_tcp_stream(host, parts.port or 443, https_compatible=True, ssl_context=context)
        return WatchedStream(tls)
    return WatchedStream(await trio.open_tcp_stream(host, parts.port or 80))


async def shake_hands(nursery: trio.Nursery, stream: WatchedStream, url: str) -> WebSocketConnection | None:
    """Make a stream a WebSocket, whose reader runs in ``nursery``; None if the stream ends before.

    Raises nothing itself; the reader raises ConnectionRejected in the nursery.
    """
    parts = urlsplit(url)
    resource = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    opened: list[WebSocketConnection] = []

    async def open_websocket() -> None:
        opened.append(
            await wrap_client_stream(
                nursery,
                cast("Any", stream),
                parts.netloc.rpartition("@")[2],
                resource,
                message_queue_size=QUEUE_FRAMES,
                max_message_size=MAX_FRAME_CHARACTERS,
                receive_buffer_size=READ_BYTES,
            )
        )

    await run_until_first_ends(open_websocket, stream.over.wait)
    return opened[0] if opened else None


log = structlog.get_logger("klaw.client")

CONNECT_S = 10.0
WELCOME_S = 10.0
SEND_S = 30.0
"""A frame that cannot be handed to the network for this long means the connection is dead."""
QUIET_S = 30.0
"""After this time without any frame the server is asked for a sign of life."""
PONG_S = 10.0
CLOSE_S = 2.0

FATAL_CLOSE_CODES = frozenset({4400, 4401, 4403, 4406})
"""No hello first, token refused or revoked, not allowed, protocol version: the next attempt would end the same way."""
FATAL_HTTP = frozenset({400, 401, 403, 404})
PASSING = frozenset({"hello_timeout", "internal"})
"""Refusals of a hello that mean nothing for the next one, though they are not called retryable."""


NO_ANSWER = Loss(code="no_answer", text="the server did not answer in time")


async def run_link(url: str, hello: Hello, side: Client) -> Loss:
    """Make one connection and keep it until it is lost or ``side`` wants it closed.

    Never raises for what the network or the server does. Cancellation: cuts the connection.
    """
    stream = None
    try:
        with trio.move_on_after(CONNECT_S):
            stream = await dial(url)
        return NO_ANSWER if stream is None else await _over_stream(stream, url, hello, side)
    except (OSError, trio.BrokenResourceError) as exc:
        log.debug("dial_failed", error=type(exc).__name__)
        return Loss(code="unreachable", text="the connection could not be made")
    finally:
        if stream is not None:
            await trio.aclose_forcefully(stream)


async def _over_stream(stream: WatchedStream, url: str, hello: Hello, side: Client) -> Loss:
    loss = NO_ANSWER
    try:
        async with trio.open_nursery() as nursery:
            websocket = None
            with trio.move_on_after(CONNECT_S):
                websocket = await shake_hands(nursery, stream, url)
            if websocket is not None:
                loss = await _talk(websocket, hello, side)
                with trio.move_on_after(CLOSE_S):
                    await websocket.aclose()
            elif stream.over.is_set():
                loss = Loss(code="unreachable", text="the server closed the connection at once")
            nursery.cancel_scope.cancel(reason="the connection is over")
    except* ConnectionRejected as group:
        status = cast("ConnectionRejected", group.exceptions[0]).status_code
        loss = Loss(code=f"http_{status}", text=f"the server answered HTTP {status}", fatal=status in FATAL_HTTP)
    except* (ConnectionClosed, OSError, WebSocketProtocolError) as group:
        # Of the library's reader. That the connection is gone is known; what it was for decides the loss.
        log.debug("link_failed", error=type(group.exceptions[0]).__name__)
    return loss


async def _talk(websocket: WebSocketConnection, hello: Hello, side: Client) -> Loss:
    first = await _greet(websocket, hello)
    if isinstance(first, Loss):
        return first
    side.welcomed(first)
    talk = _WelcomedConnection(websocket, side)
    await run_until_first_ends(talk.read, talk.write, talk.listen_for_silence, side.wait_closing)
    return talk.loss or Loss(code="closed", text="the client closed the connection")


async def _greet(websocket: WebSocketConnection, hello: Hello) -> Welcome | Loss:
    with trio.move_on_after(WELCOME_S):
        try:
            await websocket.send_message(encode(hello))
            frame = decode_server(_text(await websocket.get_message()))
            while isinstance(frame, Notice):
                frame = decode_server(_text(await websocket.get_message()))
        except ConnectionClosed as exc:
            return _closed(exc, None)
        except ProtocolError:
            return Loss(code="not_klaw", text="the server does not speak Klaw's protocol", fatal=True)
        if isinstance(frame, Welcome):
            return frame
        if isinstance(frame, Error):
            return Loss(code=frame.code, text=frame.message, fatal=not frame.retryable and frame.code not in PASSING)
        return Loss(code="not_klaw", text="the server does not speak Klaw's protocol", fatal=True)
    return NO_ANSWER


class _WelcomedConnection:
    """The tasks of one welcomed connection. The first that ends, ends all."""

    def __init__(self, websocket: WebSocketConnection, side: Client) -> None:
        self._websocket = websocket
        self._side = side
        self._heard_at = trio.current_time()
        self._complaint: Error | None = None
        self.loss: Loss | None = None

    async def read(self) -> None:
        try:
            while True:
                frame = decode_server(_text(await self._websocket.get_message()))
                self._heard_at = trio.current_time()
                if frame is None:
                    continue
                if isinstance(frame, Error) and frame.id is None and frame.ref is None and frame.turn is None:
                    self._complaint = frame
                self._side.received(frame)
        except ConnectionClosed as exc:
            self._lose(_closed(exc, self._complaint))
        except ProtocolError as exc:
            self._lose(Loss(code=exc.code, text="the server sent a frame that cannot be used"))

    async def write(self) -> None:
        """The one task that sends frames: a cancelled send leaves the stream unusable."""
        while True:
            frame = self._side.next_frame()
            if frame is None:
                await self._side.wait_for_frame()
                continue
            with trio.move_on_after(SEND_S) as scope:
                try:
                    await self._websocket.send_message(encode(frame))
                except ConnectionClosed as exc:
                    # The reader is still to find what the server said before it closed.
                    await trio.sleep(CLOSE_S)
                    self._lose(_closed(exc, self._complaint))
                    return
            if scope.cancelled_caught:
                self._lose(Loss(code="send_timeout", text="the server does not read"))
                return

    async def listen_for_silence(self) -> None:
        while True:
            quiet_s = trio.current_time() - self._heard_at
            if quiet_s < QUIET_S:
                await trio.sleep(QUIET_S - quiet_s)
                continue
            with trio.move_on_after(PONG_S) as scope:
                try:
                    await self._websocket.ping()
                except ConnectionClosed:
                    # The reader knows why.
                    await trio.sleep_forever()
                self._heard_at = trio.current_time()
            if scope.cancelled_caught:
                self._lose(Loss(code="silent", text="the server gives no sign of life"))
                return

    def _lose(self, loss: Loss) -> None:
        self.loss = self.loss or loss


def _closed(exc: ConnectionClosed, complaint: Error | None) -> Loss:
    code = exc.reason.code if exc.reason is not None else 1006
    fatal = code in FATAL_CLOSE_CODES
    if complaint is not None:
        return Loss(code=complaint.code, text=complaint.message, fatal=fatal)
    return Loss(code=f"closed_{code}", text=f"the connection was closed ({code})", fatal=fatal)


def _text(message: str | bytes) -> str:
    if isinstance(message, bytes):
        raise ProtocolError("binary_frame", "a frame is text")
    return message
