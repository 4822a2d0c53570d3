"""The embedder actor: loads the model, answers questions, and meanwhile makes missing vectors (``backfill``)."""

from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import structlog
import trio

from klaw.actor.supervisor import ActorSpec, TaskStarted, Vitals
from klaw.actor.threads import Threads
from klaw.domain.embedding import EmbedderState
from klaw.errors import ActorStopped, EmbeddingUnavailable, ModelError
from klaw.memory.embed.backfill import RECHECK_MODEL_S, BackfillLane
from klaw.memory.embed.embedder import EmbedQuery
from klaw.memory.embed.passage import vectors_id
from klaw.memory.embed.token_coder import Reading
from klaw.store.engine import vector_model
from klaw.store.search import vector_writes as stored_vectors
from klaw.store.search import vectors

if TYPE_CHECKING:
    from klaw.memory.embed.remote import AnyModel

log = structlog.get_logger("klaw.embedder")


@attrs.define(kw_only=True, eq=False)
class Worker(BackfillLane):
    """The embedder actor: it loads the model, waiting until there is one, then serves both lanes until the mailbox
    closes.

    Args:
        tokens: ``autoRag.tokens``.
    """

    folder: Path
    tokens: bool = True
    query_thread: Threads = attrs.field(init=False)
    """A question waits for no batch: it has a thread of its own, and shares the cores."""

    def spec(self) -> ActorSpec:
        mailbox = self.embedder.mailbox
        return ActorSpec(name=mailbox.name, mailbox=mailbox, run=self.run)

    async def run(self, vitals: Vitals, task_status: TaskStarted) -> None:
        """One incarnation."""
        self.vitals, embedder = vitals, self.embedder
        self.threads = Threads("onnx", self.config.threads)
        self.query_thread = Threads("onnx query", self.remote.lanes if self.remote else 1)
        self.failing.clear()
        task_status.started()
        model = await self._load()
        if model is None:
            return
        self.model = model
        try:
            await self.adopt_model()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.backfill)
                await self.answer_queries()
                embedder.give_up("memory.embedder: stopped")
                nursery.cancel_scope.cancel(reason="the embedder's mailbox is closed")
        except BaseException:
            embedder.give_up("memory.embedder: restarted")
            embedder.enter(EmbedderState.LOADING)  # until the next incarnation has the model again
            raise
        finally:
            model.close()
            if self.remote is not None:
                await self.remote.note_spending(at_once=True)  # noqa: ASYNC102 - it shields

    async def _load(self) -> "AnyModel | None":
        """Load the model; while it is missing or unusable, say so and look again. None when the mailbox was closed.

        One that replaces another, or another recipe, has to prove first that it works: after that the other's vectors
        are gone.
        """
        embedder = self.embedder
        while True:
            self.vitals.doing("loading model")
            embedder.enter(EmbedderState.LOADING)
            try:
                model = await self.threads.run(self._load_now)
                stored = await self.readers.run(vector_model.current)
                if stored is not None and stored != (vectors_id(model.model_id, self.recipe), model.dimension):
                    await self.threads.run(_prove, model)
            except ModelError as error:
                embedder.enter(EmbedderState.NO_MODEL, str(error))
            else:
                return model
            self.vitals.doing("waiting for a model")
            with trio.move_on_after(RECHECK_MODEL_S):
                async for request in embedder.mailbox:
                    request.reply.fail(EmbeddingUnavailable("no_model"))
                return None

    def _load_now(self) -> "AnyModel":
        if self.remote is not None:
            return self.remote.load()
        from klaw.memory.embed.model import EmbeddingModel  # loads ONNX Runtime

        config = self.config
        return EmbeddingModel.load(
            self.folder,
            threads=config.threads,
            batch_tokens=config.batch_tokens,
            parallel_passages=True,
            tokens=self.tokens,
        )

    async def adopt_model(self) -> None:
        """Make the store's vectors those of this model, or begin to."""
        self.vitals.doing("preparing the vectors")
        dimension, embedder = self.model.dimension, self.embedder
        replaced = await stored_vectors.prepare(self.writer, self.vectors_id, dimension)
        if self.model.coder is not None:
            await stored_vectors.prepare_codes(self.writer, self.model.coder.id)
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
        if self.remote is not None:
            await self._answer_at_once(self.remote.lanes)
            return
        async for request in self.embedder.mailbox:
            if not request.reply.resolved:
                request.reply.set(await self.query_thread.run(self._read_one, request))

    async def _answer_at_once(self, lanes: int) -> None:
        """The query lane of a provider's model: several at a time, because a late answer must not hold up others."""
        free = trio.Semaphore(lanes)

        async def answer(request: EmbedQuery) -> None:
            try:
                if not request.reply.resolved:
                    request.reply.set(await self.query_thread.run(self._read_one, request))
            except ModelError:
                request.reply.fail(EmbeddingUnavailable("failed"))
            finally:
                request.reply.fail(ActorStopped("memory.embedder: stopped"))
                free.release()

        async with trio.open_nursery() as nursery:
            async for request in self.embedder.mailbox:
                await free.acquire()
                nursery.start_soon(answer, request)

    def _read_one(self, request: EmbedQuery) -> Reading:
        return self.model.read([request.text], kind=request.kind)[0]


def _prove(model: "AnyModel") -> None:
    """Close a model that does not work. Raises ModelError."""
    from klaw.memory.embed.calibration import prove  # loads numpy

    try:
        prove(lambda texts, kind: model.embed(texts, kind=kind), model.model_id)
    except ModelError:
        model.close()
        raise
