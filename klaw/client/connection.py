"""A client of Klaw that outlives connections. What a program may rely on:

- ``send`` returns when the message is durable. If the connection breaks before, it is sent again with the same id.
- ``next_event`` gives each message of the watched chats once, in the order of ``seq``, over any number of reconnects.
- Only a server that refuses the client, or that cannot be reached for longer than allowed, ends it.

The only module of the client that touches the network.
"""

import math
import random
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

import structlog
import trio
from trio_websocket import ConnectionClosed, ConnectionRejected, WebSocketConnection, wrap_client_stream
from wsproto.utilities import ProtocolError as WebSocketProtocolError

from klaw.actor.backoff import Backoff
from klaw.client.client import Client, Loss
from klaw.errors import ClientClosed, ProtocolError, ServerRefused, ServerUnreachable
from klaw.wire.codec import decode_server, encode
from klaw.wire.frames import Error, Hello, Notice, Welcome

BACKOFF = Backoff(0.2, 15.0)

log = structlog.get_logger("klaw.client")


@asynccontextmanager
async def connect(
    url: str,
    *,
    token: str | None = None,
    chats: Mapping[str, int] | None = None,
    name: str = "klaw-client",
    first_s: float = 0.0,
    again_s: float = math.inf,
    backoff: Backoff = BACKOFF,
    trusted: Path | None = None,
) -> AsyncIterator[Client]:
    """Connect to a server, and stay connected until the block is left.

    Args:
        url: ``ws://`` or ``wss://``.
        chats: chats to watch, with the seq of the last message seen (0: none).
        name: this program and its version, for the server's log.
        first_s: how long to try for the first connection; 0: one attempt.
        again_s: how long to try to get a lost connection back.
        trusted: the certificate of a server, whatever name it has; None: one that this system trusts.
        backoff: the waits between attempts, each taken between half of itself and all of it.

    Raises:
        InvalidName: of a chat.
        ValueError: the URL is not one of a WebSocket.
        ServerUnreachable, ServerRefused: there was no first connection.

    Leaving the block closes the connection politely, within ``CLOSE_S`` seconds; cancellation cuts it.
    """
    check_url(url)
    client = Client(chats or {})
    raised: Exception | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_stay_connected, client, url, token, name, (first_s, again_s), backoff, trusted)
        try:
            await client.reconnected()
            yield client
        except Exception as exc:  # noqa: BLE001  raised again below: the nursery would wrap it in a group
            raised = exc
        client.closing.set()
        nursery.cancel_scope.deadline = trio.current_time() + CLOSE_S * 1.5
    if raised is not None:
        raise raised


async def _stay_connected(
    client: Client,
    url: str,
    token: str | None,
    name: str,
    patience_s: tuple[float, float],
    backoff: Backoff,
    trusted: Path | None,
) -> None:
    """Connect again and again, until the owner closes the client, or trying has become pointless."""
    error: Exception = ClientClosed("the client was closed")
    down_since, attempt = trio.current_time(), 0
    try:
        while True:
            loss = await run_link(url, client.hello(name, token), client, trusted)
            was_up = client.lost(loss)
            if client.closing.is_set():
                return
            if loss.fatal:
                error = ServerRefused(loss.code, loss.text)
                return
            if was_up:
                down_since, attempt = trio.current_time(), 0
            patience = patience_s[1] if client.welcome else patience_s[0]
            if trio.current_time() - down_since >= patience:
                error = ServerUnreachable(loss.text)
                return
            log.info("connection_lost", code=loss.code, attempt=attempt)
            jitter = 0.5 + random.random() / 2  # noqa: S311  no secret
            with trio.move_on_after(backoff.pause_s(attempt + 1) * jitter):
                await client.closing.wait()
                return
            attempt += 1
    finally:
        client.end(error)


def check_url(url: str) -> None:
    """Raises ValueError unless it looks like the address of a server."""
    parts = urlsplit(url)
    if parts.scheme not in ("ws", "wss") or not parts.hostname or parts.port == 0:
        raise ValueError("the address of a server looks like ws://host:port/ws")


MAX_FRAME_CHARACTERS = 32 * 1024 * 1024
"""A page of long messages is many times as large as what a client may send."""
READ_BYTES = 64 * 1024
QUEUE_FRAMES = 64
"""Frames between the WebSocket library and the reader, which never waits for anything else."""
CONNECT_S = 10.0
WELCOME_S = 10.0
SEND_S = 30.0
"""A frame that cannot be handed to the network for this long means the connection is dead."""
QUIET_S = 30.0
"""After this time without anything the server is asked for a sign of life."""
PONG_S = 10.0
CLOSE_S = 2.0
FATAL_CLOSE_CODES = frozenset({4400, 4401, 4403, 4406})
"""No hello first, token refused or revoked, not allowed, protocol version: the next attempt would end the same way."""
FATAL_HTTP = frozenset({400, 401, 403, 404})
PASSING = frozenset({"hello_timeout", "internal"})
"""Refusals of a hello that mean nothing for the next one, though they are not called retryable."""

T = TypeVar("T")


async def run_until_first_ends(*tasks: Callable[[], Awaitable[T | None]]) -> T | None:
    """Run tasks side by side; when one returns or raises, the others are cancelled. Returns or raises what that one
    does, as itself; errors of the others while they were cancelled are lost."""
    ends: list[T | Exception | None] = []

    async def run(task: Callable[[], Awaitable[T | None]], scope: trio.CancelScope) -> None:
        try:
            ends.append(await task())
        except Exception as exc:  # noqa: BLE001  raised below: a nursery would wrap it in a group
            ends.append(exc)
        scope.cancel(reason="another of these tasks has ended")

    async with trio.open_nursery() as nursery:
        for task in tasks:
            nursery.start_soon(run, task, nursery.cancel_scope)
    if isinstance(ends[0], Exception):
        raise ends[0]
    return ends[0]


class WebSocket:
    """A connection of trio-websocket that raises ``Loss`` when it is over: one task receives, others send."""

    def __init__(self, connection: WebSocketConnection) -> None:
        self._connection = connection
        self.heard_at = trio.current_time()

    async def send(self, text: str) -> None:
        over: ConnectionClosed | None = None
        try:
            await self._connection.send_message(text)
        except ConnectionClosed as closed:
            over = closed
        if over is not None:
            await trio.sleep(CLOSE_S)  # the receiver is still to find what the server said before it closed
            raise _closed(over)

    async def receive(self) -> str:
        try:
            message = await self._connection.get_message()
        except ConnectionClosed as closed:
            raise _closed(closed) from None
        self.heard_at = trio.current_time()
        if isinstance(message, bytes):
            raise ProtocolError("binary_frame", "a frame is text")
        return message

    async def ping(self) -> None:
        """Wait for the answer."""
        with suppress(ConnectionClosed):
            await self._connection.ping()
            self.heard_at = trio.current_time()
            return
        await trio.sleep_forever()  # the receiver knows why


class _WatchedStream(trio.abc.ReceiveStream):
    """The receiving side of a stream. It says when nothing more can be read: until the handshake trio-websocket would
    wait for ever."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self.over = trio.Event()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        data: bytes | bytearray = b""
        try:
            data = await self._stream.receive_some(max_bytes)
        finally:
            if not data:
                self.over.set()
        return data

    async def aclose(self) -> None:
        await self._stream.aclose()


def _closed(closed: ConnectionClosed) -> Loss:
    code = closed.reason.code if closed.reason is not None else 1006
    return Loss(f"closed_{code}", f"the connection was closed ({code})", fatal=code in FATAL_CLOSE_CODES)


async def run_link(url: str, hello: Hello, side: Client, trusted: Path | None = None) -> Loss:
    """Make one connection and keep it until it is lost or ``side`` wants it closed. Never raises for what the network
    or the server does."""
    stream, loss = None, Loss("no_answer", "the server did not answer in time")
    try:
        with trio.fail_after(CONNECT_S):
            stream = await _dial(url, trusted)
        async with trio.open_nursery() as nursery:
            with suppress(trio.TooSlowError):
                loss = await _over(stream, url, hello, side, nursery)
            nursery.cancel_scope.cancel(reason="the connection is over")
    except* ConnectionRejected as group:
        status = cast("ConnectionRejected", group.exceptions[0]).status_code
        loss = Loss(f"http_{status}", f"the server answered HTTP {status}", fatal=status in FATAL_HTTP)
    except* trio.TooSlowError:
        pass
    except* (ConnectionClosed, OSError, trio.BrokenResourceError, WebSocketProtocolError) as group:
        # The library's reader failed, too; once the connection was made, ``_over`` says what the loss was.
        log.debug("link_failed", error=type(group.exceptions[0]).__name__)
        if stream is None:
            loss = Loss("unreachable", "the connection could not be made")
    finally:
        if stream is not None:
            await trio.aclose_forcefully(stream)
    return loss


async def _dial(url: str, trusted: Path | None) -> trio.abc.Stream:
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme == "wss":
        context = ssl.create_default_context(cafile=trusted)
        if trusted is not None:
            context.check_hostname = False
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        return await trio.open_ssl_over_tcp_stream(host, parts.port or 443, https_compatible=True, ssl_context=context)
    return await trio.open_tcp_stream(host, parts.port or 80)


async def _over(stream: trio.abc.Stream, url: str, hello: Hello, side: Client, nursery: trio.Nursery) -> Loss:
    """Make the stream a WebSocket, whose reader runs in ``nursery``, and talk over it."""
    parts, receiving = urlsplit(url), _WatchedStream(stream)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    shake_hands = partial(
        wrap_client_stream,
        nursery,
        cast("Any", trio.StapledStream(stream, receiving)),
        parts.netloc.rpartition("@")[2],
        target,
        message_queue_size=QUEUE_FRAMES,
        max_message_size=MAX_FRAME_CHARACTERS,
        receive_buffer_size=READ_BYTES,
    )
    with trio.fail_after(CONNECT_S):
        connection = await run_until_first_ends(shake_hands, receiving.over.wait)
    if connection is None:
        return Loss("unreachable", "the server closed the connection at once")
    try:
        return await _talk(WebSocket(connection), hello, side)
    except Loss as loss:
        return loss
    finally:
        with trio.move_on_after(CLOSE_S):
            await connection.aclose()


async def _talk(websocket: WebSocket, hello: Hello, side: Client) -> Loss:
    with trio.fail_after(WELCOME_S):
        side.welcomed(await _greet(websocket, hello))
    tasks = (partial(_read, websocket, side), partial(_write, websocket, side), partial(_notice_silence, websocket))
    await run_until_first_ends(*tasks, side.closing.wait)
    return Loss("closed", "the client closed the connection")


async def _greet(websocket: WebSocket, hello: Hello) -> Welcome:
    await websocket.send(encode(hello))
    try:
        frame = decode_server(await websocket.receive())
        while isinstance(frame, Notice):
            frame = decode_server(await websocket.receive())
    except ProtocolError:
        frame = None
    if isinstance(frame, Welcome):
        return frame
    if isinstance(frame, Error):
        raise Loss(frame.code, frame.message, fatal=not frame.retryable and frame.code not in PASSING)
    raise Loss("not_klaw", "the server does not speak Klaw's protocol", fatal=True)


async def _read(websocket: WebSocket, side: Client) -> None:
    complaint: Error | None = None
    try:
        while True:
            frame = decode_server(await websocket.receive())
            if frame is None:
                continue
            if isinstance(frame, Error) and frame.id is None and frame.ref is None and frame.turn is None:
                complaint = frame
            side.received(frame)
    except Loss as loss:
        if complaint is None:
            raise
        raise Loss(complaint.code, complaint.message, fatal=loss.fatal) from None
    except ProtocolError as error:
        raise Loss(error.code, "the server sent a frame that cannot be used") from None


async def _write(websocket: WebSocket, side: Client) -> None:
    while True:
        frame = side.next_frame()
        if frame is None:
            await side.work.wait_for_news()
            continue
        try:
            with trio.fail_after(SEND_S):
                await websocket.send(encode(frame))
        except trio.TooSlowError:
            raise Loss("send_timeout", "the server does not read") from None


async def _notice_silence(websocket: WebSocket) -> None:
    while True:
        await trio.sleep_until(websocket.heard_at + QUIET_S)
        asked_at = trio.current_time()
        if asked_at < websocket.heard_at + QUIET_S:
            continue
        with trio.move_on_after(PONG_S):
            await websocket.ping()
        if websocket.heard_at < asked_at:
            raise Loss("silent", "the server gives no sign of life")
