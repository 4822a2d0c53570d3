"""An embedder's handle over a loaded model, without the actor: for commands that run without a server."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import attrs

from klaw.actor.clock import Clock, SystemClock
from klaw.actor.threads import Threads
from klaw.config.schema import AutoRagConfig, EngineConfig
from klaw.domain.embedding import EmbedderState
from klaw.errors import ModelError
from klaw.memory.embed.embedder import Embedder, EmbeddingUnavailable
from klaw.memory.embed.passage import vectors_id
from klaw.memory.recall.recall import Recall
from klaw.store.engine.database import Readers, open_readers
from klaw.store.search import vectors
from klaw.store.store import read_offline

READERS = 1


class ReadyEmbedder(Embedder):
    """Answers every query, one after the other, in a thread of its own.

    Args:
        embed: a query's text to its vector, little-endian float32 bytes; blocks.
        random_cosine: of the model.
        clock: of its status.
    """

    def __init__(self, embed: Callable[[str], bytes], random_cosine: float, clock: Clock) -> None:
        super().__init__(clock, enabled=True)
        self._embed = embed
        self._threads = Threads("onnx", 1)
        self.random_cosine = random_cosine
        self.enter(EmbedderState.READY)

    async def query(self, text: str) -> bytes:
        """The vector of a query.

        Raises:
            EmbeddingUnavailable: the model failed, or not all vectors are of it yet.

        Cancellation: waits until the work is done.
        """
        if self.status.state is EmbedderState.REEMBEDDING:
            raise EmbeddingUnavailable("reembedding", f"reembedding:{self.status.reembedded_percent}%")
        try:
            return await self._threads.run(self._embed, text)
        except ModelError as error:
            raise EmbeddingUnavailable("failed") from error


@attrs.frozen(kw_only=True)
class OfflineRecall:
    """What recalls without a server are made of."""

    readers: Readers
    embedder: Embedder
    missing: str | None
    """Why there are no vectors, as a code: ``embedding_off``, ``no_vectors``, ``no_model``, ``other_model``; None when
    there are."""

    def recall(self, config: AutoRagConfig, clock: Clock) -> Recall:
        return Recall(self.readers, self.embedder, config, clock)


@asynccontextmanager
async def open_recall(database: Path, config: EngineConfig, folder: Path) -> AsyncIterator[OfflineRecall]:
    """Open a database for reading and load the model, if it is there and is the one that the stored vectors are of.

    A server that runs beside it is not disturbed.

    Args:
        database: klaw.db.
        config: the installation's.
        folder: of the embedding model.

    Raises:
        StorageError: the database cannot be read.
    """
    stored = read_offline(database, vectors.model)
    clock = SystemClock()
    embedder, missing = await _load(config, folder, stored[0] if stored else None, clock)
    async with open_readers(database, READERS) as readers:
        if missing is None:
            min_tokens = config.auto_rag.min_message_tokens
            waiting = await readers.run(vectors.count_unembedded, min_tokens)
            embedder.count(embedded=await readers.run(vectors.count_embedded), waiting=waiting)
            if unfinished := await readers.run(vectors.reembedding):
                embedder.begin_reembedding(unfinished)
        yield OfflineRecall(readers=readers, embedder=embedder, missing=missing)


async def _load(
    config: EngineConfig, folder: Path, stored_model: str | None, clock: Clock
) -> tuple[Embedder, str | None]:
    off = Embedder(clock, enabled=False)
    if not config.embedding.enabled:
        return off, "embedding_off"
    if stored_model is None:
        return off, "no_vectors"
    from klaw.memory.embed.model import EmbeddingModel  # loads ONNX Runtime

    try:
        model = await Threads("onnx", 1).run(lambda: EmbeddingModel.load(folder, threads=config.embedding.threads))
    except ModelError:
        return off, "no_model"
    if vectors_id(model.model_id) != stored_model:
        model.close()
        return off, "other_model"

    def embed(text: str) -> bytes:
        return bytes(model.embed([text], kind="query")[0].astype("<f4").tobytes())

    return ReadyEmbedder(embed, model.random_cosine, clock), None
