"""Another embedding model: the embedder over a real store, with the real model and a tiny one.

Vector search is off until all is embedded again, also across restarts; what does not work replaces nothing.
"""

import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
import trio

from klaw.actor.clock import SystemClock
from klaw.actor.supervisor import Supervisor
from klaw.config.memory import EmbeddingConfig
from klaw.errors import EmbeddingUnavailable
from klaw.memory.embed.embedder import Embedder, EmbedderState, EmbedderStatus
from klaw.memory.embed.passage import PassageText
from klaw.memory.embed.token_coder import Reading
from klaw.memory.embed.worker import ACTOR_NAME, GATHER_ROWS, Worker
from klaw.store.engine import vector_model
from klaw.store.kinds import messages as stored_messages
from klaw.store.search import vector_search, vectors
from klaw.store.store import Store
from tests.support.stores import new, running_store
from tests.support.tiny_model import ROWS, write_tiny_model
from tests.support.waiting import HANG_S, until

TEXTS = [
    "The wifi password of the summer house is tangerine-42.",
    "Пароль от вайфая на даче — мандарин-42, запиши его.",
    "My sister Anna is allergic to peanuts and walnuts.",
    "Моя сестра Аня не переносит арахис и грецкий орех.",
]


class Gate:
    """Lets the backfill embed as many messages as it is told to."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self._permits = threading.Semaphore(0)
        self._open = threading.Event()

    def pass_through(self, texts: list[PassageText]) -> None:
        while not self._open.is_set() and not self._permits.acquire(timeout=0.01):
            pass
        self.seen += [each.text for each in texts]

    def allow(self, messages: int) -> None:
        self._permits.release(messages)

    def open(self) -> None:
        self._open.set()


@attrs.define(kw_only=True, eq=False)
class Gated(Worker):
    """Waits at a gate before each batch."""

    gate: Gate

    def _read_passages(self, passages: list[PassageText]) -> list[Reading]:
        self.gate.pass_through(passages)
        return super()._read_passages(passages)


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    made.open()


@pytest.fixture
def tiny(embedding_model_dir: Path, tmp_path: Path) -> Path:
    return write_tiny_model(tmp_path / "tiny", embedding_model_dir)


@asynccontextmanager
async def running(store: Store, folder: Path, *, gate: Gate | None = None, **more: Any) -> AsyncIterator[Embedder]:
    """An embedder whose batches hold one message each, one at a time."""
    embedder = Embedder(SystemClock(), enabled=True)
    async with trio.open_nursery() as nursery:
        supervisor = Supervisor(nursery, SystemClock())
        make = Worker if gate is None else partial(Gated, gate=gate)
        worker = make(
            embedder=embedder,
            config=EmbeddingConfig(batch_tokens=1, threads=1),
            folder=folder,
            min_tokens=10,
            writer=store.writer,
            readers=store.readers,
            **more,
        )
        await supervisor.start(worker.spec())
        try:
            yield embedder
        finally:
            if gate is not None:
                gate.allow(1)  # its thread cannot be cancelled
            await supervisor.stop(ACTOR_NAME, "test is over")


async def in_state(embedder: Embedder, state: EmbedderState) -> EmbedderStatus:
    await until(lambda: embedder.status.state is state)
    return embedder.status


async def caught_up(embedder: Embedder) -> None:
    await until(lambda: embedder.status.state in (EmbedderState.READY, EmbedderState.REEMBEDDING))
    with trio.fail_after(HANG_S):
        await embedder.wait_idle()


async def filled(store: Store, folder: Path, texts: list[str] = TEXTS) -> None:
    """Messages with vectors of a model."""
    await store.writer.run(stored_messages.append, [new(text) for text in texts])
    async with running(store, folder) as embedder:
        await caught_up(embedder)
        assert embedder.status.embedded == len(texts)


async def stored_model(store: Store) -> tuple[str, int] | None:
    return await store.readers.run(vector_model.current)


async def test_a_new_model_turns_vectors_off_until_all_are_made_anew(
    tmp_path: Path, embedding_model_dir: Path, tiny: Path, gate: Gate
) -> None:
    async with running_store(tmp_path) as store:
        await filled(store, embedding_model_dir)
        async with running(store, tiny, gate=gate) as embedder:
            await in_state(embedder, EmbedderState.REEMBEDDING)
            assert embedder.status.reembedded_percent == 0
            with pytest.raises(EmbeddingUnavailable) as refused:
                await embedder.query("Какой пароль?")
            assert (refused.value.code, refused.value.degraded) == ("reembedding", "reembedding:0%")
            gate.allow(3)
            await until(lambda: embedder.status.embedded == 3)
            assert embedder.problems() == {
                "reembedding": "full text only, 75 % re-embedded: the embedding model was changed"
            }
            gate.allow(1)
            await in_state(embedder, EmbedderState.READY)
            assert embedder.problems() == {}
            assert embedder.status.reembedded_percent == 100
            query = await embedder.query(TEXTS[2])
            (nearest, *_) = await store.readers.run(vector_search.nearest, query, 1, 1, 10, 4)
            assert nearest.rowid == 3
            assert len(query) == 16 * 4
        assert await store.readers.run(vectors.reembedding) is None
        assert await store.readers.run(vectors.count_embedded) == len(TEXTS)


async def test_a_restart_in_the_middle_goes_on_and_still_says_so(
    tmp_path: Path, embedding_model_dir: Path, tiny: Path, gate: Gate
) -> None:
    async with running_store(tmp_path) as store:
        await filled(store, embedding_model_dir)
        async with running(store, tiny, gate=gate) as embedder:
            gate.allow(2)
            await until(lambda: embedder.status.embedded == 2)
    async with running_store(tmp_path) as store:
        had = await store.readers.run(vectors.count_embedded)
        assert had in (2, 3), "the one in work is finished at a stop"
        async with running(store, tiny, gate=gate) as embedder:
            status = await in_state(embedder, EmbedderState.REEMBEDDING)
            assert (status.reembedding, status.reembedded_percent) == (4, 25 * had)
            gate.open()
            await in_state(embedder, EmbedderState.READY)
        async with running(store, tiny) as embedder:
            await in_state(embedder, EmbedderState.READY)
            assert embedder.status.embedded == 4


async def test_the_newest_messages_come_first_and_new_ones_are_embedded_too(
    tmp_path: Path, embedding_model_dir: Path, tiny: Path, gate: Gate
) -> None:
    async with running_store(tmp_path) as store:
        await filled(store, embedding_model_dir)
        async with running(store, tiny, gate=gate, backfill_rows=1) as embedder:
            gate.allow(1)
            await until(lambda: embedder.status.embedded == 1)
            await store.writer.run(stored_messages.append, [new("What was said while the old vectors were replaced.")])
            gate.open()
            await in_state(embedder, EmbedderState.READY)
        assert [TEXTS.index(text) if text in TEXTS else -1 for text in gate.seen] in (
            [3, -1, 2, 1, 0],
            [3, 2, -1, 1, 0],
        )


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        (np.ones((ROWS, 16)), "gives different texts the same vector"),
        (np.full((ROWS, 16), np.nan), "not numbers"),
        (np.zeros((ROWS, 16)), "gives no usable vectors"),
    ],
    ids=["constant", "nan", "zero"],
)
async def test_a_broken_model_replaces_nothing(
    tmp_path: Path,
    embedding_model_dir: Path,
    tiny: Path,
    table: np.ndarray,
    problem: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broken = write_tiny_model(tmp_path / "broken", embedding_model_dir, table=table)
    async with running_store(tmp_path) as store:
        await filled(store, tiny)
        before = await stored_model(store)
        async with running(store, broken) as embedder:
            status = await in_state(embedder, EmbedderState.NO_MODEL)
            assert problem in (status.reason or "")
            assert problem in embedder.problems()["no_embeddings"]
        assert await stored_model(store) == before
        assert await store.readers.run(vectors.count_embedded) == len(TEXTS)
        async with running(store, tiny) as embedder:
            await in_state(embedder, EmbedderState.READY)
            assert embedder.status.waiting == 0, "nothing has to be made again"


async def test_a_model_that_comes_back_before_the_end_starts_anew(
    tmp_path: Path, embedding_model_dir: Path, tiny: Path, gate: Gate
) -> None:
    async with running_store(tmp_path) as store:
        await filled(store, tiny)
        async with running(store, embedding_model_dir, gate=gate) as embedder:
            await in_state(embedder, EmbedderState.REEMBEDDING)
        async with running(store, tiny, gate=gate) as embedder:
            status = await in_state(embedder, EmbedderState.REEMBEDDING)
            assert status.reembedding == 4
            gate.open()
            await in_state(embedder, EmbedderState.READY)
            assert embedder.status.embedded == 4


@pytest.mark.parametrize(("waiting", "percent"), [(1000, 0), (999, 0), (990, 1), (1, 99), (0, 99), (1200, 0)], ids=str)
def test_the_percentage_never_says_done_too_early(waiting: int, percent: int) -> None:
    status = EmbedderStatus(
        state=EmbedderState.REEMBEDDING, reason=None, since=0, embedded=0, waiting=waiting, reembedding=1000
    )
    assert status.reembedded_percent == percent
    assert attrs.evolve(status, state=EmbedderState.READY).reembedded_percent == 100


async def test_a_few_messages_wait_for_more(tmp_path: Path, tiny: Path) -> None:
    async with running_store(tmp_path) as store, running(store, tiny, gather_s=3_600.0) as embedder:
        await caught_up(embedder)
        await store.writer.run(stored_messages.append, [new(text) for text in TEXTS[:3]])
        embedder.nudge()
        await caught_up(embedder)
        assert (embedder.status.embedded, embedder.problems()) == (0, {}), "nobody is told that something is missing"
        more = [new(f"{TEXTS[0]} {number}") for number in range(GATHER_ROWS - 3)]
        await store.writer.run(stored_messages.append, more)
        embedder.nudge()
        await caught_up(embedder)
        assert embedder.status.embedded == GATHER_ROWS
        await store.writer.run(stored_messages.append, [new("One more message, which waits again.")])
    async with running_store(tmp_path) as store, running(store, tiny, gather_s=0.05) as embedder:
        await until(lambda: embedder.status.embedded == GATHER_ROWS + 1)
