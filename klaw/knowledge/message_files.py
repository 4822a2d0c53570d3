"""Files of messages, as chats read them: queued when they are uploaded, read by the indexer, and waited for by the turn
that answers their message. A short document stands in the prompt as a whole, of a long one the passages that fit."""

from collections.abc import Awaitable, Callable, Mapping, Sequence

import attrs
import trio

from klaw.actor.clock import iso
from klaw.context.inputs import FileText
from klaw.core import Core
from klaw.domain.attachment import Attachment
from klaw.domain.knowledge import DocumentState, what_was_read
from klaw.domain.names import ChatId, UserId
from klaw.knowledge.indexer import Indexer
from klaw.knowledge.reading.passages import SEPARATOR
from klaw.store.kinds.knowledge import documents, message_files
from klaw.store.kinds.knowledge.message_files import FileOfChat

UPLOAD_S = 4.0
"""Who uploads a file hears what was read of it if that takes no longer."""
TURN_S = 30.0
"""A turn waits so long for the files that it is to answer; then it goes on without what is not read."""
WHOLE_TOKENS = 2_000
"""A document with more is long."""


@attrs.frozen(kw_only=True)
class MessageFiles:
    core: Core
    indexer: Indexer

    async def take_up(self, user: UserId, file: Attachment) -> str:
        """Have an uploaded document read. Returns what was read of it, if that was quick. Raises StorageError."""
        readers, clock = self.core.readers, self.core.clock
        await self.core.writer.run(message_files.take_up, user, [file], iso(clock.now()))

        async def is_read() -> bool:
            found = await readers.run(message_files.get, user, file)
            return found is None or found.state is not DocumentState.WAITING

        await self._wait(is_read, UPLOAD_S)
        found = await readers.run(message_files.get, user, file)
        return what_was_read(found) if found is not None else ""

    async def wait_for(self, user: UserId, chat: ChatId, waits: Callable[[], None]) -> None:
        """Wait until the files are read that the next turn of a chat answers; ``waits`` is called if some are not."""

        async def is_read() -> bool:
            waiting = await self.core.readers.run(message_files.waiting, user, chat)
            if waiting:
                waits()
            return not waiting

        await self._wait(is_read, TURN_S)

    async def _wait(self, is_over: Callable[[], Awaitable[bool]], seconds: float) -> None:
        with trio.move_on_after(seconds):
            while True:
                done = self.indexer.done
                if await is_over():
                    return
                self.indexer.nudge()
                await done.wait()

    async def texts(self, files: Sequence[FileOfChat], most: int) -> Mapping[str, FileText]:
        """What was read of files, by their SHA-256. The newest short ones are given as a whole, in ``most`` tokens."""
        found: dict[str, FileText] = {}
        for each in reversed(files):
            document = each.document
            if document is None or each.file.sha256 in found:
                continue
            read = document.state is DocumentState.READ
            passages = await self.core.readers.run(documents.beginning, document.id, WHOLE_TOKENS) if read else []
            cost = sum(passage.tokens for passage in passages)
            whole = len(passages) == document.passages and cost <= most
            most -= cost if whole else 0
            text = SEPARATOR.join(passage.text for passage in passages)
            found[each.file.sha256] = FileText(document=document, text=text, whole=whole)
        return found
