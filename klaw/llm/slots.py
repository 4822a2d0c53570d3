"""How many LLM calls run at once, and who goes first.

Not an actor: no method has an await between reading and changing the state. A slot is held for one call to a model.
"""

import enum
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import trio

from klaw.actor.supervisor import Vitals


class Priority(enum.IntEnum):
    """Lower goes first. BACKGROUND: subagents, summaries, topics; not interrupted once they have their slot."""

    INTERACTIVE = 0
    BACKGROUND = 1


@attrs.frozen(kw_only=True)
class SlotsReport:
    total: int
    busy: int
    waiting: int
    waiting_background: int
    high_water: int
    granted: int


class Slots:
    """``processing.maxConcurrentLlm`` slots with a queue for each priority."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._busy = self._high_water = self._granted = 0
        self._queues: dict[Priority, deque[trio.Event]] = {priority: deque() for priority in Priority}

    @asynccontextmanager
    async def slot(self, priority: Priority, *, vitals: Vitals | None = None) -> AsyncIterator[None]:
        """Hold a slot for the body; ``vitals`` shows that the caller waits."""
        await self._acquire(priority, vitals)
        try:
            yield
        finally:
            self._release()

    def resize(self, total: int) -> None:
        """Have so many from now on; calls that run go on."""
        self._total = total
        while self._busy < total and any(self._queues.values()):
            self._grant_next()

    @property
    def full(self) -> bool:
        """The next call has to wait."""
        return self._busy >= self._total

    def report(self) -> SlotsReport:
        return SlotsReport(
            total=self._total,
            busy=self._busy,
            waiting=self._waiting(),
            waiting_background=len(self._queues[Priority.BACKGROUND]),
            high_water=self._high_water,
            granted=self._granted,
        )

    async def _acquire(self, priority: Priority, vitals: Vitals | None) -> None:
        await trio.lowlevel.checkpoint_if_cancelled()
        # Nobody can wait while a slot is free: every release and every withdrawal hands on at once.
        if self._busy < self._total:
            self._take()
            await trio.lowlevel.cancel_shielded_checkpoint()
            return
        granted = trio.Event()
        self._queues[priority].append(granted)
        self._high_water = max(self._high_water, self._waiting())
        before = vitals.activity if vitals is not None else ""
        if vitals is not None:
            vitals.doing("waiting for an LLM slot")
        try:
            await granted.wait()
        except BaseException:  # perhaps cancelled in the same tick in which it was granted
            if granted.is_set():
                self._release()
            else:
                self._queues[priority].remove(granted)
            raise
        finally:
            if vitals is not None:
                vitals.doing(before)

    def _take(self) -> None:
        self._busy += 1
        self._granted += 1

    def _release(self) -> None:
        self._busy -= 1
        if self._busy < self._total:
            self._grant_next()

    def _grant_next(self) -> None:
        for queue in self._queues.values():
            if queue:
                self._take()
                queue.popleft().set()
                return

    def _waiting(self) -> int:
        return sum(len(queue) for queue in self._queues.values())
