"""The scheduler: starts tasks on time, spawned subagents at once, and keeps the account of all runs.

It owns the runs under way, the queue of runs that wait for a place, and today's spending. A run is stored before it
starts, so a fire time is used up once, whatever happens to the process."""

import math
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, assert_never

import attrs
import structlog
import trio

from klaw.actor.clock import from_iso, iso
from klaw.actor.failure import error_class, where
from klaw.actor.mailbox import Mailbox, Reply
from klaw.actor.supervisor import ActorSpec, TaskStarted, Vitals
from klaw.agent.agent import Agent
from klaw.domain.names import UserId
from klaw.domain.task import Run, RunKind, RunStatus, TaskKey, TaskName
from klaw.errors import ActorStopped, KlawError, NotStarted
from klaw.runs.due import MAX_SLEEP_S, Clocks, Fire, SchedulerState, decide
from klaw.runs.recovery import recover, settle
from klaw.runs.run import carry_out
from klaw.runs.run_state import LiveRun
from klaw.runs.start_run import RunStarter, Spawn, timed_heartbeat
from klaw.store.kinds import runs, tasks
from klaw.store.kinds.inventory import newest_time

CAPACITY = 256
CANCELLED = "cancelled by the user"
BROKEN = "an internal error occurred; see the log"
LEAST_PAUSE_S = 0.01
STORAGE_PAUSE_S = 30.0
SYNCHRONIZED = Path("/run/systemd/timesync/synchronized")
"""A file that exists once systemd has set the clock by the network."""

log = structlog.get_logger("klaw.scheduler")


@attrs.frozen(kw_only=True)
class RunNow:
    user: UserId
    name: TaskName
    reply: Reply[Run]


@attrs.frozen
class TasksChanged:
    """Look again: tasks were changed."""


@attrs.frozen
class RunEnded:
    live: LiveRun


Msg: TypeAlias = Spawn | RunNow | TasksChanged | RunEnded


class Scheduler:
    def __init__(self) -> None:
        self.mailbox: Mailbox[Msg] = Mailbox("subagents.scheduler", CAPACITY)
        self.live: dict[str, LiveRun] = {}
        """Runs under way, by id; the tools of a run find it here."""
        self.queued: deque[LiveRun] = deque()
        """Stored runs that wait for a place."""
        self.wake_at: float | None = None
        """When it looks again at the latest, in Unix seconds."""
        self.failing: dict[TaskKey, str] = {}
        """Tasks whose last run failed, with its error code."""
        self.clock_doubt: str | None = None
        """Why tasks wait for the clock to be set, for people."""

    def spec(self, agent: Agent) -> ActorSpec:
        work = partial(run, scheduler=self, agent=agent)
        grace_s = agent.core.config.shutdown.grace_s
        return ActorSpec(name=self.mailbox.name, mailbox=self.mailbox, run=work, stop_budget_s=grace_s)

    def problems(self) -> dict[str, str]:
        """Whether tasks failed at their last run, or wait. All users see this: no numbers, no names."""
        found = {}
        if self.failing:
            found["tasks_failed"] = "tasks failed at their last run; /tasks and `klaw runs` say why"
        if self.clock_doubt is not None:
            found["clock"] = f"{self.clock_doubt}: scheduled tasks wait until it is set"
        return found

    @property
    def unfinished(self) -> list[LiveRun]:
        """Runs under way, and behind them those that wait for a place."""
        return [*self.live.values(), *self.queued]

    def find(self, user: UserId, run: str) -> LiveRun | None:
        return next((live for live in self.unfinished if live.run.id == run and live.run.user == user), None)

    def cancel(self, user: UserId, run: str) -> bool:
        """End a run; False when it neither goes on nor waits. Raises ActorStopped."""
        if self.mailbox.closed:
            raise ActorStopped("the scheduler is stopping")
        live = self.find(user, run)
        cancelled = live is not None and live.cancel(CANCELLED)
        self.nudge()  # of one that waits the scheduler stores the end
        return cancelled

    def nudge(self) -> None:
        """Say that tasks were changed. Never waits: what a full mailbox drops is seen when it has been worked off."""
        if not self.mailbox.closed:
            self.mailbox.tell(TasksChanged())


async def run(vitals: Vitals, task_status: TaskStarted, *, scheduler: Scheduler, agent: Agent) -> None:
    """One incarnation. Ends when the mailbox is closed and the runs under way have ended."""
    scheduler.live.clear()
    scheduler.queued.clear()
    async with trio.open_nursery() as nursery:
        actor = _Actor(vitals=vitals, scheduler=scheduler, agent=agent, nursery=nursery)
        await actor.recover()
        task_status.started()
        await actor.loop()


@attrs.define(kw_only=True)
class _Actor:
    vitals: Vitals
    scheduler: Scheduler
    agent: Agent
    nursery: trio.Nursery
    beginner: RunStarter = attrs.field(init=False)
    clocks: Clocks = attrs.field(init=False)
    awake_since: float = attrs.field(init=False)
    passed: dict[TaskKey, Run] = attrs.Factory(dict)
    """Heartbeats that had nothing to do: they leave no record in the store."""
    not_before: float = float("-inf")
    """Trio time before which nothing is begun, because the store failed."""

    def __attrs_post_init__(self) -> None:
        self.beginner = RunStarter(self.agent)
        self.awake_since = self.agent.core.clock.now()
        self.clocks = Clocks(wall=self.awake_since, monotonic=trio.current_time())

    async def recover(self) -> None:
        """Correct the records of runs that the last process, or the last incarnation, left under way."""
        self.vitals.doing("recovering")
        agent = self.agent
        for again in await recover(agent.core):
            self.scheduler.queued.append(await self.beginner.live_again(again))
        for record in await agent.core.readers.run(runs.last_of_tasks):
            self._remember(record)
        if newest := await agent.core.readers.run(newest_time):
            self.clocks.last_seen = from_iso(newest)

    async def loop(self) -> None:
        while True:
            self.vitals.doing("looking for what is due")
            wake_at = await self._start_due()
            self.vitals.doing("runs in progress" if self.scheduler.live else "waiting")
            message = None
            with trio.move_on_at(wake_at):
                try:
                    message = await self.scheduler.mailbox.receive()
                except trio.EndOfChannel:
                    self.vitals.doing("finishing the last runs")
                    return
            if message is not None:  # handled outside of the deadline: half a start would leave a run that nobody owns
                await self._handle(message)

    # -- messages --------------------------------------------------------------------------------------------------

    async def _handle(self, message: Msg) -> None:
        match message:
            case Spawn():
                mine = [live.run for live in self.scheduler.unfinished if live.run.user == message.user]
                spawned = sum(run.kind is RunKind.SPAWNED for run in mine)
                await self._begin(message, self.beginner.spawn, message, spawned)
            case RunNow():
                if any(live.key == (message.user, message.name) for live in self.scheduler.queued):
                    # One more would do the same again; and so the queue has a bound.
                    message.reply.fail(NotStarted(f"a run of {message.name} is queued already"))
                    return
                await self._begin(message, self.beginner.by_hand, message.user, message.name)
            case TasksChanged():
                pass
            case RunEnded():
                self._forget(message.live)
            case _:
                assert_never(message)

    async def _begin(self, message: Spawn | RunNow, begin: Callable[..., Awaitable[LiveRun | Run]], *args: Any) -> None:
        try:
            live = await begin(*args)
        except ActorStopped:
            raise
        except KlawError as error:
            message.reply.fail(error)
            return
        if isinstance(live, LiveRun):
            self.scheduler.queued.append(live)
        message.reply.set(live.run if isinstance(live, LiveRun) else live)

    # -- starting --------------------------------------------------------------------------------------------------

    async def _start_due(self) -> float:
        """Start what waits or is due. Returns the Trio time at which to look again at the latest."""
        self._look_at_the_clocks()
        for live in [live for live in self.scheduler.queued if live.cancelled_because is not None]:
            self._launch_queued(live)  # its own task stores the end, so that nobody waits here for a full disk
        if self.scheduler.mailbox.closed:
            return math.inf  # shutting down: what is due now is due at the next start too
        if trio.current_time() < self.not_before:
            return self.not_before
        try:
            return await self._start_tasks()
        except ActorStopped:
            raise
        except (KlawError, trio.TooSlowError) as error:
            # The fire times are not used up: what could not be begun is due when the store works again.
            log.error("tasks_not_started", error=error_class(error))
            self.not_before = trio.current_time() + STORAGE_PAUSE_S
            return self.not_before

    async def _start_tasks(self) -> float:
        if self._clock_in_doubt():
            self._start_queued(before=math.inf)
            self.scheduler.wake_at = self.agent.core.clock.now() + MAX_SLEEP_S
            return trio.current_time() + MAX_SLEEP_S
        tried: set[tuple[TaskKey, int, int]] = set()
        started = True
        while started:
            started = False
            decision = decide(await self._state(), self.agent.core.config.subagents)
            self.scheduler.failing |= dict.fromkeys(decision.unusable, "unusable")
            for fire in decision.start:
                # Whoever has waited longest goes first, be it a task or what was asked for at once.
                self._start_queued(before=fire.ready_at)
                attempt = fire.key, fire.due, fire.attempt
                if attempt in tried or not (fire.task.reminder or self._has_room(fire.key)):
                    continue
                tried.add(attempt)
                started = True
                await self._fire(fire)
        self._start_queued(before=math.inf)
        self.scheduler.wake_at = decision.wake_at
        return trio.current_time() + max(LEAST_PAUSE_S, decision.wake_at - self.agent.core.clock.now())

    async def _state(self) -> SchedulerState:
        agent = self.agent
        now = agent.core.clock.now()
        every = await agent.core.readers.run(tasks.everybodys, enabled_only=True)
        attempts = await agent.core.readers.run(runs.latest_attempts, iso(now))
        for key, run in self.passed.items():
            if key not in attempts or attempts[key][-1].due < run.due <= iso(now):
                attempts[key] = [run]
        interval_s = agent.core.config.heartbeat.interval_s
        known = {(task.user, task.name) for task in every}
        for key in self.scheduler.failing.keys() - known:
            del self.scheduler.failing[key]  # it was removed or disabled
        return SchedulerState(
            tasks=[timed for task in every if (timed := timed_heartbeat(task, interval_s)) is not None],
            attempts=attempts,
            running=[live.key for live in self.scheduler.live.values()],
            now=now,
            awake_since=self.awake_since,
        )

    async def _fire(self, fire: Fire) -> None:
        self.vitals.doing("starting a task")
        began = await self.beginner.fire(fire)
        if isinstance(began, LiveRun):
            self._launch(began)
        elif began.status is RunStatus.REFUSED or fire.task.reminder:
            self._remember(began)
        else:
            self.passed[fire.key] = began

    def _start_queued(self, *, before: float) -> None:
        """Start what was asked for up to ``before`` (Unix seconds), as far as there are places, the oldest first."""
        for live in [*self.scheduler.queued]:
            if from_iso(live.run.due) <= before and self._has_room(live.key):
                self._launch_queued(live)

    def _has_room(self, key: TaskKey) -> bool:
        running = self.scheduler.live.values()
        if len(running) >= self.agent.core.config.subagents.max_concurrent:
            return False
        return all(live.key != key for live in running)

    def _launch_queued(self, live: LiveRun) -> None:
        self.scheduler.queued.remove(live)
        self._launch(live)

    def _launch(self, live: LiveRun) -> None:
        self.scheduler.live[live.run.id] = live
        self.nursery.start_soon(self._carry_out, live)

    async def _carry_out(self, live: LiveRun) -> None:
        structlog.contextvars.bind_contextvars(user=live.run.user, run=live.run.id)
        try:
            await carry_out(live, self.agent, self.beginner.ledger)
        except ActorStopped:
            raise
        except Exception as error:  # noqa: BLE001 - one broken run must not end the others
            log.error("run_broken", error=error_class(error), where=where(error))
            live.run = await settle(live.run, self.agent.core, error="internal", note=BROKEN)
        finally:
            self.scheduler.mailbox.tell_self(RunEnded(live))

    # -- the account -----------------------------------------------------------------------------------------------

    def _forget(self, live: LiveRun) -> None:
        self.scheduler.live.pop(live.run.id, None)
        self._remember(live.run)
        live.over.set()

    def _remember(self, run: Run) -> None:
        if run.status.over and run.kind is not RunKind.SPAWNED:
            if run.error is not None:
                self.scheduler.failing[run.user, run.task] = run.error
            else:
                self.scheduler.failing.pop((run.user, run.task), None)

    def _look_at_the_clocks(self) -> None:
        now = self.agent.core.clock.now()
        if jump_s := self.clocks.jumped_s(wall=now, monotonic=trio.current_time()):
            log.warning("clock_jumped", seconds=round(jump_s, 1))
            self.awake_since = now

    def _clock_in_doubt(self) -> bool:
        was, doubt = self.scheduler.clock_doubt, self.clocks.doubt(synchronized=SYNCHRONIZED.exists)
        if (doubt is None) != (was is None):
            log.warning("waiting_for_the_clock" if doubt else "clock_is_set")
            self.awake_since = self.clocks.wall
        self.scheduler.clock_doubt = doubt
        return doubt is not None
