"""The transport half of a connection: one reader, one writer, liveness, and how it ends. Knows no frame's meaning."""

import enum
import math
from collections.abc import Awaitable, Callable

import structlog
import trio
from trio_websocket import ConnectionClosed, WebSocketConnection

from klaw.gateway.outbox import Outbox
from klaw.wire.codec import encode
from klaw.wire.frames import ServerFrame


class Close(enum.Enum):
    """A reason to close: WebSocket close code, reason text, and whether queued frames are sent before."""

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


SEND_S = 15.0
"""A client that does not take one frame in this time is dropped."""
PONG_S = 10.0
CLOSE_S = 2.0
"""For sending what is queued and for the closing handshake together."""

log = structlog.get_logger("klaw.gateway")


class WebSocketLink:
    """A WebSocket with a bounded outbox.

    Only the writer sends messages: a send that is cancelled half-way leaves the stream unusable, so nothing else may
    come between.

    Args:
        capacity: frames that may wait to be sent.
        ping_s: a peer that is silent for so long is asked for a sign of life.
    """

    def __init__(self, ws: WebSocketConnection, name: str, *, capacity: int, ping_s: float) -> None:
        self.outbox = Outbox(capacity)
        self.frames_in = 0
        self.frames_out = 0
        self.closing: Close | None = None
        """Why this side closes; None while open and when the peer closed."""
        self._ws = ws
        self._name = name
        self._ping_s = ping_s
        self._heard_at = trio.current_time()
        self._body = trio.CancelScope()
        self._written = trio.Event()
        self._mid_frame = False

    async def run(self, body: Callable[[], Awaitable[None]]) -> None:
        """Write what is put while ``body`` runs; close when it ends or ``end`` was called.

        ``body`` is cancelled by ``end`` and when the peer closes. The writer then gets a moment to send what is queued.

        Cancellation: no close frame is sent; close the stream.
        """
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._write, name="gateway writer")
                with self._body:
                    await self._run_body(body)
                if self.closing is not None:
                    await self._say_goodbye(self.closing)
                nursery.cancel_scope.cancel(reason="the connection is closed")
        finally:
            self.outbox.close(clear=True)

    def put(self, frame: ServerFrame) -> None:
        """Queue a frame that must not be lost: a client without room for it is dropped."""
        if not self.outbox.put(encode(frame)):
            self.drop_slow()

    def drop_slow(self) -> None:
        """Drop the client because it does not read; it can resume."""
        log.warning("client_too_slow", connection=self._name, depth=self.outbox.depth)
        self.end(Close.TOO_SLOW)

    def end(self, close: Close) -> None:
        """Close the connection; the first call counts."""
        if self.closing is None:
            self.closing = close
            self.outbox.close(clear=not close.polite)
            self._body.cancel(reason=close.reason)

    async def receive(self) -> str | bytes:
        """The next message. To be awaited all the time: a full queue would also keep pings and closing waiting.

        Raises:
            ConnectionClosed

        Cancellation: no message was taken.
        """
        data: str | bytes = await self._ws.get_message()
        self._heard_at = trio.current_time()
        self.frames_in += 1
        return data

    async def stay_alive(self, still_allowed: Callable[[], bool]) -> None:
        """Ask a silent peer for a sign of life, now and then; end when it gives none.

        Any message counts as one. Before each ping ``still_allowed`` may end the connection instead.

        Raises:
            ConnectionClosed
        """
        while True:
            silent_s = trio.current_time() - self._heard_at
            if silent_s < self._ping_s:
                await trio.sleep(self._ping_s - silent_s)
                continue
            if not still_allowed():
                return
            with trio.move_on_after(PONG_S) as waiting:
                await self._ws.ping()
            if waiting.cancelled_caught:
                self.end(Close.UNRESPONSIVE)
                return
            self._heard_at = trio.current_time()

    async def _run_body(self, body: Callable[[], Awaitable[None]]) -> None:
        try:
            await body()
        except* ConnectionClosed:
            self._body.cancel(reason="the peer closed the connection")

    async def _write(self) -> None:
        try:
            # One scope with a moving deadline: one of its own for each frame costs more than the frame.
            with trio.CancelScope() as sending:
                while (text := await self.outbox.take()) is not None:
                    self._mid_frame = True
                    sending.deadline = trio.current_time() + SEND_S
                    await self._ws.send_message(text)
                    sending.deadline = math.inf
                    self._mid_frame = False
                    self.frames_out += 1
            if sending.cancelled_caught:
                self.drop_slow()
        except ConnectionClosed:
            self._body.cancel(reason="the peer closed the connection")
        self._written.set()

    async def _say_goodbye(self, close: Close) -> None:
        with trio.move_on_after(CLOSE_S):
            await self._written.wait()
            if not self._mid_frame:
                await self._ws.aclose(close.code, close.reason)
