"""An embedder's handle over a loaded model, without the actor: for commands that run without a server."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from klaw.actor.clock import Clock
from klaw.actor.threads import Threads
from klaw.config.schema import EngineConfig
from klaw.domain.embedding import EmbedderState
from klaw.errors import EmbeddingUnavailable, ModelError
from klaw.memory.embed.embedder import Embedder
from klaw.memory.embed.passage import vectors_id
from klaw.memory.embed.token_coder import Reading
from klaw.store.engine import vector_model
from klaw.store.engine.database import Readers
from klaw.store.search import token_codes, vectors

if TYPE_CHECKING:
    from klaw.memory.embed.remote import AnyModel, Remote


class ReadyEmbedder(Embedder):
    """Answers every query, one after the other, in a thread of its own.

    Args:
        read: what the model makes of a query's text; blocks.
        random_cosine: of the model.
        clock: of its status.
    """

    def __init__(self, read: Callable[[str], Reading], random_cosine: float, clock: Clock) -> None:
        super().__init__(clock, enabled=True)
        self._read = read
        self._threads = Threads("onnx", 1)
        self.random_cosine = random_cosine
        self.enter(EmbedderState.READY)

    async def read(self, text: str) -> Reading:
        """See ``Embedder.read``.

        Raises:
            EmbeddingUnavailable: the model failed, or not all vectors are of it yet.

        Cancellation: waits until the work is done.
        """
        if self.status.state is EmbedderState.REEMBEDDING:
            raise EmbeddingUnavailable("reembedding", f"reembedding:{self.status.reembedded_percent}%")
        try:
            return await self._threads.run(self._read, text)
        except ModelError as error:
            raise EmbeddingUnavailable("failed") from error


class OfflineEmbedder(ReadyEmbedder):
    """Loads the model when somebody needs it, if it is there and is the one that the stored vectors are of.

    Args:
        readers: of the database; a server that runs beside it is not disturbed.
        config: of the installation.
        folder: of the embedding model.
        clock: of its status.
        remote: the provider's model, where that is the one.
    """

    def __init__(
        self, readers: Readers, config: EngineConfig, folder: Path, clock: Clock, remote: "Remote | None" = None
    ) -> None:
        super().__init__(lambda _text: Reading(b""), 0.0, clock)
        self.enter(EmbedderState.OFF)
        self._readers, self._config, self._folder, self._remote = readers, config, folder, remote

    async def prepare(self) -> str | None:
        """See ``Embedder.prepare``. Raises StorageError."""
        if self.status.state is not EmbedderState.OFF:
            return None
        if not self._config.embedding.enabled:
            return "embedding_off"
        readers, stored = self._readers, await self._readers.run(vector_model.current)
        if stored is None:
            return "no_vectors"
        try:
            model = await self._threads.run(self._load)
        except ModelError:
            return "no_model"
        if vectors_id(model.model_id) != stored[0]:
            model.close()
            return "other_model"
        if model.coder is not None and model.coder.id != await readers.run(token_codes.coder):
            model.coder = None
        self._read = lambda text: model.read([text], kind="query")[0]
        self.random_cosine = model.random_cosine
        waiting = await readers.run(vectors.count_unembedded, self._config.auto_rag.min_message_tokens)
        self.count(embedded=await readers.run(vectors.count_embedded), waiting=waiting)
        if unfinished := await readers.run(vectors.reembedding):
            self.begin_reembedding(unfinished)
        else:
            self.enter(EmbedderState.READY)
        return None

    def _load(self) -> "AnyModel":
        if self._remote is not None:
            return self._remote.load()
        from klaw.memory.embed.model import EmbeddingModel  # loads ONNX Runtime

        config = self._config
        return EmbeddingModel.load(self._folder, threads=config.embedding.threads, tokens=config.auto_rag.tokens)

    async def read(self, text: str) -> Reading:
        """See ``Embedder.read``."""
        if self.status.state is EmbedderState.OFF:
            raise EmbeddingUnavailable("off")
        return await super().read(text)
