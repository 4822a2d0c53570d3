"""The client's handle and the state behind it: what is to be sent, who waits for which answer. No network, no tasks:
``connection`` makes the connections and tells this what came."""

import math
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import trio

from klaw.actor.clock import new_id
from klaw.actor.mailbox import Nudge, Reply
from klaw.client.streams import ConnectedEvent, DisconnectedEvent, Event, Inbox, Streams
from klaw.convert import FRAMES
from klaw.domain.attachment import NamedFile
from klaw.domain.message import MOST_ON_PAGE, MessageKind
from klaw.domain.names import chat_name
from klaw.errors import BadValue, ConnectionLost, ProtocolError, RequestRefused
from klaw.wire import frames
from klaw.wire.codec import encode

MAX_UNACKED = 16
"""Messages without an acknowledgement; further ``send`` calls wait."""
MAX_POSTS = 256
"""Requests that wait to be sent; more are refused."""


class Loss(Exception):
    """Why a connection ended. ``fatal``: another attempt cannot help."""

    def __init__(self, code: str, text: str, *, fatal: bool = False) -> None:
        super().__init__(text)
        self.code, self.text, self.fatal = code, text, fatal


@attrs.define(kw_only=True)
class _UnackedMessage:
    frame: frames.Send
    reply: Reply[int]
    link: int = 0


class Client:
    """The handle that ``connect`` gives; one consumer of events, many senders. From ``hello`` on it is for the link."""

    def __init__(self, positions: Mapping[str, int]) -> None:
        self._inbox = Inbox()
        self._streams = Streams(positions, self._inbox, self._append)
        self._unacked: dict[str, _UnackedMessage] = {}
        self._slots = trio.Semaphore(MAX_UNACKED, max_value=MAX_UNACKED)
        self._posts: deque[frames.ClientFrame] = deque()
        self._answers: dict[str, Reply[frames.ServerFrame]] = {}
        self.work = Nudge()
        self.closing = trio.Event()
        """Set when the owner wants the connection closed."""
        self._up = False
        self._changed = trio.Event()
        """Set, and replaced, when there is a connection or will be none."""
        self._link = 0
        self._refs = 0
        self._failure: Exception | None = None
        self.welcome: frames.Welcome | None = None

    async def send(
        self, chat: str, text: str, message_id: str | None = None, files: Sequence[frames.FileOfMessage] = ()
    ) -> int:
        """Send a message (or a slash command) and wait until it is durable; watches the chat. Returns its seq.

        Args:
            text: not blank, unless there are files.
            message_id: the same id again is the same message; made here if left out.
            files: as ``upload`` gave them.

        Raises:
            InvalidName: of the chat.
            RequestRefused: the server did not take it, or it is too long. Nothing was stored.
            ServerRefused, ServerUnreachable, ClientClosed: the client ended. As after cancellation, it is unknown
                whether the message was stored; repeating it with the same id is safe.
        """
        named = tuple(NamedFile(sha256=each.sha256, name=each.name) for each in files) or None
        frame = frames.Send(id=message_id or new_id(), chat=chat_name(chat), text=text, files=named)
        if (refused := self._too_large(frame)) is not None:
            raise refused
        async with self._slots:
            self._check()
            if frame.id in self._unacked:
                raise RequestRefused("id_conflict", "a message with this id is being sent")
            unacked = self._unacked[frame.id] = _UnackedMessage(frame=frame, reply=Reply())
            self.work.nudge()
            try:
                return await unacked.reply.wait()
            finally:
                self._unacked.pop(frame.id, None)

    async def upload(self, name: str, data: bytes) -> frames.FileOfMessage:
        """Have the server keep a file, for a message of the next day. Raises as ``request``."""
        size, offset = max(self.welcome.limits.max_frame_bytes // 2 if self.welcome else 0, 1), 0
        while True:
            piece = data[offset : offset + size]
            last = offset + len(piece) == len(data)
            try:
                done = await self.request(frames.UploadFrame(name=name, offset=offset, data=piece, last=last))
            except RequestRefused as error:
                if error.code != "rate_limited":
                    raise
                await trio.sleep((error.retry_after_ms or 1_000) / 1000)
                continue
            assert isinstance(done, frames.UploadedFrame)  # the answer to its request
            if done.file is not None:
                return done.file
            offset += len(piece)

    async def call(self, operation: str, **args: object) -> dict[str, Any]:
        """Carry out an operation; returns its result. Raises as ``request``."""
        answer = await self.request(frames.CallFrame(operation=operation, args=args))
        assert isinstance(answer, frames.ResultFrame)  # the answer to its request
        return answer.result

    async def request(self, frame: frames.RequestFrame | frames.Watch | frames.Approve) -> frames.ServerFrame:
        """Send a frame and wait for its answer.

        Raises:
            RequestRefused: the server answered with an error.
            ConnectionLost: there is no connection, or it broke before the answer.
            ServerRefused, ServerUnreachable, ClientClosed: the client ended.
        """
        self._refs += 1
        ref = f"r{self._refs}"
        reply = self._answers[ref] = Reply[frames.ServerFrame]()
        try:
            self.post(attrs.evolve(frame, ref=ref))
            return await reply.wait()
        finally:
            self._answers.pop(ref, None)

    def post(self, frame: frames.ClientFrame) -> None:
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
        try:
            await self.request(frames.Watch(chat=name, seq=after))
        except RequestRefused:
            self._streams.forget(name)
            raise

    async def reconnected(self) -> None:
        """Wait for a connection. Raises ServerRefused, ServerUnreachable, ClientClosed."""
        while not self._up:
            self._check()
            await self._changed.wait()

    async def next_event(self) -> Event:
        """Wait for the next event; cancellation loses none. Raises ServerRefused, ServerUnreachable, ClientClosed: the
        client ended; everything before was given out."""
        event = await self._inbox.get()
        self._streams.relieve()
        return event

    def hello(self, name: str, token: str | None) -> frames.Hello:
        return frames.Hello(version=frames.PROTOCOL_VERSION, client=name, token=token, chats=self._streams.positions())

    def welcomed(self, welcome: frames.Welcome) -> None:
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

    def received(self, frame: frames.ServerFrame) -> None:
        match frame:
            case frames.Ack():
                self._acknowledge(frame)
            case frames.MessageFrame():
                self._streams.place(frame)
            case frames.CaughtUp():
                self._streams.caught_up(frame)
                self._answer(frame.ref, frame)
            case frames.Error():
                self._complain(frame)
            case _:
                if not self._answer(getattr(frame, "ref", None), frame):
                    self._inbox.offer(frame)

    def next_frame(self) -> frames.ClientFrame | None:
        """What to send now; None: nothing until ``work`` is nudged."""
        if self._posts:
            return self._posts.popleft()
        for unacked in self._unacked.values():
            if unacked.link != self._link:
                unacked.link = self._link
                return unacked.frame
        return None

    def lost(self, loss: Loss) -> bool:
        """The connection is gone: forget what was asked of it, but not the messages. Returns whether it was up."""
        was_up, self._up = self._up, False
        self._posts.clear()
        self._streams.lost()
        for reply in self._answers.values():
            reply.fail(ConnectionLost(loss.text))
        if was_up:
            self._inbox.offer(DisconnectedEvent(code=loss.code))
        return was_up

    def end(self, error: Exception) -> None:
        """Nothing more will come: everybody who waits gets the first ``error``."""
        self._failure = self._failure or error
        self._inbox.end(self._failure)
        for reply in self._answers.values():
            reply.fail(self._failure)
        for unacked in self._unacked.values():
            unacked.reply.fail(self._failure)
        self._tell_change()

    def _too_large(self, frame: frames.Send) -> RequestRefused | None:
        size, limit = len(encode(frame).encode()), self.welcome.limits.max_frame_bytes if self.welcome else math.inf
        text = f"a message is too long: at most {limit} bytes; this one has {size}"
        return RequestRefused("frame_too_large", text) if size > limit else None

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _tell_change(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    def _append(self, frame: frames.ClientFrame) -> None:
        self._posts.append(frame)
        self.work.nudge()

    def _answer(self, ref: str | None, frame: frames.ServerFrame) -> bool:
        reply = self._answers.get(ref or "")
        return reply is not None and reply.set(frame)

    def _acknowledge(self, ack: frames.Ack) -> None:
        unacked = self._unacked.get(ack.id)
        if unacked is None:  # its sender gave up waiting: what it says is fetched
            self._streams.reach(ack.chat, ack.seq)
            return
        text = unacked.frame.text
        self._streams.place(
            frames.MessageFrame(chat=ack.chat, seq=ack.seq, id=ack.id, role="user", kind="text", content=text)
        )
        unacked.reply.set(ack.seq)

    def _complain(self, error: frames.Error) -> None:
        refused = RequestRefused(
            error.code, error.message, retryable=error.retryable, retry_after_ms=error.retry_after_ms
        )
        if error.id is not None and error.id in self._unacked:
            self._unacked[error.id].reply.fail(refused)
        elif error.ref is not None and error.ref in self._answers:
            self._answers[error.ref].fail(refused)
        elif error.code != "seq_ahead" and not self._streams.refused(error.ref, error.chat):  # caught_up says it, too
            self._inbox.offer(error)


ATTEMPTS = 5
_AMPLE = 3
"""Messages fetched for each one wanted, since some are not shown."""


async def open_chat(client: Client, chat: str, limit: int) -> list[frames.MessageFrame]:
    """Watch a chat from its end, and return its last messages, oldest first; none for a new chat. Commands and their
    answers are left out: they were of that moment.

    Raises:
        RequestRefused: the server will not show the chat.
        ServerRefused, ServerUnreachable, ConnectionLost: there is no connection (any more).
    """
    for attempt in range(ATTEMPTS):
        try:
            page = await _last(client, chat, min(max(limit, 1) * _AMPLE, MOST_ON_PAGE))
            await client.watch(chat, page[-1].seq if page else 0)
        except ConnectionLost:
            if attempt == ATTEMPTS - 1:
                raise
            await client.reconnected()
        else:
            return [entry for entry in page if entry.kind != MessageKind.COMMAND][-limit:] if limit > 0 else []
    raise AssertionError


def messages_of(result: dict[str, Any]) -> frames.MessagePage:
    try:
        return FRAMES.read(result, frames.MessagePage)
    except BadValue as error:
        raise ProtocolError("bad_frame", str(error)) from None


async def _last(client: Client, chat: str, limit: int) -> list[frames.MessageFrame]:
    try:
        page = messages_of(await client.call("chats_messages", chat=chat, limit=limit))
    except RequestRefused as exc:
        if exc.code == "unknown_chat":
            return []
        raise
    return [frames.MessageFrame.on_page(chat, message) for message in page.messages]
