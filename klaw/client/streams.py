"""The watched chats of a client: every message goes to the consumer once and in order, whatever the wire does."""

from collections.abc import Callable, Mapping

import structlog

from klaw.client.cursor import Cursor
from klaw.client.events import Entry, entry_of
from klaw.client.inbox import Inbox
from klaw.domain.names import chat_name
from klaw.wire.frames import CaughtUp, ChatMessage, GetHistory, History, Notice

PAGE = 20
"""Messages asked for at once when some are missing: even the longest fit one frame."""

log = structlog.get_logger("klaw.client")


class Streams:
    """The cursors of all watched chats, and what they are still waiting for.

    Args:
        positions: chats to watch, with the seq that was seen last.
        inbox: where entries go; shared with other events.
        ask: sends a request for missing messages; called only while there is a connection.
    """

    def __init__(self, positions: Mapping[str, int], inbox: Inbox, ask: Callable[[GetHistory], None]) -> None:
        self._cursors = {chat_name(chat): Cursor(seq) for chat, seq in positions.items()}
        self._inbox = inbox
        self._ask = ask
        self._up = False
        self._fills: dict[str, str] = {}
        """Requests for missing messages: ref -> chat."""
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
        cursor = self._cursors[chat] = Cursor(after)
        cursor.resume()

    def forget(self, chat: str) -> None:
        self._cursors.pop(chat, None)

    def connected(self) -> None:
        self._up = True
        for cursor in self._cursors.values():
            cursor.resume()

    def lost(self) -> None:
        """What was asked will not be answered any more."""
        self._up = False
        self._fills.clear()
        for cursor in self._cursors.values():
            cursor.live()

    def place(self, entry: Entry) -> None:
        """Take an entry from wherever it came."""
        self._cursor(entry.chat).place(entry)
        self._advance(entry.chat)

    def message(self, message: ChatMessage) -> None:
        if not message.replayed:
            self._cursor(message.chat).live()
        self.place(entry_of(message.chat, message, replayed=bool(message.replayed)))

    def caught_up(self, frame: CaughtUp) -> None:
        if self._cursor(frame.chat).caught_up(frame.seq):
            log.warning("server_is_behind", seq=frame.seq)
            self._inbox.offer(Notice(code="server_behind", text="the server has lost messages that were seen here"))
        self._advance(frame.chat)
        self._inbox.offer(frame)

    def page(self, history: History) -> bool:
        """Take a page of history; returns whether it was asked for here."""
        chat = self._fills.pop(history.ref or "", None)
        if chat is None:
            return False
        self._cursor(chat).place_page([entry_of(chat, message, replayed=True) for message in history.messages])
        self._advance(chat)
        return True

    def refused(self, ref: str | None, chat: str | None) -> bool:
        """A request failed, or the server has trouble with a chat; returns whether it was a request from here. It is
        made again with the next message of the chat."""
        if self._fills.pop(ref or "", None) is not None:
            return True
        if chat in self._cursors:
            self._cursors[chat].live()
        return False

    def relieve(self) -> None:
        """The consumer took an event: if it has made room, go on with what waited for that."""
        if self._waiting and self._inbox.is_half_empty:
            waiting, self._waiting = self._waiting, set()
            for chat in waiting:
                self._advance(chat)

    def _cursor(self, chat: str) -> Cursor:
        return self._cursors.setdefault(chat, Cursor(None))

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
            self._ask(GetHistory(chat=chat, after=cursor.last, limit=PAGE, ref=ref))
