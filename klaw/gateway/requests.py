"""Requests of one connection: calls of operations, stops, and uploads in pieces. Each is answered in a task of its own
and in bounded time, so that none holds up another, or the connection's frames."""

from typing import Any

import trio

from klaw.actor.mailbox import answer_within
from klaw.domain.names import UserId
from klaw.errors import ProtocolError
from klaw.gateway.link import WebSocketLink
from klaw.gateway.refusals import error_frame, with_marks
from klaw.gateway.sending import ANSWER_S
from klaw.gateway.services import Services
from klaw.operations.handler import Caller
from klaw.operations.operation import OperationError
from klaw.operations.perform import read_call
from klaw.store.attachments import DISCARD_S, Attachments, FileDraft
from klaw.wire.codec import encode
from klaw.wire.files import FileOfMessage, UploadedFrame, UploadFrame
from klaw.wire.frames import MAX_RESULT_CHARS, CallFrame, Error, RequestFrame, ResultFrame, Stop, StoppedFrame

MAX_REQUESTS = 16
"""Requests of a connection that wait for their answers; more are refused as ``busy``."""
AT_ONCE = 4
"""Calls of one connection carried out at a time: bounds the memory of results that nobody reads."""
RESULT_SHARE = 0.5
"""A call, and its result, wait until less than this share of the outbox is taken."""

_TOO_MANY = Error(
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

    def submit(self, frame: RequestFrame) -> None:
        if self._open >= MAX_REQUESTS:
            self.refuse(frame)
            return
        self._open += 1
        self._nursery.start_soon(self._answer, frame, name=f"gateway {frame.type}")

    def refuse(self, frame: object) -> None:
        self._link.put(with_marks(_TOO_MANY, frame))

    async def _answer(self, frame: RequestFrame) -> None:
        try:
            match frame:
                case CallFrame():
                    await self._call(frame)
                case Stop():
                    done = await self._perform("chats_stop", {"chat": frame.chat})
                    self._link.put(StoppedFrame(chat=frame.chat, running=done["running"], ref=frame.ref))
                case UploadFrame():
                    with answer_within(ANSWER_S, "the store of files"):
                        self._link.put(await self._uploads.upload(frame))
        except Exception as error:  # noqa: BLE001  the boundary where every error becomes a frame
            self._link.put(error_frame(error, frame))
        self._open -= 1

    async def _call(self, frame: CallFrame) -> None:
        outbox = self._link.outbox
        async with self._places:
            await outbox.wait_for_room(RESULT_SHARE)
            text = encode(ResultFrame(result=await self._perform(frame.operation, frame.args), ref=frame.ref))
            if len(text) > MAX_RESULT_CHARS:
                why = f"a result has at most {MAX_RESULT_CHARS:,} characters: ask for a smaller page, or over HTTP"
                raise OperationError("result_too_large", why)
            await outbox.wait_for_room(RESULT_SHARE)
            self._link.put_text(text)

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

    async def upload(self, frame: UploadFrame) -> UploadedFrame:
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
                await self._attachments.add(draft, frame.data)
                if frame.last:
                    file = FileOfMessage.of(await self._attachments.finish(draft))
                goes_on = not frame.last
            finally:
                if not goes_on:
                    with trio.move_on_after(DISCARD_S, shield=True):
                        await self._discard()
            return UploadedFrame(bytes=draft.size, file=file, ref=frame.ref)

    async def _discard(self) -> None:
        if self._draft is not None:
            await self._attachments.discard(self._draft)
            self._draft = None
