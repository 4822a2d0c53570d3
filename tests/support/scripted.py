"""A language model whose answers a test writes, behind a router, and an archivist over real parts."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import trio

from klaw.actor.clock import SystemClock
from klaw.actor.metrics import Metrics
from klaw.actor.supervisor import Supervisor
from klaw.config.memory import TopicsConfig
from klaw.config.schema import EngineConfig
from klaw.llm.budget import DailyBudget
from klaw.llm.client import LlmClient
from klaw.llm.registry import Registry
from klaw.llm.slots import Slots
from klaw.llm.types import Completion, Request, Route
from klaw.memory.archivist import ACTOR_NAME, Archivist
from klaw.memory.background_llm import Asker
from klaw.memory.embed.embedder import Embedder
from klaw.memory.topics.maker import TopicMaker
from klaw.memory.topics.search import TopicMetrics
from klaw.store.store import Store

Answer = Callable[[Request], str | Completion]


class Scripted:
    """A provider and a router in one: every call is answered by a function, which may raise."""

    def __init__(self, answer: Answer, *, context_tokens: int = 100_000, tools: bool = True) -> None:
        self.answer = answer
        self.requests: list[Request] = []
        self.tools = tools
        self.context_tokens = context_tokens

    async def stream(self, request: Request, on_delta: Any) -> Completion:
        await trio.lowlevel.checkpoint()
        self.requests.append(request)
        said = self.answer(request)
        return said if isinstance(said, Completion) else Completion(text=said)

    async def aclose(self) -> None: ...

    def route(self, name: str | None = None, *, key: str = "", task: str = "chat") -> Route:
        return Route(
            provider=self,
            name="test/model",
            model="model",
            context_tokens=self.context_tokens,
            max_output_tokens=1000,
            tools=self.tools,
        )

    def asker(self) -> Asker:
        return Asker(llm=client(self), clock=SystemClock())


def client(
    router: Any = None, *, clock: Any = None, tokens_a_day: int | None = None, registry: Registry | None = None
) -> LlmClient:
    """A client over a router that a test has written; without prices, and without a limit unless one is given."""
    clock = clock or SystemClock()
    registry, budget = registry or Registry(EngineConfig(), clock), DailyBudget(None, tokens_a_day, 0.8, clock)
    return LlmClient(router=router, registry=registry, budget=budget, slots=Slots(1))


def lines_of(request: Request) -> list[str]:
    """The numbered lines of a question to the splitter."""
    material = request.messages[1].content
    return [line for line in material.split("\n") if line.startswith("#")]


def split_answer(*topics: tuple[str, int, int]) -> str:
    return json.dumps(
        {"topics": [{"summary": each[0], "start_msg_id": each[1], "end_msg_id": each[2]} for each in topics]}
    )


def one_topic(request: Request) -> str:
    """Splits nothing and merges nothing."""
    if request.json_schema is not None and request.json_schema.name == "merge":
        return json.dumps({"should_merge": False, "reason": "", "topic": 0, "merged_summary": ""})
    lines = lines_of(request)
    return split_answer((f"about {lines[0].split(': ', 1)[1][:40]}", 1, len(lines)))


class TestClock:
    """A wall clock that a test sets."""

    __test__ = False

    def __init__(self, now: float) -> None:
        self.at = now

    def now(self) -> float:
        return self.at


@asynccontextmanager
async def archiving(
    store: Store,
    scripted: Scripted,
    clock: Any,
    embedder: Embedder,
    *,
    config: TopicsConfig | None = None,
    on_topic: Any = (),
    archivist: Archivist | None = None,
    asker: Asker | None = None,
) -> AsyncIterator[tuple[Archivist, TopicMetrics]]:
    """The actor, running."""
    metrics = TopicMetrics(Metrics())
    archivist = archivist or Archivist(
        config=config or TopicsConfig(enabled=True),
        maker=TopicMaker(store.readers, store.writer, embedder, clock),
        asker=asker or scripted.asker(),
        metrics=metrics,
        on_topic=on_topic,
    )
    async with trio.open_nursery() as nursery:
        supervisor = Supervisor(nursery, clock)
        await supervisor.start(archivist.spec())
        yield archivist, metrics
        await supervisor.stop(ACTOR_NAME, "test is over")
