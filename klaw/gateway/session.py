"""One client connection, from hello to close: what each frame of the client leads to."""

import math
import socket
from contextlib import suppress
from functools import partial
from typing import Any

import attrs
import structlog
import trio
from wsproto.connection import Connection as WebSocketProtocol

from klaw import __version__
from klaw.actor.failure import error_class, where
from klaw.actor.mailbox import answer_within
from klaw.actor.threads import read_input
from klaw.domain.names import UserId, name_of
from klaw.errors import KlawError, ProtocolError
from klaw.gateway import answers
from klaw.gateway.answers import error_frame, with_marks
from klaw.gateway.connection_limits import Connection, TokenBucket, UserAllowance
from klaw.gateway.delivery import Delivery
from klaw.gateway.link import Close, WebSocketLink
from klaw.gateway.rendering import AnswerRenderer
from klaw.gateway.requests import ANSWER_S, Requests, Sending
from klaw.gateway.services import Services
from klaw.gateway.tokens import Grant
from klaw.operations.handler import Caller
from klaw.wire import frames
from klaw.wire.codec import byte_size, decode_client

MAX_CLIENT_NAME = 64
READ_SHARE = 0.5
"""Frames are read slowly while more than this share of the outbox is taken."""
MAX_PAUSE_S = 1.0
"""Longest pause of reading, after a frame that came too soon or while the outbox is rather full: what else the peer
sends, such as pongs and its end, waits as long."""

LOCAL_REFUSED = (
    "connections from this machine need a token now: make one with 'klaw token add local' and give it as $KLAW_TOKEN,"
    " or let this machine in without one with 'klaw token allow-local'"
)
NOT_KNOWN = "a valid token is needed, in the Authorization header or in hello"
log = structlog.get_logger("klaw.gateway")


class ClientSession:
    """Serves one WebSocket.

    Args:
        raw, ws: the socket, and its protocol after the handshake.
        grant: what the request's headers allowed; None if hello has to bring a token.
    """

    def __init__(
        self, raw: socket.socket, ws: WebSocketProtocol, connection: Connection, services: Services, grant: Grant | None
    ) -> None:
        config = services.config
        self.id = connection.id
        self._services = services
        self._grant = grant
        self._loopback = connection.place.loopback
        self._since = services.clock.now()
        self._link = WebSocketLink(raw, ws, self.id, config)
        self._bucket = TokenBucket(config.messages_per_second, config.burst, trio.current_time())
        self._log_in = connection.log_in
        self._talk: _Conversation | None = None
        self._client: str | None = None

    async def run(self) -> None:
        """Serve until either side closes. ``shut_down`` ends it politely, cancellation without a close frame."""
        try:
            await self._link.run(self._serve)
        finally:
            if self._talk is not None:
                self._services.hub.leave(self._talk.delivery)
                self._talk = None  # its parts refer to this session
            closing = self._link.closing
            log.info("client_disconnected", reason=closing.reason if closing else "peer")

    def shut_down(self) -> None:
        self._refuse(frames.Notice(code="shutdown", text="the server is stopping; connect again later"), Close.SHUTDOWN)

    def report(self) -> dict[str, Any]:
        """A snapshot of the connection; ``user`` and ``client`` are None before hello."""
        talk, link = self._talk, self._link
        return {
            "id": self.id,
            "user": self._grant.user if self._grant else None,
            "client": self._client,
            "peer": "loopback" if self._loopback else "network",
            "since": self._since,
            "frames_in": link.frames_in,
            "frames_out": link.frames_out,
            "outbox": link.outbox.depth,
            "outbox_high_water": link.outbox.high_water,
            "watched": talk.delivery.watched if talk else 0,
            "in_flight": talk.sending.in_flight if talk else 0,
        }

    async def _serve(self) -> None:
        hello = None
        with trio.move_on_after(self._services.config.hello_timeout_s) as waiting:
            hello = await self._receive_hello()
        if waiting.cancelled_caught:
            self._refuse(frames.Error(code="hello_timeout", message="no hello came in time"), Close.HELLO_TIMEOUT)
        if hello is None or self._grant is None:
            return
        allowance = self._log_in(self._grant.user)
        if allowance is None:
            text = "you have too many connections, or the server has; close one, or try again later"
            self._refuse(frames.Error(code="too_many_connections", message=text, retryable=True), Close.TOO_MANY)
            return
        async with trio.open_nursery() as nursery:
            talk = self._begin(self._grant.user, allowance, nursery)
            hub = self._services.hub
            if hello.html:
                renderer = AnswerRenderer(talk.delivery.user, self._link.outbox, hub.rendering, hub.running)
                talk.delivery.renderer = renderer
                nursery.start_soon(renderer.run, name="gateway rendering")
            nursery.start_soon(self._catch_up, talk.delivery, name="gateway catch-up")
            nursery.start_soon(self._link.stay_alive, self._still_allowed, name="gateway liveness")
            nursery.start_soon(self._carry_out_watches, talk.delivery, name="gateway watches")
            nursery.start_soon(talk.sending.run, name="gateway sending")
            nursery.start_soon(talk.requests.run, name="gateway files")
            for name, seq in hello.chats.items():
                self._ask_for_watch(frames.Watch(chat=name, seq=seq), talk)
            with suppress(trio.EndOfChannel):  # one that leaves a nursery and what it cancels refer to each other
                while True:
                    wait_s = await self._take(await self._link.receive(), talk)
                    if wait_s > 0:
                        # What is sent meanwhile waits at the sender: refusing costs more than the sender pays for it.
                        await trio.sleep(min(wait_s, MAX_PAUSE_S))
                    if not self._link.outbox.has_room(READ_SHARE):
                        with trio.move_on_after(MAX_PAUSE_S):  # it does not read, and gets few more answers
                            await self._link.outbox.wait_for_room(READ_SHARE)
            nursery.cancel_scope.cancel(reason="the peer closed the connection")

    async def _receive_hello(self) -> frames.Hello | None:
        """The first frame, if it is a good hello of somebody who may connect; else the connection is being closed."""
        frame = await self._decode(await self._link.receive(), first=True)
        if not isinstance(frame, frames.Hello):
            return None
        if frame.token is not None or self._grant is None:
            self._grant = self._services.auth.grant(frame.token, loopback=self._loopback)
        if frame.version != frames.PROTOCOL_VERSION:
            old = "client" if frame.version < frames.PROTOCOL_VERSION else "server"
            text = (
                f"the server speaks protocol version {frames.PROTOCOL_VERSION}, not {frame.version}: update the {old}"
            )
            self._refuse(frames.Error(code="wrong_version", message=text), Close.WRONG_VERSION)
        elif self._grant is None or not self._services.auth.holds(self._grant):
            refused = LOCAL_REFUSED if frame.token is None and self._loopback else NOT_KNOWN
            self._refuse(frames.Error(code="unauthorized", message=refused), Close.UNAUTHORIZED)
        else:
            self._client = "".join(filter(str.isprintable, (frame.client or "")[:MAX_CLIENT_NAME])) or None
            return frame
        return None

    def _begin(self, user: UserId, allowance: UserAllowance, nursery: trio.Nursery) -> "_Conversation":
        services = self._services
        delivery = Delivery(user, services, self._link.outbox, self._still_allowed)
        sending = Sending(user, services.chats, delivery, self._link, nursery)
        assert self._grant is not None  # since the hello
        caller = Caller(user=user, operator=self._grant.operator, token=self._grant.token)
        requests = Requests(caller, services, self._link, nursery)
        self._talk = _Conversation(allowance, delivery, sending, requests)
        self._link.put(
            frames.Welcome(
                version=frames.PROTOCOL_VERSION,
                server=f"klaw {__version__}",
                user=user,
                session=self.id,
                degraded=answers.degraded(services.chats.health()),
                limits=answers.limits(services.config, services.attachments.limits),
                hint=answers.hint(operator=caller.operator) if services.chats.is_on_trial() else None,
            )
        )
        services.hub.join(delivery)
        structlog.contextvars.bind_contextvars(user=user)
        log.info("client_connected", client=self._client)
        return self._talk

    async def _take(self, data: str | bytes, talk: "_Conversation") -> float:
        """Handle a frame without waiting, except while a large one is read. Returns how many seconds to wait before the
        next one."""
        if not self._still_allowed():
            return 0.0
        now = trio.current_time()
        wait_s = self._bucket.take(now) or talk.allowance.take(byte_size(data), now)
        frame = await self._decode(data)
        if frame is None:
            return max(wait_s, talk.allowance.spend(trio.current_time()))
        self._carry_out(frame, wait_s, talk)
        return wait_s

    def _carry_out(self, frame: frames.ClientFrame, wait_s: float, talk: "_Conversation") -> None:
        if wait_s > 0:
            text = "too many frames; nothing was done"
            wait_ms = math.ceil(wait_s * 1000)
            limited = frames.Error(code="rate_limited", message=text, retryable=True, retry_after_ms=wait_ms)
            self._link.put(with_marks(limited, frame))
        elif isinstance(frame, frames.Send):
            talk.sending.submit(frame)
        elif isinstance(frame, frames.Hello):
            self._link.put(frames.Error(code="hello_again", message="hello was said already"))
        elif isinstance(frame, frames.Approve):
            self._approve(frame, talk)
        elif isinstance(frame, frames.Visible):
            self._services.hub.set_in_sight(talk.delivery, talk.delivery.user, visible=frame.visible)
        elif isinstance(frame, frames.Watch):
            self._ask_for_watch(frame, talk)
        else:
            talk.requests.submit(frame)

    async def _decode(self, data: str | bytes, *, first: bool = False) -> frames.ClientFrame | None:
        """The frame; None after an error frame was queued (and the connection closed, if it is the first frame)."""
        if isinstance(data, bytes):
            self._refuse(frames.Error(code="binary_frame", message="frames are text"), Close.BINARY_FRAME)
            return None
        try:
            most = self._services.config.max_frame_bytes
            return await read_input(len(data), partial(decode_client, data, most, first=first))
        except ProtocolError as error:
            close = Close.FRAME_TOO_LARGE if error.close else Close.HELLO_FIRST if first else None
            self._refuse(error_frame(error), close)
            return None

    def _approve(self, frame: frames.Approve, talk: "_Conversation") -> None:
        """Answer a question; only a watcher of its chat, who was shown it, may."""
        approvals = self._services.approvals
        asked = approvals.find(talk.delivery.user, frame.id)
        outcome = None
        if asked is not None and talk.delivery.watches(asked.chat):
            outcome = approvals.answer(asked, allow=frame.allow)
        if asked is None or outcome is None:
            text = "there is no such question in a chat that you watch, or it was answered, or its time is over"
            self._link.put(with_marks(frames.Error(code="unknown_approval", message=text), frame))
        else:
            self._link.put(
                frames.ApprovalEndedFrame(chat=name_of(asked.chat), id=asked.id, outcome=outcome, ref=frame.ref)
            )

    def _ask_for_watch(self, frame: frames.Watch, talk: "_Conversation") -> None:
        if not talk.delivery.ask_to_watch(frame):
            talk.requests.refuse(frame)

    async def _carry_out_watches(self, delivery: Delivery) -> None:
        while True:
            frame = await delivery.next_watch()
            try:
                with answer_within(ANSWER_S, "the chat"):
                    await delivery.watch(frame)
            except ProtocolError as error:
                self._link.put(error_frame(error, frame))
            except KlawError as error:
                # Without its place in the chat this connection could skip messages: the client has to resume.
                self._refuse(error_frame(error, frame), Close.FAILED)

    async def _catch_up(self, delivery: Delivery) -> None:
        try:
            await delivery.run()
        except KlawError as error:
            log.error("catch_up_failed", error=error_class(error), where=where(error))
            self._refuse(error_frame(error), Close.FAILED)

    def _still_allowed(self) -> bool:
        """Whether the token still holds; otherwise the connection is being closed."""
        if self._grant is not None and self._services.auth.holds(self._grant):
            return True
        text = LOCAL_REFUSED if self._grant is not None and self._grant.token is None else "the token was revoked"
        self._refuse(frames.Error(code="unauthorized", message=text), Close.UNAUTHORIZED)
        return False

    def _refuse(self, frame: frames.Error | frames.Notice, close: Close | None) -> None:
        self._link.put(frame)
        if close is not None:
            self._link.end(close)


@attrs.define
class _Conversation:
    allowance: UserAllowance
    delivery: Delivery
    sending: Sending
    requests: Requests
