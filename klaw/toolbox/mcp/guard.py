"""A guard between a connection's transport and the SDK's session: it drops notifications that nobody reads, slows
floods down (the server waits for its pipe or socket), bounds a server's open requests, and makes lists of tools fit.
Needs the SDK: imported when a server connects.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Self, TypeAlias
from urllib.parse import urlsplit

import anyio
import attrs
import httpx2
import trio
from mcp.client.streamable_http import MCP_SESSION_ID, streamable_http_client
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCRequest, JSONRPCResponse

from klaw.bounded_body import BoundedStream
from klaw.toolbox.mcp.listing import fitted

MAX_MESSAGE_BYTES = 4 * 1024 * 1024
"""Longest message of a server. Its JSON takes up to thirty times as much memory while it is read."""

Reads: TypeAlias = ReadStream[SessionMessage | Exception]
Writes: TypeAlias = WriteStream[SessionMessage]


class Link:
    """The end of a connection; shared by its transport, guard and session."""

    def __init__(self) -> None:
        self.ended = trio.Event()
        self.reason = ""
        """Why it ended, to follow "the MCP server NAME is not connected: "."""
        self.status: int | None = None
        self._closing = False

    def close(self) -> None:
        """Klaw ends the connection: what follows from that is not its reason."""
        self._closing = True

    def end(self, reason: str) -> None:
        """The connection is over; the first reason counts."""
        if not self.ended.is_set() and not self._closing:
            self.reason = reason
            self.ended.set()


READ_NOTIFICATIONS = frozenset(
    {"notifications/tools/list_changed", "notifications/cancelled", "notifications/subscriptions/acknowledged"}
)
FREE_MESSAGES = 1_000
"""Unasked messages that a server may send at once; then ``PER_SECOND``."""
PER_SECOND = 1_000.0
MAX_OPEN_REQUESTS = 16


@attrs.define(eq=False)
class StreamGuard:
    """Both streams of one connection, for the session."""

    _link: Link
    _reads: Reads
    _writes: Writes
    _open: set[str | int] = attrs.field(factory=set, init=False)
    _credit: float = attrs.field(default=FREE_MESSAGES, init=False)
    _credit_at: float = attrs.field(factory=trio.current_time, init=False)

    async def receive(self) -> SessionMessage | Exception:
        """The next message for the session. Raises anyio.EndOfStream: the connection is over."""
        while True:
            try:
                item = await self._reads.receive()
            except (anyio.EndOfStream, anyio.ClosedResourceError):
                self._link.end("the connection was closed")
                raise
            if isinstance(item, Exception):
                continue
            message = item.message
            if isinstance(message, JSONRPCResponse):
                message.result = fitted(message.result)
            if isinstance(message, JSONRPCResponse | JSONRPCError):
                return item
            await self._slow_down()
            if isinstance(message, JSONRPCRequest):
                self._open.add(message.id)
                if len(self._open) > MAX_OPEN_REQUESTS:
                    self._link.end("it sends requests and does not read the answers")
                    raise anyio.EndOfStream
                return item
            if message.method in READ_NOTIFICATIONS:
                return item

    async def send(self, item: SessionMessage) -> None:
        await self._writes.send(item)
        if isinstance(item.message, JSONRPCResponse | JSONRPCError) and item.message.id is not None:
            self._open.discard(item.message.id)

    async def _slow_down(self) -> None:
        now = trio.current_time()
        self._credit = min(float(FREE_MESSAGES), self._credit + (now - self._credit_at) * PER_SECOND) - 1
        self._credit_at = now
        if self._credit < 0:
            await trio.sleep(-self._credit / PER_SECOND)


class GuardedStream:
    """One of the SDK's streams, ``ReadStream`` or ``WriteStream``, around ``StreamGuard``."""

    def __init__(self, guard: StreamGuard, inner: Reads | Writes) -> None:
        self.receive = guard.receive
        self.send = guard.send
        self.aclose = inner.aclose

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None


CONNECT_S = 10.0
MAX_CONNECTIONS = 24


@asynccontextmanager
async def http_server(url: str, headers: Mapping[str, str], link: Link) -> AsyncIterator[tuple[Reads, Writes]]:
    """The streams of a server behind streamable HTTP. No proxies are used. Raises ExceptionGroup of httpx2's errors."""
    secure = urlsplit(url).scheme == "https"
    inner = httpx2.AsyncHTTPTransport(
        verify=secure, limits=httpx2.Limits(max_connections=MAX_CONNECTIONS, max_keepalive_connections=4)
    )
    async with (
        httpx2.AsyncClient(
            headers={"user-agent": "klaw", **headers, "accept-encoding": "identity"},
            # A call has its own deadline, and the stream of notifications may be silent for ever.
            timeout=httpx2.Timeout(None, connect=CONNECT_S),
            transport=BoundedTransport(inner, link),
        ) as client,
        streamable_http_client(url, http_client=client, max_sse_event_size=MAX_MESSAGE_BYTES) as streams,
    ):
        yield streams


class BoundedTransport(httpx2.AsyncBaseTransport):
    """Passes on answers of up to ``MAX_MESSAGE_BYTES``; event streams are bounded event by event, by the SDK."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, link: Link) -> None:
        self._inner = inner
        self._link = link

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await self._inner.handle_async_request(request)
        status = response.status_code
        if status == 404 and MCP_SESSION_ID in request.headers:
            self._link.end("it has forgotten the session")
        elif status in (401, 403, 407):
            self._link.end(f"it refuses Klaw (HTTP status {status})")
        elif status >= 500:
            self._link.status = status
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            await response.aclose()  # a few bytes could become gigabytes
            raise httpx2.RemoteProtocolError("the answer is compressed, which was not requested")
        is_stream = response.headers.get("content-type", "").lower().startswith("text/event-stream")
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        return httpx2.Response(
            status_code=status,
            headers=response.headers,
            stream=BoundedStream(response.stream, None if is_stream else MAX_MESSAGE_BYTES),
            extensions=response.extensions,
        )

    async def aclose(self) -> None:
        await self._inner.aclose()
