"""SQL of a search over a user's topics: by vector, by the words of summaries, and where found messages belong."""

from collections.abc import Mapping, Sequence

import apsw
import attrs

from klaw.domain.topic import Topic, TopicId
from klaw.store.engine.connect import snapshot
from klaw.store.kinds import topic_vectors, topics
from klaw.store.kinds.topic_changes import TOPIC
from klaw.store.kinds.topic_vectors import Near
from klaw.store.search.fulltext import ranked
from klaw.store.search.history_search import HistoryFilters


@attrs.frozen(kw_only=True)
class TopicLists:
    """The lists, the best first, and the topics in them."""

    near: Sequence[Near] = ()
    by_words: Sequence[TopicId] = ()
    of_messages: Mapping[int, TopicId] = attrs.Factory(dict)
    """Topics of the messages that were asked about."""
    topics: Mapping[TopicId, Topic] = attrs.Factory(dict)


def search_topics(
    connection: apsw.Connection,
    vector: bytes | None,
    words: Sequence[str],
    rowids: Sequence[int],
    filters: HistoryFilters,
    *,
    min_cosine: float,
    depth: int,
) -> TopicLists:
    """Search a user's topics by vector (if there is one), by the words of their summaries, and by messages that a
    search found. By vector only topics of at least ``min_cosine`` are found. A topic is of a time if some of it is."""
    with snapshot(connection):
        near = (
            topic_vectors.nearest(connection, filters.user, vector, min_cosine=min_cosine, limit=depth)
            if vector is not None
            else []
        )
        hits = ranked(connection, TOPIC, "summary", filters.user, words, depth) if words else []
        by_words = [TopicId(hit.rowid) for hit in hits]
        of_messages = topics.topics_of(connection, filters.user, rowids)
        ids = {each.topic for each in near} | set(by_words) | set(of_messages.values())
        known = {
            topic.id: topic
            for topic in topics.by_ids(connection, filters.user, sorted(ids)).values()
            if _passes(topic, filters)
        }
    return TopicLists(
        near=[each for each in near if each.topic in known],
        by_words=[topic for topic in by_words if topic in known],
        of_messages={rowid: topic for rowid, topic in of_messages.items() if topic in known},
        topics=known,
    )


def _passes(topic: Topic, filters: HistoryFilters) -> bool:
    return (
        (filters.chat is None or topic.chat == filters.chat)
        and (filters.since is None or topic.last_at >= filters.since)
        and (filters.until is None or topic.first_at < filters.until)
    )
