"""The messages that one connection is sending: in order for each chat, side by side for different chats, bounded."""

from collections import deque
from collections.abc import Callable

import trio

from klaw.actor.mailbox import answer_within
from klaw.chats.service import Chats
from klaw.domain.names import UserId, chat_id
from klaw.gateway.delivery import Delivery
from klaw.gateway.frames import Error, Send
from klaw.gateway.refusals import refusal, with_marks

MAX_IN_FLIGHT = 128
MAX_IN_FLIGHT_CHARS = 1_000_000
"""Messages of one connection that wait for their ack, and their characters; more are refused as ``busy``."""
ANSWER_S = 30.0
"""A chat that has not stored a message after this time is given up; the client may send it again."""


class Sending:
    """Hands messages to the chats, one after the other in each chat, so that they are stored in the order sent."""

    def __init__(self, *, user: UserId, chats: Chats, delivery: Delivery, put_error: Callable[[Error], None]) -> None:
        self._user = user
        self._chats = chats
        self._delivery = delivery
        self._put_error = put_error
        self._queues: dict[str, deque[Send]] = {}
        self._count = 0
        self._chars = 0

    @property
    def in_flight(self) -> int:
        return self._count

    def submit(self, frame: Send, nursery: trio.Nursery) -> None:
        """Take a message without waiting; an ack or an error follows."""
        if self._count >= MAX_IN_FLIGHT or self._chars >= MAX_IN_FLIGHT_CHARS:
            text = "too many messages without an ack; send it again a little later"
            self._put_error(Error(code="busy", message=text, retryable=True, id=frame.id, chat=frame.chat))
            return
        self._count += 1
        self._chars += len(frame.text)
        queue = self._queues.get(frame.chat)
        if queue is not None:
            queue.append(frame)
        else:
            self._queues[frame.chat] = deque([frame])
            nursery.start_soon(self._work, frame.chat, name="gateway send")

    async def _work(self, chat: str) -> None:
        """Send what waits for one chat, then end."""
        queue = self._queues[chat]
        while queue:
            frame = queue.popleft()
            await self._send(frame)
            self._count -= 1
            self._chars -= len(frame.text)
        del self._queues[chat]

    async def _send(self, frame: Send) -> None:
        chat = chat_id(self._user, frame.chat)
        try:
            with answer_within(ANSWER_S, "the chat"):
                await self._delivery.watch_from_now(frame.chat)
                self._delivery.expect(chat, frame.id)
                try:
                    appended = await self._chats.send(self._user, frame.chat, frame.id, frame.text)
                except BaseException:
                    self._delivery.give_up(chat, frame.id)
                    raise
                self._delivery.confirm(appended)
        except Exception as error:  # noqa: BLE001  whatever failed, the client is told, and its connection lives
            self._put_error(with_marks(refusal(error), frame))
