"""A small server that speaks the protocol from memory, and can be told to break connections at any frame."""

import itertools
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import trio
from trio_websocket import ConnectionClosed, WebSocketConnection, wrap_server_stream

from klaw.wire.codec import decode_client, encode, tree_of
from klaw.wire.frames import (
    Ack,
    Approve,
    CallFrame,
    CaughtUp,
    DegradedPart,
    Error,
    Hello,
    MessageFrame,
    MessagePage,
    ResultFrame,
    Send,
    ServerFrame,
    ServerLimits,
    Status,
    Stop,
    StoppedFrame,
    StoredMessage,
    Watch,
    Welcome,
)
from tests.support.server import free_port

MAX_FRAME_BYTES = 65_536


class Link:
    """One connection, seen from the server."""

    def __init__(self, server: "FakeServer", websocket: WebSocketConnection, stream: trio.SocketStream) -> None:
        self.server = server
        self.websocket = websocket
        self.stream = stream
        self.watched: set[str] = set()
        self.told: set[str] = set()
        """Watched chats whose state at the beginning was sent: what comes now comes after it."""
        self.frames_left = server.frame_budget()
        self.received: list[object] = []

    async def give(self, frame: ServerFrame) -> None:
        """Send a frame, unless the connection's budget is used up: then cut it."""
        if self.frames_left <= 0:
            await self.cut()
            raise ConnectionClosed(None)
        self.frames_left -= 1
        await self.websocket.send_message(encode(frame))

    async def cut(self) -> None:
        """Break the connection without a word."""
        await trio.aclose_forcefully(self.stream)


class FakeServer:
    """Chats in memory. Tests change its attributes to make it behave."""

    def __init__(self) -> None:
        self.chats: dict[str, list[MessageFrame]] = defaultdict(list)
        self.links: list[Link] = []
        self.hellos: list[Hello] = []
        self.sends: list[Send] = []
        self.stops = 0
        self.approvals: list[Approve] = []
        self.degraded: list[DegradedPart] = []
        self.frame_budget: Callable[[], int] = lambda: 1_000_000
        self.max_frame_bytes = MAX_FRAME_BYTES
        self.on_hello: Callable[[Link, Hello], Awaitable[bool]] | None = None
        """Answers a hello itself if it returns true."""
        self.on_send: Callable[[Link, Send], Awaitable[bool]] | None = None
        """Deals with a send itself if it returns true."""
        self.after_send: Callable[[Link, Send, int], Awaitable[None]] | None = None
        self.hide: set[int] = set()
        """Seqs that are not sent live, as if a frame had been lost."""
        self.state = "idle"
        self.port = free_port()
        """The same when it serves again; nothing else takes it meanwhile."""
        self._ids = itertools.count(1)

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/ws"

    # -- what tests do ---------------------------------------------------------------------------------------------

    def store(self, chat: str, role: str, content: str, kind: str = "text", **more: str) -> MessageFrame:
        message = MessageFrame(
            chat=chat,
            seq=len(self.chats[chat]) + 1,
            id=more.get("id", f"m{next(self._ids)}"),
            role=role,
            kind=kind,
            content=content,
            created_at="2026-11-21T12:00:00.000Z",
            turn=more.get("turn"),
        )
        self.chats[chat].append(message)
        return message

    async def say(self, chat: str, role: str, content: str, kind: str = "text", **more: str) -> MessageFrame:
        """Store a message and send it to all who watch."""
        message = self.store(chat, role, content, kind, **more)
        if message.seq not in self.hide:
            await self.tell(message, chat)
        return message

    async def tell(self, frame: ServerFrame, chat: str) -> None:
        for link in list(self.links):
            if chat in link.watched:
                try:
                    await link.give(frame)
                except ConnectionClosed:
                    continue

    async def cut_all(self) -> None:
        for link in list(self.links):
            await link.cut()

    # -- serving ---------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["FakeServer"]:
        async with trio.open_nursery() as nursery:
            listeners = await trio.open_tcp_listeners(self.port, host="127.0.0.1")
            nursery.start_soon(trio.serve_listeners, self._connection, listeners)
            try:
                yield self
            finally:
                nursery.cancel_scope.cancel()
                for listener in listeners:
                    listener.socket.close()  # no await here: it would replace the test's own error by Cancelled
        self.links.clear()

    async def _connection(self, stream: trio.SocketStream) -> None:
        async with stream, trio.open_nursery() as nursery:
            request = await wrap_server_stream(nursery, stream)
            websocket = await request.accept()
            link = Link(self, websocket, stream)
            try:
                await self._talk(link)
            except (ConnectionClosed, trio.BrokenResourceError, trio.ClosedResourceError):
                pass
            finally:
                if link in self.links:
                    self.links.remove(link)
            await link.cut()
            nursery.cancel_scope.cancel()

    async def _talk(self, link: Link) -> None:
        hello = decode_client(await link.websocket.get_message(), MAX_FRAME_BYTES)
        assert isinstance(hello, Hello)
        self.hellos.append(hello)
        if self.on_hello is not None and await self.on_hello(link, hello):
            return
        limits = ServerLimits(max_frame_bytes=self.max_frame_bytes, messages_per_second=100, burst=100, history=200)
        await link.give(
            Welcome(version=2, server="fake 1", user="local", session="s", degraded=self.degraded, limits=limits)
        )
        self.links.append(link)
        for chat, seq in hello.chats.items():
            await self._resume(link, chat, seq)
        while True:
            frame = decode_client(await link.websocket.get_message(), MAX_FRAME_BYTES)
            link.received.append(frame)
            await self._handle(link, frame)

    async def _resume(self, link: Link, chat: str, seq: int, ref: str | None = None) -> None:
        head = len(self.chats[chat])
        if seq > head:
            await link.give(Error(code="seq_ahead", message="the server has fewer messages", chat=chat, ref=ref))
        at = min(seq, head)
        while at < len(self.chats[chat]):
            at += 1
            message = self.chats[chat][at - 1]
            await link.give(
                MessageFrame(
                    **{name: getattr(message, name) for name in _FIELDS}, replayed=True if at <= head else None
                )
            )
        link.watched.add(chat)
        await link.give(CaughtUp(chat=chat, seq=at, ref=ref))
        await link.give(Status(chat=chat, state=self.state))
        link.told.add(chat)

    async def _handle(self, link: Link, frame: object) -> None:
        match frame:
            case Send():
                await self._send(link, frame)
            case CallFrame(operation="chats_messages"):
                await self._page(link, frame)
            case Watch():
                await self._resume(
                    link, frame.chat, len(self.chats[frame.chat]) if frame.seq is None else frame.seq, frame.ref
                )
            case Stop():
                self.stops += 1
                await link.give(StoppedFrame(chat=frame.chat, running=True, ref=frame.ref))
            case Approve():
                self.approvals.append(frame)
            case CallFrame(operation="health"):
                await link.give(ResultFrame(result={"state": self.state}, ref=frame.ref))
            case _:
                raise AssertionError(frame)

    async def _send(self, link: Link, frame: Send) -> None:
        self.sends.append(frame)
        if self.on_send is not None and await self.on_send(link, frame):
            return
        known = next((each for each in self.chats[frame.chat] if each.id == frame.id), None)
        link.watched.add(frame.chat)
        if known is not None:
            await link.give(Ack(id=frame.id, chat=frame.chat, seq=known.seq))
            return
        kind = "command" if frame.text.startswith("/") else "text"
        message = self.store(frame.chat, "user", frame.text, kind, id=frame.id)
        for other in list(self.links):
            if other is not link and frame.chat in other.watched:
                try:
                    await other.give(message)
                except ConnectionClosed:
                    continue
        await link.give(Ack(id=frame.id, chat=frame.chat, seq=message.seq))
        if self.after_send is not None:
            await self.after_send(link, frame, message.seq)

    async def _page(self, link: Link, frame: CallFrame) -> None:
        chat, after, limit = (frame.args.get(name) for name in ("chat", "after", "limit"))
        stored = self.chats.get(chat or "")
        if not stored:
            await link.give(Error(code="unknown_chat", message="there is no such chat", ref=frame.ref))
            return
        chosen = stored[after:][:limit] if after is not None else stored[-(limit or 50) :]
        messages = [
            StoredMessage(**{name: getattr(each, name) for name in _FIELDS if name != "chat"}) for each in chosen
        ]
        page = MessagePage(chat=chat or "", messages=messages, more=False)
        await link.give(ResultFrame(result=tree_of(page), ref=frame.ref))


_FIELDS = ("chat", "seq", "id", "role", "kind", "content", "created_at", "turn")
