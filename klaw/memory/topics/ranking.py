"""One ranking of topics out of several lists. Pure.

A topic is found by its vector, by the words of its summary, and by its messages: a summary leaves out what somebody may
ask for later, and the vector of a long talk is near to everything. So the messages that the search over the history
finds speak for their topics, each the less the further down it stands; that is what finds most.
"""

from collections.abc import Mapping, Sequence

import attrs

from klaw.domain.topic import TopicId

K = 60
"""Of Reciprocal Rank Fusion."""
VECTOR_WEIGHT = 1.0
WORDS_WEIGHT = 1.0
MESSAGES_WEIGHT = 12.0
MESSAGES_K = 5
"""Like K, for messages: the first few count most."""
MAX_MESSAGES = 3
"""So many messages of one topic speak for it."""


@attrs.frozen(kw_only=True)
class Placed:
    """A topic of the ranking."""

    topic: TopicId
    score: float
    vector_rank: int | None
    cosine: float | None
    words_rank: int | None
    message_rank: int | None
    """Of its best message."""


def rank_topics(
    near: Sequence[tuple[TopicId, float]],
    by_words: Sequence[TopicId],
    messages: Sequence[int],
    of_messages: Mapping[int, TopicId],
) -> list[Placed]:
    """Fuse the lists; ties go to the newer topic.

    Args:
        near: topics by vector with their cosines, the nearest first.
        by_words: topics by the words of their summaries, the best first.
        messages: row ids of messages that were found, the best first.
        of_messages: their topics; some have none.
    """
    scores: dict[TopicId, float] = {}
    for rank, (topic, _) in enumerate(near, 1):
        scores[topic] = scores.get(topic, 0.0) + VECTOR_WEIGHT / (K + rank)
    for rank, topic in enumerate(by_words, 1):
        scores[topic] = scores.get(topic, 0.0) + WORDS_WEIGHT / (K + rank)
    ranks: dict[TopicId, list[int]] = {}
    for rank, rowid in enumerate(messages, 1):
        if (of := of_messages.get(rowid)) is not None:
            ranks.setdefault(of, []).append(rank)
    for topic, own in ranks.items():
        speaking = sum(1 / (MESSAGES_K + rank) for rank in own[:MAX_MESSAGES])
        scores[topic] = scores.get(topic, 0.0) + MESSAGES_WEIGHT * MESSAGES_K / K * speaking
    vector_ranks = {topic: (rank, cosine) for rank, (topic, cosine) in enumerate(near, 1)}
    words_ranks = {topic: rank for rank, topic in enumerate(by_words, 1)}
    placed = [
        Placed(
            topic=topic,
            score=score,
            vector_rank=vector_ranks[topic][0] if topic in vector_ranks else None,
            cosine=vector_ranks[topic][1] if topic in vector_ranks else None,
            words_rank=words_ranks.get(topic),
            message_rank=min(ranks[topic]) if topic in ranks else None,
        )
        for topic, score in scores.items()
    ]
    return sorted(placed, key=lambda each: (-each.score, -each.topic))
