"""The client's handle and the state behind it: what is to be sent, who waits for which answer. No network, no tasks:
``connection`` makes the connections and tells this what came."""

import math
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import structlog
import trio

from klaw.actor.clock import NewId
from klaw.actor.mailbox import Nudge, Reply
from klaw.client.events import ConnectedEvent, DisconnectedEvent, Event, Loss
from klaw.client.streams import Inbox, Streams
from klaw.domain.attachment import NamedFile
from klaw.domain.names import chat_name
from klaw.errors import ConnectionLost, RequestRefused
from klaw.wire.codec import encode
from klaw.wire.files import FileOfMessage, UploadedFrame, UploadFrame
from klaw.wire.frames import (
    PROTOCOL_VERSION,
    Ack,
    Approve,
    CallFrame,
    CaughtUp,
    ClientFrame,
    Error,
    Hello,
    MessageFrame,
    RequestFrame,
    ResultFrame,
    Send,
    ServerFrame,
    Watch,
    Welcome,
)

MAX_UNACKED = 16
"""Messages without an acknowledgement; further ``send`` calls wait."""
MAX_POSTS = 256
"""Requests that wait to be sent; more are refused."""

log = structlog.get_logger("klaw.client")


@attrs.define(kw_only=True)
class _UnackedMessage:
    frame: Send
    reply: Reply[int]
    link: int = 0
    """The connection it was last sent on."""


class Client:
    """The handle that ``connect`` gives. One consumer of events, many senders."""

    def __init__(self, positions: Mapping[str, int], ids: NewId) -> None:
        self._positions: dict[str, int] = {chat_name(chat): seq for chat, seq in positions.items()}
        self._ids = ids
        self._inbox = Inbox()
        self._streams = Streams(positions, self._inbox, self._append)
        self._unacked: dict[str, _UnackedMessage] = {}
        self._slots = trio.Semaphore(MAX_UNACKED, max_value=MAX_UNACKED)
        self._posts: deque[ClientFrame] = deque()
        self._answers: dict[str, Reply[ServerFrame]] = {}
        self._work = Nudge()
        self._closing = trio.Event()
        self._up = False
        self._changed = trio.Event()
        """Set, and replaced, when there is a connection or will be none."""
        self._link = 0
        self._refs = 0
        self._failure: Exception | None = None
        self.ready: Reply[Welcome] = Reply()
        self.ended = trio.Event()
        self.welcome: Welcome | None = None
        """What the server last said of itself."""

    # -- for the consumer ------------------------------------------------------------------------------------------

    async def send(
        self, chat: str, text: str, message_id: str | None = None, files: Sequence[FileOfMessage] = ()
    ) -> int:
        """Send a message (or a slash command) and wait until it is durable; watches the chat. Returns its seq.

        Args:
            text: not blank, unless there are files.
            message_id: the same id again is the same message; made here if left out.
            files: as ``upload`` gave them.

        Raises:
            InvalidName: of the chat.
            RequestRefused: the server did not take it, or it is too long. Nothing was stored.
            ServerRefused, ServerUnreachable, ClientClosed: the client ended; whether it was stored is unknown.

        Cancellation: whether it was stored is unknown. The same id makes a repetition safe.
        """
        named = tuple(NamedFile(sha256=each.sha256, name=each.name) for each in files) or None
        frame = Send(id=message_id or self._ids(), chat=chat_name(chat), text=text, files=named)
        if (refused := self._too_large(frame)) is not None:
            raise refused
        async with self._slots:
            self._check()
            if frame.id in self._unacked:
                raise RequestRefused("id_conflict", "a message with this id is being sent")
            unacked = _UnackedMessage(frame=frame, reply=Reply())
            self._unacked[frame.id] = unacked
            self._work.nudge()
            try:
                return await unacked.reply.wait()
            finally:
                self._unacked.pop(frame.id, None)

    async def upload(self, name: str, data: bytes) -> FileOfMessage:
        """Have the server keep a file, for a message of the next day. Raises as ``request``."""
        size = self.welcome.limits.max_frame_bytes // 2 if self.welcome else 0
        size, offset = max(size, 1), 0
        while True:
            piece = data[offset : offset + size]
            last = offset + len(piece) == len(data)
            try:
                done = await self.request(UploadFrame(name=name, offset=offset, data=piece, last=last))
            except RequestRefused as error:
                if error.code != "rate_limited":
                    raise
                await trio.sleep((error.retry_after_ms or 1_000) / 1000)
                continue
            assert isinstance(done, UploadedFrame)  # the answer to its request
            if done.file is not None:
                return done.file
            offset += len(piece)

    async def call(self, operation: str, **args: object) -> dict[str, Any]:
        """Carry out an operation; returns its result. Raises as ``request``."""
        answer = await self.request(CallFrame(operation=operation, args=args))
        assert isinstance(answer, ResultFrame)  # the answer to its request
        return answer.result

    async def request(self, frame: RequestFrame | Watch | Approve) -> ServerFrame:
        """Send a frame and wait for the one with the same ``ref`` that answers it.

        Raises:
            RequestRefused: the server answered with an error.
            ConnectionLost: there is no connection, or it broke before the answer.
            ServerRefused, ServerUnreachable, ClientClosed: the client ended.
        """
        reply: Reply[ServerFrame] = Reply()
        ref = self._new_ref("r")
        self._answers[ref] = reply
        try:
            self.post(attrs.evolve(frame, ref=ref))
            return await reply.wait()
        finally:
            self._answers.pop(ref, None)

    def post(self, frame: ClientFrame) -> None:
        """Send a request whose answer comes as an event. Raises ConnectionLost, also when too many requests wait to be
        sent; ServerRefused, ServerUnreachable, ClientClosed."""
        self._check()
        if not self._up or len(self._posts) >= MAX_POSTS:
            raise ConnectionLost("there is no connection to the server")
        self._append(frame)

    async def watch(self, chat: str, after: int) -> None:
        """See a chat's messages after a seq: now, and again after every reconnect. No effect on a watched chat."""
        name = chat_name(chat)
        if name in self._streams:
            return
        self._streams.begin(name, after)
        self._positions[name] = after
        try:
            await self.request(Watch(chat=name, seq=after))
        except RequestRefused:
            self._streams.forget(name)
            del self._positions[name]
            raise

    async def reconnected(self) -> None:
        """Wait until there is a connection. Raises ServerRefused, ServerUnreachable, ClientClosed."""
        while not self._up:
            self._check()
            await self._changed.wait()

    async def next_event(self) -> Event:
        """The next event; waits for one. Cancellation loses none.

        Raises:
            ServerRefused, ServerUnreachable, ClientClosed: the client ended; everything before was given out.
        """
        event = await self._inbox.get()
        if isinstance(event, MessageFrame):
            self._positions[event.chat] = event.seq
        self._streams.relieve()
        return event

    def positions(self) -> dict[str, int]:
        """The seq of the last message that was given out, by chat: ``connect`` goes on from there."""
        return dict(self._positions)

    # -- for the link ----------------------------------------------------------------------------------------------

    def hello(self, name: str, token: str | None) -> Hello:
        return Hello(version=PROTOCOL_VERSION, client=name, token=token, chats=self._streams.positions())

    def welcomed(self, welcome: Welcome) -> None:
        self._up = True
        self._tell_change()
        self._link += 1
        again, self.welcome = self.welcome is not None, welcome
        for unacked in self._unacked.values():
            if (refused := self._too_large(unacked.frame)) is not None:  # the server would close each connection for it
                unacked.link = self._link
                unacked.reply.fail(refused)
        self._streams.connected()
        self._inbox.offer(ConnectedEvent(welcome=welcome, again=again))
        self.ready.set(welcome)

    def received(self, frame: ServerFrame) -> None:
        match frame:
            case Ack():
                self._acknowledge(frame)
            case MessageFrame():
                self._streams.message(frame)
            case CaughtUp():
                self._streams.caught_up(frame)
                self._answer(frame.ref, frame)
            case ResultFrame() if self._streams.page(frame):
                pass
            case Error():
                self._complain(frame)
            case Welcome():
                log.warning("second_welcome")
            case _:
                if not self._answer(getattr(frame, "ref", None), frame):
                    self._inbox.offer(frame)  # type: ignore[arg-type]  # answers have a ref; the rest are events

    def next_frame(self) -> ClientFrame | None:
        """What to send now; None: nothing until ``wait_for_frame`` returns."""
        if self._posts:
            return self._posts.popleft()
        for unacked in self._unacked.values():
            if unacked.link != self._link:
                unacked.link = self._link
                return unacked.frame
        return None

    async def wait_for_frame(self) -> None:
        await self._work.wait_for_news()

    async def wait_closing(self) -> None:
        """Return when the owner wants the connection closed."""
        await self._closing.wait()

    def lost(self, loss: Loss) -> bool:
        """The connection is gone: forget what was asked of it; keep what is to be sent again. Returns whether it was
        up."""
        was_up, self._up = self._up, False
        self._posts.clear()
        self._streams.lost()
        for reply in self._answers.values():
            reply.fail(ConnectionLost(loss.text))
        if was_up:
            self._inbox.offer(DisconnectedEvent(code=loss.code))
        return was_up

    def close(self) -> None:
        self._closing.set()

    @property
    def is_closing(self) -> bool:
        return self._closing.is_set()

    def end(self, error: Exception) -> None:
        """Nothing more will come: everybody who waits gets the first ``error``."""
        self._failure = self._failure or error
        self.ready.fail(self._failure)
        self._inbox.end(self._failure)
        for reply in self._answers.values():
            reply.fail(self._failure)
        for unacked in self._unacked.values():
            unacked.reply.fail(self._failure)
        self._tell_change()
        self.ended.set()

    # -- bookkeeping -----------------------------------------------------------------------------------------------

    def _too_large(self, frame: Send) -> RequestRefused | None:
        size, limit = len(encode(frame).encode()), self.welcome.limits.max_frame_bytes if self.welcome else math.inf
        text = f"a message is too long: at most {limit} bytes; this one has {size}"
        return RequestRefused("frame_too_large", text) if size > limit else None

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _tell_change(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    def _new_ref(self, kind: str) -> str:
        self._refs += 1
        return f"{kind}{self._refs}"

    def _append(self, frame: ClientFrame) -> None:
        self._posts.append(frame)
        self._work.nudge()

    def _answer(self, ref: str | None, frame: ServerFrame) -> bool:
        reply = self._answers.get(ref or "")
        return reply is not None and reply.set(frame)

    def _acknowledge(self, ack: Ack) -> None:
        unacked = self._unacked.get(ack.id)
        if unacked is None:  # its sender gave up waiting: what it says is fetched
            self._streams.reach(ack.chat, ack.seq)
            return
        text = unacked.frame.text
        self._streams.place(MessageFrame(chat=ack.chat, seq=ack.seq, id=ack.id, role="user", kind="text", content=text))
        unacked.reply.set(ack.seq)

    def _complain(self, error: Error) -> None:
        refused = RequestRefused(
            error.code, error.message, retryable=error.retryable, retry_after_ms=error.retry_after_ms
        )
        if error.id is not None and error.id in self._unacked:
            self._unacked[error.id].reply.fail(refused)
        elif error.ref is not None and error.ref in self._answers:
            self._answers[error.ref].fail(refused)
        elif error.code != "seq_ahead" and not self._streams.refused(error.ref, error.chat):
            # seq_ahead says the same as the caught_up after it.
            self._inbox.offer(error)
