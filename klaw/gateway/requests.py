"""What one connection asks: messages, in order for each chat and side by side for different chats; and requests, which
are calls of operations, stops, and uploads in pieces. All are bounded, and answered in bounded time.

A message costs no task: the chat's answer calls back. Only a chat that is not watched yet, or does not run, is prepared
in a task. A request is answered in a task of its own, so that none holds up another, or the connection's frames.
"""

from collections import deque
from functools import partial
from typing import Any

import attrs
import trio

from klaw.actor.mailbox import Reply, answer_within
from klaw.chats.directory import ChatDirectory
from klaw.domain.names import UserId, chat_id
from klaw.errors import ActorTooSlow, ProtocolError
from klaw.gateway.answers import error_frame, with_marks
from klaw.gateway.delivery import Delivery
from klaw.gateway.link import WebSocketLink
from klaw.gateway.services import Services
from klaw.operations.handler import Caller
from klaw.operations.operation import OperationError
from klaw.operations.perform import read_call
from klaw.store.attachments import DISCARD_S, Attachments, FileDraft
from klaw.store.kinds.messages import AppendedMessage
from klaw.wire import frames
from klaw.wire.codec import encode

MAX_IN_FLIGHT = 128
MAX_IN_FLIGHT_CHARS = 1_000_000
"""Messages of one connection without an ack, and their characters; more are refused as ``busy``."""
ANSWER_S = 30.0
"""A message that is not stored after this time is given up; the client may send it again."""


@attrs.frozen(eq=False)
class _UnderWay:
    """A message that was handed to its chat; the chat's next one waits for its answer."""

    frame: frames.Send
    until: float


class Sending:
    """Hands messages to the chats, one after the other in each, so that they are stored in the order sent."""

    def __init__(
        self, user: UserId, chats: ChatDirectory, delivery: Delivery, link: WebSocketLink, nursery: trio.Nursery
    ) -> None:
        self._user = user
        self._chats = chats
        self._delivery = delivery
        self._link = link
        self._nursery = nursery
        self._queues: dict[str, deque[frames.Send]] = {}
        """By chat: the message that is under way or prepared, and those behind it."""
        self._under_way: dict[str, _UnderWay] = {}
        self._chars = 0
        self.in_flight = 0

    def submit(self, frame: frames.Send) -> None:
        """Take a message without waiting; an ack or an error follows."""
        if self.in_flight >= MAX_IN_FLIGHT or self._chars >= MAX_IN_FLIGHT_CHARS:
            text = "too many messages without an ack; send it again a little later"
            self._link.put(frames.Error(code="busy", message=text, retryable=True, id=frame.id, chat=frame.chat))
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

    def _hand_over(self, frame: frames.Send) -> bool:
        """Returns whether the chat was ready for it."""
        chat = chat_id(self._user, frame.chat)
        if not (self._delivery.is_ready(chat) and self._chats.runs(chat)):
            return False
        sent = _UnderWay(frame, trio.current_time() + ANSWER_S)
        self._under_way[frame.chat] = sent
        self._delivery.expect(chat, frame.id)
        reply = Reply[AppendedMessage]().then(partial(self._answered, sent))
        self._chats.submit(
            chat, frame.id, frame.text, reply, frame.files or (), frame.model, transcribed=bool(frame.transcribed)
        )
        return True

    async def _prepare(self, frame: frames.Send) -> None:
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

    def _over(self, frame: frames.Send, error: Exception | None = None) -> None:
        if error is not None:
            self._delivery.give_up(chat_id(self._user, frame.chat), frame.id)
            self._link.put(error_frame(error, frame))
        self._under_way.pop(frame.chat, None)
        self._queues[frame.chat].popleft()
        self.in_flight -= 1
        self._chars -= len(frame.text)


MAX_REQUESTS = 16
"""Requests of a connection that wait for their answers; more are refused as ``busy``."""
AT_ONCE = 4
"""Calls of one connection carried out at a time: bounds the memory of results that nobody reads."""
RESULT_SHARE = 0.5
"""A call, and its result, wait until less than this share of the outbox is taken."""

_TOO_MANY = frames.Error(
    code="busy", message=f"at most {MAX_REQUESTS} requests of a connection wait for their answers", retryable=True
)


class Requests:
    """The requests of one connection, answered by tasks of ``nursery``."""

    def __init__(self, caller: Caller, services: Services, link: WebSocketLink, nursery: trio.Nursery) -> None:
        self._caller = caller
        self._services = services
        self._link = link
        self._nursery = nursery
        self._uploads = _Uploads(caller.user, services.attachments)
        self._open = 0
        self._places = trio.CapacityLimiter(AT_ONCE)

    async def run(self) -> None:
        """Wait until cancelled; then remove what is there of an unfinished upload."""
        await self._uploads.run()

    def submit(self, frame: frames.RequestFrame) -> None:
        if self._open >= MAX_REQUESTS:
            self.refuse(frame)
            return
        self._open += 1
        self._nursery.start_soon(self._answer, frame, name=f"gateway {frame.type}")

    def refuse(self, frame: object) -> None:
        self._link.put(with_marks(_TOO_MANY, frame))

    async def _answer(self, frame: frames.RequestFrame) -> None:
        try:
            match frame:
                case frames.CallFrame():
                    await self._call(frame)
                case frames.Stop():
                    done = await self._perform("chats_stop", {"chat": frame.chat})
                    self._link.put(frames.StoppedFrame(chat=frame.chat, running=done["running"], ref=frame.ref))
                case frames.UploadFrame():
                    with answer_within(ANSWER_S, "the store of files"):
                        self._link.put(await self._uploads.upload(frame))
        except Exception as error:  # noqa: BLE001  the boundary where every error becomes a frame
            self._link.put(error_frame(error, frame))
        self._open -= 1

    async def _call(self, frame: frames.CallFrame) -> None:
        outbox = self._link.outbox
        async with self._places:
            await outbox.wait_for_room(RESULT_SHARE)
            text = encode(frames.ResultFrame(result=await self._perform(frame.operation, frame.args), ref=frame.ref))
            if len(text) > frames.MAX_RESULT_CHARS:
                why = (
                    f"a result has at most {frames.MAX_RESULT_CHARS:,} characters: ask for a smaller page, or over HTTP"
                )
                raise OperationError("result_too_large", why)
            await outbox.wait_for_room(RESULT_SHARE)
            outbox.put(text)

    async def _perform(self, operation: str, args: dict[str, Any]) -> dict[str, Any]:
        call = read_call(operation, args)
        with trio.fail_after(call.operation.deadline_s):
            return await self._services.perform(call, self._caller)


class _Uploads:
    """One upload at a time; the next one gives up the one before."""

    def __init__(self, user: UserId, attachments: Attachments) -> None:
        self._user, self._attachments = user, attachments
        self._draft: FileDraft | None = None
        self._alone = trio.Lock()

    async def run(self) -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.move_on_after(DISCARD_S, shield=True):
                async with self._alone:
                    await self._discard()

    async def upload(self, frame: frames.UploadFrame) -> frames.UploadedFrame:
        """Take a piece; with the last one the file is durable.

        Raises:
            ProtocolError: ``bad_offset``; the upload goes on where it was.
            AttachmentRefused, StorageFull: the upload is given up.
        """
        async with self._alone:
            if frame.offset == 0:
                await self._discard()
                self._draft = await self._attachments.begin(self._user, frame.name)
            draft = self._draft
            if draft is None or draft.size != frame.offset:
                raise ProtocolError("bad_offset", "this piece does not follow the last one: begin again with offset 0")
            file, goes_on = None, False
            try:
                await self._attachments.in_thread(draft.add, frame.data)
                if frame.last:
                    file = frames.FileOfMessage.of(await self._attachments.in_thread(draft.keep))
                goes_on = not frame.last
            finally:
                if not goes_on:
                    with trio.move_on_after(DISCARD_S, shield=True):
                        await self._discard()
            return frames.UploadedFrame(bytes=draft.size, file=file, ref=frame.ref)

    async def _discard(self) -> None:
        if self._draft is not None:
            await self._attachments.in_thread(self._draft.discard)
            self._draft = None
