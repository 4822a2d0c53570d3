"""The transport half of a connection: WebSocket frames (wsproto) over a socket, a bounded outbox, liveness, and how it
ends. It knows no frame's meaning.

The session reads in a task of its own and the writer sends in one: all that came with one reading, or waits to be sent,
costs one turn of the event loop.
"""

import enum
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress

import structlog
import trio
from wsproto.connection import Connection, ConnectionState
from wsproto.events import BytesMessage, CloseConnection, Ping, Pong, TextMessage
from wsproto.utilities import LocalProtocolError

from klaw.config.schema import GatewayConfig
from klaw.gateway.connection_limits import TokenBucket
from klaw.gateway.outbox import Outbox
from klaw.wire.codec import encode
from klaw.wire.frames import ServerFrame


class Close(enum.Enum):
    """A reason to close: close code, text, and whether queued frames are sent before."""

    SHUTDOWN = (1001, "shutdown", True)
    BINARY_FRAME = (1003, "binary frame", True)
    FRAME_TOO_LARGE = (1009, "frame too large", True)
    FAILED = (1011, "internal error", True)
    TOO_SLOW = (4008, "too slow", False)
    UNRESPONSIVE = (4009, "unresponsive", False)
    HELLO_FIRST = (4400, "hello first", True)
    UNAUTHORIZED = (4401, "unauthorized", True)
    WRONG_VERSION = (4406, "wrong protocol version", True)
    HELLO_TIMEOUT = (4408, "no hello", True)
    TOO_MANY = (4429, "too many connections", True)

    def __init__(self, code: int, reason: str, polite: bool) -> None:
        self.code = code
        self.reason = reason
        self.polite = polite


SHARE = 2.0
"""Frames on the wire that may come for each message: pings and pieces of messages never reach a session, but each of
them costs as much as a small message."""
READ_BYTES = 4096
"""Some hundred frames at most, so that no connection keeps the event loop for long."""
SEND_S = 15.0
"""A client that does not take what is sent in this time is dropped."""
PONG_S = 10.0
CLOSE_S = 2.0
"""For sending what is queued and the closing handshake together."""

log = structlog.get_logger("klaw.gateway")


class WebSocketLink:
    """A WebSocket with a bounded outbox.

    Args:
        connection: a socket that does not block; closed by the caller.
        ws: its protocol, after the handshake.
        config: limits; of a message that is too long only the beginning is handed over.
    """

    def __init__(self, connection: socket.socket, ws: Connection, name: str, config: GatewayConfig) -> None:
        self.outbox = Outbox(config.outbox_frames, self.drop_slow, self._send_at_once)
        self.frames_in = 0
        self.frames_out = 0
        self.closing: Close | None = None
        """Why this side closes; None while open and when the peer closed."""
        self._socket = connection
        self._ws = ws
        self._name = name
        self._pace = TokenBucket(SHARE * config.messages_per_second, round(SHARE * config.burst), trio.current_time())
        self._max_bytes = config.max_frame_bytes
        self._ping_s = config.ping_s
        self._heard_at = trio.current_time()
        self._pieces: list[str] = []
        self._size = 0
        self._body = trio.CancelScope()
        self._written = trio.Event()
        self._mid_frame = False

    async def run(self, body: Callable[[], Awaitable[None]]) -> None:
        """Write what is put while ``body`` runs; close when it ends, when the peer closes, or after ``end``, which both
        cancel it. The writer then gets a moment to send what is queued.

        Cancellation: no close frame is sent; close the stream.
        """
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._write, name="gateway writer")
                with self._body:
                    try:
                        await body()
                    except* trio.EndOfChannel:
                        self._body.cancel(reason="the peer closed the connection")
                await self._say_goodbye(self.closing)
                nursery.cancel_scope.cancel(reason="the connection is closed")
        finally:
            self.outbox.close(clear=True)

    def put(self, frame: ServerFrame) -> None:
        """Queue a frame that must not be lost: a client that has no room for it is dropped."""
        self.outbox.put(encode(frame))

    def drop_slow(self) -> None:
        log.warning("client_too_slow", connection=self._name, depth=self.outbox.depth)
        self.end(Close.TOO_SLOW)

    def end(self, close: Close) -> None:
        """Close the connection; the first call counts."""
        if self.closing is None:
            self.closing = close
            self.outbox.close(clear=not close.polite)
            self._body.cancel(reason=close.reason)

    async def receive(self) -> str | bytes:
        """The next message; b"" for a binary one. To be awaited all the time: pings and closing are answered here.
        Messages that came together are taken in turn with those of other connections.

        Raises:
            trio.EndOfChannel: the peer has closed the connection, or is gone.
        """
        has_waited = False
        while True:
            for event in self._ws.events():
                message: str | bytes | None = None
                if isinstance(event, TextMessage):
                    message = self._joined(event)
                elif isinstance(event, BytesMessage):
                    message = b""
                elif isinstance(event, Ping):
                    self._send_now(event.response())
                elif isinstance(event, CloseConnection):
                    self._send_now(event.response())
                    raise trio.EndOfChannel
                if getattr(event, "frame_finished", True):
                    wait_s = self._pace.take(trio.current_time())
                    if wait_s > 0:
                        await trio.sleep(wait_s)
                        self._pace.take(trio.current_time())
                if message is not None:
                    self.frames_in += 1
                    if not has_waited:
                        await trio.lowlevel.checkpoint()  # also cancelled when the connection is closing
                    return message
            await self._read()
            has_waited = True

    async def stay_alive(self, still_allowed: Callable[[], bool]) -> None:
        """Ping a silent peer now and then; end the connection when nothing comes back. Before each ping
        ``still_allowed`` may end it instead."""
        asked_at = self._heard_at
        while True:
            now = trio.current_time()
            if self._heard_at < asked_at:
                if now >= asked_at + PONG_S:
                    self.end(Close.UNRESPONSIVE)
                    return
            elif now < self._heard_at + self._ping_s:
                await trio.sleep_until(self._heard_at + self._ping_s)
                continue
            elif still_allowed():
                asked_at = now
                self._send_now(Ping())
            else:
                return
            await trio.sleep(min(self._ping_s, PONG_S))

    async def _read(self) -> None:
        try:
            await trio.lowlevel.wait_readable(self._socket)
            data = self._socket.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            raise trio.EndOfChannel
        self._heard_at = trio.current_time()
        self._ws.receive_data(data)

    def _joined(self, event: TextMessage) -> str | None:
        """The message once it is complete, or what there is of one that is too long."""
        if event.message_finished and not self._pieces:
            return event.data
        if event.data:  # a peer may send empty pieces for ever
            self._pieces.append(event.data)
            self._size += len(event.data)
        if not event.message_finished and self._size <= self._max_bytes:
            return None
        whole = "".join(self._pieces)
        self._pieces, self._size = [], 0
        return whole

    def _send_now(self, event: Ping | Pong | CloseConnection) -> None:
        """Send a control frame before all that waits; nothing if the connection is closing."""
        with suppress(LocalProtocolError):
            self.outbox.interrupt(self._ws.send(event))

    def _send_at_once(self, text: str) -> bytes:
        try:
            data = self._ws.send(TextMessage(text))
            self.frames_out += 1
            return data[self._try(data) :]
        except (OSError, LocalProtocolError):
            return b""  # gone, or closing: the reader finds out

    async def _write(self) -> None:
        with suppress(OSError, LocalProtocolError):  # gone, or closing: the reader finds out
            while (frames := await self.outbox.take()) is not None:
                data = b"".join(
                    frame if isinstance(frame, bytes) else self._ws.send(TextMessage(frame)) for frame in frames
                )
                self._mid_frame = True
                await self._send(data)
                self._mid_frame = False
                self.frames_out += sum(isinstance(frame, str) for frame in frames)
        self.outbox.close(clear=True)  # nobody takes from it any more, and nobody need wait for room
        self._written.set()

    async def _send(self, data: bytes) -> None:
        sent = self._try(data)
        if sent == len(data):
            return
        with trio.move_on_after(SEND_S) as sending:
            while sent < len(data):
                await trio.lowlevel.wait_writable(self._socket)
                sent += self._try(memoryview(data)[sent:])
        if sending.cancelled_caught:
            self.drop_slow()
            raise BrokenPipeError

    def _try(self, data: bytes | memoryview) -> int:
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0

    async def _say_goodbye(self, close: Close | None) -> None:
        self.outbox.close(clear=close is None)
        with trio.move_on_after(CLOSE_S), suppress(trio.EndOfChannel, OSError):  # gone already, or does not read
            await self._written.wait()
            if close is not None and not self._mid_frame and self._ws.state is ConnectionState.OPEN:
                await self._send(self._ws.send(CloseConnection(code=close.code, reason=close.reason)))
                while True:  # until the peer has closed as well
                    await self.receive()
