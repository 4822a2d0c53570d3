"""The embedder actor: turns texts into vectors without ever delaying a reply.

Who sends to it: recall asks for query vectors (the mailbox is the query lane); chats nudge it after a commit (the
backfill lane). The database is the queue of the backfill: rows without a vector are found by query, so a dropped
nudge, a crash or a failed embed loses nothing. A query has a thread of its own, so it waits for no batch.
"""

import math
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import attrs
import structlog
import trio

from klaw.actor.clock import Clock
from klaw.actor.failure import error_class
from klaw.actor.mailbox import Mailbox
from klaw.actor.nudge import Nudge
from klaw.actor.reply import Reply
from klaw.actor.supervisor import Started
from klaw.actor.threads import Threads
from klaw.actor.vitals import Vitals
from klaw.config.schema import EmbeddingConfig
from klaw.domain import tokens
from klaw.domain.embedding import EmbedderState, EmbedderStatus
from klaw.errors import ActorStopped, ModelError, StorageFull, VectorsDamaged
from klaw.memory.embed.backfill import embed_passages, split_batches
from klaw.memory.embed.passage import RECIPE, Passage, passage, vectors_id
from klaw.store.kinds import vectors as stored_vectors
from klaw.store.readers import Readers
from klaw.store.sql import meta, vectors
from klaw.store.writer import Writer

if TYPE_CHECKING:
    from klaw.memory.onnx.model import EmbeddingModel  # loads ONNX Runtime; imported when a model is

QUERY_CAPACITY = 64
"""Filled by recall, at most one query a turn; a full lane answers at once with "busy" and recall goes on without
vectors."""
SLOW_CAPACITY = 4
"""Texts that wait in the slow lane, filled by the archivist; more are refused as busy."""
BACKFILL_ROWS = 128
"""Rows fetched at once from the database; they are embedded in batches of ``embedding.batchTokens``."""
RECHECK_MODEL_S = 30.0
"""A missing model is looked for again after so long (somebody may have pulled it)."""
FAILED_BATCH_PAUSE_S = 5.0
REPAIR_PAUSE_S = 3_600.0
"""A vector table that is damaged again so soon is left alone: something else is wrong, a disk perhaps."""

log = structlog.get_logger("klaw.embedder")


@attrs.frozen
class Waiting:
    """A message that gets its vector now."""

    rowid: int
    passage: Passage

    @property
    def tokens(self) -> int:
        """Estimated, of all that the model reads."""
        return tokens.estimate(self.passage.text) + tokens.estimate(self.passage.context)


@attrs.frozen
class EmbedQuery:
    """Ask for a text's vector: little-endian float32 bytes."""

    text: str
    reply: Reply[bytes]
    kind: Literal["query", "passage"] = "query"


class EmbeddingUnavailable(ModelError):
    """There is no vector now.

    Attributes:
        code: why: ``no_model``, ``loading``, ``reembedding``, ``busy``, ``off``.
        degraded: what a receipt says of it; None when it is as the user wants it.
    """

    def __init__(self, code: str, degraded: str | None = None) -> None:
        super().__init__(f"no embeddings: {code}")
        self.code = code
        self.degraded = degraded if degraded is not None or code == "off" else f"embedding_{code}"


class Embedder(Nudge):
    """Handle of the embedder actor. While its state is READY, it is idle when every message that can have a vector has
    one."""

    def __init__(self, clock: Clock, *, enabled: bool) -> None:
        self.mailbox: Mailbox[EmbedQuery] = Mailbox("memory.embedder", QUERY_CAPACITY)
        super().__init__()
        self._clock = clock
        self._damage_reported = False
        self._slow: deque[EmbedQuery] = deque()
        """Texts that no reply waits for, served between two batches of messages; never more than SLOW_CAPACITY."""
        self.random_cosine = 0.0
        state = EmbedderState.LOADING if enabled else EmbedderState.OFF
        self.status = EmbedderStatus(state=state, reason=None, since=clock.now(), embedded=0, waiting=0)

    def report_damage(self) -> None:
        """Say that the vector table cannot be searched: it is made anew in the background. Never waits."""
        self._damage_reported = True
        self.nudge()

    def take_damage_report(self) -> bool:
        """Whether damage was reported since the last call; the actor's own method."""
        reported, self._damage_reported = self._damage_reported, False
        return reported

    def problems(self) -> dict[str, str]:
        """Why recall has full text only, or not all vectors; for users."""
        status = self.status
        match status.state:
            case EmbedderState.NO_MODEL:
                return {
                    "no_embeddings": f"full-text search only: {status.reason}; `klaw models pull` fetches the model"
                }
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

    async def query(self, text: str) -> bytes:
        """The vector of a query.

        Raises:
            EmbeddingUnavailable: there is no model, or it is busy.
            ActorStopped: the embedder is being restarted.

        Cancellation: the work is done only if it was begun.
        """
        return await self._ask(text, "query")

    async def passage(self, text: str) -> bytes:
        """The vector of a text that is to be found, for one that cannot wait for the backfill. Like ``query``."""
        return await self._ask(text, "passage")

    async def _ask(self, text: str, kind: Literal["query", "passage"]) -> bytes:
        if self.status.state is EmbedderState.REEMBEDDING:
            raise EmbeddingUnavailable("reembedding", f"reembedding:{self.status.reembedded_percent}%")
        if self.status.state is not EmbedderState.READY:
            raise EmbeddingUnavailable(self.status.state.value)
        reply: Reply[bytes] = Reply()
        if not self.mailbox.tell(EmbedQuery(text, reply, kind)):
            raise EmbeddingUnavailable("busy")
        try:
            return await reply.wait()
        finally:
            # A question whose turn has gone on without it must not hold up the next one.
            reply.fail(EmbeddingUnavailable("given_up"))

    async def passage_in_background(self, text: str) -> bytes:
        """The vector of a text that is to be found, made behind everything else. Long texts take seconds.

        Raises:
            EmbeddingUnavailable: there is no model, or the lane is full.
            ActorStopped: the embedder is being restarted.

        Cancellation: the work is done only if it was begun.
        """
        if self.status.state is not EmbedderState.READY:
            raise EmbeddingUnavailable(self.status.state.value)
        reply: Reply[bytes] = Reply()
        if len(self._slow) >= SLOW_CAPACITY:
            raise EmbeddingUnavailable("busy")
        self._slow.append(EmbedQuery(text, reply))
        self.nudge()
        try:
            return await reply.wait()
        finally:
            reply.fail(EmbeddingUnavailable("given_up"))

    def take_slow(self) -> EmbedQuery | None:
        """The next text of the slow lane; the actor's own method."""
        return self._slow.popleft() if self._slow else None

    def give_up(self, reason: str) -> None:
        """Fail who waits in the slow lane; the actor's own method."""
        while self._slow:
            self._slow.popleft().reply.fail(ActorStopped(reason))

    def enter(self, state: EmbedderState, reason: str | None = None) -> None:
        """Change the state; the actor's own method."""
        if (state, reason) != (self.status.state, self.status.reason):
            self.status = attrs.evolve(self.status, state=state, reason=reason, since=self._clock.now())
            say = log.warning if state is EmbedderState.NO_MODEL else log.info
            say("embedder_state", state=state.value, reason=reason)

    def count(self, *, embedded: int, waiting: int) -> None:
        """Set the counts; the actor's own method."""
        self.status = attrs.evolve(self.status, embedded=embedded, waiting=waiting)

    def begin_reembedding(self, messages: int) -> None:
        """Turn vector search off until so many messages have a vector of the new model; the actor's own method."""
        self.status = attrs.evolve(self.status, reembedding=messages)
        self.enter(EmbedderState.REEMBEDDING)


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
    recipe: int = RECIPE,
) -> None:
    """The embedder's life: load the model (waiting until there is one), then serve both lanes until the mailbox
    closes."""
    threads = Threads("onnx", config.threads)
    task_status.started()
    model = await _load(vitals, embedder, config, folder, threads, partial(_is_replaced, readers, recipe))
    if model is None:
        return
    try:
        query_thread = Threads("onnx query", 1)
        worker = _Worker(vitals, embedder, config, min_tokens, writer, readers, threads, query_thread, model, recipe)
        await worker.adopt_model()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.backfill)
            await worker.answer_queries()
            embedder.give_up("memory.embedder: stopped")
            nursery.cancel_scope.cancel(reason="the embedder's mailbox is closed")
    except BaseException:
        embedder.give_up("memory.embedder: restarted")
        embedder.enter(EmbedderState.LOADING)  # until the next incarnation has the model again
        raise
    finally:
        model.close()


async def _is_replaced(readers: Readers, recipe: int, model: "EmbeddingModel") -> bool:
    """Whether there are vectors of another model, or made by another recipe."""
    stored = await readers.run(vectors.model)
    return stored is not None and stored != (vectors_id(model.model_id, recipe), model.dimension)


async def _load(
    vitals: Vitals,
    embedder: Embedder,
    config: EmbeddingConfig,
    folder: Path,
    threads: Threads,
    replaces: "Callable[[EmbeddingModel], Awaitable[bool]]",
) -> "EmbeddingModel | None":
    """Load the model; while it is missing or unusable, say so and look again. None when the mailbox was closed.

    One that replaces another has to prove first that it works: after that the other's vectors are gone.
    """
    from klaw.memory.onnx.model import EmbeddingModel
    from klaw.memory.onnx.proof import prove

    def load() -> EmbeddingModel:
        return EmbeddingModel.load(
            folder, threads=config.threads, batch_tokens=config.batch_tokens, parallel_passages=True
        )

    while True:
        vitals.doing("loading model")
        embedder.enter(EmbedderState.LOADING)
        try:
            model = await threads.run(load)
            if await replaces(model):
                await threads.run(prove, model)
        except ModelError as error:
            embedder.enter(EmbedderState.NO_MODEL, str(error))
        else:
            return model
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
    """For passages, ``embedding.threads`` batches at a time."""
    query_thread: Threads
    """A question waits for no batch: it has a thread of its own, and shares the cores."""
    model: "EmbeddingModel"
    recipe: int
    failing: set[int] = attrs.Factory(set)
    """Rows that the model could not embed even alone; left out until the next start."""
    repaired_at: float = -math.inf
    """When the vector table was last made anew, in Trio's time."""
    refused: StorageFull | VectorsDamaged | None = None
    """Why the last fetch of rows could not be stored."""

    @property
    def vectors_id(self) -> str:
        return vectors_id(self.model.model_id, self.recipe)

    async def adopt_model(self) -> None:
        """Make the store's vectors those of this model, or begin to."""
        self.vitals.doing("preparing the vectors")
        dimension, embedder = self.model.dimension, self.embedder
        replaced = await stored_vectors.prepare(self.writer, self.vectors_id, dimension)
        embedder.random_cosine = self.model.random_cosine
        waiting = await self.readers.run(vectors.count_unembedded, self.min_tokens)
        embedder.count(embedded=await self.readers.run(vectors.count_embedded), waiting=waiting)
        if not replaced:
            embedder.enter(EmbedderState.READY)
            return
        log.warning("embedding_model_changed", model=self.vectors_id, dimension=dimension, count=waiting)
        before = await self.readers.run(vectors.reembedding)
        embedder.begin_reembedding(max(waiting, before or 0))

    async def answer_queries(self) -> None:
        """The query lane; ends when the mailbox is closed and empty."""
        async for request in self.embedder.mailbox:
            if not request.reply.resolved:
                vector = await self.query_thread.run(self._embed_one, request)
                request.reply.set(vector)

    def _embed_one(self, request: EmbedQuery) -> bytes:
        return bytes(self.model.embed([request.text], kind=request.kind)[0].astype("<f4").tobytes())

    async def backfill(self) -> None:
        """The backfill lane: embed what has no vector, then wait for a nudge or the next sweep."""
        while True:
            await self._embed_slowly()
            try:
                if self.embedder.take_damage_report():
                    await self._repair()
                while await self.writer.run(stored_vectors.encode):  # of an earlier version, or left over by a stop
                    pass
                # Facts and pieces of files first: they are few.
                while await embed_passages(self.readers, self.writer, self.threads, self.model, self.vectors_id):
                    pass
                while await self._embed_some():
                    pass
            except StorageFull:
                log.warning("vectors_not_stored", code="storage_full")
            except VectorsDamaged:
                self.embedder.report_damage()
                if self._may_repair():
                    continue
                log.warning("vectors_not_stored", code="vectors_damaged")
            self.vitals.doing("idle")
            await self.embedder.wait_for_news(self.config.sweep_s)

    async def _embed_slowly(self) -> None:
        """Embed what waits in the slow lane, one after the other."""
        while (request := self.embedder.take_slow()) is not None:
            if request.reply.resolved:
                continue
            try:
                made = await self.threads.run(self._embed_passages, [Passage(request.text)])
            except ModelError as error:
                log.warning("embed_failed", count=1, error=error_class(error))
                request.reply.fail(EmbeddingUnavailable("failed"))
            else:
                request.reply.set(made[0])

    def _may_repair(self) -> bool:
        return trio.current_time() >= self.repaired_at + REPAIR_PAUSE_S

    async def _repair(self) -> None:
        """Drop a damaged vector table. All messages are then embedded again; meanwhile full text finds them."""
        if not self._may_repair():
            return
        self.repaired_at = trio.current_time()
        log.warning("vectors_damaged", count=self.embedder.status.embedded)
        try:
            await stored_vectors.prepare(self.writer, self.vectors_id, self.model.dimension, anew=True)
        except VectorsDamaged:  # pages of the database file are broken: it has to be made anew as a whole
            log.warning("vectors_not_repaired", code="vectors_damaged")
            return
        self.embedder.count(embedded=0, waiting=await self.readers.run(vectors.count_unembedded, self.min_tokens))

    async def _embed_some(self) -> bool:
        """Embed one fetch of rows. Returns whether there was anything to do.

        Raises:
            StorageFull, VectorsDamaged: some of it could not be stored.
        """
        as_of = await self.readers.run(meta.last_entry)
        rows = await self.readers.run(vectors.unembedded, self.min_tokens, BACKFILL_ROWS + len(self.failing))
        rows = [row for row in rows if row.rowid not in self.failing]
        waiting = await self.readers.run(vectors.count_unembedded, self.min_tokens)
        self.embedder.count(embedded=self.embedder.status.embedded, waiting=waiting)
        if not rows:
            await self._end_reembedding()
            return False
        texts = [Waiting(row.rowid, passage(row.content, row.previous, self.recipe)) for row in rows]
        self.vitals.doing(f"embedding {len(texts)} messages")
        self.refused = None
        batches = iter(split_batches(texts, self.config.batch_tokens))
        async with trio.open_nursery() as nursery:
            for _ in range(self.config.threads):
                nursery.start_soon(self._embed_batches, batches, as_of)
        if self.refused is not None:
            raise self.refused
        return True

    async def _embed_batches(self, batches: Iterator[list[Waiting]], as_of: int) -> None:
        """One of the workers that share a fetch of rows: each takes the next batch when it is done with one."""
        try:
            for batch in batches:
                if self.refused is not None:
                    return
                await self._embed_slowly()
                await self._embed_batch(batch, as_of)
        except (StorageFull, VectorsDamaged) as error:
            self.refused = error

    async def _end_reembedding(self) -> None:
        if self.embedder.status.state is EmbedderState.REEMBEDDING:
            await self.writer.run(stored_vectors.end_reembedding)
            self.embedder.enter(EmbedderState.READY)

    async def _embed_batch(self, batch: Sequence[Waiting], as_of: int) -> None:
        try:
            stored = await self._store(batch, as_of)
        except ModelError as error:
            log.warning("embed_failed", count=len(batch), error=error_class(error))
            if len(batch) == 1:
                self.failing.add(batch[0].rowid)
                return
            await trio.sleep(FAILED_BATCH_PAUSE_S)
            for row in batch:
                await self._embed_batch([row], as_of)
            return
        status = self.embedder.status
        self.embedder.count(embedded=status.embedded + stored, waiting=max(0, status.waiting - stored))

    async def _store(self, batch: Sequence[Waiting], as_of: int) -> int:
        made = await self.threads.run(self._embed_passages, [row.passage for row in batch])
        pairs = [(row.rowid, vector) for row, vector in zip(batch, made, strict=True)]
        return await self.writer.run(stored_vectors.store, self.vectors_id, pairs, as_of=as_of)

    def _embed_passages(self, passages: list[Passage]) -> list[bytes]:
        return [bytes(vector.tobytes()) for vector in self.model.embed(passages, kind="passage").astype("<f4")]
