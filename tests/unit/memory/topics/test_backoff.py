"""Pauses after failures, and candidates of a merge."""

import attrs

from klaw.domain.names import ChatId, UserId
from klaw.domain.topic import Topic, TopicId
from klaw.memory.topics.backoff import Backoff
from klaw.memory.topics.merging import MAX_CANDIDATES, Like, candidates


def test_pauses_double_from_five_minutes_to_six_hours_for_each_by_itself():
    waits: Backoff[str] = Backoff()
    assert [waits.fail("a", 0.0) for _ in range(9)] == [300, 600, 1200, 2400, 4800, 9600, 19200, 21600, 21600]
    assert waits.fail("b", 100.0) == 300
    assert waits.waits("b", 399.9)
    assert not waits.waits("b", 400.0)
    assert waits.next(100.0) == 400.0
    assert waits.next(400.0) == 21600.0
    waits.succeed("a")
    assert not waits.waits("a", 0.0)
    assert waits.count() == 1
    assert [waits.fail("c", 0.0) for _ in range(2000)][-1] == 21600


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
