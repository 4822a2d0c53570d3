"""The HTTP client for MCP servers: answers are bounded in size. Needs the SDK: imported when a server connects."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import httpx2
import structlog
from mcp.client.streamable_http import MCP_SESSION_ID, streamable_http_client

from klaw.guarded_http import BoundedStream
from klaw.toolbox.mcp.guard import MAX_MESSAGE_BYTES, Link, Reads, Writes

CONNECT_S = 10.0
MAX_CONNECTIONS = 24

log = structlog.get_logger("klaw.mcp")


@asynccontextmanager
async def http_server(url: str, headers: Mapping[str, str], link: Link) -> AsyncIterator[tuple[Reads, Writes]]:
    """The streams of a server behind streamable HTTP. Proxies of the environment are not used.

    Raises:
        ExceptionGroup: the connection broke; holds errors of httpx2.
    """
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
            # A few bytes could become gigabytes.
            await response.aclose()
            raise httpx2.RemoteProtocolError("the answer is compressed though that was not asked for")
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
