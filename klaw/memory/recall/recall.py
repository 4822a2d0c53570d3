"""Recall: from a query to the earlier messages of a chat's segment that matter, with an account of every candidate.

The pipeline (``pipeline``) over one chat, with what was said in the days that the query names as a list of its own, and
the messages' tokens as a feature. A provider's model (``autoRag.rerank``) may order what passed the gate; what it gives
no score in time follows in recall's order. A reply waits hardly longer than ``autoRag.timeBudgetMs`` for recall.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import date, tzinfo
from functools import partial
from typing import Any

import attrs
import trio

from klaw.actor.threads import Threads
from klaw.domain import tokens
from klaw.domain.message import Message
from klaw.domain.search import Candidate, RecallOutcome
from klaw.llm.client import LlmClient, Meter
from klaw.llm.endpoint import ModelEndpoint, read_scores
from klaw.llm.errors import ProviderError, ProviderTimeout
from klaw.memory.recall.excerpt import excerpt, pack
from klaw.memory.recall.expansion import QuestionExpander, with_added
from klaw.memory.recall.gate import calibrated, judge_messages, prefer_newer, without
from klaw.memory.recall.message_features import MESSAGES, gather
from klaw.memory.recall.pipeline import CONSIDERED, POOL, Account, SearchForPrompt
from klaw.memory.recall.query import Query
from klaw.memory.recall.ranker import Pool, RankedEntry
from klaw.store.engine.tokenizer import stem
from klaw.store.search import token_codes
from klaw.store.search.chat_search import ChatScope, Depth, latest_day, read_with_unwanted, search_chat
from klaw.store.search.ranked_lists import Lists, MessagePlace

DEPTH = Depth(vectors=200, words=100, spreading=50)
"""Of each list. The best by words share their scores with neighbours, so there are up to twice as many."""
DEEPER = Depth(vectors=2_000, words=2_000, spreading=2_000)
EMPTY: Pool[MessagePlace] = Pool(of=MESSAGES)


MAX_QUESTION_TOKENS, MAX_DOCUMENT_TOKENS = 100, 300
"""Estimated: both together have to fit into the 512 tokens of small models."""
LEAST_S = 0.01
"""The service is not asked with less time left: that would count as its failure."""


@attrs.frozen(kw_only=True)
class CandidateReranker:
    """``llm`` counts the calls that belong to no turn."""

    endpoint: ModelEndpoint
    candidates: int
    llm: LlmClient
    threads: Threads = attrs.Factory(lambda: Threads("rerank", 1))

    async def order(
        self, question: str, stems: Collection[str], judged: Sequence[Candidate], account: Account, meter: Meter | None
    ) -> list[Candidate]:
        """The candidates in the model's order, those with a score first. What the gate refused is not sent. Never
        raises for a failure: ``account`` says ``rerank_late`` or ``rerank_failed``, and the order stays."""
        asked = [at for at, each in enumerate(judged) if each.passed][: self.candidates]
        if len(asked) < 2:
            return list(judged)
        scores: Mapping[int, float] = {}
        with account.step("rerank"):
            try:
                texts = [judged[at].message.content for at in asked]
                query, documents = await self.threads.run(_shortened, question, texts, stems, abandon=True)
                scores = await self._ask(query, documents, account.deadline, meter or self.llm.meter())
            except ProviderTimeout:
                account.say("rerank_late")
            except ProviderError:
                account.say("rerank_failed")
        scored = {asked[place]: score for place, score in scores.items()}
        order = sorted(range(len(judged)), key=lambda at: (at not in scored, -scored.get(at, 0.0), at))
        return [attrs.evolve(judged[at], rerank=scored.get(at)) for at in order]

    async def _ask(self, query: str, documents: Sequence[str], deadline: float, meter: Meter) -> dict[int, float]:
        left_s = deadline - trio.current_time()
        if left_s < LEAST_S:
            raise ProviderTimeout("there is no time left for the reranker")

        def read(answer: Mapping[str, Any]) -> dict[int, float]:
            return read_scores(answer, len(documents))

        return await meter.post(
            self.endpoint,
            {"query": query, "documents": list(documents), "top_n": len(documents)},
            read,
            prompt_tokens=sum(map(tokens.estimate, documents)) + len(documents) * tokens.estimate(query),
            within_s=left_s,
        )


def _shortened(question: str, others: Sequence[str], stems: Collection[str]) -> tuple[str, list[str]]:
    shorter = [excerpt(each, stems, MAX_DOCUMENT_TOKENS) for each in others]
    return excerpt(question, stems, MAX_QUESTION_TOKENS), shorter


@attrs.frozen(kw_only=True)
class MessageRank:
    found: int
    place: int | None
    ranked: RankedEntry[MessagePlace] | None
    distance: float | None
    degraded: tuple[str, ...]


@attrs.define(eq=False, slots=False)
class Recall(SearchForPrompt):
    reranker: CandidateReranker | None = attrs.field(default=None, kw_only=True)
    _expander: QuestionExpander | None = attrs.field(default=None, kw_only=True)

    async def search(
        self,
        text: str,
        scope: ChatScope,
        max_tokens: int | None = None,
        meter: Meter | None = None,
        added: Sequence[str] | None = None,
    ) -> RecallOutcome:
        """Find what matters for a query. Never raises for a failure of a part: the result says what was degraded.
        ``meter`` counts what models cost; without it none is asked to expand the query. ``added``: the words that one
        has added to it before."""
        config, account = self._config, self.account()
        most = config.max_tokens if max_tokens is None else min(config.max_tokens, max_tokens)
        account.added = tuple(added or ())
        query, pool = await self.gather(text, scope, DEPTH, account, POOL, meter if added is None else None)
        ranked = await self._rank(pool, account, CONSIDERED)
        found: list[Message] = []
        unwanted: frozenset[int] = frozenset()
        if ranked:
            rowids = [each.rowid for each in ranked]
            with account.step("read"):
                nothing = found, unwanted
                found, unwanted = await self.fetched(account, nothing, read_with_unwanted, rowids, scope)
        with account.step("judge"):
            gate = self.gate(query, command=query.command)
            judged = without(judge_messages(ranked, found, gate, self._embedder.random_cosine), unwanted)
        if self.reranker is not None:
            judged = await self.reranker.order(text, query.content_stems, judged, account, meter)
        with account.step("pack"):
            packed = await self._pack(judged, query, most, account)
        return RecallOutcome(
            candidates=tuple(packed),
            query_words=len(query.words),
            found=pool.found,
            degraded=tuple(account.degraded),
            timings_ms=account.timings_ms,
            command=query.command,
            days=_days(query),
            first_seq=scope.first_seq,
            end_seq=scope.end_seq,
            settings=self.settings(config.top_k, most),
            vector=account.vector,
            expansion=account.added,
        )

    async def rank_of(self, text: str, scope: ChatScope, rowid: int) -> MessageRank:
        """Where one message stands for a query, deeper than ``search`` looks."""
        account = self.account()
        _, pool = await self.gather(text, scope, DEEPER, account)
        ranked = await self._rank(pool, account)
        at = next((at for at, each in enumerate(ranked) if each.rowid == rowid), None)
        return MessageRank(
            found=pool.found,
            place=at + 1 if at is not None else None,
            ranked=ranked[at] if at is not None else None,
            distance=calibrated(ranked[at].distance, self._embedder.random_cosine) if at is not None else None,
            degraded=tuple(account.degraded),
        )

    async def gather(
        self,
        text: str,
        scope: ChatScope,
        depth: Depth,
        account: Account,
        size: int | None = None,
        meter: Meter | None = None,
    ) -> tuple[Query, Pool[MessagePlace]]:
        """Read the query, search, look at the best ``size``, read the codes of their tokens; also for training. With a
        ``meter`` a model is asked meanwhile for words to search for as well."""
        with account.step("begin"):
            unknown: tuple[date | None, tzinfo | None] = None, None
            query = await self.read(text, *await self.fetched(account, unknown, latest_day, scope))
        if scope.end_seq <= scope.first_seq or not query.words:
            return query, EMPTY

        async def search(vector: bytes | None, words: Sequence[str], hits: Lists) -> Lists:
            days, known = _days(query) if vector is not None else (), {place.rowid for place in hits.places}
            return await self.timed(account, partial(search_chat, known=known), vector, words, days, scope, depth)

        async def expand(expander: QuestionExpander, meter: Meter) -> None:
            account.added = await expander.words(text, query, account, meter)

        with account.step("search"):
            async with trio.open_nursery() as nursery:
                if self._expander is not None and meter is not None and not query.command:
                    nursery.start_soon(expand, self._expander, meter)
                lists = await self.lists(text, query.words, search, account)
            if account.added:
                lists = with_added(lists, await search(None, account.added, lists), depth.words)
        if lists.vectors_failed:
            self._embedder.report_damage()
        if account.vector is not None and self._embedder.is_incomplete:
            account.say("vectors_incomplete")
        with account.step("rank"):
            random_cosine = self._embedder.random_cosine
            pool = await self._threads.run(partial(gather, lists, query, random_cosine=random_cosine, size=size))
        if account.query_tokens is not None:
            rowids = [each.rowid for each in pool.entries]
            with account.step("tokens"):
                account.codes = await self.fetched(
                    account, {}, token_codes.of_scope, rowids, scope.chat, scope.first_seq, scope.end_seq
                )
        return query, pool

    async def _rank(
        self, pool: Pool[MessagePlace], account: Account, limit: int | None = None
    ) -> list[RankedEntry[MessagePlace]]:
        with account.step("rank"):
            return await self._threads.run(lambda: pool.rank(account.token_scores(), limit))

    async def _pack(
        self, judged: Sequence[Candidate], query: Query, max_tokens: int, account: Account
    ) -> list[Candidate]:
        """Decide what is kept, and how much of each. In a thread: long messages are read for their excerpts."""

        def packed() -> list[Candidate]:
            passed = prefer_newer(list(judged))
            top_k, overlap_with = self._config.top_k, account.overlap_with
            wanted = query.content_stems.union(map(stem, account.added))
            return pack(passed, wanted, top_k=top_k, max_tokens=max_tokens, overlap_with=overlap_with)

        with trio.move_on_at(account.soon):
            return await self._threads.run(packed, abandon=True)
        account.say("search_late")
        return []


def _days(query: Query) -> tuple[tuple[date, date], ...]:
    return tuple((period.first, period.last) for period in query.periods)
