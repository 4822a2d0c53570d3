"""The database is compacted in the background: once for many forgettings, however often users forget."""

from typing import Any

import attrs
import trio
import trio.testing

from klaw.actor.clock import SystemClock
from klaw.actor.supervisor import Supervisor
from klaw.errors import StorageError
from klaw.memory.forget.forget import ACTOR_NAME, ANEW_EVERY_S, EMPTY_EVERY_S, Forgetter


async def test_many_forgettings_are_compacted_once(autojump_clock: trio.testing.MockClock) -> None:
    calls: list[bool] = []
    failing = True

    class Compacting(Forgetter):
        async def compact_files(self, *, vacuum: bool) -> None:
            calls.append(vacuum)
            if failing:
                raise StorageError("a reindex is reading the logs")

        async def expire(self) -> float:
            return float("inf")

        async def resume(self) -> None:
            resumed.append(len(calls))
            raise StorageError("the disk is full")

    parts: dict[str, Any] = dict.fromkeys(each.name for each in attrs.fields(Forgetter) if each.init)
    forgetter, resumed = Compacting(**parts), list[int]()
    compactor = forgetter.compactor
    async with trio.open_nursery() as nursery:
        supervisor = Supervisor(nursery, SystemClock())
        await supervisor.start(forgetter.spec())
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
        calls.clear()
        failing = True
        compactor.nudge()
        await trio.sleep(4 * EMPTY_EVERY_S)
        assert len(calls) >= 3  # tried again, though the file was rebuilt not long ago
        assert not any(calls)
        failing = False
        await trio.sleep(ANEW_EVERY_S)
        assert calls.count(True) == 1  # what was forgotten since the first
        count = len(calls)
        await trio.sleep(3 * ANEW_EVERY_S)
        assert len(calls) == count
        await supervisor.stop(ACTOR_NAME, "done")
    assert resumed == [0]


async def test_temporary_chats_are_looked_for_when_the_next_is_due(autojump_clock: trio.testing.MockClock) -> None:
    looked: list[float] = []
    compacted: list[bool] = []

    class Looking(Forgetter):
        async def expire(self) -> float:
            looked.append(trio.current_time())
            if len(looked) == 2:
                self.compactor.nudge()  # something was forgotten
            return 500.0

        async def compact_files(self, *, vacuum: bool) -> None:
            compacted.append(vacuum)

        async def resume(self) -> None: ...

    parts: dict[str, Any] = dict.fromkeys(each.name for each in attrs.fields(Forgetter) if each.init)
    forgetter = Looking(**parts)
    async with trio.open_nursery() as nursery:
        supervisor = Supervisor(nursery, SystemClock())
        await supervisor.start(forgetter.spec())
        await trio.sleep(1_900)
        await supervisor.stop(ACTOR_NAME, "done")
    assert [round(at - looked[0]) for at in looked] == [0, 500, 1_000, 1_500]
    assert compacted == [True]
