"""An embedder's handle over a loaded model, without the actor: for commands that run without a server."""

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self

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
    from klaw.memory.embed.remote import AnyModel, RemoteModel


class OfflineEmbedder(Embedder):
    """Answers every query, one after the other, in a thread of its own; see ``of_home`` for the model of a home.

    Args:
        read: what the model makes of a query's text; blocks.
    """

    def __init__(self, read: Callable[[str], Reading], random_cosine: float, clock: Clock) -> None:
        super().__init__(clock, enabled=True)
        self._read = read
        self._threads = Threads("onnx", 1)
        self._prepare: Callable[[], Awaitable[str | None]] | None = None
        self.random_cosine = random_cosine
        self.enter(EmbedderState.READY)

    @classmethod
    def of_home(
        cls, readers: Readers, config: EngineConfig, folder: Path, clock: Clock, remote: "RemoteModel | None" = None
    ) -> Self:
        """An embedder that loads the model in ``prepare``, if the stored vectors are of it.

        Args:
            readers: of the database; a server that runs beside it is not disturbed.
            remote: the provider's model, where that is the one.
        """
        made = cls(lambda _text: Reading(b""), 0.0, clock)
        made.enter(EmbedderState.OFF)
        made._prepare = partial(made._load_from, readers, config, folder, remote)
        return made

    async def prepare(self) -> str | None:
        """See ``Embedder.prepare``. Raises StorageError."""
        if self._prepare is None or self.status.state is not EmbedderState.OFF:
            return None
        return await self._prepare()

    async def _load_from(
        self, readers: Readers, config: EngineConfig, folder: Path, remote: "RemoteModel | None"
    ) -> str | None:
        if not config.embedding.enabled:
            return "embedding_off"
        stored = await readers.run(vector_model.current)
        if stored is None:
            return "no_vectors"
        try:
            model = await self._threads.run(remote.load if remote is not None else partial(_load, config, folder))
        except ModelError:
            return "no_model"
        if vectors_id(model.model_id) != stored[0]:
            model.close()
            return "other_model"
        if model.coder is not None and model.coder.id != await readers.run(token_codes.coder):
            model.coder = None
        self._read = lambda text: model.read([text], kind="query")[0]
        self.random_cosine = model.random_cosine
        waiting = await readers.run(vectors.count_unembedded, config.auto_rag.min_message_tokens)
        self.count(embedded=await readers.run(vectors.count_embedded), waiting=waiting)
        if unfinished := await readers.run(vectors.reembedding):
            self.begin_reembedding(unfinished)
        else:
            self.enter(EmbedderState.READY)
        return None

    async def read(self, text: str) -> Reading:
        """See ``Embedder.read``.

        Raises:
            EmbeddingUnavailable: there is no model, it failed, or not all vectors are of it yet.

        Cancellation: waits until the work is done.
        """
        self.check_ready()
        try:
            return await self._threads.run(self._read, text)
        except ModelError as error:
            raise EmbeddingUnavailable("failed") from error


def _load(config: EngineConfig, folder: Path) -> "AnyModel":
    from klaw.memory.embed.model import EmbeddingModel  # loads ONNX Runtime

    return EmbeddingModel.load(folder, threads=config.embedding.threads, tokens=config.auto_rag.tokens)
