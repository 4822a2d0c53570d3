"""Recall over a real store and the real embedder, for tests that ask it directly."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import trio

from klaw.actor.clock import SystemClock
from klaw.actor.supervisor import Supervisor
from klaw.config.memory import AutoRagConfig, EmbeddingConfig
from klaw.domain.message import Message
from klaw.domain.names import UserId, chat_id
from klaw.domain.search import RecallOutcome
from klaw.memory.embed.embedder import Embedder
from klaw.memory.embed.worker import ACTOR_NAME, REPAIR_PAUSE_S, Worker
from klaw.memory.recall.recall import Recall
from klaw.store.kinds import messages
from klaw.store.search.chat_search import ChatScope
from klaw.store.store import Store
from tests.support.stores import new, running_store
from tests.support.waiting import HANG_S

MIN_TOKENS = 1
"""Every message gets a vector."""


@attrs.frozen
class Recalling:
    """A store, its embedder and recall over both."""

    store: Store
    embedder: Embedder
    recall: Recall

    async def say(self, texts: Sequence[str], chat: str = "main", *, embedded: bool = True) -> list[Message]:
        """Store messages, and wait until they have their vectors."""
        appended = await self.store.writer.run(messages.append, [new(text, chat=chat) for text in texts])
        if embedded:
            await self.caught_up()
        return [each.message for each in appended]

    async def caught_up(self) -> None:
        """Wait until every message has a vector."""
        with trio.fail_after(HANG_S):
            self.embedder.nudge()
            await self.embedder.wait_idle()

    async def ask(self, query: str, chat: str = "main") -> RecallOutcome:
        """Recall from the whole chat."""
        with trio.fail_after(HANG_S):
            return await self.recall.search(
                query, ChatScope(chat=chat_id(UserId("local"), chat), first_seq=1, end_seq=1 << 40)
            )


@asynccontextmanager
async def recalling(
    root: Path, model: Path, *, repair_pause_s: float = REPAIR_PAUSE_S, **config: int
) -> AsyncIterator[Recalling]:
    """Everything real, with a budget of time that a busy machine keeps."""
    config.setdefault("time_budget_ms", 20_000)
    async with running_store(root) as store, trio.open_nursery() as nursery:
        embedder = Embedder(SystemClock(), enabled=True)
        supervisor = Supervisor(nursery, SystemClock())
        worker = Worker(
            embedder=embedder,
            config=EmbeddingConfig(),
            folder=model,
            min_tokens=MIN_TOKENS,
            writer=store.writer,
            readers=store.readers,
            repair_pause_s=repair_pause_s,
        )
        await supervisor.start(worker.spec())
        with trio.fail_after(HANG_S):
            await embedder.wait_idle()
        yield Recalling(store, embedder, Recall(store.readers, embedder, AutoRagConfig(**config), SystemClock()))
        await supervisor.stop(ACTOR_NAME, "test is over")
