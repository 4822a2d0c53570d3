"""From an accepted TCP connection to a session: read the request's head, decide who may come in, shake hands.

A browser sends ``Origin``, a native client does not. Without tokens every page that a person visits could otherwise
talk to the server on their own machine, so only pages of this server, and those that the configuration names, may.
"""

import ipaddress
import socket
from collections.abc import Callable, Collection
from contextlib import suppress
from http import HTTPStatus
from urllib.parse import SplitResult, urlsplit

import h11
import structlog
import trio
from trio.abc import HalfCloseableStream
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from klaw.domain.names import UserId
from klaw.errors import HttpRefusal
from klaw.gateway.admission import UserAllowance
from klaw.gateway.auth import Grant
from klaw.gateway.session import Services, Session

MAX_HEAD_BYTES = 16_384
_READ_BYTES = 4096
LINGER_S = 1.0
RESPOND_S = 3.0
_FORWARDED = frozenset(
    {
        "forwarded", "via", "x-real-ip", "x-client-ip", "x-cluster-client-ip", "x-original-host", "x-original-url",
        "true-client-ip", "cf-connecting-ip", "cf-ray", "fastly-client-ip", "fly-client-ip",
        "x-envoy-external-address",
    }
)  # fmt: skip
"""Headers that proxies add, by their names in lower case, whatever they say …"""
_FORWARDED_BEGIN = ("x-forwarded", "x-original-forwarded", "tailscale-user-", "x-amzn-trace-id", "x-proxy")
"""… and how others of them begin."""


class RequestHead:
    """A request head. Header names are lower-case; of a repeated header the first counts."""

    def __init__(self, request: h11.Request, raw: bytes) -> None:
        self.method = request.method.decode("ascii")
        self.path = request.target.decode("latin-1").split("?", 1)[0]
        self.raw = raw
        """All bytes read so far."""
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
        HttpRefusal: it is no usable request, or too large.

    Cancellation: what was read is lost; close the stream.
    """
    parser = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
    raw = b""
    while True:
        try:
            event = parser.next_event()
        except h11.RemoteProtocolError as error:
            raise HttpRefusal(431 if error.error_status_hint == 431 else 400, "not a usable HTTP request") from error
        if isinstance(event, h11.Request):
            return RequestHead(event, raw)
        if event is not h11.NEED_DATA:
            return None
        try:
            data = await stream.receive_some(_READ_BYTES)
        except trio.BrokenResourceError:
            return None
        raw += data
        parser.receive_data(bytes(data))


async def respond(stream: HalfCloseableStream, status: int, text: str, within_s: float = RESPOND_S) -> None:
    """Answer with a short plain text and end the connection. A peer that has gone, or does not read, is no error."""
    body = text.encode() + b"\n"
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    with trio.move_on_after(within_s), suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        await stream.send_all(head.encode("ascii") + body)
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


PATHS = ("/", "/ws")

log = structlog.get_logger("klaw.gateway")


async def serve_stream(
    stream: HalfCloseableStream,
    connection: socket.socket,
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
        stream: of the connection.
        connection: the socket below.
        loopback: it comes from this machine.
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
        ws = WSConnection(ConnectionType.SERVER)
        ws.receive_data(head.raw)
        await stream.send_all(ws.send(AcceptConnection()))
    except HttpRefusal as refused:
        log.info("request_refused", status=refused.status)
        await respond(stream, refused.status, str(refused))
        return
    except (RemoteProtocolError, LocalProtocolError):
        await respond(stream, 400, "not a usable WebSocket request")
        return
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        return
    assert ws.connection is not None  # since it was accepted
    session = Session(connection, ws.connection, session_id, services, grant=grant, loopback=loopback, log_in=log_in)
    on_session(session)
    await session.run()
    await linger(stream)


def _admit(head: RequestHead, services: Services, *, loopback: bool, own_hosts: tuple[str, ...]) -> Grant | None:
    """What the request's headers allow; None if hello has to bring a token.

    Raises:
        HttpRefusal: it is answered with an HTTP error.
    """
    if head.path not in PATHS:
        raise HttpRefusal(404, "there is nothing here; the WebSocket is at /ws")
    if not head.is_websocket:
        raise HttpRefusal(426, "this is a WebSocket server; chat with: klaw chat")
    if not origin_allowed(head.header("origin"), head.header("host"), own_hosts, services.config.allowed_origins):
        raise HttpRefusal(403, "this origin is not allowed; see gateway.allowedOrigins")
    token = _bearer(head.header("authorization"))
    grant = services.auth.grant(token, loopback=loopback)
    if grant is None and (token is not None or not (loopback or services.auth.has_tokens)):
        raise HttpRefusal(401, "a valid token is needed; see klaw token add")
    return grant


def _bearer(authorization: str | None) -> str | None:
    """The token of an Authorization header. Another scheme is taken as a wrong token, not as none."""
    if authorization is None:
        return None
    scheme, _, token = authorization.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def origin_allowed(origin: str | None, host: str | None, own_hosts: Collection[str], allowed: Collection[str]) -> bool:
    """Whether a request with these headers may go on.

    Args:
        origin: the ``Origin`` header; None if absent.
        host: the ``Host`` header.
        own_hosts: host names and addresses that are this server, besides loopback.
        allowed: further origins, such as ``https://example.org``.
    """
    if origin is None:
        return True
    page = _split(origin)
    if page is None or page.hostname is None or page.scheme not in ("http", "https"):
        return False
    if any(_same_origin(page, _split(other)) for other in allowed):
        return True
    server = _split(f"//{host}") if host else None
    if server is None or server.hostname is None:
        return False
    # The Host must be ours too: a page of evil.example whose name points here has equal Origin and Host.
    is_own = is_loopback(server.hostname) or server.hostname in {name.lower() for name in own_hosts}
    return is_own and page.hostname == server.hostname and _port(page) == (server.port or _default_port(page.scheme))


def is_loopback(host: str) -> bool:
    """Whether a host name or address means this machine only."""
    if host.lower() == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host.split("%", 1)[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def _split(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  reading it checks it
    except ValueError:
        return None
    return parts


def _same_origin(one: SplitResult, other: SplitResult | None) -> bool:
    return other is not None and (one.scheme, one.hostname, _port(one)) == (other.scheme, other.hostname, _port(other))


def _port(parts: SplitResult) -> int:
    return parts.port or _default_port(parts.scheme)


def _default_port(scheme: str) -> int:
    return 443 if scheme == "https" else 80
