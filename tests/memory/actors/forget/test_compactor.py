"""The database is compacted in the background: once for many forgettings, however often users forget."""

from functools import partial

import trio
import trio.testing

from klaw.actor.clock import SystemClock
from klaw.actor.mailbox import Nudge
from klaw.actor.supervisor import ActorSpec, Supervisor
from klaw.errors import StorageError
from klaw.memory.forget import compactor as compactor_actor
from klaw.memory.forget.compactor import ACTOR_NAME, ANEW_EVERY_S, EMPTY_EVERY_S


async def test_many_forgettings_are_compacted_once(autojump_clock: trio.testing.MockClock) -> None:
    calls: list[bool] = []
    failing = True

    async def compact(vacuum: bool) -> None:
        calls.append(vacuum)
        if failing:
            raise StorageError("a reindex is reading the logs")

    async def resume() -> None:
        resumed.append(len(calls))
        raise StorageError("the disk is full")

    compactor, resumed = Nudge(), list[int]()
    async with trio.open_nursery() as nursery:
        supervisor = Supervisor(nursery, SystemClock())
        run = partial(compactor_actor.run, compactor=compactor, compact=compact, resume=resume)
        await supervisor.start(ActorSpec(name=ACTOR_NAME, run=run, stop_budget_s=1))
        compactor.nudge()
        await trio.sleep(3 * EMPTY_EVERY_S)
        assert len(calls) >= 2  # tried again
        failing = False
        calls.clear()
        for _ in range(7_200):
            compactor.nudge()
            await trio.sleep(1)
        assert calls.count(True) == 1
        assert len(calls) <= 7_200 / EMPTY_EVERY_S + 1
        await trio.sleep(ANEW_EVERY_S)
        assert calls.count(True) == 2  # what was forgotten since the first
        count = len(calls)
        await trio.sleep(3 * ANEW_EVERY_S)
        assert len(calls) == count
        await supervisor.stop(ACTOR_NAME, "done")
    assert resumed == [0]
