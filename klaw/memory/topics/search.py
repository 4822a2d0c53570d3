"""Search over a user's topics, without a model that writes: embed the query, three lists, one ranking."""

from collections.abc import Sequence

import attrs
import trio

from klaw.actor.clock import Clock
from klaw.actor.threads import Threads
from klaw.domain.topic import Topic, TopicId
from klaw.memory.embed.embedder import QUERY_S, Embedder, query_vector
from klaw.memory.recall.query import Query, read_query, read_search_words
from klaw.memory.recall.rank import rank
from klaw.memory.topics.metrics import TopicMetrics
from klaw.memory.topics.ranking import MAX_MESSAGES, rank_topics
from klaw.store.readers import Readers
from klaw.store.sql.candidates import Lists
from klaw.store.sql.history_search import HistoryFilters, HistoryFound, history_end, search_history
from klaw.store.sql.topic_search import TopicFilters, TopicsFound, search_topics

MIN_COSINE = 0.60
MAX_CANDIDATES = 50
MESSAGES = 50
"""So many of the best messages speak for their topics."""
DEPTH = 100
"""Of the search over messages by words."""


@attrs.frozen(kw_only=True)
class TopicHit:
    """A topic that was found, and why."""

    topic: Topic
    score: float
    """Larger is better."""
    cosine: float | None
    """Of its vector and the query's; None when it was not found by it."""
    words_rank: int | None
    """By the words of its summary."""
    message_rank: int | None
    """Of its best message among those that were found."""
    best: tuple[int, ...] = ()
    """Row ids of the first of these messages."""


@attrs.frozen(kw_only=True)
class TopicPage:
    """What a search found, the best first."""

    hits: tuple[TopicHit, ...]
    degraded: tuple[str, ...]
    """Codes of what was missing, like ``SearchPage.degraded``."""
    timings_ms: dict[str, float]


class TopicSearch:
    """Searches over a store and an embedder.

    Args:
        readers: of the store.
        embedder: for the query's vector.
        clock: days are counted from its now.
        metrics: where searches are counted.
    """

    def __init__(self, readers: Readers, embedder: Embedder, clock: Clock, metrics: TopicMetrics) -> None:
        self._readers = readers
        self._embedder = embedder
        self._clock = clock
        self._metrics = metrics
        self._threads = Threads("topic search", 1)

    async def search(
        self, text: str, filters: TopicFilters, *, limit: int = MAX_CANDIDATES, vector: bytes | None = None
    ) -> TopicPage:
        """Find a user's topics that match a query; none for a query without any word.

        Args:
            text: the query; of a very long one the beginning counts.
            filters: whose, and which.
            limit: most of them.
            vector: of the query, from who has it already.

        Raises:
            StorageError: the database cannot be read.

        Cancellation: the search is interrupted, and nothing is changed.
        """
        begin = trio.current_time()
        degraded: list[str] = []
        words = tuple(await self._threads.run(read_search_words, text))
        if not words:
            return TopicPage(hits=(), degraded=(), timings_ms={})
        if vector is None:
            vector = await query_vector(self._embedder, text, begin + QUERY_S, degraded, off="embedding_off")
        embedded = trio.current_time()
        best = await self._messages(text, words, filters)
        hits = await self.find(vector, words, best, filters, limit=limit)
        ended = trio.current_time()
        self._metrics.search_s.observe(ended - begin)
        self._metrics.results.observe(len(hits))
        timings = {"embed": (embedded - begin) * 1000, "search": (ended - embedded) * 1000}
        return TopicPage(hits=tuple(hits), degraded=tuple(degraded), timings_ms=timings)

    async def find(
        self,
        vector: bytes | None,
        words: Sequence[str],
        messages: Sequence[int],
        filters: TopicFilters,
        *,
        limit: int = MAX_CANDIDATES,
    ) -> list[TopicHit]:
        """Find topics for somebody who has searched the messages already.

        Args:
            vector: of the query, if there is one.
            words: of the query, as written.
            messages: row ids of what was found, the best first; the first 50 speak for their topics.
            filters: whose, and which.
            limit: most of them.

        Raises:
            StorageError: the database cannot be read.
        """
        best = messages[:MESSAGES]
        found = await self._readers.run(
            search_topics, vector, words, best, filters, min_cosine=MIN_COSINE, depth=MAX_CANDIDATES
        )
        return _hits(best, found)[:limit]

    async def _messages(self, text: str, words: Sequence[str], filters: TopicFilters) -> list[int]:
        """Row ids of the best messages by words. Those by vector would find one topic in a hundred more, and take three
        times as long as all the rest."""
        end = await self._readers.run(history_end, filters.user)
        query = await self._threads.run(read_query, text, int(self._clock.now()), end.latest)
        history = await self._readers.run(
            search_history, None, words, HistoryFilters(user=filters.user, chat=filters.chat), DEPTH
        )
        return _best(history, query)


def _best(history: HistoryFound, query: Query) -> list[int]:
    lists = Lists(neighbours=history.neighbours, hits=history.hits, places=history.places)
    return [each.place.rowid for each in rank(lists, query.stems, query.periods, MESSAGES).best]


def _hits(messages: Sequence[int], found: TopicsFound) -> list[TopicHit]:
    """Pure."""
    best: dict[TopicId, list[int]] = {}
    for rowid in messages:
        if (topic := found.of_messages.get(rowid)) is not None:
            best.setdefault(topic, []).append(rowid)
    near = [(each.topic, each.cosine) for each in found.near]
    return [
        TopicHit(
            topic=found.topics[placed.topic],
            score=placed.score,
            cosine=placed.cosine,
            words_rank=placed.words_rank,
            message_rank=placed.message_rank,
            best=tuple(best.get(placed.topic, ())[:MAX_MESSAGES]),
        )
        for placed in rank_topics(near, found.by_words, messages, found.of_messages)
    ]
