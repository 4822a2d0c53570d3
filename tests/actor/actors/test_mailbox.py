"""Mailbox and reply cell: order, bounds, closing, and that nobody who waits is ever forgotten."""

import attrs
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from klaw.actor.mailbox import Mailbox, Reply, answer_within
from klaw.errors import ActorStopped, ActorTooSlow


@attrs.frozen
class Ask:
    number: int
    reply: Reply[int]


async def test_messages_come_out_in_order() -> None:
    box: Mailbox[int] = Mailbox("a", 10)
    for number in range(5):
        assert box.tell(number)
    assert [await box.receive() for _ in range(5)] == [0, 1, 2, 3, 4]


async def test_tell_to_a_full_mailbox_is_refused_and_counted() -> None:
    box: Mailbox[int] = Mailbox("a", 2)
    assert [box.tell(1), box.tell(2), box.tell(3)] == [True, True, False]
    report = box.report()
    assert (report.depth, report.high_water, report.dropped) == (2, 2, 1)


async def test_post_waits_for_room() -> None:
    box: Mailbox[int] = Mailbox("a", 1)
    box.tell(1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(box.post, 2)
        await wait_all_tasks_blocked()
        assert box.report().depth == 1
        assert await box.receive() == 1
        assert await box.receive() == 2


async def test_cancelled_post_leaves_nothing_behind() -> None:
    box: Mailbox[int] = Mailbox("a", 1)
    box.tell(1)
    with trio.CancelScope() as scope:
        scope.cancel()
        await box.post(2)
    assert await box.receive() == 1
    assert box.report().depth == 0


async def test_cancelled_receive_takes_nothing() -> None:
    box: Mailbox[int] = Mailbox("a", 1)
    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as scope:
            nursery.start_soon(_cancel_when_blocked, scope)
            await box.receive()
    box.tell(7)
    assert await box.receive() == 7


async def _cancel_when_blocked(scope: trio.CancelScope) -> None:
    await wait_all_tasks_blocked()
    scope.cancel()


async def test_closed_mailbox_gives_out_what_it_has_and_refuses_new() -> None:
    box: Mailbox[int] = Mailbox("a", 5)
    box.tell(1)
    box.close("bye")
    with pytest.raises(ActorStopped, match="bye"):
        box.tell(2)
    with pytest.raises(ActorStopped, match="bye"):
        await box.post(2)
    assert [message async for message in box] == [1]


async def test_closing_wakes_waiting_senders_and_receivers() -> None:
    full: Mailbox[int] = Mailbox("full", 1)
    full.tell(1)
    empty: Mailbox[int] = Mailbox("empty", 1)

    async def sender() -> None:
        with pytest.raises(ActorStopped):
            await full.post(2)

    async def receiver() -> None:
        with pytest.raises(trio.EndOfChannel):
            await empty.receive()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(sender)
        nursery.start_soon(receiver)
        await wait_all_tasks_blocked()
        full.close("bye")
        empty.close("bye")


async def test_fail_waiters_answers_queued_and_in_hand() -> None:
    box: Mailbox[Ask] = Mailbox("a", 5)
    failed: list[int] = []

    async def asker(number: int) -> None:
        with pytest.raises(ActorStopped):
            await box.ask(lambda reply: Ask(number, reply))
        failed.append(number)

    async with trio.open_nursery() as nursery:
        for number in range(3):
            nursery.start_soon(asker, number)
        await wait_all_tasks_blocked()
        await box.receive()  # one is in hand, two are queued
        assert box.fail_waiters(ActorStopped("crashed")) == 3
    assert sorted(failed) == [0, 1, 2]
    assert box.report().failed == 1


async def test_handled_counts_when_the_next_is_taken() -> None:
    box: Mailbox[int] = Mailbox("a", 5)
    box.tell(1)
    box.tell(2)
    await box.receive()
    assert box.report().handled == 0
    await box.receive()
    assert box.report().handled == 1


async def test_take_while_stops_at_the_first_unwanted() -> None:
    box: Mailbox[int] = Mailbox("a", 9)
    for number in (1, 2, 9, 3):
        box.tell(number)
    assert box.take_while(lambda number: number < 5, 8) == [1, 2]
    assert await box.receive() == 9


async def test_tell_self_passes_the_capacity() -> None:
    box: Mailbox[int] = Mailbox("a", 1)
    box.tell(1)
    box.tell_self(2)
    assert box.report().depth == 2
    box.close("bye")
    box.tell_self(3)
    assert box.report().depth == 2


async def test_close_if_empty_loses_no_message() -> None:
    box: Mailbox[int] = Mailbox("a", 1)
    box.tell(1)
    assert not box.close_if_empty("idle")
    await box.receive()
    assert box.close_if_empty("idle")


async def test_reply_is_resolved_once() -> None:
    reply: Reply[int] = Reply()
    assert reply.set(1)
    assert not reply.set(2)
    assert not reply.fail(ValueError())
    assert await reply.wait() == 1


async def test_answer_within_names_the_slow_actor(autojump_clock: trio.testing.MockClock) -> None:
    with pytest.raises(ActorTooSlow, match="the clock"), answer_within(5, "the clock"):
        await trio.sleep_forever()


async def test_what_needs_no_waiting_is_handled_without_waking_the_consumer():
    mailbox, handled, woken = Mailbox("m", 2), [], []

    def at_once(message):
        if message == "slow":
            return False
        handled.append(message)
        return True

    async def consume():
        while True:
            woken.append(await mailbox.receive(at_once))

    mailbox.tell("before")  # nobody waits yet
    async with trio.open_nursery() as nursery:
        nursery.start_soon(consume)
        await wait_all_tasks_blocked()
        assert (handled, woken) == ([], ["before"])
        for message in ("a", "b", "c"):
            assert mailbox.tell(message)
        mailbox.tell("slow")
        mailbox.tell("d")  # waits its turn behind the slow one
        assert handled == ["a", "b", "c"]
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert (handled, woken) == (["a", "b", "c"], ["before", "slow", "d"])
    assert mailbox.report().handled == 6
