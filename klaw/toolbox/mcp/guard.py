"""A guard between a connection's transport and the SDK's session: it drops notifications that nobody reads, slows
floods down (the server waits for its pipe or socket), bounds a server's open requests, makes lists fit, counts what the
server logs, and limits where a login may lead. Needs the SDK: imported when a server connects.
"""

import math
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from types import MappingProxyType, TracebackType
from typing import Any, Protocol, Self, TypeAlias, runtime_checkable
from urllib.parse import urlsplit

import anyio
import attrs
import httpcore2
import httpx2
import trio
from mcp.client.streamable_http import MCP_SESSION_ID, streamable_http_client
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCRequest, JSONRPCResponse

from klaw.bounded_body import BoundedStream
from klaw.errors import ToolRefused
from klaw.guarded_http import GuardedBackend, forbidden, resolve_name
from klaw.llm.providers.refusals import shown
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
        self.challenge: httpx2.Response | None = None
        """The response that asked for a login, or for more rights."""
        self.wants = ""
        """What it refuses only some requests for."""
        self.logged: Counter[str] = Counter()
        """How many messages the server logged, by level."""
        self.last_logged = ""
        self._closing = False

    def close(self) -> None:
        """Klaw ends the connection: what follows from that is not its reason."""
        self._closing = True

    def end(self, reason: str) -> None:
        """The connection is over; the first reason counts."""
        if not self.ended.is_set() and not self._closing:
            self.reason = reason
            self.ended.set()


LIST_CHANGES = frozenset(f"notifications/{each}/list_changed" for each in ("tools", "resources", "prompts"))
READ_NOTIFICATIONS = LIST_CHANGES | {"notifications/cancelled", "notifications/subscriptions/acknowledged"}
PROGRESS_S = 0.1
"""Notes on progress that come sooner after one another are dropped."""
LEVELS = frozenset({"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"})
FREE_MESSAGES = 1_000
"""Unasked messages that a server may send at once; then ``PER_SECOND``."""
PER_SECOND = 1_000.0
MAX_OPEN_REQUESTS = 16
MAX_LOGGED = 2_000


@attrs.define(eq=False)
class StreamGuard:
    """Both streams of one connection, for the session."""

    _link: Link
    _reads: Reads
    _writes: Writes
    _open: set[str | int] = attrs.field(factory=set, init=False)
    _credit: float = attrs.field(default=FREE_MESSAGES, init=False)
    _credit_at: float = attrs.field(factory=trio.current_time, init=False)
    _progress_at: float = attrs.field(default=-math.inf, init=False)

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
            if message.method in READ_NOTIFICATIONS or self._is_progress(message.method):
                return item
            if message.method == "notifications/message":
                self._note(message.params or {})

    def _is_progress(self, method: str) -> bool:
        now = trio.current_time()
        if method != "notifications/progress" or now < self._progress_at + PROGRESS_S:
            return False
        self._progress_at = now
        return True

    def _note(self, logged: Mapping[str, Any]) -> None:
        level, data = logged.get("level"), logged.get("data")
        self._link.logged[level if level in LEVELS else "other"] += 1
        self._link.last_logged = shown(data if isinstance(data, str) else repr(data)[:MAX_LOGGED], ())

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
AUTH_S = 20.0
"""A request of a login must be answered within this time."""
NEAR = frozenset({"private", "shared (carrier or cloud)", "loopback"})
MAX_CONNECTIONS = 24


@asynccontextmanager
async def http_server(
    url: str, headers: Mapping[str, str], link: Link, auth: httpx2.Auth | None = None
) -> AsyncIterator[tuple[Reads, Writes]]:
    """The streams of a server behind streamable HTTP. No proxies are used. ``auth`` may also ask servers that are named
    by this one. Raises ExceptionGroup of httpx2's errors."""
    others = await _other_servers(url) if auth is not None else {}
    inner = httpx2.AsyncHTTPTransport(
        verify=urlsplit(url).scheme == "https",
        limits=httpx2.Limits(max_connections=MAX_CONNECTIONS, max_keepalive_connections=4),
    )
    transport = BoundedTransport(inner, link, url, others)
    if isinstance(auth, HasPlainClient):
        named = {"user-agent": "klaw", "accept-encoding": "identity"}
        auth.plain = httpx2.AsyncClient(headers=named, transport=transport, timeout=AUTH_S)  # closed with the other
    async with (
        httpx2.AsyncClient(
            headers={"user-agent": "klaw", **headers, "accept-encoding": "identity"},
            # A call has its own deadline, and the stream of notifications may be silent for ever.
            timeout=httpx2.Timeout(None, connect=CONNECT_S),
            transport=transport,
            auth=auth,
        ) as client,
        streamable_http_client(url, http_client=client, max_sse_event_size=MAX_MESSAGE_BYTES) as streams,
    ):
        yield streams


@runtime_checkable
class HasPlainClient(Protocol):
    """A way to authorize that sends requests of its own."""

    plain: httpx2.AsyncClient | None


async def _other_servers(url: str) -> Mapping[str, httpx2.AsyncBaseTransport]:
    """Connections, by scheme, to servers that an MCP server names: over https on the public internet, and over both as
    near as itself."""
    parts, near = urlsplit(url), set[str | None]()
    with suppress(OSError, UnicodeError):
        addresses = await resolve_name(parts.hostname or "", parts.port or 443)
        near = {forbidden(each) for each in addresses} & NEAR

    def connections(public: frozenset[None]) -> httpx2.AsyncBaseTransport:
        def refused(address: str) -> str | None:
            return None if (kind := forbidden(address)) in near | public else kind or "public, and this is not https"

        made = httpx2.AsyncHTTPTransport()
        # It has no argument for this.
        made._pool = httpcore2.AsyncConnectionPool(
            ssl_context=httpcore2.default_ssl_context(), network_backend=GuardedBackend(forbidden=refused)
        )
        return made

    return {"https": connections(frozenset({None})), "http": connections(frozenset())}


class BoundedTransport(httpx2.AsyncBaseTransport):
    """Passes on answers of up to ``MAX_MESSAGE_BYTES``; event streams are bounded event by event, by the SDK."""

    def __init__(
        self,
        inner: httpx2.AsyncBaseTransport,
        link: Link,
        url: str = "",
        others: Mapping[str, httpx2.AsyncBaseTransport] = MappingProxyType({}),
    ) -> None:
        """``others``: for requests that do not go to the server at ``url``; empty: there are none."""
        self._inner, self._link, self._others = inner, link, others
        self._own = _origin(httpx2.URL(url))

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        request.extensions.setdefault("timeout", dict.fromkeys(("connect", "read", "write", "pool"), AUTH_S))
        elsewhere = bool(self._others) and _origin(request.url) != self._own
        inner = self._others.get(request.url.scheme, self._inner) if elsewhere else self._inner
        try:
            response = await inner.handle_async_request(request)
        except ToolRefused as refused:
            self._link.end(f"it names a server for logins that Klaw does not ask: {refused}")
            raise httpx2.ConnectError("refused", request=request) from None
        status = response.status_code
        if status == 404 and MCP_SESSION_ID in request.headers:
            self._link.end("it has forgotten the session")
        elif status in (401, 403, 407) and not self._others:
            self._link.end(f"it refuses Klaw (HTTP status {status})")
        elif (status >= 500 or status in (401, 403, 407)) and not elsewhere:
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
        for each in (self._inner, *self._others.values()):
            await each.aclose()


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port
