"""Files that one connection uploads and fetches, in pieces that fit into frames."""

import trio

from klaw.domain.names import UserId
from klaw.errors import ProtocolError
from klaw.store.attachments import DISCARD_S, Attachments, Draft
from klaw.wire.files import FETCH_BYTES, FetchedFrame, FetchFrame, FileOfMessage, UploadedFrame, UploadFrame


class Files:
    """One upload at a time; the next one gives the one before up."""

    def __init__(self, user: UserId, attachments: Attachments) -> None:
        self._user, self._attachments = user, attachments
        self._draft: Draft | None = None
        self._alone = trio.Lock()

    async def run(self) -> None:
        """Until cancelled. Then nothing is left of an upload that was not finished."""
        try:
            await trio.sleep_forever()
        finally:
            with trio.move_on_after(DISCARD_S, shield=True):
                async with self._alone:
                    await self._discard()

    async def answer(self, frame: UploadFrame | FetchFrame) -> UploadedFrame | FetchedFrame:
        """Raises as ``upload`` and ``fetch``."""
        return await (self.upload(frame) if isinstance(frame, UploadFrame) else self.fetch(frame))

    async def upload(self, frame: UploadFrame) -> UploadedFrame:
        """Take a piece; with the last one the file is durable.

        Raises:
            ProtocolError: ``bad_offset``; the upload goes on where it was.
            AttachmentRefused, StorageFull: it is given up.

        Cancellation: as ``run``.
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

    async def fetch(self, frame: FetchFrame) -> FetchedFrame:
        """A piece of a file. Raises AttachmentRefused: ``unknown_file``."""
        found = await self._attachments.find(self._user, frame.sha256)
        data = await self._attachments.read(self._user, frame.sha256, frame.offset, FETCH_BYTES)
        return FetchedFrame(
            sha256=frame.sha256, media_type=found.type, bytes=found.bytes, offset=frame.offset, data=data, ref=frame.ref
        )

    async def _discard(self) -> None:
        if self._draft is not None:
            await self._attachments.discard(self._draft)
            self._draft = None
