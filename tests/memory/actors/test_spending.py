"""What work in the background spends is kept for good, whatever comes of it, and known again at the next start."""

from pathlib import Path
from typing import Any

import pytest
import trio

from klaw.actor.clock import iso
from klaw.domain.names import UserId, chat_id
from klaw.llm.client import LlmClient
from klaw.llm.errors import OverBudget, ProviderTimeout
from klaw.llm.types import ChatMessage, Completion, Request, TextDelta, Usage
from klaw.memory.background_llm import Asker
from klaw.memory.facts.facts import Facts
from klaw.memory.topics.fact_extractor import FactExtractor
from klaw.store.kinds import messages, usage
from klaw.store.kinds.usage import UsageFilters
from klaw.store.store import Store
from tests.memory.actors.test_archivist import off
from tests.memory.actors.topics.test_fact_extractor import of_facts
from tests.support.people import people_drawer
from tests.support.scripted import Scripted, TestClock, archiving, client, one_topic
from tests.support.stores import START, new, running_store
from tests.support.waiting import HANG_S

ANNA = UserId("anna")
MAIN = chat_id(ANNA, "main")
NOW = START + 1_000_000
USAGE = Usage(prompt_tokens=100, completion_tokens=10)


def asker(model: Scripted, store: Store, clock: TestClock) -> Asker:
    return Asker(llm=client(model, clock=clock), clock=clock, writer=store.writer)


async def sums(store: Store, **filters: Any) -> dict[str | None, tuple[int, int]]:
    """Calls and tokens by source."""
    groups = await store.readers.run(usage.groups, UsageFilters(**filters), "source")
    return {group.key: (of.calls, of.prompt_tokens + of.completion_tokens) for group in groups for of in (group.spent,)}


async def test_topics_and_facts_are_in_usage_by_source_also_answers_of_no_use(tmp_path: Path) -> None:
    def answer(request: Request) -> Completion:
        text = "I would rather not." if of_facts(request) else one_topic(request)
        return Completion(text=text, usage=USAGE)

    model, clock = Scripted(answer), TestClock(NOW)
    async with running_store(tmp_path) as store:
        await store.writer.run(messages.append, [new("hello", user="anna"), new("hello", user="boris")])
        asks = asker(model, store, clock)
        facts = Facts(store.writer, store.readers, off(), clock, lambda: "id")
        hook = FactExtractor(asks, facts, people_drawer(store), store.readers)
        async with archiving(store, model, clock, off(), on_topic=[hook], asker=asks) as (archivist, _):
            archivist.nudge()
            with trio.fail_after(HANG_S):
                await archivist.wait_idle()
        # For each user one division, and two questions for facts whose answers were of no use.
        assert await sums(store) == {"topics": (2, 220), "facts": (4, 440)}
        assert await sums(store, user=ANNA, chat=MAIN) == {"topics": (1, 110), "facts": (2, 220)}


async def test_a_call_that_broke_off_and_one_that_was_cancelled_count_as_estimated(tmp_path: Path) -> None:
    class Breaks(Scripted):
        async def stream(self, request: Request, on_delta: Any) -> Completion:
            on_delta(TextDelta(text="half of an ans"))
            if request.model == "model":
                raise ProviderTimeout("slow")
            scope.cancel()
            await trio.sleep_forever()
            raise AssertionError

    model, clock = Breaks(lambda _request: ""), TestClock(NOW)
    async with running_store(tmp_path) as store:
        asks = asker(model, store, clock)
        for name in ("model", "other"):
            with trio.CancelScope() as scope:
                try:
                    async with asks.charged("reranker", ANNA) as work:
                        request = Request(model=name, messages=(ChatMessage(role="user", content="hello"),))
                        assert work.charge is not None
                        await work.charge.meter.stream(model.route(), request, lambda _delta: None)
                except ProviderTimeout:
                    pass
        (group,) = await store.readers.run(usage.groups, UsageFilters(user=ANNA), "source")
        assert (group.key, group.spent.calls, group.spent.estimated_calls) == ("reranker", 2, 2)
        assert group.spent.completion_tokens > 0


async def test_nothing_is_noted_when_nothing_was_asked(tmp_path: Path) -> None:
    clock = TestClock(NOW)
    async with running_store(tmp_path) as store:
        async with asker(Scripted(lambda _request: ""), store, clock).charged("facts", ANNA) as work:
            pass
        assert work.charge is not None
        assert work.charge.at == ""
        assert await sums(store) == {}


async def test_a_restart_does_not_free_the_daily_limit(tmp_path: Path) -> None:
    model, clock = Scripted(lambda _request: Completion(text="{}", usage=USAGE)), TestClock(NOW)

    async def ask(store: Store, shared: LlmClient) -> None:
        async with Asker(llm=shared, clock=clock, writer=store.writer).charged("facts", ANNA) as work:
            request = Request(model="model", messages=(ChatMessage(role="user", content="hi"),), max_tokens=20)
            assert work.charge is not None
            await work.charge.meter.stream(model.route(), request, lambda _delta: None)

    today = iso(NOW)[:10]
    async with running_store(tmp_path) as store:
        await ask(store, client(clock=clock, tokens_a_day=130))
    async with running_store(tmp_path) as store:
        shared = client(clock=clock, tokens_a_day=130)
        shared.budget.restore(today, await store.readers.run(usage.total, UsageFilters(since=today)))
        assert shared.budget.report().unpriced_tokens == 110
        with pytest.raises(OverBudget):
            await ask(store, shared)


async def test_a_full_disk_does_not_end_the_work(tmp_path: Path) -> None:
    """The note is lost, and the daily limit of this process knows of it all the same."""
    model, clock = Scripted(lambda _request: Completion(text="{}", usage=USAGE)), TestClock(NOW)
    shared = client(clock=clock)
    async with running_store(tmp_path) as store:
        writer = store.writer
    async with Asker(llm=shared, clock=clock, writer=writer).charged("facts", ANNA) as work:
        request = Request(model="model", messages=(ChatMessage(role="user", content="hi"),))
        assert work.charge is not None
        await work.charge.meter.stream(model.route(), request, lambda _delta: None)
    assert shared.budget.report().unpriced_tokens == 110
