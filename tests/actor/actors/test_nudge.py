"""A nudge wakes a loop, once for all that came before it looked; and tells when the loop has nothing left to do."""

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from klaw.actor.mailbox import Nudge


async def test_nudges_are_not_lost_and_many_are_one(autojump_clock: MockClock) -> None:
    news, looked = Nudge(), []

    async def loop() -> None:
        while True:
            looked.append(await news.wait_for_news(60))

    async with trio.open_nursery() as nursery:
        news.nudge()  # before it began
        nursery.start_soon(loop)
        await news.wait_idle()
        assert looked == [True]
        news.nudge()
        news.nudge()
        await news.wait_idle()  # of the look after the nudge, not of the one before
        assert looked == [True, True]
        await trio.sleep(61)
        assert looked == [True, True, False]
        nursery.cancel_scope.cancel(reason="test is over")


async def test_a_nudge_while_the_loop_works_is_seen_when_it_looks_again() -> None:
    news = Nudge()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(news.wait_idle)
        await wait_all_tasks_blocked()
        news.nudge()
        assert await news.wait_for_news()
        assert len(nursery.child_tasks) == 1  # it was not idle: there were news
        nursery.cancel_scope.cancel(reason="test is over")
