"""The messages that one connection is sending: in order for each chat, side by side for different chats, bounded.

A message costs no task: the chat's answer calls back. Only a chat that is not watched yet, or does not run, is prepared
in a task.
"""

from collections import deque
from collections.abc import Callable
from functools import partial

import attrs
import trio

from klaw.actor.mailbox import Reply, answer_within
from klaw.chats.directory import ChatDirectory
from klaw.domain.names import UserId, chat_id
from klaw.errors import ActorTooSlow
from klaw.gateway.delivery import Delivery
from klaw.gateway.refusals import error_frame
from klaw.store.kinds.messages import AppendedMessage
from klaw.wire.frames import Error, Send

MAX_IN_FLIGHT = 128
MAX_IN_FLIGHT_CHARS = 1_000_000
"""Messages of one connection without an ack, and their characters; more are refused as ``busy``."""
ANSWER_S = 30.0
"""A message that is not stored after this time is given up; the client may send it again."""


@attrs.frozen(eq=False)
class _UnderWay:
    """A message that was handed to its chat; the chat's next one waits for its answer."""

    frame: Send
    until: float


class Sending:
    """Hands messages to the chats, one after the other in each, so that they are stored in the order sent."""

    def __init__(
        self,
        *,
        user: UserId,
        chats: ChatDirectory,
        delivery: Delivery,
        put_error: Callable[[Error], None],
        nursery: trio.Nursery,
    ) -> None:
        self._user = user
        self._chats = chats
        self._delivery = delivery
        self._put_error = put_error
        self._nursery = nursery
        self._queues: dict[str, deque[Send]] = {}
        """By chat: the message that is under way or prepared, and those behind it."""
        self._under_way: dict[str, _UnderWay] = {}
        """By chat, the oldest first."""
        self._chars = 0
        self.in_flight = 0

    def submit(self, frame: Send) -> None:
        """Take a message without waiting; an ack or an error follows."""
        if self.in_flight >= MAX_IN_FLIGHT or self._chars >= MAX_IN_FLIGHT_CHARS:
            text = "too many messages without an ack; send it again a little later"
            self._put_error(Error(code="busy", message=text, retryable=True, id=frame.id, chat=frame.chat))
            return
        self.in_flight += 1
        self._chars += len(frame.text)
        queue = self._queues.setdefault(frame.chat, deque())
        queue.append(frame)
        if len(queue) == 1:
            self._go_on(frame.chat)

    async def run(self) -> None:
        """Give up messages that were not answered in time; until cancelled. After that nothing is handed over."""
        try:
            while True:
                oldest = next(iter(self._under_way.values()), None)
                # What is handed over while this sleeps has as long again.
                await trio.sleep_until(oldest.until if oldest else trio.current_time() + ANSWER_S)
                for sent in [sent for sent in self._under_way.values() if sent.until <= trio.current_time()]:
                    self._over(sent.frame, ActorTooSlow(f"the chat did not answer within {ANSWER_S:g} s"))
                    self._go_on(sent.frame.chat)
        finally:
            self._queues.clear()
            self._under_way.clear()

    def _go_on(self, chat: str) -> None:
        while queue := self._queues.get(chat):
            try:
                ready = self._hand_over(queue[0])
            except Exception as error:  # noqa: BLE001  whatever failed, the client is told, and its connection lives
                self._over(queue[0], error)
                continue
            if not ready:
                self._nursery.start_soon(self._prepare, queue[0], name="gateway send")
            return
        self._queues.pop(chat, None)

    def _hand_over(self, frame: Send) -> bool:
        """Returns whether the chat was ready for it."""
        chat = chat_id(self._user, frame.chat)
        if not (self._delivery.is_ready(chat) and self._chats.runs(chat)):
            return False
        sent = _UnderWay(frame, trio.current_time() + ANSWER_S)
        self._under_way[frame.chat] = sent
        self._delivery.expect(chat, frame.id)
        reply = Reply[AppendedMessage]().then(partial(self._answered, sent))
        self._chats.submit(chat, frame.id, frame.text, reply, frame.files or ())
        return True

    async def _prepare(self, frame: Send) -> None:
        try:
            with answer_within(ANSWER_S, "the chat"):
                await self._delivery.watch_from_now(frame.chat)
                await self._chats.start(self._user, frame.chat)
        except Exception as error:  # noqa: BLE001  as above
            self._over(frame, error)
        self._go_on(frame.chat)

    def _answered(self, sent: _UnderWay, reply: Reply[AppendedMessage]) -> None:
        if self._under_way.get(sent.frame.chat) is not sent:
            return  # given up meanwhile
        try:
            self._delivery.confirm(reply.get())
            self._over(sent.frame)
        except Exception as error:  # noqa: BLE001  as above
            self._over(sent.frame, error)
        self._go_on(sent.frame.chat)

    def _over(self, frame: Send, error: Exception | None = None) -> None:
        """The first message of its chat is done."""
        if error is not None:
            self._delivery.give_up(chat_id(self._user, frame.chat), frame.id)
            self._put_error(error_frame(error, frame))
        self._under_way.pop(frame.chat, None)
        self._queues[frame.chat].popleft()
        self.in_flight -= 1
        self._chars -= len(frame.text)
