"""From an accepted TCP connection to a session: read the request's head, decide who may come in, and shake hands. A
request for no WebSocket goes on to the HTTP server."""

import socket
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus

import attrs
import h11
import structlog
import trio
from trio.abc import HalfCloseableStream
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from klaw.actor.failure import let_go
from klaw.errors import HttpRefusal
from klaw.gateway.connection_limits import Connection
from klaw.gateway.origin_check import Endpoints, admit, parted, passed_on
from klaw.gateway.services import Services
from klaw.gateway.session import ClientSession
from klaw.gateway.tokens import Grant

MAX_HEAD_BYTES = 16_384
_READ_BYTES = 4096
LINGER_S = 1.0
RESPOND_S = 3.0


class RequestHead:
    """A request head. Header names are lower-case; the first of a repeated header counts."""

    def __init__(self, request: h11.Request, raw: bytes) -> None:
        self.method = request.method.decode("ascii")
        self.path = request.target.decode("latin-1").split("?", 1)[0]
        self.raw = raw
        """All bytes read so far, head and beyond."""
        headers = reversed(list(request.headers))
        self.headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers}

    @property
    def is_websocket(self) -> bool:
        return self.method == "GET" and self.headers.get("upgrade", "").lower() == "websocket"


async def read_head(stream: trio.abc.ReceiveStream) -> RequestHead | None:
    """None if the peer went away before its end. Raises HttpRefusal: it is no usable request, or too large."""
    parser = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
    raw = b""
    while True:
        try:
            event = parser.next_event()
        except h11.RemoteProtocolError as error:
            too_large = error.error_status_hint == 431
            let_go(error)
            if too_large:
                raise HttpRefusal(431, f"a request's head has at most {MAX_HEAD_BYTES} bytes") from None
            raise HttpRefusal(400, "not a usable HTTP request") from None
        if isinstance(event, h11.Request):
            if event.http_version not in (b"1.1", b"1.0"):
                raise HttpRefusal(505, "HTTP/1.1 is spoken here, not HTTP/2")
            return RequestHead(event, raw)
        if event is not h11.NEED_DATA:
            return None
        try:
            data = await stream.receive_some(_READ_BYTES)
        except trio.BrokenResourceError:
            return None
        raw += data
        parser.receive_data(bytes(data))


async def respond(stream: HalfCloseableStream, refused: HttpRefusal, within_s: float = RESPOND_S) -> None:
    """Answer with a short plain text and end the connection; the peer may be gone."""
    body = f"{refused}\n".encode()
    about = {"Content-Type": "text/plain; charset=utf-8", "Content-Length": len(body), "Connection": "close"}
    lines = [f"{name}: {value}" for name, value in {**about, **refused.headers}.items()]
    head = "\r\n".join((f"HTTP/1.1 {refused.status} {HTTPStatus(refused.status).phrase}", *lines, "", ""))
    with trio.move_on_after(within_s), suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        await stream.send_all(head.encode("ascii") + body)
        await linger(stream)


async def linger(stream: HalfCloseableStream) -> None:
    """Let the peer read what was sent, for at most 1 s: closing with its bytes unread would reset the connection."""
    with trio.move_on_after(LINGER_S):
        try:
            await stream.send_eof()
            while await stream.receive_some(_READ_BYTES):
                pass
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return


PATHS = ("", "/", "/ws")
WEBSOCKET_VERSION = "13"

log = structlog.get_logger("klaw.gateway")


async def serve_stream(
    stream: HalfCloseableStream,
    raw: socket.socket,
    connection: Connection,
    services: Services,
    on_session: Callable[[ClientSession | None], None],
) -> None:
    """Serve one connection until it ends; the caller closes the stream.

    Args:
        raw: the socket below the stream.
        on_session: called with the session before it runs; with None where the connection speaks HTTP.
    """
    head = None
    try:
        with trio.move_on_after(services.config.hello_timeout_s):
            head = await read_head(stream)
        if head is None:
            return
        if services.http is not None and not head.is_websocket:
            on_session(None)
            connection.busy = True
            await services.http.serve(stream, head.raw, connection)
            return
        # What a proxy on this machine passes on is not from this machine, here and in all that follows.
        if passed_on(head.headers):
            connection.place = attrs.evolve(connection.place, loopback=False)
        grant = _admit(head, services, connection.place)
        connection.trusted = grant is not None and grant.token is not None
        ws = WSConnection(ConnectionType.SERVER)
        ws.receive_data(head.raw)
        await stream.send_all(ws.send(AcceptConnection()))
    except HttpRefusal as refused:
        log.info("request_refused", status=refused.status)
        await respond(stream, refused)
        return
    except (RemoteProtocolError, LocalProtocolError):
        await respond(stream, HttpRefusal(400, "not a usable WebSocket request"))
        return
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        return
    assert ws.connection is not None  # since it was accepted
    session = ClientSession(raw, ws.connection, connection, services, grant)
    on_session(session)
    await session.run()
    await linger(stream)


def _admit(head: RequestHead, services: Services, place: Endpoints) -> Grant | None:
    """What the request's headers allow; None if hello has to bring a token. Raises HttpRefusal."""
    _, path = parted(head.path, services.config.http.prefix, None)
    if path not in PATHS:
        raise HttpRefusal(404, "there is nothing here; the WebSocket is at /ws")
    if not head.is_websocket:
        raise HttpRefusal(426, "this is a WebSocket server; chat with: klaw chat")
    grant = admit(head.headers, services.auth, services.config.page_origins, place)
    if grant is None and not (place.loopback or services.auth.has_tokens):
        raise HttpRefusal(401, "a valid token is needed; see klaw token add")
    if head.headers.get("sec-websocket-version", WEBSOCKET_VERSION) != WEBSOCKET_VERSION:
        text = f"this server needs Sec-WebSocket-Version {WEBSOCKET_VERSION} (RFC 6455)"
        raise HttpRefusal(426, text, {"Upgrade": "websocket", "Sec-WebSocket-Version": WEBSOCKET_VERSION})
    return grant
