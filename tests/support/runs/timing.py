"""A running Klaw whose clocks only the test moves, both at once: from one moment at which the scheduler rests to the
next at which it has something to do."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
from trio.testing import MockClock, wait_all_tasks_blocked

from klaw.domain.names import LOCAL_USER
from klaw.domain.task import Run
from tests.support.chats_world import World, replace_fsync, world
from tests.support.clock import TrioClock
from tests.support.llm_server import text_reply
from tests.support.waiting import HANG_S


@attrs.define
class Timed:
    """A world, and how its time is moved."""

    here: World
    mock: MockClock
    clock: TrioClock

    def now(self) -> float:
        return self.clock.now()

    async def rest(self) -> None:
        await at_rest(self.here)

    async def stalls(self) -> None:
        """Like ``rest``, while runs go on that wait for the test."""
        for _ in range(20):
            await wait_all_tasks_blocked(0.005)

    async def passes(self, seconds: float) -> None:
        """Let time pass in one step, once the scheduler waits. In the middle of a look it would take the time from
        before and sleep for a moment that this clock never lets pass."""
        while not both_wait(self.here):
            await wait_all_tasks_blocked(0.001)
        self.mock.jump(seconds)

    async def until(self, moment: float) -> None:
        """Let time pass, from one thing to do to the next."""
        await at_rest(self.here)
        while self.now() < moment:
            wake_at = self.here.app.tasks.scheduler.wake_at
            assert wake_at is not None
            self.mock.jump(max(0.001, min(wake_at, moment) - self.now() + 1e-6))
            await at_rest(self.here)

    async def runs(self, task: str | None = None) -> list[Run]:
        """All runs, the oldest first."""
        return [*reversed(await self.here.app.tasks.scheduling.runs(LOCAL_USER, task=task, limit=100_000))]


def activity(here: World, actor: str = "subagents.scheduler") -> str:
    """What an actor does at this moment."""
    return next(each.activity for each in here.app.core.supervisor.report() if each.name == actor)


def both_wait(here: World) -> bool:
    """Whether the scheduler and the writer both wait. A commit during which time passed would look
    slow, and the writer would then wait a moment that this clock never lets pass."""
    core, scheduler = here.app.core, here.app.tasks.scheduler
    return (
        not scheduler.mailbox.report().depth
        and activity(here) in ("waiting", "runs in progress")
        and not core.writer.mailbox.report().depth
        and activity(here, "store.writer") == "idle"
    )


async def at_rest(here: World) -> None:
    """Wait, in real time only, until the scheduler has done all that can be done at this moment."""
    scheduler = here.app.tasks.scheduler
    give_up = time.monotonic() + HANG_S
    while True:
        await wait_all_tasks_blocked(0.001)
        assert time.monotonic() < give_up, f"no rest: {scheduler.live}, {scheduler.queued}, {activity(here)}"
        if (
            both_wait(here)
            and not scheduler.live
            and not scheduler.queued
            and scheduler.wake_at is not None
            and scheduler.wake_at > here.app.core.clock.now()
        ):
            return


@asynccontextmanager
async def timed(home: Path, mock: MockClock, *, start: float, **sections: Any) -> AsyncIterator[Timed]:
    """Args: ``start``: the wall clock's first moment."""
    clock = TrioClock(start)
    sections.setdefault("processing", {"debounceMs": 0})
    async with world(home, clock=clock, **sections) as here:
        replace_fsync(here, lambda _file: None)  # nobody cuts the power here
        yield Timed(here, mock, clock)


async def open_chat(here: World) -> None:
    here.llm.replies.append(text_reply("Hi."))
    await here.send("hello / привет")
    await here.turn(1)
