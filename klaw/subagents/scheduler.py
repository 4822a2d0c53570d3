"""The scheduler: starts tasks on time, spawned subagents at once, and keeps the account of all runs.

Who sends to it: the service (``service.Scheduling``) on behalf of tools, slash commands and the admin socket. It owns
the runs under way, the queue of runs that wait for a place, and today's spending. Tasks and runs themselves are in the
store: a run is stored before it starts, so a fire time is used up once, whatever happens to the process.
"""

from collections import deque
from typing import TypeAlias, assert_never

import attrs
import structlog
import trio

from klaw.actor.clock import from_iso, iso
from klaw.actor.failure import error_class
from klaw.actor.mailbox import Mailbox
from klaw.actor.reply import Reply
from klaw.actor.supervisor import Started
from klaw.actor.vitals import Vitals
from klaw.config.schema import EngineConfig
from klaw.domain.names import UserId
from klaw.domain.task import HEARTBEAT, Every, Run, RunKind, RunStatus, Task, TaskName
from klaw.errors import KlawError, NoSuchTask, StorageFull
from klaw.store.sql import runs, tasks
from klaw.subagents import heartbeat
from klaw.subagents.drafting import Request
from klaw.subagents.due import Decision, Fire, Rules, State, TaskKey, decide
from klaw.subagents.jumps import Watch
from klaw.subagents.limits import Refusal, spawn_refusal, tokens_of
from klaw.subagents.live import LiveRun
from klaw.subagents.recovery import recover
from klaw.subagents.run import RunServices, carry_out
from klaw.subagents.spending import Allowance, Ledger

CAPACITY = 256
STORAGE_PAUSE_S = 30.0
"""After a full disk nothing is begun for so long."""

log = structlog.get_logger("klaw.scheduler")


class NotSpawned(KlawError):
    """A subagent was not started; the text says why and what can be done."""


@attrs.frozen(kw_only=True)
class Spawn:
    """Start a subagent, at once and once. Answers its run, stored."""

    user: UserId
    request: Request
    parent: str | None
    """Id of the run that asks."""
    notify: str | None
    """Name of the chat that is told of the end."""
    depth: int
    reply: Reply[Run]


@attrs.frozen(kw_only=True)
class RunNow:
    """Run a task now, whatever its trigger says. Answers its run, stored."""

    user: UserId
    name: TaskName
    reply: Reply[Run]


@attrs.frozen(kw_only=True)
class Cancel:
    """End a run. Answers whether it was under way or waited."""

    user: UserId
    run: str
    reply: Reply[bool]


@attrs.frozen
class Changed:
    """Tasks were changed: look again."""


@attrs.frozen
class Over:
    """A run's own child task has ended."""

    live: LiveRun


Msg: TypeAlias = Spawn | RunNow | Cancel | Changed | Over


class Scheduler:
    """Handle of the scheduler."""

    def __init__(self) -> None:
        self.mailbox: Mailbox[Msg] = Mailbox("subagents.scheduler", CAPACITY)
        self.live: dict[str, LiveRun] = {}
        """Runs under way, by id; the tools of a run find it here."""
        self.queued: deque[LiveRun] = deque()
        """Stored runs that wait for a place."""
        self.wake_at = 0.0
        """Unix seconds."""
        self.failing: dict[TaskKey, str] = {}
        """Tasks whose last run failed, and its error code."""

    def nudge(self) -> None:
        """Tasks were changed. Never blocks; a full mailbox means that it looks anyway."""
        if not self.mailbox.closed:
            self.mailbox.tell(Changed())


async def run(
    vitals: Vitals, task_status: Started, *, scheduler: Scheduler, services: RunServices
) -> None:
    """One incarnation. Ends when the mailbox closes and the runs under way have ended.

    Cancellation: runs under way are found as interrupted by the next incarnation.
    """
    async with trio.open_nursery() as nursery:
        actor = _Actor(vitals=vitals, scheduler=scheduler, services=services, nursery=nursery)
        await actor.recover()
        task_status.started()
        await actor.loop()


@attrs.define(kw_only=True)
class _Actor:
    vitals: Vitals
    scheduler: Scheduler
    services: RunServices
    nursery: trio.Nursery
    ledger: Ledger = attrs.field(init=False)
    watch: Watch = attrs.field(init=False)
    awake_since: float = attrs.field(init=False)
    passed: dict[TaskKey, Run] = attrs.Factory(dict)
    """Heartbeats that had nothing to do; they leave no record."""
    not_before: float = 0.0
    """Trio time before which nothing is begun, because the disk is full."""

    def __attrs_post_init__(self) -> None:
        self.ledger = Ledger(self.services.readers)
        now = self.services.clock.now()
        self.watch = Watch(wall=now, monotonic=trio.current_time())
        self.awake_since = now

    @property
    def config(self) -> EngineConfig:
        return self.services.config

    async def recover(self) -> None:
        """Put the records of runs right that the last process, or the last incarnation, left under way."""
        self.vitals.doing("recovering")
        self.scheduler.live.clear()
        self.scheduler.queued.clear()
        for again in await recover(self.services.readers, self.services.writer, self.services.clock, self.services.new_id):
            self._queue(again)
        for record in await self.services.readers.run(runs.last_of_tasks):
            self._remember(record)

    async def loop(self) -> None:
        while True:
            wake_at = await self._start()
            self.vitals.doing("waiting" if not self.scheduler.live else "runs go on")
            with trio.move_on_at(wake_at):
                try:
                    message = await self.scheduler.mailbox.receive()
                except trio.EndOfChannel:
                    self.vitals.doing("finishing the last runs")
                    return
                await self._handle(message)

    # -- messages --------------------------------------------------------------------------------------------------

    async def _handle(self, message: Msg) -> None:
        match message:
            case Spawn():
                await self._answer(message.reply, self._spawn, message)
            case RunNow():
                await self._answer(message.reply, self._run_now, message)
            case Cancel():
                message.reply.set(await self._cancel(message))
            case Changed():
                pass
            case Over():
                self._forget(message.live)
            case _:
                assert_never(message)
