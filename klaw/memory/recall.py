"""Recall: from a query to the earlier messages of a chat's segment that matter, with an account of every candidate.

embed the query -> KNN and full text in scope -> Reciprocal Rank Fusion -> relevance gate -> pack. Every failure
degrades to the rest and is named in the result; a reply never waits longer than ``autoRag.timeBudgetMs`` for it.
"""

from collections.abc import Mapping, Sequence

import structlog
import trio

from klaw.actor.failure import error_class
from klaw.config.schema import AutoRagConfig
from klaw.domain.message import Message
from klaw.domain.recall import Candidate, Recalled
from klaw.errors import ActorStopped, StorageError
from klaw.memory.embedder import Embedder, EmbeddingUnavailable
from klaw.memory.fuse import reciprocal_rank_fusion
from klaw.memory.gate import Evidence, Gate, calibrated, is_command
from klaw.memory.pack import line_tokens, pack
from klaw.memory.stopwords import content_words
from klaw.store.readers import Readers
from klaw.store.sql import fulltext, vectors
from klaw.store.sql.candidates import Found, Scope, search_both
from klaw.store.tokenizer import stem, words

DEPTH = 20
"""How many results each list gives to the fusion."""
MAX_QUERY_WORDS = 64
"""Content words of a query that full text looks for; a longer query is cut."""
MAX_QUERY_CHARACTERS = 1_500
"""Of a longer query only the beginning is embedded: one run of the model, not several."""

MAX_COMPARED_CHARACTERS = 8_000
"""Of a longer message only the beginning is compared with the query's words: this runs on the event loop."""

log = structlog.get_logger("klaw.recall")


class Recall:
    """The recall pipeline over a store and an embedder."""

    def __init__(self, readers: Readers, embedder: Embedder, config: AutoRagConfig) -> None:
        self._readers = readers
        self._embedder = embedder
        self._config = config

    async def search(self, query: str, scope: Scope) -> Recalled:
        """Find what matters for a query. Never raises for a failure of a part: the result says what was degraded.

        Cancellation: nothing is changed.
        """
        config = self._config
        asked = content_words(query, MAX_QUERY_WORDS)
        degraded: list[str] = []
        begin = trio.current_time()
        deadline = begin + config.time_budget_ms / 1000
        vector = await self._vector(query, deadline, degraded) if asked else None
        embedded = trio.current_time()
        found = await self._find(vector, asked, scope, deadline, degraded)
        gate = Gate(
            threshold=config.relevance_threshold,
            content_words=len({stem(word) for word in asked}),
            command=is_command(query),
        )
        candidates = _judge(found, asked, gate, self._embedder.random_cosine)
        packed = pack(candidates, asked, top_k=config.top_k, max_tokens=config.max_tokens)
        end = trio.current_time()
        return Recalled(
            candidates=tuple(packed),
            query_words=len(asked),
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

    async def _find(
        self, vector: bytes | None, asked: list[str], scope: Scope, deadline: float, degraded: list[str]
    ) -> Found:
        nothing = Found()
        if not asked:
            return nothing
        # A late query vector must not starve the search itself.
        deadline = max(deadline, trio.current_time() + self._config.time_budget_ms / 2000)
        try:
            with trio.move_on_at(deadline):
                found = await self._readers.run(search_both, vector, asked, scope, DEPTH)
                if found.vectors_failed:
                    degraded.append("vector_search_failed")
                return found
            degraded.append("search_late")
        except trio.TooSlowError:
            degraded.append("search_late")
        except StorageError as error:
            log.warning("recall_failed", error=error_class(error))
            degraded.append("search_failed")
        return nothing


def _judge(found: Found, asked: Sequence[str], gate: Gate, random_cosine: float) -> list[Candidate]:
    """Fuse both lists and let the gate decide on each candidate, the best first."""
    by_rowid = {message.rowid: message for message in found.messages}
    vector_rank = {n.rowid: (rank, n) for rank, n in enumerate(found.neighbours, 1)}
    text_rank = {h.rowid: (rank, h) for rank, h in enumerate(found.hits, 1)}
    wanted = {stem(word) for word in asked}
    ranked = [
        (by_rowid[rowid], score)
        for rowid, score in reciprocal_rank_fusion([list(vector_rank), list(text_rank)]).items()
        if rowid in by_rowid
    ]
    evidence = [_evidence(message, vector_rank, text_rank, wanted, random_cosine) for message, _ in ranked]
    decisions = gate.decide(evidence)
    return [
        Candidate(
            message=message,
            vector_rank=vector_rank[message.rowid][0] if message.rowid in vector_rank else None,
            distance=seen.distance,
            text_rank=text_rank[message.rowid][0] if message.rowid in text_rank else None,
            bm25=text_rank[message.rowid][1].bm25 if message.rowid in text_rank else None,
            score=score,
            decision=decision,
            text=message.content,
            tokens=line_tokens(message.content),
        )
        for (message, score), seen, decision in zip(ranked, evidence, decisions, strict=True)
    ]


def _evidence(
    message: Message,
    vector_rank: Mapping[int, tuple[int, vectors.Neighbour]],
    text_rank: Mapping[int, tuple[int, fulltext.TextHit]],
    wanted: set[str],
    random_cosine: float,
) -> Evidence:
    near = vector_rank.get(message.rowid)
    return Evidence(
        distance=calibrated(near[1].distance, random_cosine) if near else None,
        shared_words=len(wanted & {stem(word) for word in words(message.content[:MAX_COMPARED_CHARACTERS])})
        if message.rowid in text_rank
        else 0,
    )
