"""The watched chats of a client: every message goes to the consumer once and in order, whatever the wire does.

The connection's reader fills the ``Inbox``, the bounded queue to the consumer, and must never wait: it would miss the
acknowledgement that the consumer waits for. So without room stored messages are left on the server and fetched later,
pieces of an answer are dropped first, and other events last.
"""

from collections.abc import Callable, Mapping
from typing import TypeAlias

import attrs
import structlog
import trio

from klaw.domain.names import chat_name
from klaw.wire import frames


@attrs.frozen(kw_only=True)
class ConnectedEvent:
    welcome: frames.Welcome
    again: bool


@attrs.frozen(kw_only=True)
class DisconnectedEvent:
    code: str


Event: TypeAlias = ConnectedEvent | DisconnectedEvent | frames.ServerFrame
"""What a client tells its consumer: events of its own, and frames of the server that answer nothing."""
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
        if self._end is None and self._waiting < (CAPACITY // 2 if isinstance(event, frames.Delta) else CAPACITY):
            self._events.send_nowait(event)

    def end(self, error: Exception) -> None:
        """``get`` raises the first ``error`` after what is queued."""
        self._end = self._end or error
        self._events.close()

    async def get(self) -> Event:
        try:
            return await self._out.receive()
        except trio.EndOfChannel:
            assert self._end is not None
            raise self._end from None

    @property
    def _waiting(self) -> int:
        return self._events.statistics().current_buffer_used


_AGAIN = "again"
"""The ``ref`` of watches that are repeated here."""

log = structlog.get_logger("klaw.client")


@attrs.define
class _ChatPosition:
    last: int | None = None
    """The seq of the last message that was given out; None: the first one that comes decides."""
    asked: int | None = None
    """The server is sending what is after this seq, and ends with ``caught_up``."""
    dropped: bool = False
    """Something of that was not given out: what follows waits for the next time."""
    out_of_turn: int = 0
    """The lowest seq above ``last`` that came out of turn while the server was sending. It may not come again: an
    acknowledgement takes the place of its message."""

    def takes(self, entry: frames.MessageFrame) -> bool:
        """Whether it comes next. What is sent again may lack numbers: the server no longer has these messages."""
        assert self.last is not None
        return entry.seq == self.last + 1 or (bool(entry.replayed) and self.asked is not None)

    def misses_one_before(self, seq: int) -> bool:
        return (self.last or 0) < self.out_of_turn < seq

    def came_out_of_turn(self, seq: int) -> None:
        self.out_of_turn = min(seq, self.out_of_turn) if self.out_of_turn > (self.last or 0) else seq


class Streams:
    """The cursors of all watched chats. When a message is missing, or finds no room, the chat is watched again from the
    last one that was given out.

    Args:
        positions: chats to watch, with the seq that was seen last.
        ask: sends a request; called only while there is a connection.
    """

    def __init__(self, positions: Mapping[str, int], inbox: Inbox, ask: Callable[[frames.Watch], None]) -> None:
        self._cursors = {chat_name(chat): _ChatPosition(seq) for chat, seq in positions.items()}
        self._inbox, self._ask = inbox, ask
        self._up = False
        self._waiting: set[str] = set()
        """Chats to watch again when the inbox has room."""

    def positions(self) -> dict[str, int]:
        return {chat: cursor.last for chat, cursor in self._cursors.items() if cursor.last is not None}

    def __contains__(self, chat: str) -> bool:
        return chat in self._cursors

    def begin(self, chat: str, after: int) -> None:
        """The server is going to be asked for a chat from after a seq."""
        self._cursors[chat] = _ChatPosition(after, asked=after)

    def forget(self, chat: str) -> None:
        self._cursors.pop(chat, None)

    def connected(self) -> None:
        self._up = True
        for cursor in self._cursors.values():
            cursor.asked, cursor.dropped, cursor.out_of_turn = cursor.last, False, 0

    def lost(self) -> None:
        self._up = False
        self._waiting.clear()
        for cursor in self._cursors.values():
            cursor.asked = None

    def place(self, entry: frames.MessageFrame) -> None:
        """Give out a message, unless that was done before."""
        cursor = self._cursor(entry.chat, entry.seq)
        if cursor.last is None or entry.seq <= cursor.last or cursor.dropped:
            return
        if cursor.takes(entry) and self._inbox.takes_entries and not cursor.misses_one_before(entry.seq):
            cursor.last = entry.seq
            self._inbox.offer(entry)
        elif cursor.asked is None:
            self._watch_again(entry.chat)
        elif cursor.takes(entry):
            cursor.dropped = True
        else:
            cursor.came_out_of_turn(entry.seq)

    def reach(self, chat: str, seq: int) -> None:
        """A chat has a message that came without its text."""
        cursor = self._cursor(chat, seq)
        if cursor.last is None or seq <= cursor.last:
            return
        if cursor.asked is None:
            self._watch_again(chat)
        else:
            cursor.came_out_of_turn(seq)

    def caught_up(self, frame: frames.CaughtUp) -> None:
        cursor = self._cursor(frame.chat, frame.seq + 1)
        assert cursor.last is not None
        asked, incomplete = cursor.asked, cursor.dropped or cursor.misses_one_before(frame.seq + 1)
        if asked is None:  # it had trouble meanwhile, so what is missing may be there
            incomplete = frame.seq > cursor.last
        cursor.asked, cursor.dropped, cursor.out_of_turn = None, False, 0
        if asked is not None and frame.seq < asked:
            # Its data was replaced by an older copy: counting begins again there, or the client would stay deaf.
            log.warning("server_is_behind", seq=frame.seq)
            text = "the server has lost messages that were seen here"
            self._inbox.offer(frames.Notice(code="server_behind", text=text))
            cursor.last = frame.seq
        elif incomplete:
            self._watch_again(frame.chat)
        else:
            cursor.last = max(cursor.last, frame.seq)  # the server has no more of it
        self._inbox.offer(frame)

    def refused(self, ref: str | None, chat: str | None) -> bool:
        """A request failed, or the server has trouble with a chat; returns whether it was asked here. It is asked again
        with the next message of the chat."""
        if chat in self._cursors:
            self._cursors[chat].asked = None
        return ref == _AGAIN

    def relieve(self) -> None:
        """The consumer took an event: if there is room now, go on with what waited for it."""
        if self._waiting and self._inbox.is_half_empty:
            waiting, self._waiting = self._waiting, set()
            for chat in waiting:
                self._watch_again(chat)

    def _cursor(self, chat: str, seq: int) -> _ChatPosition:
        cursor = self._cursors.setdefault(chat, _ChatPosition())
        if cursor.last is None:
            cursor.last = seq - 1
        return cursor

    def _watch_again(self, chat: str) -> None:
        cursor = self._cursors[chat]
        if not self._inbox.takes_entries:
            self._waiting.add(chat)
        elif self._up and cursor.asked is None:
            cursor.asked = cursor.last
            self._ask(frames.Watch(chat=chat, seq=cursor.last, ref=_AGAIN))
