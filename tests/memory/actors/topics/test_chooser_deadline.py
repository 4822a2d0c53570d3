"""Choosing topics for a reply: how long it may take, whatever is slow."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from klaw.actor.clock import SystemClock
from klaw.actor.metrics import Metrics
from klaw.domain.topic import ChosenTopics, Fate
from klaw.memory.background_llm import Asker
from klaw.memory.embed.embedder import Embedder
from klaw.memory.topics.chooser import LONG_CHARS, TopicChooser
from klaw.memory.topics.search import TopicMetrics, TopicSearch
from klaw.store.kinds import topics
from klaw.store.store import Store
from tests.support.scripted import Scripted, client
from tests.support.stores import running_store
from tests.support.topics import ANNA, archive, say
from tests.support.waiting import HANG_S

BUDGET_S = 0.2


@attrs.define
class Watched:
    """Readers that keep the deadline of each read, and whose reads of some kinds never end."""

    store: Store
    hanging: tuple[Callable[..., Any], ...] = ()
    deadlines: list[tuple[Callable[..., Any], float]] = attrs.Factory(list)

    async def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.deadlines.append((function, trio.current_effective_deadline()))
        if function in self.hanging:
            await trio.sleep_forever()
        return await self.store.readers.run(function, *args, **kwargs)

    def of(self, function: Callable[..., Any]) -> list[float]:
        return [deadline for each, deadline in self.deadlines if each is function]


async def choose(readers: Watched, text: str, asker: Asker | None = None) -> ChosenTopics:
    embedder = Embedder(SystemClock(), enabled=False)
    chooser = TopicChooser(
        search=TopicSearch(readers, embedder, SystemClock(), TopicMetrics(Metrics())),  # type: ignore[arg-type]
        asker=asker,
        threshold=0.5,
        time_budget_s=BUDGET_S,
    )
    with trio.fail_after(HANG_S):
        return await chooser.choose(ANNA, text, None, client().meter())


@pytest.mark.parametrize("question", ["Which pies does grandmother bake?", "Какие пироги печёт бабушка?"])
async def test_reading_what_was_said_is_within_the_time_of_the_whole(tmp_path: Path, question: str) -> None:
    """A database that is slow just then costs the topics, and no more time than topics.timeBudgetMs."""
    async with running_store(tmp_path) as store:
        await archive(store, await say(store, "Grandmother bakes pies. Бабушка печёт пироги."))
        readers = Watched(store, hanging=(topics.read,))
        found = await choose(readers, question)
        assert [each.fate for each in found.candidates] == [Fate.GONE]
        assert found.degraded == ("topics_late",)
        ((searched,), (read,)) = readers.of(topics.count), readers.of(topics.read)
        assert read - searched == pytest.approx(BUDGET_S * 0.2, abs=0.02)


async def test_a_long_topic_is_read_once_for_a_reply(tmp_path: Path) -> None:
    """Not also for an excerpt that no prompt shows, which no time bounds."""
    async with running_store(tmp_path) as store:
        long = "Grandmother bakes pies. " * (LONG_CHARS // 24 + 20)
        (topic,) = await archive(store, await say(store, long))
        readers = Watched(store)
        choice = json.dumps({"topics": [{"id": topic.id, "reason": "r", "excerpt": ""}]})
        scripted = Scripted(lambda _request: choice)
        found = await choose(readers, "Which pies does grandmother bake?", scripted.asker())
        assert (found.reranked, [each.fate for each in found.candidates]) == (True, [Fate.CHOSEN])
        assert len(readers.of(topics.read)) == 1
