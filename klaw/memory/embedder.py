"""The embedder actor: turns texts into vectors without ever delaying a reply.

Who sends to it: recall asks for query vectors (the mailbox is the query lane); chats nudge it after a commit (the
backfill lane). The database is the queue of the backfill: rows without a vector are found by query, so a dropped
nudge, a crash or a failed embed loses nothing. Both lanes share one thread, and backfill goes in small batches, so a
query waits for at most one of them.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import structlog
import trio

from klaw.actor.clock import Clock
from klaw.actor.failure import error_class
from klaw.actor.mailbox import Mailbox
from klaw.actor.reply import Reply
from klaw.actor.supervisor import Started
from klaw.actor.threads import Threads
from klaw.actor.vitals import Vitals
from klaw.config.schema import EmbeddingConfig
from klaw.domain.embedding import EmbedderState, EmbedderStatus
from klaw.errors import ModelError, StorageFull
from klaw.memory.backlog import split_batches
from klaw.store.readers import Readers
from klaw.store.sql import vectors
from klaw.store.writer import Writer

if TYPE_CHECKING:
    from klaw.memory.onnx.model import EmbeddingModel  # loads ONNX Runtime; imported when a model is

QUERY_CAPACITY = 64
"""Filled by recall, at most one query a turn; a full lane answers at once with "busy" and recall goes on without
vectors."""
BACKFILL_ROWS = 64
"""Rows fetched at once from the database; they are embedded in batches of ``embedding.batchTokens``."""
RECHECK_MODEL_S = 30.0
"""A missing model is looked for again after so long (somebody may have pulled it)."""
FAILED_BATCH_PAUSE_S = 5.0

log = structlog.get_logger("klaw.embedder")


@attrs.frozen
class EmbedQuery:
    """Ask for a query's vector: little-endian float32 bytes."""

    text: str
    reply: Reply[bytes]


class EmbeddingUnavailable(ModelError):
    """There is no vector now. ``code`` says why: ``no_model``, ``loading``, ``busy``, ``off``."""

    def __init__(self, code: str) -> None:
        super().__init__(f"no embeddings: {code}")
        self.code = code


class Embedder:
    """Handle of the embedder actor."""

    def __init__(self, clock: Clock, *, enabled: bool) -> None:
        self.mailbox: Mailbox[EmbedQuery] = Mailbox("memory.embedder", QUERY_CAPACITY)
        self._clock = clock
        self._nudge = trio.Event()
        self._caught_up = trio.Event()
        self.random_cosine = 0.0
        state = EmbedderState.LOADING if enabled else EmbedderState.OFF
        self.status = EmbedderStatus(state=state, reason=None, since=clock.now(), embedded=0, waiting=0)

    def nudge(self) -> None:
        """Say that there may be new messages to embed. Never waits."""
        self._nudge.set()
        if self._caught_up.is_set():
            self._caught_up = trio.Event()

    async def wait_caught_up(self) -> None:
        """Return when every message that can have a vector has one. Only while the state is READY."""
        await self._caught_up.wait()

    async def query(self, text: str) -> bytes:
        """The vector of a query.

        Raises:
            EmbeddingUnavailable: there is no model, or it is busy.
            ActorStopped: the embedder is being restarted.

        Cancellation: the work is done only if it was begun.
        """
        if self.status.state is not EmbedderState.READY:
            raise EmbeddingUnavailable(self.status.state.value)
        reply: Reply[bytes] = Reply()
        if not self.mailbox.tell(EmbedQuery(text, reply)):
            raise EmbeddingUnavailable("busy")
        try:
            return await reply.wait()
        finally:
            # A question whose turn has gone on without it must not hold up the next one.
            reply.fail(EmbeddingUnavailable("given_up"))

    async def wait_for_work(self, seconds: float) -> None:
        """Return after a nudge or after a while; the actor's own method, called when nothing is left to embed."""
        if not self._nudge.is_set():
            self._caught_up.set()
        with trio.move_on_after(seconds):
            await self._nudge.wait()
        self._nudge = trio.Event()

    def enter(self, state: EmbedderState, reason: str | None = None) -> None:
        """Change the state; the actor's own method."""
        if (state, reason) != (self.status.state, self.status.reason):
            self.status = attrs.evolve(self.status, state=state, reason=reason, since=self._clock.now())
            log.info("embedder_state", state=state.value, reason=reason)

    def count(self, *, embedded: int, waiting: int) -> None:
        """Set the counts; the actor's own method."""
        self.status = attrs.evolve(self.status, embedded=embedded, waiting=waiting)


async def run(
    vitals: Vitals,
    task_status: Started,
    *,
    embedder: Embedder,
    config: EmbeddingConfig,
    folder: Path,
    min_tokens: int,
    writer: Writer,
    readers: Readers,
) -> None:
    """The embedder's life: load the model (waiting until there is one), then serve both lanes until the mailbox
    closes."""
    threads = Threads("onnx", 1)
    task_status.started()
    model = await _load(vitals, embedder, config, folder, threads)
    if model is None:
        return
    try:
        if await writer.prepare_vectors(model.model_id, model.dimension):
            log.warning("embedding_model_changed", model=model.model_id, dimension=model.dimension)
        embedder.random_cosine = model.random_cosine
        embedded = await readers.run(vectors.count_embedded)
        embedder.count(embedded=embedded, waiting=await readers.run(vectors.count_unembedded, min_tokens))
        embedder.enter(EmbedderState.READY)
        worker = _Worker(vitals, embedder, config, min_tokens, writer, readers, threads, model)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.backfill)
            await worker.answer_queries()
            nursery.cancel_scope.cancel(reason="the embedder's mailbox is closed")
    except BaseException:
        embedder.enter(EmbedderState.LOADING)  # until the next incarnation has the model again
        raise
    finally:
        model.close()


async def _load(
    vitals: Vitals, embedder: Embedder, config: EmbeddingConfig, folder: Path, threads: Threads
) -> "EmbeddingModel | None":
    """Load the model; while it is missing or unusable, say so and look again. None when the mailbox was closed."""
    from klaw.memory.onnx.model import EmbeddingModel

    def load() -> EmbeddingModel:
        return EmbeddingModel.load(folder, threads=config.threads, batch_tokens=config.batch_tokens)

    while True:
        vitals.doing("loading model")
        embedder.enter(EmbedderState.LOADING)
        try:
            return await threads.run(load)
        except ModelError as error:
            embedder.enter(EmbedderState.NO_MODEL, str(error))
        vitals.doing("waiting for a model")
        with trio.move_on_after(RECHECK_MODEL_S):
            async for request in embedder.mailbox:
                request.reply.fail(EmbeddingUnavailable("no_model"))
            return None


@attrs.define
class _Worker:
    """The two lanes over one loaded model."""

    vitals: Vitals
    embedder: Embedder
    config: EmbeddingConfig
    min_tokens: int
    writer: Writer
    readers: Readers
    threads: Threads
    model: "EmbeddingModel"
    failing: set[int] = attrs.Factory(set)
    """Rows that the model could not embed even alone; left out until the next start."""

    async def answer_queries(self) -> None:
        """The query lane; ends when the mailbox is closed and empty."""
        async for request in self.embedder.mailbox:
            if not request.reply.resolved:
                vector = await self.threads.run(self._embed_query, request.text)
                request.reply.set(vector)

    def _embed_query(self, text: str) -> bytes:
        return bytes(self.model.embed([text], kind="query")[0].astype("<f4").tobytes())

    async def backfill(self) -> None:
        """The backfill lane: embed what has no vector, then wait for a nudge or the next sweep."""
        while True:
            try:
                while await self._embed_some():
                    pass
            except StorageFull:
                log.warning("vectors_not_stored", code="storage_full")
            self.vitals.doing("idle")
            await self.embedder.wait_for_work(self.config.sweep_s)

    async def _embed_some(self) -> bool:
        """Embed one fetch of rows. Returns whether there was anything to do."""
        rows = await self.readers.run(vectors.unembedded, self.min_tokens, BACKFILL_ROWS + len(self.failing))
        rows = [row for row in rows if row.rowid not in self.failing]
        waiting = await self.readers.run(vectors.count_unembedded, self.min_tokens)
        self.embedder.count(embedded=self.embedder.status.embedded, waiting=waiting)
        if not rows:
            return False
        for batch in split_batches(rows, self.config.batch_tokens):
            self.vitals.doing(f"embedding {len(batch)} messages")
            await self._embed_batch(batch)
        return True

    async def _embed_batch(self, batch: Sequence[vectors.Unembedded]) -> None:
        try:
            stored = await self._store(batch)
        except ModelError as error:
            log.warning("embed_failed", count=len(batch), error=error_class(error))
            if len(batch) == 1:
                self.failing.add(batch[0].rowid)
                return
            await trio.sleep(FAILED_BATCH_PAUSE_S)
            for row in batch:
                await self._embed_batch([row])
            return
        status = self.embedder.status
        self.embedder.count(embedded=status.embedded + stored, waiting=max(0, status.waiting - stored))

    async def _store(self, batch: Sequence[vectors.Unembedded]) -> int:
        made = await self.threads.run(self._embed_passages, [row.content for row in batch])
        pairs = [(row.rowid, vector) for row, vector in zip(batch, made, strict=True)]
        return await self.writer.store_vectors(self.model.model_id, pairs)

    def _embed_passages(self, texts: list[str]) -> list[bytes]:
        return [bytes(vector.tobytes()) for vector in self.model.embed(texts, kind="passage").astype("<f4")]
