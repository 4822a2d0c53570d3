"""Search over a user's topics. A topic is found by its vector, by the words of its summary, and by its messages: a
summary leaves out what somebody may ask for later, and the vector of a long talk is near to everything. So the messages
that the search over the history finds speak for their topics, the higher the more; that is what finds most."""

from collections.abc import Sequence

import attrs
import trio

from klaw.actor.clock import Clock
from klaw.actor.metrics import CHARS, COUNTS, SECONDS, Metrics
from klaw.actor.threads import Threads
from klaw.domain.topic import TopicCandidate, TopicId
from klaw.memory.embed.embedder import QUERY_S, Embedder
from klaw.memory.recall.message_features import gather
from klaw.memory.recall.pipeline import Account
from klaw.memory.recall.query import read_query, read_search_words
from klaw.memory.recall.ranker import RRF_K, ranks_of, reciprocal_rank_fusion
from klaw.store.engine.database import Readers
from klaw.store.search.history_search import HistoryFilters, TopicLists, history_end, search_history, search_topics

MIN_COSINE = 0.60
MAX_CANDIDATES = 50
MESSAGES, DEPTH = 50, 100
"""So many of the best messages speak for their topics, of so many found by words."""
VECTOR_WEIGHT, WORDS_WEIGHT, MESSAGES_WEIGHT = 1.0, 1.0, 12.0
MESSAGES_K = 5
"""Like ``RRF_K``, for messages."""
MAX_MESSAGES = 3
"""So many messages of one topic speak for it."""


class TopicMetrics:
    def __init__(self, metrics: Metrics) -> None:
        counter, histogram = metrics.counter, metrics.histogram
        self.extracted = counter("klaw_topics_extracted_total", "topics that were stored")
        self.splitter_s = histogram("klaw_splitter_duration_seconds", "one chunk's division into topics", SECONDS)
        self.splitter_fallbacks = counter("klaw_splitter_fallbacks_total", "chunks that no answer could be had for")
        self.size_chars = histogram("klaw_topics_size_chars", "size of a new topic's messages", CHARS)
        self.gaps = counter("klaw_topics_coverage_gaps_total", "messages that no topic of their chunk claimed")
        self.failed = counter("klaw_topics_failed_chunks_total", "chunks that failed and are tried again later")
        self.merged = counter("klaw_topics_merged_total", "topics that another one took in")
        self.merger_s = histogram("klaw_merger_duration_seconds", "one decision on a merge", SECONDS)
        self.candidates = histogram("klaw_topics_consolidation_candidates", "similar topics of a new one", COUNTS)
        self.search_s = histogram("klaw_topics_search_duration_seconds", "one search, without the reranker", SECONDS)
        self.results = histogram("klaw_topics_search_results", "topics that a search found", COUNTS)
        self.selected = histogram("klaw_topics_reranker_selected", "topics that the reranker chose", COUNTS)
        self.reranker_s = histogram("klaw_reranker_duration_seconds", "one choice of the reranker", SECONDS)
        self.reranker_loads = histogram("klaw_reranker_loads", "calls of get_topics_content in one choice", COUNTS)
        self.reranker_fallbacks = counter("klaw_reranker_fallbacks_total", "choices that were made without an answer")


@attrs.frozen(kw_only=True)
class TopicHits:
    hits: tuple[TopicCandidate, ...]
    degraded: tuple[str, ...]
    timings_ms: dict[str, float]


@attrs.define(eq=False, slots=False)
class TopicSearch:
    readers: Readers
    embedder: Embedder
    clock: Clock
    metrics: TopicMetrics
    _threads: Threads = attrs.field(factory=lambda: Threads("topic search", 1), init=False)

    async def search(
        self, text: str, filters: HistoryFilters, *, limit: int = MAX_CANDIDATES, vector: bytes | None = None
    ) -> TopicHits:
        """Find a user's topics that match a query, whose vector is given where it is known. Raises StorageError."""
        account, begin = Account(QUERY_S), trio.current_time()
        words = tuple(await self._threads.run(read_search_words, text))
        if not words:
            return TopicHits(hits=(), degraded=(), timings_ms={})
        if vector is None:
            await account.embed(self.embedder, text, off="embedding_off")
        with account.step("search"):
            best = await self._messages(text, words, filters)
            hits = await self.find(vector or account.vector, words, best, filters, limit=limit)
        self.metrics.search_s.observe(trio.current_time() - begin)
        self.metrics.results.observe(len(hits))
        return TopicHits(hits=tuple(hits), degraded=tuple(account.degraded), timings_ms=account.timings_ms)

    async def find(
        self,
        vector: bytes | None,
        words: Sequence[str],
        messages: Sequence[int],
        filters: HistoryFilters,
        *,
        limit: int = MAX_CANDIDATES,
    ) -> list[TopicCandidate]:
        """Find topics where the ``messages`` (row ids) were searched already. Raises StorageError."""
        best = messages[:MESSAGES]
        found = await self.readers.run(
            search_topics, vector, words, best, filters, min_cosine=MIN_COSINE, depth=MAX_CANDIDATES
        )
        return rank_topics(best, found)[:limit]

    async def _messages(self, text: str, words: Sequence[str], filters: HistoryFilters) -> list[int]:
        """Row ids of the best messages by words. Those by vector would find 1 % more topics, in three times as long."""
        _, latest, zone = await self.readers.run(history_end, filters.user)
        query = await self._threads.run(read_query, text, int(self.clock.now()), latest, zone)
        wanted = HistoryFilters(user=filters.user, chat=filters.chat)
        lists = await self.readers.run(search_history, None, words, wanted, DEPTH)
        return [each.rowid for each in gather(lists, query).rank(limit=MESSAGES)]


def rank_topics(messages: Sequence[int], found: TopicLists) -> list[TopicCandidate]:
    """Fuse the lists; ties go to the newer topic. Pure."""
    near = {each.topic: (place, each.cosine) for place, each in enumerate(found.near, 1)}
    words_ranks = ranks_of(found.by_words)
    scores = reciprocal_rank_fusion([(VECTOR_WEIGHT, list(near)), (WORDS_WEIGHT, found.by_words)])
    ranks: dict[TopicId, list[int]] = {}
    for place, rowid in enumerate(messages, 1):
        if (of := found.of_messages.get(rowid)) is not None:
            ranks.setdefault(of, []).append(place)
    for topic, own in ranks.items():
        speaking = sum(1 / (MESSAGES_K + place) for place in own[:MAX_MESSAGES])
        scores[topic] = scores.get(topic, 0.0) + MESSAGES_WEIGHT * MESSAGES_K / RRF_K * speaking
    ranked = [
        TopicCandidate(
            topic=found.topics[topic],
            score=score,
            cosine=near[topic][1] if topic in near else None,
            words_rank=words_ranks.get(topic),
            message_rank=ranks[topic][0] if topic in ranks else None,
            best=tuple(messages[place - 1] for place in ranks.get(topic, ())[:MAX_MESSAGES]),
        )
        for topic, score in scores.items()
    ]
    return sorted(ranked, key=lambda each: (-each.score, -each.topic.id))
