"""Actor ``memory.embedder``: loads the model, then gives everything without a vector one, behind every question. The
database is its queue, so a dropped nudge, a crash or a failed run loses nothing. Chats nudge it after a commit."""

import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import attrs
import structlog
import trio

from klaw.actor.failure import error_class
from klaw.actor.process import give_back
from klaw.actor.supervisor import ActorSpec, TaskStarted, Vitals
from klaw.actor.threads import Threads
from klaw.config.memory import EmbeddingConfig
from klaw.domain import tokens
from klaw.errors import ModelAway, ModelError, StorageFull, VectorsDamaged
from klaw.memory.embed.embedder import Embedder, EmbedderState, load_model
from klaw.memory.embed.passage import PassageText, passage, vectors_id
from klaw.memory.embed.token_coder import Reading
from klaw.store.engine import meta, vector_model
from klaw.store.engine.database import Readers
from klaw.store.engine.writer import Writer
from klaw.store.search import passages, token_codes, vectors
from klaw.store.search.passages import PassageVector
from klaw.store.search.vectors import UnembeddedMessage

if TYPE_CHECKING:
    from klaw.memory.embed.remote import AnyModel, RemoteModel

ACTOR_NAME = "memory.embedder"
BACKFILL_ROWS = 128
GATHER_ROWS = 16
"""So many messages wait for no more: they may have left the sliding window."""
FAILED_BATCH_PAUSE_S = 5.0
FAILED_ROWS_PAUSE_S = 3_600.0
"""What a provider's model refused is sent again after so long: it may be another model by then."""
REPAIR_PAUSE_S = 3_600.0
"""A vector table that is damaged again so soon is left alone: something else is wrong, perhaps a disk."""
PASSAGE_ROWS = 16
DOCUMENT_ROWS = 4
"""Passages of documents that each thread embeds before it is looked whether a message waits: about 1,000 tokens."""
RECHECK_MODEL_S = 30.0
"""Until a missing model is looked for again: somebody may have pulled it."""

P = TypeVar("P")
T = TypeVar("T")

log = structlog.get_logger("klaw.embedder")


@attrs.frozen
class WaitingMessage:
    rowid: int
    passage: PassageText

    @property
    def tokens(self) -> int:
        return tokens.estimate(self.passage.text) + tokens.estimate(self.passage.context)


def split_batches(rows: Sequence[WaitingMessage], batch_tokens: int) -> list[list[WaitingMessage]]:
    """Batches of similar length, each of at most ``batch_tokens`` padded tokens, or of one row."""
    batches: list[list[WaitingMessage]] = []
    for row in sorted(rows, key=lambda row: row.tokens):
        if batches and row.tokens * (len(batches[-1]) + 1) <= batch_tokens:  # this one is the longest yet
            batches[-1].append(row)
        else:
            batches.append([row])
    return batches


@attrs.define(kw_only=True, eq=False)
class Worker:
    embedder: Embedder
    config: EmbeddingConfig
    folder: Path
    min_tokens: int
    """``autoRag.minMessageTokens``."""
    writer: Writer
    readers: Readers
    remote: "RemoteModel | None" = None
    """The provider's model; None: that in ``folder``."""
    tokens: bool = True
    """``autoRag.tokens``."""
    gather_s: float = 0.0
    backfill_rows: int = BACKFILL_ROWS
    repair_pause_s: float = REPAIR_PAUSE_S
    vitals: Vitals = attrs.field(init=False)
    model: "AnyModel" = attrs.field(init=False)
    threads: Threads = attrs.field(init=False)
    """``embedding.threads`` batches run at a time."""
    failing: set[int] = attrs.field(factory=set, init=False)
    """Rows that the model refused even alone: left out until the next start, a provider's for a while."""
    failing_since: float = attrs.field(default=-math.inf, init=False)
    gathered_at: float = attrs.field(default=math.inf, init=False)
    """When the few messages that wait are embedded, in Trio's time."""
    repaired_at: float = attrs.field(default=-math.inf, init=False)

    def spec(self) -> ActorSpec:
        return ActorSpec(name=ACTOR_NAME, run=self.run)

    @property
    def vectors_id(self) -> str:
        return vectors_id(self.model.model_id)

    async def run(self, vitals: Vitals, task_status: TaskStarted) -> None:
        self.vitals = vitals
        self.threads = Threads("onnx", self.config.threads)
        self.failing.clear()
        task_status.started()
        self.model = await self._load()
        try:
            questions = Threads("onnx query", self.remote.lanes if self.remote else 1)
            self.embedder.serve(self.model, questions, self.threads, local=self.remote is None)
            await self._adopt_model()
            await self._backfill()
        finally:
            self.embedder.enter(EmbedderState.LOADING)  # until the next incarnation has the model again
            self.model.close()
            if self.remote is not None:
                await self.remote.note_spending(at_once=True)  # noqa: ASYNC102 - it shields

    # -- the model -------------------------------------------------------------------------------------------------

    async def _load(self) -> "AnyModel":
        """Load the model; while it is missing or unusable, say so and look again. One that replaces another proves
        first that it works: after that the other's vectors are gone."""
        while True:
            self.vitals.doing("loading model")
            self.embedder.enter(EmbedderState.LOADING)
            try:
                loading = partial(load_model, self.config, self.folder, self.remote, tokens=self.tokens, parallel=True)
                model = await self.threads.run(loading)
                stored = await self.readers.run(vector_model.current)
                if stored is not None and stored != (vectors_id(model.model_id), model.dimension):
                    await self.threads.run(_prove, model)
            except ModelError as error:
                self.embedder.enter(EmbedderState.NO_MODEL, str(error))
            else:
                return model
            self.vitals.doing("waiting for a model")
            await trio.sleep(RECHECK_MODEL_S)

    async def _adopt_model(self) -> None:
        self.vitals.doing("preparing the vectors")
        dimension, embedder = self.model.dimension, self.embedder
        replaced = await vectors.prepare(self.writer, self.vectors_id, dimension)
        if self.model.coder is not None:
            await vectors.prepare_codes(self.writer, self.model.coder.id)
        await embedder.recount(self.readers, self.min_tokens)
        if not replaced:
            embedder.enter(EmbedderState.READY)
            return
        waiting = embedder.status.waiting
        log.warning("embedding_model_changed", model=self.vectors_id, dimension=dimension, count=waiting)
        before = await self.readers.run(vectors.reembedding)
        embedder.begin_reembedding(max(waiting, before or 0))

    # -- what has no vector ----------------------------------------------------------------------------------------

    async def _backfill(self) -> None:
        while True:
            pause_s = self.config.sweep_s
            try:
                if self.embedder.take_damage_report():
                    await self._repair()
                while await self.writer.run(vectors.encode):  # of an earlier version, or left over by a stop
                    pass
                made = False
                while await self._embed_next():
                    made = True
                if made and self.remote is None:
                    await self.threads.run(give_back)
            except StorageFull:
                log.warning("vectors_not_stored", code="storage_full")
            except VectorsDamaged:
                self.embedder.report_damage()
                if self._may_repair():
                    continue
                log.warning("vectors_not_stored", code="vectors_damaged")
            except ModelAway as error:
                log.warning("embedding_waits", error=error_class(error.__cause__ or error))
                pause_s = min(pause_s, RECHECK_MODEL_S)
            self.vitals.doing("idle")
            if self.remote is not None:
                await self.remote.note_spending()
            await self.embedder.wait_for_news(max(0.0, min(pause_s, self.gathered_at - trio.current_time())))

    def _may_repair(self) -> bool:
        return trio.current_time() >= self.repaired_at + self.repair_pause_s

    async def _repair(self) -> None:
        """Drop a damaged vector table. All messages are then embedded again; meanwhile full text finds them."""
        if not self._may_repair():
            return
        self.repaired_at = trio.current_time()
        log.warning("vectors_damaged", count=self.embedder.status.embedded)
        try:
            await vectors.prepare(self.writer, self.vectors_id, self.model.dimension, damaged=True)
        except VectorsDamaged:  # pages of the database file are broken: it has to be rebuilt as a whole
            log.warning("vectors_not_repaired", code="vectors_damaged")
            return
        self.embedder.count(embedded=0, waiting=await self.readers.run(vectors.count_unembedded, self.min_tokens))

    async def _embed_next(self) -> bool:
        """Embed some facts and pieces of files, which are few, else messages, else passages of documents. Returns
        whether there may be more. Raises StorageFull, VectorsDamaged, ModelAway."""
        waiting = await self.readers.run(passages.unembedded, self.vectors_id, PASSAGE_ROWS)
        if await self._embed_passages(waiting) or await self._embed_messages():
            return True
        most = DOCUMENT_ROWS * self.config.threads
        waiting = await self.readers.run(passages.unembedded, self.vectors_id, most, ("document",))
        self.vitals.doing(f"embedding {len(waiting)} passages of documents")
        parts = [waiting[start : start + DOCUMENT_ROWS] for start in range(0, len(waiting), DOCUMENT_ROWS)]
        return any(await self._share(parts, self._embed_passages))

    async def _embed_passages(self, waiting: Sequence[passages.UnembeddedPassage]) -> bool:
        """Returns whether there may be more to do; not when none of these could be stored."""
        made = await self._run([PassageText(each.text, each.lead) for each in waiting]) if waiting else None
        if made is None:
            return False
        pairs = zip(waiting, made, strict=True)
        found = [PassageVector(each.kind, each.rowid, each.lead + each.text, reading.vector) for each, reading in pairs]
        return await self.writer.run(vectors.store_of_passages, self.vectors_id, found) > 0

    async def _embed_messages(self) -> bool:
        """Returns whether there was anything to do."""
        if self.remote is not None and trio.current_time() >= self.failing_since + FAILED_ROWS_PAUSE_S:
            self.failing.clear()
        as_of = await self.readers.run(meta.last_entry)
        rows = await self.readers.run(vectors.unembedded, self.min_tokens, self.backfill_rows + len(self.failing))
        rows = [row for row in rows if row.rowid not in self.failing]
        gathers = self._gathers(len(rows))
        waiting = 0 if gathers else await self.readers.run(vectors.count_unembedded, self.min_tokens)
        self.embedder.count(embedded=self.embedder.status.embedded, waiting=waiting)
        if gathers:
            return False
        if rows:
            await self._embed_rows(rows, as_of)
            return True
        if self.embedder.status.state is EmbedderState.REEMBEDDING:
            await self.writer.run(vectors.end_reembedding)
            self.embedder.enter(EmbedderState.READY)
        return await self._embed_uncoded(as_of)

    def _gathers(self, rows: int) -> bool:
        """Whether the few messages that wait go on waiting: storing one vector writes as many pages as storing many."""
        if 0 < rows < GATHER_ROWS and self.embedder.status.state is EmbedderState.READY:
            self.gathered_at = min(self.gathered_at, trio.current_time() + self.gather_s)
            if trio.current_time() < self.gathered_at:
                return True
        self.gathered_at = math.inf
        return False

    async def _embed_uncoded(self, as_of: int) -> bool:
        """Embed some messages again whose vectors are older than codes of tokens. Returns whether there were any."""
        if self.model.coder is None:
            return False
        found = await self.readers.run(token_codes.lacking, self.backfill_rows)
        if found is None:
            return False
        await self._embed_rows(await self.readers.run(vectors.to_embed, found.rowids), as_of)
        if await self.readers.run(meta.last_entry) == as_of:  # else some may have been refused, and are tried again
            await self.writer.run(lambda tx: token_codes.looked_through(tx.connection, found.complete_from))
        return True

    async def _embed_rows(self, rows: Sequence[UnembeddedMessage], as_of: int) -> None:
        texts = [WaitingMessage(row.rowid, passage(row.content, row.previous)) for row in rows]
        self.vitals.doing(f"embedding {len(texts)} messages")
        gathered = self.gather_s > 0 and len(texts) < GATHER_ROWS  # they are stored together too
        parts = [texts] if gathered else split_batches(texts, self.config.batch_tokens)
        await self._share(parts, partial(self._embed_batch, as_of=as_of))

    async def _share(self, parts: Iterable[P], embed: Callable[[P], Awaitable[T]]) -> list[T]:
        """Let ``embedding.threads`` tasks embed parts of a fetch. Raises what one of them raised."""
        left, done = iter(parts), list[T]()
        refused: list[StorageFull | VectorsDamaged | ModelAway] = []

        async def work() -> None:
            try:
                for part in left:
                    if refused:
                        return
                    done.append(await embed(part))
            except (StorageFull, VectorsDamaged, ModelAway) as error:
                refused.append(error)

        async with trio.open_nursery() as nursery:
            for _ in range(self.config.threads):
                nursery.start_soon(work)
        if refused:
            raise refused[-1]
        return done

    async def _embed_batch(self, batch: Sequence[WaitingMessage], as_of: int) -> None:
        made = await self._run([row.passage for row in batch])
        if made is None:
            if len(batch) == 1:
                self.failing.add(batch[0].rowid)
                self.failing_since = trio.current_time()
                return
            await trio.sleep(FAILED_BATCH_PAUSE_S)
            for row in batch:
                await self._embed_batch([row], as_of)
            return
        pairs = [(row.rowid, reading.vector) for row, reading in zip(batch, made, strict=True)]
        coded = zip(batch, made, strict=True) if self.model.coder is not None else ()
        codes = {row.rowid: reading.codes for row, reading in coded}
        stored = await self.writer.run(vectors.store, self.vectors_id, pairs, as_of=as_of, codes=codes)
        status = self.embedder.status
        self.embedder.count(embedded=status.embedded + stored, waiting=max(0, status.waiting - stored))

    async def _run(self, texts: list[PassageText]) -> list[Reading] | None:
        """One run of the model; None when it refuses one of the texts. Raises ModelAway."""
        try:
            return await self.threads.run(self._read_passages, texts)
        except ModelAway:
            raise
        except ModelError as error:
            log.warning("embed_failed", count=len(texts), error=error_class(error))
            return None

    def _read_passages(self, texts: list[PassageText]) -> list[Reading]:
        return self.model.read(texts, kind="passage")


def _prove(model: "AnyModel") -> None:
    """Close a model that does not work. Raises ModelError."""
    from klaw.memory.embed.calibration import prove  # loads numpy

    try:
        prove(model.embed, model.model_id)
    except ModelError:
        model.close()
        raise
