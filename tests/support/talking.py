"""A person at a client, for tests: sends, sees, and waits for what must come, with a deadline."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar
from urllib.parse import urlsplit

import attrs
import trio
from trio_websocket import ConnectionClosed, HandshakeError, WebSocketConnection, wrap_client_stream

from klaw.actor.backoff import Backoff
from klaw.client.client import Client, messages_of
from klaw.client.connection import connect
from klaw.client.streams import ConnectedEvent, Event
from klaw.errors import ConnectionLost, RequestRefused
from klaw.wire.frames import Error, MessageFrame, Notice, StoredMessage
from tests.support.waiting import HANG_S

T = TypeVar("T")
BACKOFF = Backoff(0.02, 0.2)


@attrs.frozen(kw_only=True)
class Receipt:
    """What the operation ``receipt`` answers."""

    turn: str
    chat: str
    user: str
    status: str
    model: str
    segment: int
    first_seq: int
    last_seq: int
    started_at: str
    ended_at: str
    receipt: dict[str, Any]
    usage: dict[str, Any]
    timings: dict[str, Any]
    error: str | None = None

    @classmethod
    def of(cls, answer: dict[str, Any]) -> "Receipt":
        return cls(turn=answer.pop("id"), **answer)


class Talk:
    """A connected client and all that it has seen."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.events: list[Event] = []
        self._news = trio.Event()

    @property
    def entries(self) -> list[MessageFrame]:
        return [event for event in self.events if isinstance(event, MessageFrame)]

    @property
    def errors(self) -> list[Error]:
        return [event for event in self.events if isinstance(event, Error)]

    @property
    def degraded(self) -> dict[str, str]:
        """What the server has said is degraded: at the welcome, and in notices since."""
        problems: dict[str, str] = {}
        for event in self.events:
            if isinstance(event, ConnectedEvent):
                problems = {each.code: each.text for each in event.welcome.degraded}
            elif isinstance(event, Notice) and (event.details or {}).get("state") == "degraded":
                problems[event.code] = event.text
            elif isinstance(event, Notice):
                problems.pop(event.code, None)
        return problems

    async def look(self) -> None:
        while True:
            self.events.append(await self.client.next_event())
            self._news.set()
            self._news = trio.Event()

    async def until(self, found: Callable[[], T | None]) -> T:
        """Wait until ``found`` says something true; it is asked after every event."""
        with trio.fail_after(HANG_S):
            while not (value := found()):
                await self._news.wait()
        return value

    async def send(self, text: str, chat: str = "main", message_id: str | None = None) -> int:
        with trio.fail_after(HANG_S):
            return await self.client.send(chat, text, message_id)

    async def ask(self, text: str, chat: str = "main") -> Receipt:
        """Send a message and wait until a turn has dealt with it: the receipt of that turn."""
        return await self.settled(await self.send(text, chat), chat)

    async def settled(self, seq: int, chat: str = "main") -> Receipt:
        """Wait until a turn has dealt with the message (answered or stopped): the receipt of the chat's last turn."""
        with trio.fail_after(HANG_S):
            while True:
                news = self._news
                try:
                    await self.client.watch(chat, 0)  # no effect on a watched chat
                    receipt = Receipt.of(await self.client.call("receipt", chat=chat))
                except ConnectionLost:
                    await self.client.reconnected()
                    continue
                except RequestRefused:
                    receipt = None  # no turn of the chat has ended yet
                if isinstance(receipt, Receipt) and receipt.status != "failed" and receipt.last_seq >= seq:
                    return receipt
                await news.wait()

    async def history(self, chat: str = "main") -> list[StoredMessage]:
        """All messages of a chat."""
        found: list[StoredMessage] = []
        with trio.fail_after(HANG_S):
            while True:
                after = found[-1].seq if found else 0
                page = messages_of(await self.client.call("chats_messages", chat=chat, after=after, limit=200))
                found += page.messages
                if not page.more:
                    return found

    async def answer_to(self, receipt: Receipt) -> str:
        """The answer that a turn stored, as this client sees it."""
        return await self.until(
            lambda: next((each.content for each in self.entries if each.turn == receipt.turn and each.is_answer), None)
        )


@asynccontextmanager
async def talking(url: str, chats: Mapping[str, int] | None = None, *, token: str | None = None) -> AsyncIterator[Talk]:
    """A client for the body; it watches what it sends to, and ``chats`` from after their seqs."""
    async with (
        connect(url, chats=chats, token=token, first_s=HANG_S, backoff=BACKOFF) as client,
        trio.open_nursery() as nursery,
    ):
        talk = Talk(client)
        nursery.start_soon(talk.look)
        yield talk
        nursery.cancel_scope.cancel(reason="the test is over")


@asynccontextmanager
async def bare_socket(
    url: str, headers: Sequence[tuple[str, bytes]] = (), *, handshake_s: float = 30.0
) -> AsyncIterator[WebSocketConnection]:
    """A WebSocket without Klaw's client; the body ends quietly when the server closes it or is gone.

    Raises:
        OSError: there is no connection.
    """
    parts = urlsplit(url)
    assert parts.hostname is not None
    stream = await trio.open_tcp_stream(parts.hostname, parts.port or 80)
    socket = None
    async with stream, trio.open_nursery() as nursery:
        # A peer that goes away in the middle of the handshake is not always noticed by the library.
        with trio.move_on_after(handshake_s), suppress(HandshakeError):
            socket = await wrap_client_stream(nursery, stream, parts.netloc, parts.path, extra_headers=list(headers))
        if socket is not None:
            with suppress(ConnectionClosed):
                yield socket
        nursery.cancel_scope.cancel(reason="enough was said")
    if socket is None:
        raise ConnectionError("no handshake")
