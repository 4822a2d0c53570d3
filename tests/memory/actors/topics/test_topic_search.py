"""Finding topics, and choosing among them, with real parts and a scripted model."""

import json
from pathlib import Path

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from klaw.actor.clock import SystemClock
from klaw.actor.metrics import Metrics
from klaw.domain.message import Role
from klaw.domain.names import UserId
from klaw.domain.search import TopicResult
from klaw.domain.topic import TopicCandidate, TopicId
from klaw.llm.errors import ProviderNetworkError
from klaw.llm.types import Completion, Request, ToolCall
from klaw.memory.embed.embedder import Embedder
from klaw.memory.search.search import MemorySearch
from klaw.memory.topics import chooser as chooser_module
from klaw.memory.topics.chooser import TopicReranker
from klaw.memory.topics.search import TopicMetrics, TopicSearch, rank_topics
from klaw.store.kinds import topic_edits
from klaw.store.kinds.topic_vectors import Near
from klaw.store.search.history_search import HistoryFilters, TopicLists
from klaw.store.store import Store
from tests.memory.unit.topics.test_merger import topic
from tests.support.asking import search_lines
from tests.support.scripted import Scripted
from tests.support.stores import running_store
from tests.support.topics import ANNA, archive, draft, say

BORIS = UserId("boris")


def searching(store: Store) -> TopicSearch:
    embedder = Embedder(SystemClock(), enabled=False)
    return TopicSearch(store.readers, embedder, SystemClock(), TopicMetrics(Metrics()))


async def fill(store: Store) -> dict[str, list]:
    made = {}
    for user in ("anna", "boris"):
        rowids = await say(store, "Бабушка печёт пироги с вишней", "купить билеты на поезд", "ок", user=user)
        made[user] = await archive(store, *([each] for each in rowids), user=user)
    return made


async def test_a_topic_is_found_by_its_summary_and_by_its_messages_and_only_its_users(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        made = await fill(store)
        rowids = await say(store, "nothing of the sort")
        await store.writer.run(
            topic_edits.store,
            ANNA,
            made["anna"][0].chat,
            [draft("Велосипед в ремонте", *rowids)],
            "2026-01-01T00:00:00.000Z",
        )
        search = searching(store)
        page = await search.search("где мой велосипед?", HistoryFilters(user=ANNA))
        assert [(hit.topic.summary, hit.words_rank, hit.message_rank) for hit in page.hits] == [
            ("Велосипед в ремонте", 1, None)
        ]
        page = await search.search("пирог с вишнями", HistoryFilters(user=ANNA))
        assert page.hits[0].topic.id == made["anna"][0].id
        assert page.hits[0].message_rank == 1
        assert {hit.topic.user for hit in page.hits} == {ANNA}
        assert "embedding_off" in page.degraded
        page = await search.search("велосипед", HistoryFilters(user=BORIS))
        assert page.hits == ()
        assert (await search.search("…!?", HistoryFilters(user=ANNA))).hits == ()
        late = HistoryFilters(user=ANNA, since="2099-01-01T00:00:00.000Z")
        assert (await search.search("пироги", late)).hits == ()
        hostile = await search.search('" OR 1=1 ) NEAR( -- * велосипед', HistoryFilters(user=ANNA))
        assert hostile.hits[0].topic.summary == "Велосипед в ремонте"
        assert {hit.topic.user for hit in hostile.hits} == {ANNA}


@given(
    st.lists(st.tuples(st.integers(1, 9).map(TopicId), st.floats(0, 1)), max_size=9, unique_by=lambda each: each[0]),
    st.lists(st.integers(1, 9).map(TopicId), max_size=9, unique=True),
    st.lists(st.integers(1, 40), max_size=40, unique=True),
)
def test_every_topic_of_any_list_is_ranked_once(near, by_words, messages):
    of = {rowid: TopicId(rowid % 9 + 1) for rowid in range(1, 40, 2)}
    known = {TopicId(number): topic(number) for number in range(1, 10)}
    lists = TopicLists(near=[Near(*each) for each in near], by_words=by_words, of_messages=of, topics=known)
    found = rank_topics(messages, lists)
    assert {each.topic.id for each in found} == {each for each, _ in near} | set(by_words) | {
        of[rowid] for rowid in messages if rowid in of
    }
    assert len({each.topic.id for each in found}) == len(found)
    assert [each.score for each in found] == sorted((each.score for each in found), reverse=True)


# -- the reranker ------------------------------------------------------------------------------------------------------


def answer(*ids: int) -> str:
    return json.dumps({"topics": [{"id": each, "reason": "helps", "excerpt": ""} for each in ids]})


def load(*ids: int, call: str = "c1") -> Completion:
    return Completion(
        text="", tool_calls=(ToolCall(id=call, name="get_topics_content", arguments=json.dumps({"ids": ids})),)
    )


async def hits_of(store: Store) -> list[TopicCandidate]:
    made = await fill(store)
    cosines = [0.7, 0.9, 0.8]
    return [
        TopicCandidate(topic=each, score=1.0, cosine=cosine, words_rank=None, message_rank=None)
        for each, cosine in zip(made["anna"], cosines, strict=True)
    ] + [
        TopicCandidate(topic=each, score=1.0, cosine=0.99, words_rank=None, message_rank=None) for each in made["boris"]
    ]


def reranker(store: Store, scripted: Scripted) -> tuple[TopicReranker, TopicMetrics]:
    metrics = TopicMetrics(Metrics())
    return TopicReranker(scripted.asker(), store.readers, metrics), metrics


async def test_it_loads_contents_and_chooses(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        hits = await hits_of(store)
        said = iter([load(hits[0].topic.id, hits[3].topic.id, 999), answer(hits[0].topic.id)])
        scripted = Scripted(lambda _request: next(said))
        chooser, metrics = reranker(store, scripted)
        found = await chooser.choose(ANNA, "пироги", hits)
        assert [(each.id, each.reason, each.excerpt) for each in found.topics] == [(hits[0].topic.id, "helps", "")]
        shown = "\n".join(message.content for message in scripted.requests[1].messages)
        assert "Бабушка печёт" in shown
        assert f"#{hits[3].topic.id} " not in shown  # boris's
        assert scripted.requests[0].tools
        assert metrics.selected.sum == 1
        assert metrics.reranker_loads.sum == 1


async def test_an_empty_choice_is_respected(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        chooser, _ = reranker(store, Scripted(lambda _request: answer()))
        found = await chooser.choose(ANNA, "x", await hits_of(store))
        assert (found.topics, found.fallback) == ((), None)
        assert (await chooser.choose(ANNA, "x", [])).topics == ()


@pytest.mark.parametrize("tools", [True, False])
async def test_without_an_answer_the_best_found_are_taken(tmp_path: Path, tools: bool) -> None:
    async with running_store(tmp_path) as store:
        hits = await hits_of(store)
        scripted = Scripted(lambda _request: "I would rather not.", tools=tools)
        chooser, metrics = reranker(store, scripted)
        found = await chooser.choose(ANNA, "x", hits)
        assert [each.id for each in found.topics] == [hit.topic.id for hit in hits[:3]]
        assert found.fallback == "bad_answer"
        assert len(scripted.requests) == 2
        assert metrics.reranker_fallbacks.value == 1
        assert bool(scripted.requests[0].json_schema) is not tools


async def test_after_a_failure_what_it_loaded_is_taken(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        hits = await hits_of(store)

        def fail_later(request: Request) -> Completion:
            if len(request.messages) > 2:
                raise ProviderNetworkError("down")
            return load(hits[2].topic.id)

        chooser, _ = reranker(store, Scripted(fail_later))
        found = await chooser.choose(ANNA, "x", hits)
        assert [each.id for each in found.topics] == [hits[2].topic.id]
        assert found.fallback == "llm_unreachable"


async def test_a_model_that_only_loads_is_stopped_after_three_times(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        hits = await hits_of(store)
        scripted = Scripted(lambda _request: load(hits[0].topic.id))
        chooser, metrics = reranker(store, scripted)
        found = await chooser.choose(ANNA, "x", hits)
        assert [each.id for each in found.topics] == [hits[0].topic.id]
        assert metrics.reranker_loads.sum == 3
        assert len(scripted.requests) == 5
        assert not scripted.requests[3].tools


@pytest.mark.parametrize("arguments", ["", "{", '{"ids": "1"}', '{"ids": [true, "1", null]}', "[[", '{"ids": [99]}'])
async def test_calls_that_are_none(tmp_path: Path, arguments: str) -> None:
    async with running_store(tmp_path) as store:
        hits = await hits_of(store)
        call = Completion(text="", tool_calls=(ToolCall(id="c", name="get_topics_content", arguments=arguments),))
        said = iter([call, answer(hits[1].topic.id)])
        scripted = Scripted(lambda _request: next(said))
        chooser, _ = reranker(store, scripted)
        found = await chooser.choose(ANNA, "x", hits)
        assert [each.id for each in found.topics] == [hits[1].topic.id]
        assert "no such topics" in scripted.requests[1].messages[-1].content


async def test_a_model_that_never_answers_ends_after_a_minute(tmp_path: Path, quick_clock: MockClock) -> None:
    class Silent(Scripted):
        async def stream(self, request: Request, on_delta) -> Completion:
            await trio.sleep_forever()
            raise AssertionError

    async with running_store(tmp_path) as store:
        hits = await hits_of(store)
        chooser, _ = reranker(store, Silent(lambda _request: ""))
        found = await chooser.choose(ANNA, "x", hits)
        assert found.fallback == "timeout"
        assert len(found.topics) == 3


def test_the_line_of_a_candidate() -> None:
    assert chooser_module.line(topic(7, chars=30_000, summary="a\nb"), 0.8123) == (
        "#7 [0.81] 2026-01-01 00:00 to 2026-01-01 00:00, 1 messages, 30000 characters, long: a b"
    )


async def test_memory_search_tells_the_topics_of_what_it_found(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        made = await fill(store)
        off = Embedder(SystemClock(), enabled=False)
        search = MemorySearch(store.readers, off, SystemClock(), searching(store))
        page = await search.search("пирог", HistoryFilters(user=ANNA))
        best = made["anna"][0]
        assert page.topics[0] == TopicResult(
            id=best.id,
            chat=best.chat,
            summary=best.summary,
            first_at=best.first_at,
            last_at=best.last_at,
            messages=1,
            score=page.topics[0].score,
        )
        told = {"user": "anna", "results": [], "topics": [attrs.asdict(each) for each in page.topics]}
        answer = {**told, "degraded": [], "words_left_out": [], "words": ["пирог"], "total": 0}
        shown = search_lines(answer)
        assert shown[:2] == [f"topic  {best.first_at[:10]}  main  1 message", f"    {best.summary}"]
        assert (await search.search("пирог", HistoryFilters(user=UserId("nobody")))).topics == ()
        assert (await search.search("пирог", HistoryFilters(user=ANNA, role=Role.USER))).topics == ()
