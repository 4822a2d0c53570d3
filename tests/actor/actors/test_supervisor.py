"""Supervision: restarts with backoff, failing for good and coming back, vital actors, staged stop."""

from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from klaw.actor.mailbox import Mailbox, Reply
from klaw.actor.supervisor import MAX_RESTARTS, RETRY_FAILED_S, ActorSpec, ActorState, Supervisor, TaskStarted, Vitals
from klaw.errors import ActorStopped, CannotListen, ConfigError, Problem
from tests.support.clock import TrioClock


@attrs.frozen
class Work:
    action: str
    reply: Reply[str]


class Worker:
    """An actor that crashes on demand."""

    def __init__(self) -> None:
        self.mailbox: Mailbox[Work] = Mailbox("worker", 10)
        self.starts = 0
        self.finished: list[str] = []

    async def run(self, vitals: Vitals, task_status: TaskStarted) -> None:
        self.starts += 1
        task_status.started()
        async for work in self.mailbox:
            vitals.doing(work.action)
            if work.action == "crash":
                raise ValueError("secret text")
            if work.action == "hang":
                await trio.sleep_forever()
            self.finished.append(work.action)
            work.reply.set(work.action)

    def spec(self, **changes: Any) -> ActorSpec:
        return ActorSpec(name="worker", run=self.run, mailbox=self.mailbox, **changes)

    async def ask(self, action: str) -> str:
        return await self.mailbox.ask(lambda reply: Work(action, reply))


@pytest.fixture
async def supervisor(nursery: trio.Nursery, autojump_clock: MockClock) -> Supervisor:
    return Supervisor(nursery, TrioClock(1_000_000.0))


async def test_crash_fails_the_waiter_and_restarts(
    supervisor: Supervisor, autojump_clock: MockClock, log_events: list[dict[str, Any]]
) -> None:
    worker = Worker()
    await supervisor.start(worker.spec())
    with pytest.raises(ActorStopped):
        await worker.ask("crash")
    assert await worker.ask("fine") == "fine"
    (report,) = supervisor.report()
    assert (report.state, report.restarts, report.last_error) == (ActorState.RUNNING, 1, "ValueError")
    assert worker.starts == 2
    assert "secret text" not in repr(log_events)


async def test_messages_sent_during_backoff_are_handled_after_it(
    supervisor: Supervisor, autojump_clock: MockClock
) -> None:
    worker = Worker()
    await supervisor.start(worker.spec())
    with pytest.raises(ActorStopped):
        await worker.ask("crash")
    assert supervisor.state("worker") is ActorState.BACKOFF
    assert await worker.ask("later") == "later"


async def test_too_many_crashes_mark_it_failed_and_it_is_tried_again(
    supervisor: Supervisor, autojump_clock: MockClock
) -> None:
    worker = Worker()
    await supervisor.start(worker.spec())
    for _ in range(MAX_RESTARTS + 1):
        with pytest.raises(ActorStopped):
            await worker.ask("crash")
    await wait_all_tasks_blocked()
    assert supervisor.state("worker") is ActorState.FAILED
    with pytest.raises(ActorStopped, match="failed too often"):
        await worker.ask("fine")
    await trio.sleep(RETRY_FAILED_S + 1)
    assert await worker.ask("fine") == "fine"
    assert supervisor.state("worker") is ActorState.RUNNING


async def test_vital_crash_leaves_the_nursery() -> None:
    worker = Worker()
    with pytest.RaisesGroup(ValueError):
        async with trio.open_nursery() as nursery:
            supervisor = Supervisor(nursery, TrioClock(0.0))
            await supervisor.start(worker.spec(vital=True))
            worker.mailbox.tell(Work("crash", Reply()))
            await trio.sleep_forever()


async def test_stop_lets_queued_work_finish(supervisor: Supervisor, autojump_clock: MockClock) -> None:
    worker = Worker()
    await supervisor.start(worker.spec())
    for action in ("one", "two"):
        worker.mailbox.tell(Work(action, Reply()))
    assert await supervisor.stop("worker", "bye")
    assert worker.finished == ["one", "two"]
    assert not supervisor.alive("worker")


async def test_stop_cancels_when_the_budget_is_over(supervisor: Supervisor, autojump_clock: MockClock) -> None:
    worker = Worker()
    await supervisor.start(worker.spec(stop_budget_s=3))
    worker.mailbox.tell(Work("hang", Reply()))
    begin = trio.current_time()
    assert not await supervisor.stop("worker", "bye")
    assert trio.current_time() - begin == pytest.approx(3)


async def test_stop_during_backoff_does_not_wait_for_it(supervisor: Supervisor, autojump_clock: MockClock) -> None:
    worker = Worker()
    await supervisor.start(worker.spec())
    for _ in range(MAX_RESTARTS + 1):
        with pytest.raises(ActorStopped):
            await worker.ask("crash")
    await wait_all_tasks_blocked()
    assert supervisor.state("worker") is ActorState.FAILED
    begin = trio.current_time()
    assert await supervisor.stop("worker", "bye")
    assert trio.current_time() - begin < 1


async def test_a_name_is_alive_once(supervisor: Supervisor, autojump_clock: MockClock) -> None:
    worker = Worker()
    await supervisor.start(worker.spec())
    with pytest.raises(ValueError, match="alive"):
        supervisor.start_soon(worker.spec())


async def test_transient_actor_that_fails_to_start_does_not_block_the_start(
    supervisor: Supervisor, autojump_clock: MockClock
) -> None:
    async def broken(_vitals: Vitals, _task_status: TaskStarted) -> None:
        raise OSError

    await supervisor.start(ActorSpec(name="broken", run=broken))
    assert supervisor.state("broken") is ActorState.BACKOFF


async def test_cancellation_from_outside_is_no_crash(autojump_clock: MockClock) -> None:
    worker = Worker()
    async with trio.open_nursery() as nursery:
        supervisor = Supervisor(nursery, TrioClock(0.0))
        await supervisor.start(worker.spec())
        nursery.cancel_scope.cancel(reason="outside")
    assert worker.starts == 1
    with pytest.raises(ActorStopped):
        worker.mailbox.tell(Work("late", Reply()))


async def test_a_failure_during_cancellation_ends_no_other_actor(
    autojump_clock: MockClock, log_events: list[dict[str, Any]]
) -> None:
    async def run(_vitals: Vitals, task_status: TaskStarted) -> None:
        async def fail() -> None:
            try:
                await trio.sleep_forever()
            finally:
                raise ValueError("the store has stopped")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail)
            nursery.start_soon(trio.sleep_forever)
            task_status.started()

    async with trio.open_nursery() as nursery:
        supervisor = Supervisor(nursery, TrioClock(1_000_000.0))
        await supervisor.start(ActorSpec(name="reader", run=run))
        assert await supervisor.stop("reader", "the test")
    assert [(event["event"], event["error"]) for event in log_events] == [("actor_crashed", "ValueError")]


@pytest.mark.parametrize("error", [ConfigError([Problem("gateway.host", "is open")]), CannotListen("is taken")])
async def test_a_wrong_setting_is_no_crash(
    error: Exception, autojump_clock: MockClock, log_events: list[dict[str, Any]]
) -> None:
    """A taken port, for one: whoever started the actor says it, and the log tells of no crash before."""

    async def refuse(_vitals: Vitals, _status: TaskStarted) -> None:
        raise error

    with pytest.RaisesGroup(type(error)):
        async with trio.open_nursery() as nursery:
            spec = ActorSpec(name="gateway", run=refuse, vital=True)
            await Supervisor(nursery, TrioClock(1_000_000.0)).start(spec)
    assert [event for event in log_events if event["event"] == "actor_crashed"] == []
