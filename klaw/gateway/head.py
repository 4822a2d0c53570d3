"""The head of an HTTP request, read before it is decided who handles the stream.

The WebSocket library wants to read the head itself, so ``ReplayStream`` gives it the same bytes again.
"""

import h11
import trio
from trio.abc import HalfCloseableStream

from klaw.errors import ProtocolError
from klaw.gateway.pace import Pace

MAX_HEAD_BYTES = 16_384
_READ_BYTES = 4096
LINGER_S = 1.0
_FORWARDED = frozenset(
    [
        "forwarded",
        "via",
        "x-real-ip",
        "x-client-ip",
        "x-cluster-client-ip",
        "x-original-host",
        "x-original-url",
        "true-client-ip",
        "cf-connecting-ip",
        "cf-ray",
        "fastly-client-ip",
        "fly-client-ip",
        "x-envoy-external-address",
    ]
)
"""Headers that proxies add, by their names in lower case, whatever they say …"""
_FORWARDED_BEGIN = ("x-forwarded", "x-original-forwarded", "tailscale-user-", "x-amzn-trace-id", "x-proxy")
"""… and how others of them begin."""


class Head:
    """A request head. Header names are lower-case; of a repeated header the first counts."""

    def __init__(self, request: h11.Request, raw: bytes, after: bytes) -> None:
        self.method = request.method.decode("ascii")
        self.path = request.target.decode("latin-1").split("?", 1)[0]
        self.raw = raw
        """All bytes read so far."""
        self.after = after
        """Of them those behind the head."""
        self._headers: dict[str, str] = {}
        for name, value in request.headers:
            self._headers.setdefault(name.decode("latin-1"), value.decode("latin-1"))

    def header(self, name: str) -> str | None:
        """The value of a header; None if absent."""
        return self._headers.get(name)

    @property
    def is_forwarded(self) -> bool:
        """Whether a proxy passed it on: then it is not from where its connection comes from."""
        return any(name in _FORWARDED or name.startswith(_FORWARDED_BEGIN) for name in self._headers)

    @property
    def is_websocket(self) -> bool:
        """Whether the client asks for a WebSocket."""
        return self.method == "GET" and (self.header("upgrade") or "").lower() == "websocket"


async def read_head(stream: trio.abc.ReceiveStream) -> Head | None:
    """Read a request head; None if the peer went away before its end.

    Raises:
        ProtocolError: ``bad_request`` or ``head_too_large``.

    Cancellation: what was read is lost; close the stream.
    """
    parser = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
    raw = b""
    while True:
        try:
            event = parser.next_event()
        except h11.RemoteProtocolError as error:
            code = "head_too_large" if error.error_status_hint == 431 else "bad_request"
            raise ProtocolError(code, "not a usable HTTP request", close=True) from error
        if isinstance(event, h11.Request):
            return Head(event, raw, parser.trailing_data[0])
        if event is not h11.NEED_DATA:
            return None
        try:
            data = await stream.receive_some(_READ_BYTES)
        except trio.BrokenResourceError:
            return None
        raw += data
        parser.receive_data(bytes(data))


async def respond(stream: HalfCloseableStream, status: int, reason: str, text: str) -> None:
    """Answer with a short plain text and end the connection. A peer that has gone is no error."""
    body = text.encode() + b"\n"
    head = (
        f"HTTP/1.1 {status} {reason}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    try:
        await stream.send_all(head.encode("ascii") + body)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        return
    await linger(stream)


async def linger(stream: HalfCloseableStream) -> None:
    """Let the peer read what was sent: closing with its bytes unread would reset the connection. At most 1 s."""
    with trio.move_on_after(LINGER_S):
        try:
            await stream.send_eof()
            while await stream.receive_some(_READ_BYTES):
                pass
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return


class ReplayStream(HalfCloseableStream):
    """A stream of which some bytes were read already: they are received first, and the rest at a pace."""

    def __init__(self, stream: HalfCloseableStream, head: Head, pace: Pace) -> None:
        self._stream = stream
        self._raw = head.raw
        self._pace = pace
        self._pause_s = pace.wait_s(head.after, trio.current_time())

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        if self._raw:
            await trio.lowlevel.checkpoint()
            data, self._raw = self._raw[:max_bytes], b"" if max_bytes is None else self._raw[max_bytes:]
            return data
        if self._pause_s > 0:
            await trio.sleep(self._pause_s)
        received = await self._receive(max_bytes)
        self._pause_s = self._pace.wait_s(received, trio.current_time())
        return received

    async def _receive(self, max_bytes: int | None) -> bytes | bytearray:
        if isinstance(self._stream, trio.SocketStream) and self._stream.socket.fileno() >= 0:
            # A connection mostly waits for its next frame: asking the poller first saves a recv() that finds nothing.
            # A socket that is closed already has no number to wait for; receive_some says so in trio's own words.
            await trio.lowlevel.wait_readable(self._stream.socket)
        return await self._stream.receive_some(max_bytes)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def send_eof(self) -> None:
        await self._stream.send_eof()

    async def aclose(self) -> None:
        await self._stream.aclose()
