"""Recall: from a query to the earlier messages of a chat's segment that matter, with an account of every candidate.

embed the query -> KNN and full text in scope -> Reciprocal Rank Fusion -> relevance gate -> pack. Every failure
degrades to the rest, every step that time did not allow is left out, and both are named in the result; a reply never
waits much longer than ``autoRag.timeBudgetMs`` for it.
"""

from collections.abc import Sequence

import attrs
import structlog
import trio

from klaw.actor.clock import Clock
from klaw.actor.failure import error_class
from klaw.config.schema import AutoRagConfig
from klaw.domain.message import Message
from klaw.domain.recall import NOTHING, Candidate, Recalled
from klaw.errors import ActorStopped, StorageError
from klaw.memory.embedder import Embedder, EmbeddingUnavailable
from klaw.memory.gate import Evidence, Gate, calibrated
from klaw.memory.pack import line_tokens, pack
from klaw.memory.query import Query, read_query
from klaw.memory.rank import Ranked, rank
from klaw.store.readers import Readers
from klaw.store.sql.candidates import Depth, Lists, Scope, latest_day, read_messages, search_lists
from klaw.store.tokenizer import forms_in

DEPTH = Depth(vectors=200, words=100)
"""How many results each list gives to the fusion; those by words share their scores with their neighbours, so there are
up to three times as many."""
CONSIDERED = 50
"""How many of the fused ranking are read, judged by the gate and accounted for."""
MAX_QUERY_CHARACTERS = 1_500
"""Of a longer query only the beginning is embedded: one run of the model, not several."""
SEARCH_SHARE = 0.5
"""Of the time budget that the search has at least, however late the query's vector came."""

log = structlog.get_logger("klaw.recall")


class Recall:
    """The recall pipeline over a store and an embedder."""

    def __init__(self, readers: Readers, embedder: Embedder, config: AutoRagConfig, clock: Clock) -> None:
        self._readers = readers
        self._embedder = embedder
        self._config = config
        self._clock = clock

    async def search(self, text: str, scope: Scope) -> Recalled:
        """Find what matters for a query. Never raises for a failure of a part: the result says what was degraded.

        Cancellation: nothing is changed.
        """
        config = self._config
        begin = trio.current_time()
        deadline = begin + config.time_budget_ms / 1000
        degraded: list[str] = []
        try:
            latest = await self._readers.run(latest_day, scope)
        except StorageError as error:
            log.warning("recall_failed", error=error_class(error))
            return attrs.evolve(NOTHING, degraded=("search_failed",))
        query = read_query(text, now=self._clock.now(), latest=latest)
        if latest is None or not query.words:
            return attrs.evolve(NOTHING, query_words=len(query.words))
        vector = await self._vector(text, deadline, degraded)
        embedded = trio.current_time()
        lists = await self._lists(query, vector, scope, deadline, degraded)
        ranked = rank(lists, query.stems, query.periods)
        found = await self._read(ranked[:CONSIDERED], scope, degraded)
        gate = Gate(threshold=config.relevance_threshold, content_words=len(query.content_stems), command=query.command)
        judged = judge(ranked, found, query, gate, self._embedder.random_cosine)
        packed = pack(judged, query.content_stems, top_k=config.top_k, max_tokens=config.max_tokens)
        end = trio.current_time()
        return Recalled(
            candidates=tuple(packed),
            query_words=len(query.words),
            found=len(ranked),
            degraded=tuple(degraded),
            timings_ms={"embed": (embedded - begin) * 1000, "search": (end - embedded) * 1000},
        )

    async def _vector(self, query: str, deadline: float, degraded: list[str]) -> bytes | None:
        try:
            with trio.move_on_at(deadline):
                vector = await self._embedder.query(query[:MAX_QUERY_CHARACTERS])
                status = self._embedder.status
                if status.waiting > status.embedded:
                    degraded.append("vectors_incomplete")
                return vector
            degraded.append("embedding_late")
        except EmbeddingUnavailable as error:
            if error.degraded is not None:
                degraded.append(error.degraded)
        except ActorStopped:
            degraded.append("embedding_restarting")
        return None

    async def _lists(
        self, query: Query, vector: bytes | None, scope: Scope, deadline: float, degraded: list[str]
    ) -> Lists:
        # A late query vector must not starve the search itself.
        seconds = max(deadline - trio.current_time(), self._config.time_budget_ms / 1000 * SEARCH_SHARE)
        days = [(period.first, period.last) for period in query.periods]
        nothing = Lists()
        try:
            # The search watches its own time; the second limit is for what cannot be interrupted from within.
            with trio.move_on_after(2 * seconds):
                lists = await self._readers.run(search_lists, vector, query.words, days, scope, DEPTH, seconds)
                if lists.vectors_failed:
                    degraded.append("vector_search_failed")
                    self._embedder.report_damage()
                if lists.text_failed:
                    degraded.append("text_search_failed")
                degraded.extend(f"cut_{step}" for step in lists.cut)
                return lists
            degraded.append("search_late")
        except trio.TooSlowError:
            degraded.append("search_late")
        except StorageError as error:
            log.warning("recall_failed", error=error_class(error))
            degraded.append("search_failed")
        return nothing

    async def _read(self, ranked: Sequence[Ranked], scope: Scope, degraded: list[str]) -> list[Message]:
        if not ranked:
            return []
        try:
            return await self._readers.run(read_messages, [each.place.rowid for each in ranked], scope)
        except StorageError as error:
            log.warning("recall_failed", error=error_class(error))
            degraded.append("search_failed")
            return []


def judge(
    ranked: Sequence[Ranked], found: Sequence[Message], query: Query, gate: Gate, random_cosine: float
) -> list[Candidate]:
    """Let the gate decide on each message that was read, the best first. Pure."""
    by_rowid = {message.rowid: message for message in found}
    read = [(each, by_rowid[each.place.rowid]) for each in ranked if each.place.rowid in by_rowid]
    evidence = [_evidence(each, message, query, random_cosine) for each, message in read]
    return [
        Candidate(
            message=message,
            vector_rank=each.vector_rank,
            distance=seen.distance,
            text_rank=each.text_rank,
            bm25=each.bm25,
            score=each.score,
            boosts=each.boosts,
            decision=decision,
            text=message.content,
            tokens=line_tokens(message.content),
        )
        for (each, message), seen, decision in zip(read, evidence, gate.decide(evidence), strict=True)
    ]


def _evidence(each: Ranked, message: Message, query: Query, random_cosine: float) -> Evidence:
    return Evidence(
        distance=calibrated(each.distance, random_cosine) if each.distance is not None else None,
        shared_words=len(forms_in(message.content, query.content_stems)) if each.bm25 is not None else 0,
    )
