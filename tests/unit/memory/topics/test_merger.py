"""Candidates of a merge."""

import attrs

from klaw.domain.names import ChatId, UserId
from klaw.domain.topic import Topic, TopicId
from klaw.memory.topics.merger import MAX_CANDIDATES, Like, candidates


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
        Like(topic(1), 1.0),
        Like(topic(2), 0.84),
        Like(topic(3, chars=30_001), 0.99),
        Like(topic(4, user=UserId("boris")), 0.99),
        Like(topic(5, chat=ChatId("anna:other")), 0.99),
        Like(topic(6, general=True), 0.99),
        Like(topic(7, chars=30_000), 0.86),
        Like(topic(8), 0.85),
    ]
    assert [like.topic.id for like in candidates(new, found)] == [7, 8]
    many = [Like(topic(n), 0.9) for n in range(2, 40)]
    assert len(candidates(new, many)) == MAX_CANDIDATES
