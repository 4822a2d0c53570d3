"""Browsers that are notified, in the store: still there after a reindex, and gone where they were removed."""

from pathlib import Path

import attrs

from klaw.actor.clock import iso
from klaw.domain.names import UserId
from klaw.store.kinds import tasks
from klaw.store.kinds.tasks import Subscription
from tests.support.reindexing import differing
from tests.support.reindexing import run as reindexed
from tests.support.stores import START, running_store

ONE = Subscription(
    user=UserId("local"), id="1" * 32, endpoint="https://push.example/1", p256dh="key", auth="secret", login="0a1b2c3d",
    words=False, created_at=iso(START),
)  # fmt: skip
TWO = attrs.evolve(ONE, user=UserId("anna"), id="2" * 32, endpoint="https://push.example/2", login=None, words=True)


async def test_browsers_that_are_notified_survive_a_reindex(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        for each in (ONE, TWO, attrs.evolve(ONE, id="3" * 32)):
            await store.writer.run(tasks.subscribe, each)
        found = await store.readers.run(tasks.subscriptions, ONE.user)
        assert found == [ONE, attrs.evolve(ONE, id="3" * 32)]
        await store.writer.run(tasks.unsubscribe, found[1:], iso(START + 1))
        await store.writer.run(tasks.unsubscribe, found[1:], iso(START + 1))
    assert differing(reindexed(tmp_path)) == set()
    async with running_store(tmp_path) as store:
        assert await store.readers.run(tasks.subscriptions) == [ONE, TWO]
    assert "secret" not in repr(ONE)
