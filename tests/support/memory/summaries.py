"""A summarizer at work on a real store and a scripted LLM server, without the rest of the server."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import trio

from klaw.actor.clock import Clock, SystemClock
from klaw.actor.supervisor import Supervisor
from klaw.actor.threads import Threads
from klaw.config.load import parse
from klaw.config.schema import EngineConfig
from klaw.domain.message import Message, MessageKind, Role
from klaw.domain.names import ChatId, UserId, chat_id
from klaw.domain.summary import Summary
from klaw.llm.budget import DailyBudget
from klaw.llm.client import LlmClient, TokenCorrection
from klaw.llm.registry import Registry
from klaw.llm.router import Router
from klaw.llm.slots import Slots
from klaw.memory.background_llm import Asker
from klaw.memory.summaries.making import SummaryMaker
from klaw.memory.summaries.summarizer import ACTOR_NAME, Summarizer
from klaw.store.kinds import messages, summaries
from klaw.store.store import Store
from tests.support.llm_server import LlmServer, serve_llm
from tests.support.stores import new, running_store
from tests.support.turns import record
from tests.support.waiting import HANG_S

CHAT = chat_id(UserId("local"), "main")


def no_local() -> Any:
    raise AssertionError("no local model")


def config_of(url: str, **settings: Any) -> EngineConfig:
    """Short thresholds: some 350 tokens of messages are summarised."""
    given = {
        "providers": {"stub": {"baseUrl": url, "maxRetries": 0, "models": {"m": {"contextTokens": 2048}}}},
        "routing": {"default": "stub/m"},
        "context": {"slidingWindow": settings.pop("slidingWindow", 6), "replyReserveTokens": 256},
        "llm": {},
        "summaries": {"thresholdFraction": 0.3, "leftOutTokens": 100_000, "maxTokens": 120, **settings},
    }
    return parse(json.dumps(given), {})[0]


@attrs.frozen
class Summaries:
    """What a test works with."""

    store: Store
    llm: LlmServer
    config: EngineConfig
    summarizer: Summarizer
    maker: SummaryMaker
    supervisor: Supervisor

    async def say(self, *texts: str, chat: str = "main") -> list[Message]:
        """Questions with their answers, each with the turn that answers it."""
        stored = []
        for text in texts:
            stored += await say(self.store, text, chat=chat)
        return stored

    async def settle(self, chat: ChatId = CHAT) -> None:
        """Nudge the summarizer and wait until it has nothing to do."""
        self.summarizer.turn_ended(chat)
        with trio.fail_after(HANG_S):
            await self.summarizer.wait_idle()

    async def live(self, chat: ChatId = CHAT) -> list[Summary]:
        session = await self.store.readers.run(messages.session, chat)
        assert session is not None
        return await self.store.readers.run(summaries.live, chat, session.segment)

    async def all(self, chat: ChatId = CHAT) -> list[Summary]:
        return await self.store.readers.run(summaries.of_chat, chat)

    async def start(self) -> None:
        await self.supervisor.start(self.summarizer.spec())

    async def stop(self) -> None:
        await self.supervisor.stop(ACTOR_NAME, "test")


async def say(store: Store, text: str, *, user: str = "local", chat: str = "main") -> list[Message]:
    """A question, its answer and the turn."""
    (asked,) = await store.writer.run(messages.append, [new(text, user=user, chat=chat)])
    said = f"Answer to {text}"
    ended = record(asked.message)
    (answered,) = await store.writer.run(messages.append, [new(said, user=user, chat=chat, role=Role.ASSISTANT)], ended)
    return [asked.message, answered.message]


async def begin_segment(store: Store, chat: str = "main") -> None:
    await store.writer.run(messages.append, [new("", chat=chat, role=Role.SYSTEM, kind=MessageKind.SESSION_BREAK)])


@asynccontextmanager
async def summarising(
    root: Path, *, clock: Clock | None = None, start: bool = True, llm: LlmServer | None = None, **settings: Any
) -> AsyncIterator[Summaries]:
    """A store in a folder, a scripted model, and the actor."""
    async with serve_llm(llm) as server, running_store(root) as store, trio.open_nursery() as nursery:
        config = config_of(server.url, **settings)
        clock = clock or SystemClock()
        client = LlmClient(
            router=Router(config, no_local),
            registry=Registry(config, clock),
            budget=DailyBudget(None, None, 0.8, clock),
            slots=Slots(2),
        )
        maker = SummaryMaker(
            config=config,
            writer=store.writer,
            readers=store.readers,
            asker=Asker(llm=client, clock=clock, writer=store.writer),
            correction=TokenCorrection(),
            files=Threads("files", 1),
            data_dir=root,
            clock=clock,
        )
        found = Summaries(
            store=store,
            llm=server,
            config=config,
            summarizer=Summarizer(maker),
            maker=maker,
            supervisor=Supervisor(nursery, clock),
        )
        if start:
            await found.start()
        yield found
        await found.stop()
        await client.router.aclose()
        nursery.cancel_scope.cancel(reason="test is over")
