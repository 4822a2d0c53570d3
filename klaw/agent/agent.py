"""The parts that turns of chats and runs of tasks share, and the recorder of their tool calls."""

import io
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import attrs

from klaw.agent.workspace import Workspace
from klaw.context.compose import Composer
from klaw.core import Core
from klaw.domain.attachment import HEAD_BYTES, PICTURES, NamedFile, sniff
from klaw.domain.message import ECHO, MessageKind, Role
from klaw.domain.names import UserId
from klaw.domain.text import clean
from klaw.errors import AttachmentRefused, StorageFull
from klaw.knowledge.dialogue import Dialogue
from klaw.llm.client import Llm
from klaw.llm.types import Echo, ToolCall
from klaw.memory.parts import MemoryParts
from klaw.toolbox.executor import CallResult, PreparedCall, in_short
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


@attrs.define(kw_only=True)
class ToolCallRecorder:
    store: Callable[[Role, MessageKind, str, dict[str, Any]], Awaitable[None]]
    tell: Callable[[ToolCall, str, str], None] = lambda _call, _state, _what: None
    count: int = 0
    calls: list[dict[str, Any]] = attrs.Factory(list)
    """For the receipt: name, round, and once it ended its state, length and time; no arguments and no results."""
    _by_id: dict[str, dict[str, Any]] = attrs.Factory(dict)

    async def called(self, text: str, calls: tuple[PreparedCall, ...], echo: Echo | None) -> None:
        """The model said ``text`` and wants ``calls``; ``echo`` goes back to it. The tools run when this returns."""
        own = [prepared.call for prepared in calls]
        told = [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in own]
        kept = {ECHO: attrs.asdict(echo)} if echo is not None else {}
        await self.store(Role.ASSISTANT, MessageKind.TOOL_CALL, clean(text), {"calls": told, **kept})
        self.count += 1
        for call in own:
            self._by_id[call.id] = account = {"name": call.name, "round": self.count, "state": "interrupted"}
            self.calls.append(account)

    def started(self, call: PreparedCall) -> None:
        self.tell(call.call, "started", in_short(call.arguments))

    async def ended(self, result: CallResult) -> None:
        """A tool ended; may run for several at once. The origin of the text is kept where the role does not show it."""
        call, state = result.call, "failed" if result.failed else "done"
        self._by_id[call.id] |= {"state": state, "chars": result.chars, "duration_ms": round(result.duration_ms, 1)}
        metadata: dict[str, Any] = {"call": call.id, "name": call.name, "error": result.failed}
        if result.origin != "tool":
            metadata["origin"] = result.origin
        await self.store(Role.TOOL, MessageKind.TOOL_RESULT, result.text, metadata)
        self.tell(call, state, "")

    def describe(self, offered: int, earlier: int) -> dict[str, Any]:
        """The receipt's part about tools. ``earlier``: rounds of an interrupted turn that this one continued."""
        told: dict[str, Any] = {"offered": offered, "rounds": self.count, "calls": self.calls}
        return {**told, "earlier_rounds": earlier} if earlier else told
