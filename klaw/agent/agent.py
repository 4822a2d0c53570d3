"""The parts that turns of chats and runs of tasks share."""

import io
from collections.abc import Sequence
from functools import partial

import attrs

from klaw.agent.workspace import Workspace
from klaw.context.compose import Composer
from klaw.core import Core
from klaw.domain.attachment import HEAD_BYTES, PICTURES, NamedFile, sniff
from klaw.domain.names import UserId
from klaw.errors import AttachmentRefused, StorageFull
from klaw.knowledge.dialogue import Dialogue
from klaw.knowledge.message_files import MessageFiles
from klaw.llm.client import Llm
from klaw.memory.parts import MemoryParts
from klaw.toolbox.tools import Tools


@attrs.frozen(kw_only=True)
class Agent:
    core: Core
    llm: Llm
    memory: MemoryParts
    tools: Tools
    workspace: Workspace
    composer: Composer
    dialogue: Dialogue
    files: MessageFiles

    async def keep_pictures(self, user: UserId, pictures: Sequence[bytes]) -> tuple[list[NamedFile], list[str]]:
        """Keep the pictures of an answer. Returns them, and for each that was not kept a line that says why."""
        kept: list[NamedFile] = []
        problems: list[str] = []
        left = self.core.attachments.limits.max_message_bytes
        for number, data in enumerate(pictures, start=1):
            kind = sniff(data[:HEAD_BYTES])
            if kind not in PICTURES or len(data) > left:
                why = "it is too large" if kind in PICTURES else "its format cannot be shown"
                problems.append(f"(A picture was not kept: {why}.)")
                continue
            name = f"picture-{number}.{kind.rpartition('/')[2]}"
            try:
                file = await self.core.attachments.take(user, name, partial(io.BytesIO, data))
            except (AttachmentRefused, StorageFull) as error:
                problems.append(f"(A picture was not kept: {error}.)")
                continue
            left -= len(data)
            kept.append(NamedFile(sha256=file.sha256, name=name))
        return kept, problems
