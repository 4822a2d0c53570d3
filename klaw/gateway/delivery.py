"""What one connection watches: a cursor for each chat, live delivery, and the catch-up from the database.

Exactly once and in order: a message goes out only if its ``seq`` is the cursor's next one. Any other, or one that finds
the outbox rather full, only marks the chat as behind. The catch-up then reads pages from the database, with the
outbox's back-pressure, until it has the newest; nothing is awaited between its end and live delivery, so there is no
gap.
"""

from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from typing import Any

import attrs
import structlog
import trio

from klaw.chats.directory import at_rest
from klaw.domain.branch import REPLACED
from klaw.domain.events import ApprovalAsked, ChatEvent, HealthChanged, TextStreamed, ThoughtStreamed, TurnEnded
from klaw.domain.names import ChatId, UserId, chat_id, name_of
from klaw.errors import ProtocolError
from klaw.gateway.answers import StoredOnce, approval_text, chat_status, event_texts, message_text
from klaw.gateway.outbox import Outbox
from klaw.gateway.rendering import AnswerRenderer
from klaw.gateway.services import Services
from klaw.store.kinds.messages import AppendedMessage
from klaw.wire.codec import encode
from klaw.wire.frames import Ack, CaughtUp, Error, Notice, ThinkingFrame, Watch

MAX_WATCHED = 1000
PAGE = 64
"""Messages that the catch-up reads at a time."""
LIVE_SHARE = 0.75
"""A live message goes straight out while less than this share of the outbox is taken; the rest is for answers."""
CATCH_UP_SHARE = 0.5
"""The catch-up waits until less than this share is taken."""
MAX_HELD = 32
"""Events of a chat that wait for its catch-up; the oldest go first, since each status replaces the one before."""

log = structlog.get_logger("klaw.gateway")


@attrs.define
class _Cursor:
    chat: ChatId
    next_seq: int | None = None
    """The next one to send; None until the chat's head is known."""
    head: int = 0
    behind: bool = False
    replay_until: int = 0
    """Messages up to this ``seq`` are marked as replayed."""
    announce: bool = False
    """Send ``caught_up`` when the catch-up ends."""
    branched: int | None = None
    unanswered: dict[str, Any] | None = None
    """What ``ChatDirectory.unanswered`` said, for the status after ``caught_up``."""
    ref: str | None = None
    missed_text: bool = False
    """Streamed text was left out while the chat was behind."""
    held: list[str] = attrs.Factory(list)


@attrs.define
class _PendingAck:
    """A message of this connection that has no ack yet."""

    count: int = 0
    seq: int | None = None
    """Set once it is stored and waits for the stream to acknowledge it in its place."""


class Delivery:
    """The streams of one connection; a ``hub.Subscriber``.

    Args:
        allowed: whether the connection may still be told; if not, it is being closed.
    """

    def __init__(self, user: UserId, services: Services, outbox: Outbox, allowed: Callable[[], bool]) -> None:
        self.user = user
        self._chats, self._hub, self._approvals = services.chats, services.hub, services.approvals
        self._outbox = outbox
        self._allowed = allowed
        self._cursors: dict[ChatId, _Cursor] = {}
        self._behind: OrderedDict[ChatId, _Cursor] = OrderedDict()
        self._expected: dict[tuple[ChatId, str], _PendingAck] = {}
        self._watches: deque[Watch] = deque()
        self._announced: Counter[ChatId] = Counter()
        """How many watches of a chat were asked for and not carried out yet."""
        self._watch_asked = trio.lowlevel.ParkingLot()
        self._wake = trio.lowlevel.ParkingLot()
        self._carried_out = trio.lowlevel.ParkingLot()
        self._watching = trio.Lock()
        self.renderer: AnswerRenderer | None = None
        """Sends answers as HTML, too."""

    @property
    def watched(self) -> int:
        return len(self._cursors)

    def watches(self, chat: ChatId) -> bool:
        return chat in self._cursors

    # -- watching --------------------------------------------------------------------------------------------------

    def ask_to_watch(self, frame: Watch) -> bool:
        """Queue a watch; False: too many wait. What is sent to the chat waits for it: otherwise its ack could overtake
        the messages that the watch is to bring first."""
        if len(self._watches) >= MAX_WATCHED:
            return False
        self._announced[chat_id(self.user, frame.chat)] += 1
        self._watches.append(frame)
        self._watch_asked.unpark()
        return True

    async def next_watch(self) -> Watch:
        while not self._watches:
            await self._watch_asked.park()
        return self._watches.popleft()

    async def watch(self, frame: Watch) -> None:
        """Watch a chat from after a ``seq`` (None: from now on); ``caught_up`` follows when all is sent.

        Raises:
            ProtocolError: ``too_many_watched``.
            KlawError: the chat could not be read.
        """
        chat = chat_id(self.user, frame.chat)
        try:
            await self._watch(chat, frame)
        finally:
            self._announced[chat] -= 1
            if not self._announced[chat]:
                del self._announced[chat]
                self._carried_out.unpark_all()

    async def _watch(self, chat: ChatId, frame: Watch) -> None:
        async with self._watching:
            cursor = await self._locate(chat)
            head, unanswered = cursor.head, await self._chats.unanswered(chat)
            cursor.unanswered = unanswered if cursor.head == head else None  # else an answer may have come meanwhile
            if frame.seq is not None:
                if frame.seq > cursor.head:
                    text = "the server has fewer messages of this chat than that; load its history again"
                    self._outbox.put(encode(Error(code="seq_ahead", message=text, chat=frame.chat, ref=frame.ref)))
                self._move(cursor, min(frame.seq, cursor.head) + 1)
            elif cursor.next_seq is None:
                self._move(cursor, cursor.head + 1)
            cursor.replay_until = cursor.head
            cursor.announce, cursor.ref = True, frame.ref
            cursor.missed_text = True
            if cursor.next_seq is not None and cursor.next_seq > cursor.head:
                self._go_live(cursor)
            else:
                self._fall_behind(cursor)

    def is_ready(self, chat: ChatId) -> bool:
        """Whether a message may be sent to a chat: its place is known, and no watch comes before."""
        cursor = self._cursors.get(chat)
        return cursor is not None and cursor.next_seq is not None and chat not in self._announced

    async def watch_from_now(self, name: str) -> None:
        """Watch a chat that is not watched, without any frame about it. Raises like ``watch``."""
        chat = chat_id(self.user, name)
        while chat in self._announced:
            await self._carried_out.park()
        cursor = self._cursors.get(chat)
        if cursor is not None and cursor.next_seq is not None:
            return
        async with self._watching:
            cursor = await self._locate(chat)
            if cursor.next_seq is None:
                self._move(cursor, cursor.head + 1)
                self._put_approvals(cursor)

    def _move(self, cursor: _Cursor, next_seq: int) -> None:
        """Go on from another place; what the stream owed before it is acknowledged now."""
        cursor.next_seq = next_seq
        for (chat, message_id), expected in list(self._expected.items()):
            if chat == cursor.chat and expected.seq is not None and expected.seq < next_seq:
                self._acknowledge(chat, message_id, expected.seq)

    async def _locate(self, chat: ChatId) -> _Cursor:
        """The chat's cursor: subscribed first, then its head read from the database, so there is no gap between."""
        cursor = self._cursors.get(chat)
        if cursor is None:
            if len(self._cursors) >= MAX_WATCHED:
                raise ProtocolError("too_many_watched", f"one connection watches at most {MAX_WATCHED} chats")
            cursor = self._cursors[chat] = _Cursor(chat)
            self._hub.watch(self, chat)
        session = await self._chats.session(self.user, name_of(chat))
        cursor.head = max(cursor.head, session.last_seq if session else 0)
        cursor.branched = (session.branched or None) if session else None
        return cursor

    # -- acknowledgements ------------------------------------------------------------------------------------------

    def expect(self, chat: ChatId, message_id: str) -> None:
        self._expected.setdefault((chat, message_id), _PendingAck()).count += 1

    def give_up(self, chat: ChatId, message_id: str) -> None:
        expected = self._expected.get((chat, message_id))
        if expected is not None:
            expected.count -= 1
            if expected.count == 0:
                del self._expected[chat, message_id]

    def confirm(self, appended: AppendedMessage) -> None:
        """Acknowledge a stored message, unless the chat's stream has done so or will in its place."""
        message = appended.message
        cursor = self._cursors[message.chat]
        expected = self._expected.get((message.chat, message.id))
        if expected is None:
            return
        assert cursor.next_seq is not None  # sending to a chat watches it first
        if message.seq < cursor.next_seq:
            self._acknowledge(message.chat, message.id, message.seq)
        else:
            expected.seq = message.seq
            cursor.head = max(cursor.head, message.seq)
            self._fall_behind(cursor)

    def _acknowledge(self, chat: ChatId, message_id: str, seq: int) -> bool:
        """Send an ack for each time that the message was sent; False: not by this connection."""
        expected = self._expected.pop((chat, message_id), None)
        if expected is None:
            return False
        name = name_of(chat)
        text = encode(Ack(id=message_id, chat=name, seq=seq))
        for _ in range(expected.count):
            self._outbox.put(text, name, alone=True)
        return True

    # -- events ----------------------------------------------------------------------------------------------------

    def stored(self, stored: StoredOnce) -> None:
        if not self._allowed():
            return
        message = stored.message
        cursor = self._cursors[message.chat]
        cursor.head = max(cursor.head, message.seq)
        cursor.unanswered = None
        if cursor.next_seq is None or cursor.behind or message.seq < cursor.next_seq:
            return
        if message.seq == cursor.next_seq and self._outbox.has_room(LIVE_SHARE):
            cursor.next_seq += 1
            if not self._acknowledge(message.chat, message.id, message.seq):
                self._outbox.put(stored.text, name_of(message.chat))
                if self.renderer is not None:
                    self.renderer.stored(message)
        else:
            self._fall_behind(cursor)

    def happened(self, event: ChatEvent) -> None:
        if not self._allowed():
            return
        cursor, name = self._cursors[event.chat], name_of(event.chat)
        if isinstance(event, TextStreamed):
            if cursor.behind or cursor.next_seq is None:
                cursor.missed_text = True
            else:
                self._put_text(event.chat, event.turn, event.offset, event.text)
        elif isinstance(event, ThoughtStreamed):
            if not cursor.behind and cursor.next_seq is not None and self._outbox.has_room(LIVE_SHARE):
                self._outbox.put_delta(name, event.turn, event.offset, event.text, ThinkingFrame)
        elif isinstance(event, ApprovalAsked) and (cursor.behind or cursor.next_seq is None):
            pass  # sent when the chat goes live, if it is open then
        elif cursor.behind:
            # After the messages, so that an answer is never announced as ended before it is there.
            cursor.held = [*cursor.held, *event_texts(event)][-MAX_HELD:]
        else:
            if self.renderer is not None and isinstance(event, TurnEnded):
                self.renderer.drop(event.chat)
            for text in event_texts(event):
                self._outbox.put(text, name)

    def noticed(self, event: HealthChanged) -> None:
        self._outbox.put(encode(Notice(code=event.code, text=event.text, details=dict(event.details) or None)))

    # -- catch-up --------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Bring chats that are behind up to date, a page each in turn; until cancelled.

        Raises:
            KlawError: the messages could not be read; the client has to resume on a new connection.
        """
        while True:
            while not self._behind:
                await self._wake.park()
            chat, cursor = next(iter(self._behind.items()))
            self._behind.move_to_end(chat)
            await self._outbox.wait_for_room(CATCH_UP_SHARE)
            await self._send_page(cursor)

    async def _send_page(self, cursor: _Cursor) -> None:
        start = cursor.next_seq
        assert start is not None  # only a cursor with a place falls behind
        head = cursor.head
        page = await self._chats.after(cursor.chat, start - 1, PAGE)
        if cursor.next_seq != start or not cursor.behind:
            return  # a new watch has moved it meanwhile
        name = name_of(cursor.chat)
        for message in page:
            if not self._outbox.has_room(LIVE_SHARE):
                return
            cursor.next_seq = message.seq + 1
            if not self._acknowledge(message.chat, message.id, message.seq) and REPLACED not in message.metadata:
                self._outbox.put(message_text(message, replayed=message.seq <= cursor.replay_until), name)
        if not page and cursor.next_seq <= head:
            # Every message is committed before it is heard of, so what was heard of before the read is no more.
            log.warning("stream_gap", seq=cursor.next_seq, missing=head + 1 - cursor.next_seq)
            cursor.next_seq = head + 1
        if len(page) < PAGE and cursor.next_seq > cursor.head:
            self._go_live(cursor)

    def _fall_behind(self, cursor: _Cursor) -> None:
        cursor.behind = True
        if self.renderer is not None:
            self.renderer.drop(cursor.chat)
        self._behind[cursor.chat] = cursor
        self._wake.unpark()

    def _go_live(self, cursor: _Cursor) -> None:
        """All stored messages are sent: now send what waited for that."""
        cursor.behind = False
        self._behind.pop(cursor.chat, None)
        name = name_of(cursor.chat)
        if cursor.announce:
            assert cursor.next_seq is not None  # set by watch
            self._outbox.put(
                encode(CaughtUp(chat=name, seq=cursor.next_seq - 1, ref=cursor.ref, branched=cursor.branched)), name
            )
            status = at_rest(self._chats.chat_status(cursor.chat), cursor.unanswered)
            self._outbox.put(encode(chat_status(name, status)), name)
            cursor.announce, cursor.ref = False, None
        for text in cursor.held:
            self._outbox.put(text, name)
        cursor.held = []
        self._put_approvals(cursor)
        answer = self._hub.running(cursor.chat) if cursor.missed_text else None
        cursor.missed_text = False
        if answer is not None and answer.text:
            self._put_text(cursor.chat, answer.turn, 0, answer.text)

    def _put_text(self, chat: ChatId, turn: str, offset: int, text: str) -> None:
        self._outbox.put_delta(name_of(chat), turn, offset, text)
        if self.renderer is not None:
            self.renderer.grew(chat, turn, offset)

    def _put_approvals(self, cursor: _Cursor) -> None:
        for approval in self._approvals.open(cursor.chat):
            self._outbox.put(approval_text(approval), name_of(cursor.chat))
