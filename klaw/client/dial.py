"""Making the TCP or TLS stream under a WebSocket, and noticing its end.

trio-websocket waits for ever when a stream ends before the handshake, and leaves the socket of a broken connection
open; so the stream is made, watched and closed here.
"""

import ssl
from typing import Any, cast
from urllib.parse import urlsplit

import trio
from trio_websocket import WebSocketConnection, wrap_client_stream

from klaw.client.together import run_until_first_ends

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
