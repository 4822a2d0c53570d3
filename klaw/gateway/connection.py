"""From an accepted TCP stream to a session: read the request's head, decide who may come in, hand the stream over."""

from collections.abc import Callable

import structlog
import trio
from trio.abc import HalfCloseableStream
from trio_websocket import wrap_server_stream

from klaw.domain.names import UserId
from klaw.errors import ProtocolError
from klaw.gateway.admission import Allowance
from klaw.gateway.auth import Grant
from klaw.gateway.head import Head, ReplayStream, linger, read_head, respond
from klaw.gateway.origin import origin_allowed
from klaw.gateway.pace import SHARE, Pace
from klaw.gateway.session import Services, Session

PATHS = ("/", "/ws")
FRAME_SLACK = 1024
"""The library closes without a word above the limit plus this; below it the session can say what was wrong."""
RESPOND_S = 3.0
_BAD_HEADS = {"head_too_large": (431, "Request Header Fields Too Large")}

log = structlog.get_logger("klaw.gateway")


class Refused(Exception):
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
    log_in: Callable[[UserId], Allowance | None],
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
    except Refused as refused:
        log.info("request_refused", status=refused.status)
        await _respond(stream, refused.status, refused.reason, refused.text)
        return
    async with trio.open_nursery() as nursery:
        config = services.config
        pace = Pace(SHARE * config.messages_per_second, SHARE * config.burst, trio.current_time())
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


def _admit(head: Head, services: Services, *, loopback: bool, own_hosts: tuple[str, ...]) -> Grant | None:
    """What the request's headers allow; None if hello has to bring a token.

    Raises:
        Refused: it is answered with an HTTP error.
    """
    if head.path not in PATHS:
        raise Refused(404, "Not Found", "there is nothing here; the WebSocket is at /ws")
    if not head.is_websocket:
        raise Refused(426, "Upgrade Required", "this is a WebSocket server; chat with: klaw chat")
    if not origin_allowed(head.header("origin"), head.header("host"), own_hosts, services.config.allowed_origins):
        raise Refused(403, "Forbidden", "this origin is not allowed; see gateway.allowedOrigins")
    token = _bearer(head.header("authorization"))
    grant = services.auth.grant(token, loopback=loopback)
    if grant is None and (token is not None or not (loopback or services.auth.has_tokens)):
        raise Refused(401, "Unauthorized", "a valid token is needed; see klaw token add")
    return grant


def _bearer(authorization: str | None) -> str | None:
    """The token of an Authorization header. Another scheme is taken as a wrong token, not as none."""
    if authorization is None:
        return None
    scheme, _, token = authorization.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""
