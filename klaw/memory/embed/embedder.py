"""The embedding model as the rest of Klaw uses it. It never delays a reply: a question waits for no batch, and whoever
asks goes on without a vector when that comes too late. The actor behind it is ``worker``."""

import enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import attrs
import structlog

from klaw.actor.clock import Clock
from klaw.actor.failure import error_class, where
from klaw.actor.mailbox import Nudge
from klaw.actor.threads import Threads
from klaw.config.memory import EmbeddingConfig
from klaw.config.schema import EngineConfig
from klaw.errors import EmbeddingUnavailable, ModelError
from klaw.memory.embed.passage import vectors_id
from klaw.memory.embed.token_coder import Reading
from klaw.store.engine import vector_model
from klaw.store.engine.database import Readers
from klaw.store.search import token_codes, vectors

if TYPE_CHECKING:
    from klaw.memory.embed.remote import AnyModel, RemoteModel

QUESTIONS = 64
"""Most questions that are read or wait; further ones are refused as busy, and recall goes on without vectors."""
QUERY_S = 2.0
"""How long a search that somebody asked for waits for its vector."""
SLOW_CAPACITY = 4
"""Like ``QUESTIONS``, in the background."""

log = structlog.get_logger("klaw.embedder")


class EmbedderState(enum.StrEnum):
    """Whether there are vectors to search with; only when READY. Status, receipts and frames show these codes."""

    OFF = "off"
    LOADING = "loading"
    NO_MODEL = "no_model"
    REEMBEDDING = "reembedding"
    """The vectors of another model than before are being made."""
    READY = "ready"


@attrs.frozen(kw_only=True)
class EmbedderStatus:
    state: EmbedderState
    reason: str | None
    """Why there is no model: names files, never content."""
    since: float
    embedded: int
    waiting: int
    reembedding: int = 0
    """How many messages waited when the vectors began to be made again."""

    @property
    def reembedded_percent(self) -> int:
        """How much of a re-embedding is done, 0 to 99; 100 otherwise."""
        if self.state is not EmbedderState.REEMBEDDING:
            return 100
        done = self.reembedding - self.waiting
        return max(0, min(99, 100 * done // max(1, self.reembedding)))


@attrs.define(eq=False)
class _Lane:
    model: "AnyModel"
    threads: Threads
    most: int
    local: bool
    asked: int = 0

    async def read(self, text: str, kind: Literal["query", "passage"]) -> Reading:
        """Raises EmbeddingUnavailable: too many wait, or the model failed."""
        if self.asked >= self.most:
            raise EmbeddingUnavailable("busy")
        self.asked += 1
        try:
            # A request to a provider is cancelled with whoever waits; a run of a model cannot be, and is left behind.
            (made,) = await self.threads.run(partial(self.model.read, [text], kind=kind), abandon=self.local)
        except Exception as error:
            if not isinstance(error, ModelError):
                log.error("embed_failed", count=1, error=error_class(error), where=where(error))
            elif self.local:  # what a provider fails at is shown as a problem
                log.warning("embed_failed", count=1, error=error_class(error))
            raise EmbeddingUnavailable("failed") from error
        finally:
            self.asked -= 1
        return made


class Embedder(Nudge):
    """The model and its state. While that is READY, it is idle when every message that can have a vector has one."""

    remedy = "`klaw models pull` fetches the model"

    def __init__(self, clock: Clock, *, enabled: bool) -> None:
        super().__init__()
        self._clock = clock
        self._damage_reported = False
        self._questions: _Lane | None = None
        self._background: _Lane | None = None
        self.random_cosine = 0.0
        state = EmbedderState.LOADING if enabled else EmbedderState.OFF
        self.status = EmbedderStatus(state=state, reason=None, since=clock.now(), embedded=0, waiting=0)

    @property
    def is_incomplete(self) -> bool:
        """Fewer than half of the messages have a vector."""
        return self.status.waiting > self.status.embedded

    async def prepare(self) -> str | None:
        """Load the model where no actor does (``OfflineEmbedder``). Returns a code that says why there can be no
        vectors: ``embedding_off``, ``no_vectors``, ``no_model``, ``other_model``; else None."""
        return None

    def report_damage(self) -> None:
        """Say that the vector table cannot be searched: it is rebuilt in the background. Never waits."""
        self._damage_reported = True
        self.nudge()

    def problems(self) -> dict[str, str]:
        status = self.status
        match status.state:
            case EmbedderState.NO_MODEL:
                return {"no_embeddings": f"full-text search only: {status.reason}; {self.remedy}"}
            case EmbedderState.LOADING:
                return {"embeddings_loading": "full-text search only until the embedding model is loaded"}
            case EmbedderState.REEMBEDDING:
                done = f"{status.reembedded_percent} % re-embedded"
                return {"reembedding": f"full text only, {done}: the embedding model was changed"}
            case EmbedderState.READY if status.waiting > status.embedded:
                share = round(100 * status.embedded / (status.embedded + status.waiting))
                return {
                    "vectors_incomplete": f"{share} % of the messages have a vector; the rest is found by full text"
                }
            case _:
                return {}

    # -- texts -----------------------------------------------------------------------------------------------------

    async def read(self, text: str) -> Reading:
        """The vector of a query, and its tokens if ``autoRag.tokens`` is on. Raises EmbeddingUnavailable."""
        return await self._ready(self._questions).read(text, "query")

    async def query(self, text: str) -> bytes:
        return (await self.read(text)).vector

    async def passage(self, text: str) -> bytes:
        """The vector of a text that is to be found, and cannot wait for the actor."""
        return (await self._ready(self._questions).read(text, "passage")).vector

    async def passage_in_background(self, text: str) -> bytes:
        """The vector of a text of any length, in turn with the actor's batches: it may take seconds."""
        return (await self._ready(self._background).read(text, "passage")).vector

    def _ready(self, lane: _Lane | None) -> _Lane:
        """Raises EmbeddingUnavailable unless questions are answered now."""
        state = self.status.state
        if state is EmbedderState.REEMBEDDING:
            raise EmbeddingUnavailable("reembedding", f"reembedding:{self.status.reembedded_percent}%")
        if state is not EmbedderState.READY or lane is None:
            raise EmbeddingUnavailable(state.value)
        return lane

    # -- for the actor ---------------------------------------------------------------------------------------------

    def serve(self, model: "AnyModel", questions: Threads, background: Threads, *, local: bool) -> None:
        """Answer with this model while the state is READY. A thread of a ``local`` one cannot be cancelled."""
        self._questions = _Lane(model, questions, QUESTIONS, local)
        self._background = _Lane(model, background, SLOW_CAPACITY, local)
        self.random_cosine = model.random_cosine

    def take_damage_report(self) -> bool:
        reported, self._damage_reported = self._damage_reported, False
        return reported

    def enter(self, state: EmbedderState, reason: str | None = None) -> None:
        if (state, reason) != (self.status.state, self.status.reason):
            self.status = attrs.evolve(self.status, state=state, reason=reason, since=self._clock.now())
            say = log.warning if state is EmbedderState.NO_MODEL else log.info
            say("embedder_state", state=state.value, reason=reason)

    def count(self, *, embedded: int, waiting: int) -> None:
        self.status = attrs.evolve(self.status, embedded=embedded, waiting=waiting)

    async def recount(self, readers: Readers, min_tokens: int) -> None:
        """Count in the database. Raises StorageError."""
        waiting = await readers.run(vectors.count_unembedded, min_tokens)
        self.count(embedded=await readers.run(vectors.count_embedded), waiting=waiting)

    def begin_reembedding(self, messages: int) -> None:
        """Turn vector search off until so many messages have a vector of the new model."""
        self.status = attrs.evolve(self.status, reembedding=messages)
        self.enter(EmbedderState.REEMBEDDING)


class OfflineEmbedder(Embedder):
    """For commands without a server: ``prepare`` loads the model of a home, ``remote`` or in a folder, if the stored
    vectors are of it. A server that runs beside it is not disturbed."""

    def __init__(
        self, readers: Readers, config: EngineConfig, folder: Path, clock: Clock, remote: "RemoteModel | None" = None
    ) -> None:
        super().__init__(clock, enabled=False)
        self._readers, self._config, self._folder, self._remote = readers, config, folder, remote

    async def prepare(self) -> str | None:
        if self.status.state is not EmbedderState.OFF:
            return None
        if not self._config.embedding.enabled:
            return "embedding_off"
        stored = await self._readers.run(vector_model.current)
        if stored is None:
            return "no_vectors"
        threads = Threads("onnx", 1)
        try:
            config, tokens = self._config.embedding, self._config.auto_rag.tokens
            model = await threads.run(partial(load_model, config, self._folder, self._remote, tokens=tokens))
        except ModelError:
            return "no_model"
        if vectors_id(model.model_id) != stored[0]:
            model.close()
            return "other_model"
        if model.coder is not None and model.coder.id != await self._readers.run(token_codes.coder):
            model.coder = None
        self.serve(model, threads, threads, local=self._remote is None)
        await self.recount(self._readers, self._config.auto_rag.min_message_tokens)
        if unfinished := await self._readers.run(vectors.reembedding):
            self.begin_reembedding(unfinished)
        else:
            self.enter(EmbedderState.READY)
        return None


def load_model(
    config: EmbeddingConfig, folder: Path, remote: "RemoteModel | None", *, tokens: bool, parallel: bool = False
) -> "AnyModel":
    """Load the provider's model, else the one in a folder: see ``EmbeddingModel.load``. Blocks. Raises ModelError."""
    if remote is not None:
        return remote.load()
    from klaw.memory.embed.model import EmbeddingModel  # loads ONNX Runtime

    most = config.batch_tokens
    return EmbeddingModel.load(
        folder, threads=config.threads, batch_tokens=most, parallel_passages=parallel, tokens=tokens
    )
