"""Recall: from a query to the earlier messages of a chat's segment that matter, with an account of every candidate.

embed the query -> KNN and full text in scope -> Reciprocal Rank Fusion -> learned ranking -> relevance gate -> rerank,
if a service is to -> pack. Every failure degrades to the rest, every step that time did not allow is left out, and both
are named in the result; a reply never waits much longer than ``autoRag.timeBudgetMs`` for it.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import date
from functools import partial

import attrs
import structlog
import trio

from klaw.actor.clock import Clock
from klaw.actor.threads import Threads
from klaw.config.memory import AutoRagConfig
from klaw.domain.message import Message
from klaw.domain.search import Candidate, Recalled, RecallSettings
from klaw.llm.client import Meter
from klaw.memory.embed.embedder import Embedder, read_question
from klaw.memory.recall.account import Account
from klaw.memory.recall.excerpt import pack
from klaw.memory.recall.gate import Gate, calibrated, judge, prefer_newer, stems_of, without
from klaw.memory.recall.query import Query, read_query
from klaw.memory.recall.rank import EMPTY, Pool, Ranked, Ranking, gather
from klaw.memory.recall.rerank import Reranker
from klaw.store.engine.database import Readers
from klaw.store.search import token_codes
from klaw.store.search.candidates import Depth, Lists, Scope, join, read_with_unwanted, search_lists

DEPTH = Depth(vectors=200, words=100, spreading=50)
"""How many results each list gives to the fusion; the best by words share their scores with their neighbours, so there
are up to twice as many."""
DEEPER = Depth(vectors=2_000, words=2_000, spreading=2_000)
"""How far ``place`` looks."""
POOL = 200
"""How many of the fused lists are ranked by all that is known of them."""
CONSIDERED = 50
"""How many of the ranking are read, judged by the gate and accounted for."""
log = structlog.get_logger("klaw.recall")


@attrs.frozen(kw_only=True)
class Place:
    """Where one message stands for a query, among all that a deeper search finds."""

    found: int
    """How many messages it found."""
    place: int | None
    """Of the message in the ranking; None when it was not found."""
    ranked: Ranked | None
    distance: float | None
    """Calibrated."""
    degraded: tuple[str, ...]


@attrs.define(eq=False, slots=False)
class Recall:
    """The recall pipeline over a store and an embedder.

    Args:
        config: the settings that decide.
        clock: "yesterday" is counted from its now.
        reranker: puts what passed the gate into its order, if there is one.
        monotonic: seconds, by which the search's steps are measured in the readers' threads.
    """

    _readers: Readers
    _embedder: Embedder
    _config: AutoRagConfig
    _clock: Clock
    _reranker: Reranker | None = attrs.field(default=None, kw_only=True)
    _monotonic: Callable[[], float] = attrs.field(default=time.monotonic, kw_only=True)
    _threads: Threads = attrs.field(factory=lambda: Threads("recall", 2), init=False)

    async def search(
        self, text: str, scope: Scope, max_tokens: int | None = None, meter: Meter | None = None
    ) -> Recalled:
        """Find what matters for a query. Never raises for a failure of a part: the result says what was degraded.

        Args:
            text: the query.
            scope: where to look.
            max_tokens: of what is kept, where the prompt has less room than ``autoRag.maxTokens``.
            meter: of the turn that it is for.

        Cancellation: nothing is changed.
        """
        config = self._config
        most = config.max_tokens if max_tokens is None else min(config.max_tokens, max_tokens)
        account = Account(config.time_budget_ms / 1000)
        query, ranking = await self._rank(text, scope, DEPTH, account, POOL, CONSIDERED)
        found: list[Message] = []
        unwanted: frozenset[int] = frozenset()
        if ranking.best:
            with account.step("read"):
                found, unwanted = await self._read(ranking.best, scope, account)
        with account.step("judge"):
            judged = without(self._judge(ranking.best, found, query), unwanted)
        if self._reranker is not None:
            judged = await self._reranker.order(text, query.content_stems, judged, account, meter)
        with account.step("pack"):
            packed = await self._pack(judged, query, most, account)
        return Recalled(
            candidates=tuple(packed),
            query_words=len(query.words),
            found=ranking.found,
            degraded=tuple(account.degraded),
            timings_ms=account.timings_ms,
            command=query.command,
            days=tuple((period.first, period.last) for period in query.periods),
            first_seq=scope.first_seq,
            end_seq=scope.end_seq,
            settings=RecallSettings(
                top_k=config.top_k,
                max_tokens=most,
                relevance_threshold=config.relevance_threshold,
                time_budget_ms=config.time_budget_ms,
            ),
            vector=account.reading.vector if account.reading is not None else None,
        )

    async def place(self, text: str, scope: Scope, rowid: int) -> Place:
        """Where one message stands for a query, deeper than ``search`` looks; not within the time of a reply.

        Cancellation: nothing is changed.
        """
        account = Account(self._config.time_budget_ms / 1000)
        _, ranking = await self._rank(text, scope, DEEPER, account)
        at = next((at for at, each in enumerate(ranking.best) if each.place.rowid == rowid), None)
        ranked = ranking.best[at] if at is not None else None
        near = ranked.distance if ranked else None
        return Place(
            found=ranking.found,
            place=at + 1 if at is not None else None,
            ranked=ranked,
            distance=calibrated(near, self._embedder.random_cosine),
            degraded=tuple(account.degraded),
        )

    async def gather(self, text: str, scope: Scope) -> tuple[Pool, Mapping[int, float]]:
        """What ``search`` ranks for a query, and the scores of its tokens: what the ranker is trained with."""
        account = Account(self._config.time_budget_ms / 1000)
        _, pool = await self._gather(text, scope, DEPTH, account, POOL)
        return pool, account.token_scores()

    # -- inside ----------------------------------------------------------------------------------------------------

    async def _rank(
        self, text: str, scope: Scope, depth: Depth, account: Account, size: int | None = None, limit: int | None = None
    ) -> tuple[Query, Ranking]:
        """Read the query and rank the best ``size`` of what the searches find for it, all if it is None; the best
        ``limit`` of that."""
        query, pool = await self._gather(text, scope, depth, account, size)
        with account.step("rank"):
            return query, await self._threads.run(lambda: pool.rank(account.token_scores(), limit))

    async def _gather(
        self, text: str, scope: Scope, depth: Depth, account: Account, size: int | None
    ) -> tuple[Query, Pool]:
        """Read the query, search, and read the codes of what is to be ranked."""
        with account.step("begin"):
            query = await self._threads.run(read_query, text, self._clock.now(), None)
        if scope.end_seq <= scope.first_seq or not query.words:
            return query, EMPTY
        with account.step("search"):
            query, lists = await self._lists(text, query, scope, depth, account)
        account.timings_ms.update(lists.timings_ms)
        with account.step("rank"):
            random_cosine = self._embedder.random_cosine
            pool = await self._threads.run(partial(gather, lists, query, random_cosine=random_cosine, size=size))
        if account.query_tokens is not None:
            with account.step("tokens"):
                account.codes = await self._codes([each.rowid for each in pool.entries], scope, account)
        return query, pool

    async def _lists(
        self, text: str, query: Query, scope: Scope, depth: Depth, account: Account
    ) -> tuple[Query, Lists]:
        """Search by words while the query is embedded, and then by vector. Returns the query as it reads when it is
        known when something was last said.

        Not both searches at once: much of them is Python's, which takes turns anyway.
        """
        hits, words = Lists(), query.words

        async def by_words() -> None:
            nonlocal hits, query
            hits = await self._search(None, words, (), scope, depth, account)
            query = await self._threads.run(read_query, text, self._clock.now(), hits.latest)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(by_words)
            with account.step("embed"):
                reading = account.reading = await read_question(
                    self._embedder, text, account.deadline, account.degraded
                )
                if reading is not None and self._embedder.is_incomplete:
                    account.degraded.append("vectors_incomplete")
        near = Lists()
        if reading is not None:
            days = [(period.first, period.last) for period in query.periods]
            known = {place.rowid for place in hits.places}
            near = await self._search(reading.vector, (), days, scope, depth, account, known)
        lists = join(hits, near)
        if lists.vectors_failed:
            account.degraded.append("vector_search_failed")
            self._embedder.report_damage()
        if lists.text_failed:
            account.degraded.append("text_search_failed")
        account.degraded.extend(f"cut_{step}" for step in lists.cut)
        return query, lists

    async def _search(
        self,
        vector: bytes | None,
        words: Sequence[str],
        days: Sequence[tuple[date, date]],
        scope: Scope,
        depth: Depth,
        account: Account,
        known: Collection[int] = (),
    ) -> Lists:
        seconds = account.soon - trio.current_time()
        # The search watches its own time; the second limit is for what cannot be interrupted from within.
        with account.degrading("search", "recall_failed"), trio.fail_after(2 * seconds):
            return await self._readers.run(
                search_lists, vector, words, days, scope, depth, seconds, self._monotonic, known
            )
        return Lists()

    def _judge(self, ranked: Sequence[Ranked], found: Sequence[Message], query: Query) -> list[Candidate]:
        """Let the gate decide."""
        gate = Gate(
            threshold=self._config.relevance_threshold, content_words=len(query.content_stems), command=query.command
        )
        return judge(ranked, found, gate, self._embedder.random_cosine)

    async def _pack(
        self, judged: Sequence[Candidate], query: Query, max_tokens: int, account: Account
    ) -> list[Candidate]:
        """Decide what is kept, and how much of each. In a thread: long messages are read for their excerpts."""

        def packed() -> list[Candidate]:
            passed = prefer_newer(list(judged), stems_of)
            top_k, met_in = self._config.top_k, account.met_in
            return pack(passed, query.content_stems, top_k=top_k, max_tokens=max_tokens, met_in=met_in)

        with trio.move_on_at(account.soon):
            return await self._threads.run(packed, abandon=True)
        account.say("search_late")
        return []

    async def _codes(self, rowids: Sequence[int], scope: Scope, account: Account) -> Mapping[int, bytes]:
        with account.degrading("search", "recall_failed"), trio.fail_at(account.soon):
            return await self._readers.run(token_codes.of_scope, rowids, scope.chat, scope.first_seq, scope.end_seq)
        return {}

    async def _read(
        self, ranked: Sequence[Ranked], scope: Scope, account: Account
    ) -> tuple[list[Message], frozenset[int]]:
        """The messages, and the numbers of those that are never to be recalled."""
        with account.degrading("search", "recall_failed"), trio.fail_at(account.soon):
            return await self._readers.run(read_with_unwanted, [each.place.rowid for each in ranked], scope)
        return [], frozenset()
