"""The archivist over a real store, with models that answer all kinds of things."""

import json
from pathlib import Path

import pytest
import trio

from klaw.actor.clock import SystemClock
from klaw.config.memory import TopicsConfig
from klaw.domain.message import MessageKind, Role
from klaw.domain.names import UserId
from klaw.llm.errors import ProviderNetworkError, ProviderTimeout
from klaw.llm.types import Request
from klaw.memory.archivist import Archivist
from klaw.memory.embed.embedder import Embedder, EmbedderState
from klaw.store.kinds import messages, topic_vectors, topics
from klaw.store.search import vectors as stored_vectors
from klaw.store.store import Store
from tests.support.reindexing import DIMENSION, MODEL, unit
from tests.support.scripted import Scripted, TestClock, archiving, lines_of, one_topic, split_answer
from tests.support.stores import START, new, running_store
from tests.support.topics import ANNA, flaws_of
from tests.support.waiting import HANG_S

LATER = START + 1_000_000


class SureEmbedder(Embedder):
    """Vectors as a test wants them: those of texts that share a word of the list are near to each other."""

    def __init__(self, *alike: str) -> None:
        super().__init__(SystemClock(), enabled=True)
        self.alike = alike
        self.enter(EmbedderState.READY)
        self.made = 0

    async def passage_in_background(self, text: str) -> bytes:
        await trio.lowlevel.checkpoint()
        self.made += 1
        for number, word in enumerate(self.alike):
            if word in text:
                return unit(1000 + number)
        return unit(sum(text.encode()))


def off() -> Embedder:
    return Embedder(SystemClock(), enabled=False)


async def tell(store: Store, *texts: str, at: float = START, user: str = "anna", chat: str = "main") -> list[int]:
    made = [new(text, user=user, chat=chat, at=at + n) for n, text in enumerate(texts)]
    return [each.message.rowid for each in await store.writer.run(messages.append, made)]


async def known(store: Store, user: str = "anna"):
    return (await store.readers.run(topics.of_user, UserId(user)))[::-1]


async def settled(archivist: Archivist) -> None:
    archivist.nudge()
    with trio.fail_after(HANG_S):
        await archivist.wait_idle()


async def test_a_finished_session_becomes_topics_with_all_its_messages(tmp_path: Path) -> None:
    def answer(request: Request) -> str:
        assert lines_of(request)[2] == "#3 [2025-10-09 08:53] user: Купить хлеб"
        return split_answer(("Поездка", 1, 2), ("Покупки", 3, 3))

    async with running_store(tmp_path) as store:
        await tell(store, "Когда едем?", "в субботу", "Купить хлеб")
        clock = TestClock(START + 3_000)
        async with archiving(store, Scripted(answer), clock, off()) as (archivist, metrics):
            await settled(archivist)
            assert await known(store) == []  # the session is not over
            assert archivist.status.unarchived == 3
            clock.at = LATER
            await settled(archivist)
            found = await known(store)
            assert [(topic.summary, topic.messages) for topic in found] == [("Поездка", 2), ("Покупки", 1)]
            assert metrics.extracted.value == 2
            assert metrics.gaps.value == 0
            assert sum(metrics.size_chars.counts) == 2
            assert sum(metrics.splitter_s.counts) == 1
            assert archivist.status.unarchived == 0
    assert flaws_of(tmp_path / "klaw.db") == {}


@pytest.mark.parametrize(
    "said",
    [
        "I cannot help with that.",
        "",
        '{"topics": []}',
        '{"topics": [{"summary": "", "start_msg_id": 1, "end_msg_id": 2}]}',
        '{"topics": [{"summary": "cut off", "start_msg',
    ],
)
async def test_an_answer_that_cannot_be_used_is_asked_for_once_more_and_then_all_is_one_conversation(
    tmp_path: Path, said: str
) -> None:
    async with running_store(tmp_path) as store:
        await tell(store, "Привет", "как дела")
        scripted = Scripted(lambda _request: said)
        async with archiving(store, scripted, TestClock(LATER), off()) as (archivist, metrics):
            await settled(archivist)
            (topic,) = await known(store)
            assert (topic.summary, topic.general, topic.messages) == ("Общий разговор", True, 2)
            assert len(scripted.requests) == 2
            assert "cannot be used" in scripted.requests[1].messages[-1].content
            assert (metrics.splitter_fallbacks.value, metrics.gaps.value) == (1, 2)


async def test_what_the_model_leaves_out_goes_to_the_general_conversation(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        rowids = await tell(store, *(f"message {n}" for n in range(6)))
        scripted = Scripted(lambda _request: split_answer(("b", 4, 99), ("a", 2, 4), ("nobody's", 700, 800)))
        async with archiving(store, scripted, TestClock(LATER), off()) as (archivist, metrics):
            await settled(archivist)
            found = {topic.summary: topic for topic in await known(store)}
            assert set(found) == {"a", "b", "General conversation"}
            of = {name: await store.readers.run(topics.members, ANNA, topic.id) for name, topic in found.items()}
            assert of == {"a": rowids[1:4], "b": rowids[4:], "General conversation": rowids[:1]}
            assert metrics.gaps.value == 1


async def test_two_interleaved_chats_and_two_users_are_kept_apart(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        for n in range(8):
            await tell(store, f"text {n}", at=START + n, chat="ab"[n % 2], user=["anna", "boris"][n // 4])
        scripted = Scripted(one_topic)
        async with archiving(store, scripted, TestClock(LATER), off()) as (archivist, _):
            await settled(archivist)
            for user in ("anna", "boris"):
                assert [(topic.chat, topic.messages) for topic in await known(store, user)] == [
                    (f"{user}:a", 2),
                    (f"{user}:b", 2),
                ]
        assert not any("text 1" in line and "text 0" in line for each in scripted.requests for line in lines_of(each))
    assert flaws_of(tmp_path / "klaw.db") == {}


async def test_a_session_of_only_tool_calls_asks_no_model(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        call = {"user": "anna", "role": Role.ASSISTANT, "kind": MessageKind.TOOL_CALL}
        await store.writer.run(messages.append, [new("{}", at=START, **call), new("{}", at=START + 1, **call)])
        scripted = Scripted(one_topic)
        async with archiving(store, scripted, TestClock(LATER), off()) as (archivist, metrics):
            await settled(archivist)
            (topic,) = await known(store)
            assert (topic.general, topic.messages, scripted.requests, metrics.gaps.value) == (True, 2, [], 0)


async def test_a_session_of_one_message_and_one_of_400_identical_ones(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        await tell(store, *["одно и то же"] * 401)
        await tell(store, "alone", at=START + 100_000)
        scripted = Scripted(one_topic)
        async with archiving(store, scripted, TestClock(LATER), off()) as (archivist, _):
            await settled(archivist)
            assert sorted(topic.messages for topic in await known(store)) == [1, 1, 400]


async def test_a_model_with_a_short_context_gets_a_session_in_parts(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        await tell(store, *(f"{n} " + "слово " * 200 for n in range(120)))
        scripted = Scripted(one_topic, context_tokens=4_000)
        async with archiving(store, scripted, TestClock(LATER), off()) as (archivist, _):
            await settled(archivist)
            found = await known(store)
            assert len(scripted.requests) > 1
            assert sum(topic.messages for topic in found) == 120


async def test_too_large_topics_are_divided_again_and_at_last_by_size(tmp_path: Path) -> None:
    def answer(request: Request) -> str:
        lines = lines_of(request)
        if len(lines) == 12:
            return split_answer(("whole", 1, 12))
        raise AssertionError("the second question is about the same messages")

    async with running_store(tmp_path) as store:
        await tell(store, *("ж" * 500 for _ in range(12)))
        config = TopicsConfig(enabled=True, split_threshold_chars=1_200)
        async with archiving(store, Scripted(answer), TestClock(LATER), off(), config=config) as (archivist, _):
            await settled(archivist)
            found = await known(store)
            assert [topic.summary for topic in found][:2] == ["whole (часть 1 из 6)", "whole (часть 2 из 6)"]
            assert all(topic.chars <= 1_200 for topic in found)


async def test_a_failing_chunk_backs_off_alone(tmp_path: Path) -> None:
    def answer(request: Request) -> str:
        if any("poison" in line for line in lines_of(request)):
            raise ProviderTimeout("no answer")
        return one_topic(request)

    async with running_store(tmp_path) as store:
        await tell(store, "poison")
        await tell(store, "good", at=START + 10_000)
        await tell(store, "better", at=START + 20_000)
        scripted = Scripted(answer)
        async with archiving(store, scripted, TestClock(LATER), off()) as (archivist, metrics):
            await settled(archivist)
            assert [topic.summary for topic in await known(store)] == ["about good", "about better"]
            calls = len(scripted.requests)
            for _ in range(5):  # nothing is tried again in a loop, however often it is nudged
                await settled(archivist)
            assert len(scripted.requests) == calls == 3
            assert metrics.failed.value == 1
            assert archivist.status.failing == 1
            assert archivist.status.unarchived == 1
            now = trio.current_time()
            key = ("chunk", ("anna:main", 1))
            assert archivist.backoff.waits(key, now)
            archivist.backoff.succeed(key)
            scripted.answer = one_topic
            await settled(archivist)
            assert len(await known(store)) == 3
            assert archivist.status.error is None


async def test_a_topic_that_waits_for_its_vector_does_not_hide_an_error(tmp_path: Path) -> None:
    def answer(request: Request) -> str:
        if any("poison" in line for line in lines_of(request)):
            raise ProviderTimeout("no answer")
        return one_topic(request)

    async with running_store(tmp_path) as store:
        await tell(store, "good")
        await tell(store, "poison", at=START + 10_000)
        async with archiving(store, Scripted(answer), TestClock(LATER), off()) as (archivist, _):
            await settled(archivist)
            assert len(await known(store)) == 1
            assert archivist.status.error == "ProviderTimeout"


async def test_an_outage_is_no_storm(tmp_path: Path) -> None:
    def down(_request: Request) -> str:
        raise ProviderNetworkError("down")

    async with running_store(tmp_path) as store:
        for n in range(40):
            await tell(store, f"session {n}", at=START + n * 10_000)
        scripted = Scripted(down)
        async with archiving(store, scripted, TestClock(LATER), off()) as (archivist, _):
            for _ in range(10):
                await settled(archivist)
            assert len(scripted.requests) == 3


async def test_a_restart_of_the_actor_does_not_end_the_pauses_and_loses_nothing(tmp_path: Path) -> None:
    def down(_request: Request) -> str:
        raise ProviderNetworkError("down")

    archivist = None
    async with running_store(tmp_path) as store:
        await tell(store, "one")
        scripted = Scripted(down)
        for _ in range(3):
            async with archiving(store, scripted, TestClock(LATER), off(), archivist=archivist) as (archivist, _):
                await settled(archivist)
        assert len(scripted.requests) == 1
        async with archiving(store, Scripted(one_topic), TestClock(LATER), off()) as (fresh, _):
            await settled(fresh)
            assert len(await known(store)) == 1


async def test_a_new_topic_is_merged_with_one_that_the_model_names(tmp_path: Path) -> None:
    def answer(request: Request) -> str:
        if request.json_schema and request.json_schema.name == "merge":
            material = request.messages[1].content
            if "роща" not in material.split("Older topics:")[0]:
                return json.dumps({"should_merge": False, "reason": "", "topic": 0, "merged_summary": ""})
            place = next(
                n for n, line in enumerate(material.split("Older topics:\n")[1].split("\n"), 1) if "дача" in line
            )
            return json.dumps({"should_merge": True, "reason": "r", "topic": place, "merged_summary": "дача и роща"})
        return one_topic(request)

    async with running_store(tmp_path) as store:
        await stored_vectors.prepare(store.writer, MODEL, DIMENSION)
        await tell(store, "едем: дача")
        await tell(store, "другое", at=START + 10_000)
        await tell(store, "едем: роща", at=START + 20_000)
        await tell(store, "едем: чужой", at=START + 30_000, user="boris")
        await tell(store, "едем: иной чат", at=START + 40_000, chat="second")
        scripted, embedder = Scripted(answer), SureEmbedder("едем", "дача и роща")
        async with archiving(store, scripted, TestClock(LATER), embedder) as (archivist, metrics):
            await settled(archivist)
            found = await known(store)
            assert [(topic.summary, topic.messages) for topic in found] == [
                ("about другое", 1),
                ("дача и роща", 2),
                ("about едем: иной чат", 1),
            ]
            assert all(topic.consolidated for topic in found)
            assert metrics.merged.value == 1
            assert await store.readers.run(topic_vectors.count_unembedded) == 0
            calls = len(scripted.requests)
            await settled(archivist)
            assert len(scripted.requests) == calls  # each is compared once
            # Nothing of another user or chat was shown.
            assert not any(
                "чужой" in each.messages[1].content and "дача" in each.messages[1].content for each in scripted.requests
            )
    assert flaws_of(tmp_path / "klaw.db") == {}


@pytest.mark.parametrize(
    "merge",
    [
        {"should_merge": True, "reason": "", "topic": 3, "merged_summary": "third"},
        {"should_merge": True, "reason": "", "topic": 1, "merged_summary": ""},
        {"should_merge": "maybe"},
        "no",
    ],
)
async def test_a_merge_that_is_none_leaves_both_and_is_not_asked_for_again(tmp_path: Path, merge) -> None:
    def answer(request: Request) -> str:
        if request.json_schema and request.json_schema.name == "merge":
            return json.dumps(merge)
        return one_topic(request)

    async with running_store(tmp_path) as store:
        await stored_vectors.prepare(store.writer, MODEL, DIMENSION)
        await tell(store, "едем 1")
        await tell(store, "едем 2", at=START + 10_000)
        scripted = Scripted(answer)
        async with archiving(store, scripted, TestClock(LATER), SureEmbedder("едем")) as (archivist, metrics):
            await settled(archivist)
            assert len(await known(store)) == 2
            assert metrics.merged.value == 0
            calls = len(scripted.requests)
            await settled(archivist)
            assert len(scripted.requests) == calls


async def test_topics_do_not_grow_without_end(tmp_path: Path) -> None:
    """A model that always says yes cannot make one topic of everything."""

    def answer(request: Request) -> str:
        if request.json_schema and request.json_schema.name == "merge":
            return json.dumps({"should_merge": True, "reason": "", "topic": 1, "merged_summary": "едем everywhere"})
        return one_topic(request)

    async with running_store(tmp_path) as store:
        await stored_vectors.prepare(store.writer, MODEL, DIMENSION)
        for n in range(8):
            await tell(store, f"едем {n} " + "x" * 18_000, at=START + n * 10_000)
        async with archiving(store, Scripted(answer), TestClock(LATER), SureEmbedder("едем")) as (archivist, _):
            await settled(archivist)
            found = await known(store)
            assert len(found) >= 4
            assert all(topic.chars <= 50_000 for topic in found)


async def test_without_an_embedder_topics_are_stored_and_compared_later(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        await tell(store, "hello there")
        clock = TestClock(LATER)
        async with archiving(store, Scripted(one_topic), clock, off()) as (archivist, _):
            await settled(archivist)
            (topic,) = await known(store)
            assert not topic.consolidated
        await stored_vectors.prepare(store.writer, MODEL, DIMENSION)
        async with archiving(store, Scripted(one_topic), clock, SureEmbedder()) as (archivist, _):
            await settled(archivist)
            (topic,) = await known(store)
            assert topic.consolidated
            assert await store.readers.run(topic_vectors.count_unembedded) == 0


async def test_the_hook_is_called_once_for_each_topic_and_again_after_a_failure(tmp_path: Path) -> None:
    seen: list[tuple[str, list[str]]] = []

    async def hook(topic, own) -> None:
        await trio.lowlevel.checkpoint()
        seen.append((topic.summary, [message.content for message in own]))
        if len(seen) == 1:
            raise ProviderTimeout("no answer")

    async with running_store(tmp_path) as store:
        await tell(store, "first")
        await tell(store, "second", at=START + 10_000)
        async with archiving(store, Scripted(one_topic), TestClock(LATER), off(), on_topic=[hook]) as (archivist, _):
            await settled(archivist)
            assert seen == [("about first", ["first"]), ("about second", ["second"])]
            archivist.backoff.succeed(("topic", 1))
            await settled(archivist)
            await settled(archivist)
            assert [each[0] for each in seen] == ["about first", "about second", "about first"]
            assert all(topic.facts for topic in await known(store))
