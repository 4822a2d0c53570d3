"""The watched chats of a client: every message goes to the consumer once and in order, whatever the wire does.

The connection's reader fills the ``Inbox``, the bounded queue to the consumer, and must never wait: it would miss the
acknowledgement that the consumer waits for. So without room stored messages are left on the server and fetched later,
pieces of an answer are dropped first, and other events last.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import structlog
import trio

from klaw.client.events import Event
from klaw.convert import FRAMES
from klaw.domain.names import chat_name
from klaw.errors import BadValue, ProtocolError
from klaw.wire.frames import CallFrame, CaughtUp, Delta, MessageFrame, MessagePage, Notice, ResultFrame

MAX_EARLY = 256
"""Entries kept while one before them is missing (or the consumer is slow); more are fetched again later."""


class ChatCursor:
    """The place in one chat. Pure.

    Args:
        last: the seq of the last message that was delivered; None: the first one that comes decides.
    """

    def __init__(self, last: int | None) -> None:
        self.last = last
        self._asked: int | None = None
        self._head = last or 0
        self._early: dict[int, MessageFrame] = {}

    @property
    def resuming(self) -> bool:
        """The server is sending what was missed: gaps close by themselves."""
        return self._asked is not None

    def resume(self) -> None:
        """The server was asked for everything after ``last``."""
        self._asked = self.last

    def live(self) -> None:
        """The server has sent what was missed, or will not."""
        self._asked = None

    def caught_up(self, seq: int) -> bool:
        """The server has sent all there is, up to ``seq``.

        Returns whether that is less than the client saw before, because its data was replaced by an older copy. Then
        counting begins again there; otherwise the client would stay deaf for a long time.
        """
        behind = self._asked is not None and seq < self._asked
        self._asked = None
        if behind:
            self.last, self._head = seq, seq
            self._early.clear()
        else:
            self.reach(seq)
        return behind

    def place(self, entry: MessageFrame) -> None:
        """Note an entry that arrived, unless it was delivered already."""
        self.reach(entry.seq, start=entry.seq - 1)
        if self.last is None or entry.seq <= self.last:
            return
        known = self._early.get(entry.seq)
        if known is None:
            if len(self._early) < MAX_EARLY or entry.seq == self.last + 1:
                self._early[entry.seq] = entry
        elif known.created_at == "":
            # An acknowledgement knows less than the message itself.
            self._early[entry.seq] = entry

    def reach(self, seq: int, *, start: int | None = None) -> None:
        """Note that the chat has messages up to ``seq``.

        Args:
            start: where to begin if nothing is known yet, by default at ``seq`` itself.
        """
        if self.last is None:
            self.last = seq if start is None else start
        self._head = max(self._head, seq)

    def place_page(self, entries: Sequence[MessageFrame]) -> None:
        """Note what the server gave when asked for everything after ``last``: what is not in it does not exist."""
        if not entries:
            self._head = max(self._early, default=self.last or 0)
            self.last = min(self._early, default=self._head + 1) - 1
            return
        if self.last is not None:
            self.last = max(self.last, entries[0].seq - 1)
        for entry in entries:
            self.place(entry)

    def take(self) -> MessageFrame | None:
        """The next entry in order, now counted as delivered; None if it has not arrived."""
        if self.last is None:
            return None
        entry = self._early.pop(self.last + 1, None)
        if entry is not None:
            self.last = entry.seq
        return entry

    @property
    def has_gap(self) -> bool:
        """Whether the next entry exists but has to be asked for."""
        return self.last is not None and self._head > self.last and self.last + 1 not in self._early


CAPACITY = 256


class Inbox:
    def __init__(self) -> None:
        self._events, self._out = trio.open_memory_channel[Event](CAPACITY)
        self._end: Exception | None = None

    @property
    def takes_entries(self) -> bool:
        return self._waiting < CAPACITY * 3 // 4

    @property
    def is_half_empty(self) -> bool:
        return self._waiting <= CAPACITY // 2

    def offer(self, event: Event) -> None:
        """Queue an event, or drop it if its kind has no room. Entries need ``takes_entries`` before."""
        if self._end is None and self._waiting < (CAPACITY // 2 if isinstance(event, Delta) else CAPACITY):
            self._events.send_nowait(event)

    def end(self, error: Exception) -> None:
        """``get`` raises the first ``error`` after what is queued."""
        self._end = self._end or error
        self._events.close()

    async def get(self) -> Event:
        """The next event. Raises what ``end`` was given."""
        try:
            return await self._out.receive()
        except trio.EndOfChannel:
            assert self._end is not None
            raise self._end from None

    @property
    def _waiting(self) -> int:
        return self._events.statistics().current_buffer_used


PAGE = 20
"""Messages asked for at a time: even the longest fit one frame."""
MESSAGES = "chats_messages"

log = structlog.get_logger("klaw.client")


def messages_of(result: dict[str, Any]) -> MessagePage:
    """Raises ProtocolError: it is no page of messages."""
    try:
        return FRAMES.read(result, MessagePage)
    except BadValue as error:
        raise ProtocolError("bad_frame", str(error)) from None


class Streams:
    """The cursors of all watched chats, and what they are waiting for.

    Args:
        positions: chats to watch, with the seq that was seen last.
        inbox: where entries go; shared with other events.
        ask: sends a request for missing messages; called only while there is a connection.
    """

    def __init__(self, positions: Mapping[str, int], inbox: Inbox, ask: Callable[[CallFrame], None]) -> None:
        self._cursors = {chat_name(chat): ChatCursor(seq) for chat, seq in positions.items()}
        self._inbox = inbox
        self._ask = ask
        self._up = False
        self._fills: dict[str, str] = {}
        """Chats of requests for missing messages, by ref."""
        self._fill_count = 0
        self._waiting: set[str] = set()
        """Chats with messages that the inbox has no room for."""

    def positions(self) -> dict[str, int]:
        """What the server is to resume after."""
        return {chat: cursor.last for chat, cursor in self._cursors.items() if cursor.last is not None}

    def __contains__(self, chat: str) -> bool:
        return chat in self._cursors

    def begin(self, chat: str, after: int) -> None:
        """The server is going to be asked for a chat from after a seq."""
        cursor = self._cursors[chat] = ChatCursor(after)
        cursor.resume()

    def forget(self, chat: str) -> None:
        self._cursors.pop(chat, None)

    def connected(self) -> None:
        self._up = True
        for cursor in self._cursors.values():
            cursor.resume()

    def lost(self) -> None:
        """What was asked will not be answered."""
        self._up = False
        self._fills.clear()
        for cursor in self._cursors.values():
            cursor.live()

    def place(self, entry: MessageFrame) -> None:
        self._cursor(entry.chat).place(entry)
        self._advance(entry.chat)

    def reach(self, chat: str, seq: int) -> None:
        """A chat has a message that came without its text."""
        self._cursor(chat).reach(seq, start=seq - 1)
        self._advance(chat)

    def message(self, message: MessageFrame) -> None:
        if not message.replayed:
            self._cursor(message.chat).live()
        self.place(message)

    def caught_up(self, frame: CaughtUp) -> None:
        if self._cursor(frame.chat).caught_up(frame.seq):
            log.warning("server_is_behind", seq=frame.seq)
            self._inbox.offer(Notice(code="server_behind", text="the server has lost messages that were seen here"))
        self._advance(frame.chat)
        self._inbox.offer(frame)

    def page(self, answer: ResultFrame) -> bool:
        """Take a page of missing messages; returns whether it was asked for here."""
        chat = self._fills.pop(answer.ref or "", None)
        if chat is None:
            return False
        page = messages_of(answer.result)
        self._cursor(chat).place_page([MessageFrame.on_page(chat, message) for message in page.messages])
        self._advance(chat)
        return True

    def refused(self, ref: str | None, chat: str | None) -> bool:
        """A request failed, or the server has trouble with a chat; returns whether it was asked here. It is asked again
        with the next message of the chat."""
        if self._fills.pop(ref or "", None) is not None:
            return True
        if chat in self._cursors:
            self._cursors[chat].live()
        return False

    def relieve(self) -> None:
        """The consumer took an event: if there is room now, go on with what waited for it."""
        if self._waiting and self._inbox.is_half_empty:
            waiting, self._waiting = self._waiting, set()
            for chat in waiting:
                self._advance(chat)

    def _cursor(self, chat: str) -> ChatCursor:
        return self._cursors.setdefault(chat, ChatCursor(None))

    def _advance(self, chat: str) -> None:
        """Give out what is next in order, and ask for what is missing."""
        cursor = self._cursor(chat)
        while self._inbox.takes_entries:
            entry = cursor.take()
            if entry is None:
                break
            self._inbox.offer(entry)
        else:
            self._waiting.add(chat)
            return
        if self._up and cursor.has_gap and not cursor.resuming and chat not in self._fills.values():
            self._fill_count += 1
            ref = f"f{self._fill_count}"
            self._fills[ref] = chat
            args = {"chat": chat, "after": cursor.last, "limit": PAGE}
            self._ask(CallFrame(operation=MESSAGES, args=args, ref=ref))
