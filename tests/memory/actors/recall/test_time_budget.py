"""``autoRag.timeBudgetMs``: steps are cut to meet it, the result names them, and the next recall is whole again.

Slow steps are imitated: statements of a step move the clock that the search looks at.
"""

import threading
from collections.abc import Callable
from pathlib import Path

import apsw
import numpy as np
import pytest
import structlog.testing
import trio
import trio.testing

from klaw.actor.clock import FixedClock, SystemClock
from klaw.actor.threads import Threads
from klaw.config.memory import AutoRagConfig
from klaw.domain.names import LOCAL_USER, chat_id
from klaw.errors import EmbeddingUnavailable, ModelError
from klaw.memory.embed.embedder import QUESTIONS, Embedder, EmbedderState
from klaw.memory.embed.token_coder import Reading
from klaw.memory.recall.recall import Recall
from klaw.store.kinds import messages
from klaw.store.search import ranked_lists
from klaw.store.search import vectors as stored_vectors
from klaw.store.search.chat_search import ChatScope
from klaw.store.store import Store
from tests.support.memory.ready_embedder import ReadyEmbedder
from tests.support.stores import START, new, running_store
from tests.support.waiting import HANG_S, until

MAIN = chat_id(LOCAL_USER, "main")
DIMENSION = 8
TOPICS = ["сад и калитка", "the garden gate", "кошка Мурка", "a trip to Kazan"]
QUESTION = "Какой код у калитки, what is the code of the gate?"


def vector(number: int) -> bytes:
    made = np.random.default_rng(number % 4).normal(size=DIMENSION).astype("<f4")
    return bytes((made / np.linalg.norm(made)).tobytes())


class SlowSteps:
    """A clock that a step's own statements move on."""

    def __init__(self) -> None:
        self.at = 0.0
        self.slow: dict[str, float] = {}
        """Part of a statement's text to the seconds that it takes."""

    def now(self) -> float:
        return self.at

    def watch(self, connection: apsw.Connection) -> None:
        connection.trace_v2(apsw.SQLITE_TRACE_STMT, self._begin, id=self)

    def unwatch(self, connection: apsw.Connection) -> None:
        connection.trace_v2(0, None, id=self)

    def _begin(self, event: dict[str, str]) -> None:
        self.at += next((spent for part, spent in self.slow.items() if part in event["sql"]), 0.0)


async def fill(store: Store, count: int = 200) -> ChatScope:
    appended = await store.writer.run(
        messages.append,
        [new(f"{TOPICS[n % 4]}: заметка {n}, code {4700 + n}", at=START + 60 * n) for n in range(count)],
    )
    await stored_vectors.prepare(store.writer, "test", DIMENSION)
    await store.writer.run(
        stored_vectors.store, "test", [(each.message.rowid, vector(each.message.seq)) for each in appended]
    )
    return ChatScope(chat=MAIN, first_seq=1, end_seq=count + 1)


def recall_over(store: Store, steps: SlowSteps, embed: Callable[[str], bytes] = lambda _text: vector(0)) -> Recall:
    embedder = ReadyEmbedder(lambda text: Reading(embed(text)), 0.0, SystemClock())
    config = AutoRagConfig(time_budget_ms=2_000, relevance_threshold=1)
    return Recall(store.readers, embedder, config, FixedClock(START), monotonic=steps.now)


async def watch_readers(store: Store, act: Callable[[apsw.Connection], None]) -> None:
    """Reach both connections of the pool, which are used in turn."""
    await store.readers.run(act)
    await store.readers.run(act)


@pytest.mark.parametrize(
    ("slow", "cut"),
    [
        # Looking for the first word takes too long: it ends, and nothing else is begun.
        ("messages_fts", ["cut_words"]),
        # The KNN does: the words are there.
        ("vec_messages", ["cut_dated"]),
        ("json_each", []),
    ],
)
async def test_steps_after_a_slow_one_are_left_out_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slow: str, cut: list[str]
) -> None:
    monkeypatch.setattr(ranked_lists, "_PROGRESS_STEPS", 1_000_000)  # so that the slow step itself ends
    steps = SlowSteps()
    async with running_store(tmp_path) as store:
        scope = await fill(store)
        recall = recall_over(store, steps)
        whole = await recall.search(QUESTION, scope)
        assert (whole.degraded, bool(whole.kept)) == ((), True)
        await watch_readers(store, steps.watch)
        steps.slow = {slow: 60.0}
        slowed = await recall.search(QUESTION, scope)
        assert set(cut) <= set(slowed.degraded)
        if "cut_words" not in cut:
            assert slowed.kept, "what was found in time is still judged"
        if cut:
            assert not set(slowed.timings_ms) & {step.removeprefix("cut_") for step in cut} - {"words"}
        steps.slow = {}
        again = await recall.search(QUESTION, scope)
        assert again.degraded == ()
        assert [each.message.seq for each in again.kept] == [each.message.seq for each in whole.kept]
        await watch_readers(store, steps.unwatch)


async def test_a_statement_is_interrupted_in_its_middle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And its connection works on: the next search of the same connection is whole."""
    monkeypatch.setattr(ranked_lists, "_PROGRESS_STEPS", 10)
    steps = SlowSteps()
    async with running_store(tmp_path) as store:
        scope = await fill(store)
        recall = recall_over(store, steps)
        await watch_readers(store, steps.watch)
        steps.slow = {"messages_fts": 60.0}
        slowed = await recall.search(QUESTION, scope)
        assert "cut_words" in slowed.degraded
        assert all(each.bm25 is None for each in slowed.candidates)
        steps.slow = {}
        for _ in range(4):
            again = await recall.search(QUESTION, scope)
            assert again.degraded == ()
            assert again.kept
        await watch_readers(store, steps.unwatch)


async def test_a_late_vector_leaves_time_for_the_words(tmp_path: Path) -> None:
    class Late(ReadyEmbedder):
        async def read(self, text: str) -> Reading:
            await trio.sleep_forever()
            raise AssertionError

    async with running_store(tmp_path) as store:
        scope = await fill(store)
        embedder = Late(lambda _text: Reading(b""), 0.0, SystemClock())
        recall = Recall(store.readers, embedder, AutoRagConfig(time_budget_ms=250), FixedClock(START))
        with trio.fail_after(HANG_S):
            found = await recall.search("Какой код у калитки?", scope)
        assert "embedding_late" in found.degraded
        assert found.kept


async def test_a_question_that_was_given_up_is_not_embedded() -> None:
    """It waits behind another; when its turn went on without it, the next question must not wait for it. Too many are
    refused, and a model that fails costs its own question only."""
    read: list[str] = []
    entered, go = threading.Event(), threading.Event()

    class Model:
        random_cosine = 0.0

        def read(self, texts: list[str], *, kind: str) -> list[Reading]:
            assert kind == "query"
            entered.set()
            assert go.wait(HANG_S)
            read.extend(texts)
            if "error" in texts[0]:
                raise ValueError(texts[0])
            return [Reading(texts[0].encode())]

    embedder = Embedder(SystemClock(), enabled=True)
    threads = Threads("onnx query", 1)
    embedder.serve(Model(), threads, threads, local=True)  # type: ignore[arg-type]
    embedder.enter(EmbedderState.READY)
    with trio.fail_after(HANG_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(embedder.query, "What is the code?")
            await until(entered.is_set)
            with trio.move_on_after(0):
                await embedder.query("Какой код у калитки?")
            for _ in range(QUESTIONS - 1):
                nursery.start_soon(embedder.query, "And where is the key?")
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(EmbeddingUnavailable, match="busy"):
                await embedder.query("One too many")
            go.set()
        assert read == ["What is the code?", *["And where is the key?"] * (QUESTIONS - 1)]
        with pytest.raises(EmbeddingUnavailable, match="failed"):
            await embedder.query("error")
        assert await embedder.query("Next?") == b"Next?"


async def test_a_model_of_this_machine_that_fails_is_in_the_log() -> None:
    """It restarts nothing, so the log is the only place that tells the operator."""

    class Broken:
        random_cosine = 0.0

        def read(self, texts: list[str], *, kind: str) -> list[Reading]:
            raise ModelError(f"{kind}: {texts}")

    embedder, threads = Embedder(SystemClock(), enabled=True), Threads("onnx query", 1)
    embedder.serve(Broken(), threads, threads, local=True)  # type: ignore[arg-type]
    embedder.enter(EmbedderState.READY)
    with structlog.testing.capture_logs() as logs, pytest.raises(EmbeddingUnavailable, match="failed"):
        await embedder.query("What is the code?")
    assert logs == [{"event": "embed_failed", "log_level": "warning", "count": 1, "error": "ModelError"}]


async def test_busy_readers_do_not_hold_a_reply(tmp_path: Path) -> None:
    """All connections are taken for long: that recall is given up in time, and the next one works."""
    steps = SlowSteps()
    async with running_store(tmp_path) as store, trio.open_nursery() as nursery:
        scope = await fill(store, 20)
        embedder = ReadyEmbedder(lambda _text: Reading(vector(0)), 0.0, SystemClock())
        recall = Recall(store.readers, embedder, AutoRagConfig(time_budget_ms=20), SystemClock())
        freed = trio.Event()
        busy = trio.Semaphore(0)

        async def occupy() -> None:
            async with store.readers._limit:
                busy.release()
                await freed.wait()

        for _ in range(2):
            nursery.start_soon(occupy)
            await busy.acquire()
        with trio.fail_after(HANG_S):
            late = await recall.search(QUESTION, scope)
        assert "search_late" in late.degraded  # on a busy machine the question's vector is late as well
        assert late.candidates == ()
        freed.set()
        assert (await recall_over(store, steps).search(QUESTION, scope)).kept


async def test_a_given_up_search_does_not_slow_the_next(tmp_path: Path) -> None:
    """The connection that is still busy with it is not the one that is used next."""
    async with running_store(tmp_path) as store:
        used: list[int] = []
        for _ in range(4):
            await store.readers.run(lambda connection: used.append(id(connection)))
        assert used[0] != used[1]
        assert used[:2] == used[2:]


async def test_the_place_of_one_message_is_found_deeper(tmp_path: Path) -> None:
    steps = SlowSteps()
    async with running_store(tmp_path) as store:
        scope = await fill(store, 600)
        recall = recall_over(store, steps)
        found = await recall.search(QUESTION, scope)
        considered = {each.message.rowid for each in found.candidates}
        outside = next(rowid for rowid in range(1, 601) if rowid not in considered)
        place = await recall.rank_of(QUESTION, scope, outside)
        assert place.place is not None
        assert place.place > 1
        assert place.found >= found.found
        assert (await recall.rank_of(QUESTION, scope, 10_000)).place is None
