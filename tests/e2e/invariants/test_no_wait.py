"""Invariant no-wait: an embedder that stalls delays no reply."""

import threading

import numpy as np
import trio

from klaw.memory.embed.model import EmbeddingModel
from klaw.memory.embed.token_coder import Reading
from klaw.store.search import vectors
from tests.support.inside import inside
from tests.support.llm_server import serve_llm
from tests.support.server import write_home
from tests.support.waiting import HANG_S


class StalledModel:
    """Embeds nothing, in a real thread, until it is let go."""

    model_id = "stalled"
    dimension = 384
    random_cosine = 0.77
    coder = None

    def __init__(self) -> None:
        self.go = threading.Event()
        self.entered = threading.Event()

    def read(self, texts, *, kind):
        self.entered.set()
        assert self.go.wait(HANG_S)
        return [Reading(np.full(self.dimension, self.dimension**-0.5, "<f4").tobytes()) for _ in texts]

    def close(self) -> None:
        pass


async def test_no_wait_for_a_stalled_embedder(tmp_path, monkeypatch):
    """Replies come while the embedder is stuck, and say that it was late; the vectors are made when it goes on."""
    model = StalledModel()
    monkeypatch.setattr(EmbeddingModel, "load", classmethod(lambda *_args, **_named: model))
    texts = [
        "The spare key of the garden house lies under the third flower pot from the left.",
        "Запасной ключ от дачи лежит под третьим цветочным горшком слева, не забудь его забрать.",
        "Where does the spare key of the garden house lie?",
        "Где лежит запасной ключ от дачи?",
    ]
    async with serve_llm() as llm:
        home = write_home(
            tmp_path, llm=llm.url, models=tmp_path, context={"slidingWindow": 2}, autoRag={"timeBudgetMs": 150}
        )
        async with inside(home) as here:
            try:
                turns = [await here.ask(text) for text in texts]
                await here.until(model.entered.is_set)
                assert not model.go.is_set()
                assert here.app.memory.embedder.status.embedded == 0
                for turn, recalled in zip(turns[2:], (1, 3), strict=True):
                    assert "embedding_late" in turn.receipt["recall"]["degraded"]
                    assert recalled in turn.receipt["recall"]["kept"], "full text still recalls"
                    assert turn.timings["context"] < 100_000, "the recall's own time budget, not the embedder's"
            finally:
                model.go.set()
            await here.embedded()
            assert await here.app.core.readers.run(vectors.count_embedded) == 4
            assert here.app.memory.embedder.status.waiting == 0
            turn = await here.ask("Where does the spare key lie then?")
            assert turn.receipt["recall"]["degraded"] == []


async def test_no_wait_at_the_stop(tmp_path, monkeypatch):
    """A stalled embedder holds up the orderly stop no longer than shutdown.embedDrainSeconds; nothing is lost."""
    model = StalledModel()
    monkeypatch.setattr(EmbeddingModel, "load", classmethod(lambda *_args, **_named: model))
    async with serve_llm() as llm:
        home = write_home(tmp_path, llm=llm.url, models=tmp_path, shutdown={"embedDrainSeconds": 0})
        with trio.fail_after(HANG_S):
            async with inside(home) as here:
                await here.ask("A message that is long enough to get a vector some day, but not today.")
                await here.until(model.entered.is_set)
                # The thread itself cannot be cancelled; it is let go once the stop is past the drain.
                threading.Timer(0.5, model.go.set).start()
        async with inside(home) as here:
            await here.embedded()
            assert await here.app.core.readers.run(vectors.count_embedded) == 1
