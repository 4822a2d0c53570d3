"""Candidates of a merge."""

import attrs

from klaw.domain.names import ChatId, UserId
from klaw.domain.topic import Topic, TopicCandidate, TopicId
from klaw.memory.topics.maker import MAX_CANDIDATES, candidates


def topic(number: int, **changes) -> Topic:
    made = Topic(
        id=TopicId(number),
        user=UserId("anna"),
        chat=ChatId("anna:main"),
        summary="s",
        general=False,
        messages=1,
        chars=1000,
        first_rowid=1,
        last_rowid=1,
        first_at="2026-01-01T00:00:00.000Z",
        last_at="2026-01-01T00:00:00.000Z",
        created_at="2026-01-01T00:00:00.000Z",
        updated_at="2026-01-01T00:00:00.000Z",
        consolidated=False,
        facts=False,
    )
    return attrs.evolve(made, **changes)


def test_who_may_be_merged():
    new = topic(1, chars=20_000)
    found = [
        TopicCandidate(topic=topic(1), score=1.0),
        TopicCandidate(topic=topic(2), score=0.84),
        TopicCandidate(topic=topic(3, chars=30_001), score=0.99),
        TopicCandidate(topic=topic(4, user=UserId("boris")), score=0.99),
        TopicCandidate(topic=topic(5, chat=ChatId("anna:other")), score=0.99),
        TopicCandidate(topic=topic(6, general=True), score=0.99),
        TopicCandidate(topic=topic(7, chars=30_000), score=0.86),
        TopicCandidate(topic=topic(8), score=0.85),
    ]
    assert [like.topic.id for like in candidates(new, found)] == [7, 8]
    many = [TopicCandidate(topic=topic(n), score=0.9) for n in range(2, 40)]
    assert len(candidates(new, many)) == MAX_CANDIDATES
