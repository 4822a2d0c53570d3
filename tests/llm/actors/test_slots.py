"""Slots: order, limits, and every interleaving of a grant with a cancellation."""

import itertools

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from klaw.actor.clock import SystemClock
from klaw.actor.supervisor import Vitals
from klaw.llm.slots import Priority, Slots, SlotsReport

INTERACTIVE, BACKGROUND = Priority.INTERACTIVE, Priority.BACKGROUND


class Holder:
    """A task that takes a slot and keeps it until told."""

    def __init__(self, slots: Slots, nursery: trio.Nursery, priority: Priority, order: list["Holder"]) -> None:
        self.scope = trio.CancelScope()
        self.free = trio.Event()
        self.got = False
        self.ended = False
        self._order = order
        nursery.start_soon(self._run, slots, priority)

    async def _run(self, slots: Slots, priority: Priority) -> None:
        with self.scope:
            async with slots.slot(priority):
                self.got = True
                self._order.append(self)
                await self.free.wait()
        self.ended = True


async def test_no_more_calls_than_slots_and_first_come_first_served() -> None:
    slots = Slots(2)
    order: list[Holder] = []
    async with trio.open_nursery() as nursery:
        holders = []
        for _ in range(5):
            holders.append(Holder(slots, nursery, INTERACTIVE, order))
            await wait_all_tasks_blocked()
        assert order == holders[:2]
        for count, holder in enumerate(holders, 3):
            holder.free.set()
            await wait_all_tasks_blocked()
            assert order == holders[:count]
    assert slots.report() == SlotsReport(total=2, busy=0, waiting=0, waiting_background=0, high_water=3, granted=5)


async def test_interactive_goes_before_background() -> None:
    slots = Slots(1)
    order: list[Holder] = []
    async with trio.open_nursery() as nursery:
        holders = []
        for priority in (INTERACTIVE, BACKGROUND, BACKGROUND, INTERACTIVE, INTERACTIVE):
            holders.append(Holder(slots, nursery, priority, order))
            await wait_all_tasks_blocked()
        assert (slots.report().waiting, slots.report().waiting_background) == (4, 2)
        for holder in holders:
            holder.free.set()
    assert order == [holders[n] for n in (0, 3, 4, 1, 2)]


@pytest.mark.parametrize("steps", list(itertools.permutations(["free", "cancel 1", "cancel 2"])))
@pytest.mark.parametrize("same_tick", [True, False])
async def test_no_order_of_grants_and_cancellations_loses_a_slot(steps: tuple[str, ...], same_tick: bool) -> None:
    """A holder ends and two waiters are cancelled, in any order, in one tick or in three; the fourth always gets it."""
    slots = Slots(1)
    order: list[Holder] = []
    async with trio.open_nursery() as nursery:
        holders = []
        for _ in range(4):
            holders.append(Holder(slots, nursery, INTERACTIVE, order))
            await wait_all_tasks_blocked()
        for step in steps:
            if step == "free":
                holders[0].free.set()
            else:
                holders[int(step[-1])].scope.cancel(reason="test")
            if not same_tick:
                await wait_all_tasks_blocked()
        await wait_all_tasks_blocked()
        assert holders[3].got
        assert all(holder.ended for holder in holders[:3])
        assert (slots.report().busy, slots.report().waiting) == (1, 0)
        holders[3].free.set()
    assert slots.report().busy == 0


async def test_a_grant_and_a_cancellation_in_the_same_step() -> None:
    """The grant comes first, the cancellation before the waiter runs, and the other way round: the next one gets it."""
    for grant_first in (True, False):
        slots = Slots(1)
        first, last = trio.CancelScope(), trio.CancelScope()
        got = []

        async def wait(scope: trio.CancelScope, name: str, slots: Slots = slots) -> None:
            with scope:
                async with slots.slot(INTERACTIVE):
                    await trio.lowlevel.checkpoint()
                    got.append(name)  # noqa: B023 - read in the same turn of the loop

        async with trio.open_nursery() as nursery:
            async with slots.slot(INTERACTIVE):
                nursery.start_soon(wait, first, "first")
                await wait_all_tasks_blocked()
                nursery.start_soon(wait, last, "last")
                await wait_all_tasks_blocked()
                if not grant_first:
                    first.cancel(reason="test")
            # Leaving the slot does not wait, so nothing ran since.
            if grant_first:
                first.cancel(reason="test")
        assert got == ["last"]
        assert slots.report().busy == 0


async def test_a_cancelled_caller_takes_no_free_slot() -> None:
    slots = Slots(1)
    with trio.CancelScope() as scope:
        scope.cancel(reason="test")
        async with slots.slot(INTERACTIVE):
            pytest.fail("entered")
    assert slots.report() == SlotsReport(total=1, busy=0, waiting=0, waiting_background=0, high_water=0, granted=0)


async def test_an_error_in_the_body_frees_the_slot() -> None:
    slots = Slots(1)
    with pytest.raises(ValueError, match="boom"):
        async with slots.slot(INTERACTIVE):
            raise ValueError("boom")
    assert slots.report().busy == 0


async def test_vitals_say_that_the_caller_waits() -> None:
    slots = Slots(1)
    vitals = Vitals(SystemClock())
    vitals.doing("turn")

    async def wait() -> None:
        async with slots.slot(BACKGROUND, vitals=vitals):
            assert vitals.activity == "turn"

    async with trio.open_nursery() as nursery, slots.slot(INTERACTIVE):
        nursery.start_soon(wait)
        await wait_all_tasks_blocked()
        assert vitals.activity == "waiting for an LLM slot"
