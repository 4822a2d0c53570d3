"""From an accepted TCP stream to a session: read the request's head, decide who may come in, hand the stream over.

The WebSocket library wants to read the head itself, so ``ReplayStream`` gives it the same bytes again.
"""

from collections.abc import Callable

import h11
import structlog
import trio
from trio.abc import HalfCloseableStream
from trio_websocket import wrap_server_stream

from klaw.domain.names import UserId
from klaw.errors import ProtocolError
from klaw.gateway.admission import UserAllowance
from klaw.gateway.auth import Grant
from klaw.gateway.origin import origin_allowed
from klaw.gateway.rate_limits import SHARE, FramePace
from klaw.gateway.session import Services, Session

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


class RequestHead:
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


async def read_head(stream: trio.abc.ReceiveStream) -> RequestHead | None:
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
            return RequestHead(event, raw, parser.trailing_data[0])
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

    def __init__(self, stream: HalfCloseableStream, head: RequestHead, pace: FramePace) -> None:
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


PATHS = ("/", "/ws")
FRAME_SLACK = 1024
"""The library closes without a word above the limit plus this; below it the session can say what was wrong."""
RESPOND_S = 3.0
_BAD_HEADS = {"head_too_large": (431, "Request Header Fields Too Large")}

log = structlog.get_logger("klaw.gateway")


class HttpRefusal(Exception):
    """A request that is answered with an HTTP error: status, reason, text."""

    def __init__(self, status: int, reason: str, text: str) -> None:
        super().__init__(status, reason, text)
        self.status = status
        self.reason = reason
        self.text = text


async def serve_stream(
    stream: HalfCloseableStream,
    services: Services,
    session_id: str,
    *,
    loopback: bool,
    own_hosts: tuple[str, ...],
    on_session: Callable[[Session], None],
    on_token: Callable[[], None],
    log_in: Callable[[UserId], UserAllowance | None],
) -> None:
    """Serve one connection until it ends. The stream is left to the caller to close.

    Args:
        loopback: the connection comes from this machine.
        own_hosts: names and addresses of this server, besides loopback.
        on_session: told of the session before it runs.
        on_token: told that the request brought a good token.
        log_in: see ``Session``.
    """
    timeout_s = services.config.hello_timeout_s
    head = None
    try:
        with trio.move_on_after(timeout_s):
            head = await read_head(stream)
        if head is None:
            return
        # What a proxy on this machine passes on is not from this machine, here and in all that follows.
        loopback = loopback and not head.is_forwarded
        grant = _admit(head, services, loopback=loopback, own_hosts=own_hosts)
        if grant is not None and grant.token is not None:
            on_token()
    except ProtocolError as error:
        status, reason = _BAD_HEADS.get(error.code, (400, "Bad Request"))
        await _respond(stream, status, reason, str(error))
        return
    except HttpRefusal as refused:
        log.info("request_refused", status=refused.status)
        await _respond(stream, refused.status, refused.reason, refused.text)
        return
    async with trio.open_nursery() as nursery:
        config = services.config
        pace = FramePace(SHARE * config.messages_per_second, SHARE * config.burst, trio.current_time())
        replayed = ReplayStream(stream, head, pace)
        limit = config.max_frame_bytes + FRAME_SLACK
        ws = None
        with trio.move_on_after(timeout_s):
            request = await wrap_server_stream(nursery, replayed, max_message_size=limit)
            ws = await request.accept()
        if ws is not None:
            session = Session(ws, session_id, services, grant=grant, loopback=loopback, log_in=log_in)
            on_session(session)
            await session.run()
        nursery.cancel_scope.cancel(reason="the session has ended")
    await linger(stream)


async def _respond(stream: HalfCloseableStream, status: int, reason: str, text: str) -> None:
    with trio.move_on_after(RESPOND_S):
        await respond(stream, status, reason, text)


def _admit(head: RequestHead, services: Services, *, loopback: bool, own_hosts: tuple[str, ...]) -> Grant | None:
    """What the request's headers allow; None if hello has to bring a token.

    Raises:
        HttpRefusal: it is answered with an HTTP error.
    """
    if head.path not in PATHS:
        raise HttpRefusal(404, "Not Found", "there is nothing here; the WebSocket is at /ws")
    if not head.is_websocket:
        raise HttpRefusal(426, "Upgrade Required", "this is a WebSocket server; chat with: klaw chat")
    if not origin_allowed(head.header("origin"), head.header("host"), own_hosts, services.config.allowed_origins):
        raise HttpRefusal(403, "Forbidden", "this origin is not allowed; see gateway.allowedOrigins")
    token = _bearer(head.header("authorization"))
    grant = services.auth.grant(token, loopback=loopback)
    if grant is None and (token is not None or not (loopback or services.auth.has_tokens)):
        raise HttpRefusal(401, "Unauthorized", "a valid token is needed; see klaw token add")
    return grant


def _bearer(authorization: str | None) -> str | None:
    """The token of an Authorization header. Another scheme is taken as a wrong token, not as none."""
    if authorization is None:
        return None
    scheme, _, token = authorization.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""
