"""Supervision: starts actors, restarts the transient ones, ends the process for the vital ones, stops in stages. A
transient actor may crash ``MAX_RESTARTS`` times in ``WINDOW_S`` seconds with a growing pause; then it is marked failed
(shown as degraded) and tried again every ``RETRY_FAILED_S``. A vital actor's failure leaves the supervisor's nursery
and so ends the process, and systemd restarts that."""

import enum
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import attrs
import structlog
import trio

from klaw.actor.backoff import Backoff
from klaw.actor.clock import Clock
from klaw.actor.failure import error_class, split_cancelled, where
from klaw.actor.mailbox import Mailbox, MailboxReport
from klaw.errors import ActorStopped, CannotListen, ConfigError


class ActorState(enum.StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    BACKOFF = "backoff"
    """Crashed; waits for its restart."""
    FAILED = "failed"
    """Crashed too often; tried again every few minutes."""
    STOPPING = "stopping"
    STOPPED = "stopped"


@attrs.frozen(kw_only=True)
class ActorReport:
    """A snapshot for the admin socket. Times are Unix seconds."""

    name: str
    parent: str | None
    state: ActorState
    since: float
    activity: str
    activity_since: float
    restarts: int
    last_error: str | None
    mailbox: MailboxReport | None


class Vitals:
    """The mutable side of a report; the actor sets its activity, the supervisor the rest."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.state = ActorState.STARTING
        self.since = clock.now()
        self.activity = "starting"
        self.activity_since = self.since
        self.restarts = 0
        self.last_error: str | None = None

    def enter(self, state: ActorState) -> None:
        self.state = state
        self.since = self._clock.now()
        self.doing(state.value)

    def doing(self, activity: str) -> None:
        """Say in a word or two what the actor does now (no content, no names from outside)."""
        self.activity = activity
        self.activity_since = self._clock.now()


MAX_RESTARTS = 5
WINDOW_S = 60.0
BACKOFF = Backoff(0.1, 10.0)
RETRY_FAILED_S = 180.0

log = structlog.get_logger("klaw.supervisor")


class TaskStarted(Protocol):
    """Passed to an actor's ``run`` as ``task_status``; called last, after every step of the start that can fail."""

    def started(self, value: object = None) -> None: ...


Run = Callable[[Vitals, TaskStarted], Awaitable[None]]
"""An actor's main coroutine: ends when its mailbox is closed and empty; raises when it crashes."""


@attrs.frozen(kw_only=True)
class ActorSpec:
    name: str
    run: Run
    mailbox: Mailbox[Any] | None = None
    vital: bool = False
    """A crash ends the process with an error; others are restarted."""
    stop_budget_s: float = 5.0
    """A stop that takes longer cancels the actor."""
    parent: str | None = None


class _Entry:
    def __init__(self, spec: ActorSpec, clock: Clock) -> None:
        self.spec = spec
        self.vitals = Vitals(clock)
        self.settled = trio.Event()
        """Set once it runs, or its first start failed."""
        self.ended = trio.Event()
        self.stopping = trio.Event()
        self.scope = trio.CancelScope()
        self.crashes: list[float] = []

    def started(self, value: object = None) -> None:
        del value
        if not self.stopping.is_set():
            self.vitals.enter(ActorState.RUNNING)
        self.settled.set()


class Supervisor:
    def __init__(self, nursery: trio.Nursery, clock: Clock) -> None:
        self._nursery = nursery
        self._clock = clock
        self._entries: dict[str, _Entry] = {}

    async def start(self, spec: ActorSpec) -> None:
        """Start an actor and wait until it runs (or, if transient, until its first start failed)."""
        self.start_soon(spec)
        await self._entries[spec.name].settled.wait()

    def start_soon(self, spec: ActorSpec) -> None:
        """Start an actor without waiting. Raises ValueError when one of that name is alive."""
        if spec.name in self._entries:
            raise ValueError(f"an actor named {spec.name} is alive")
        entry = _Entry(spec, self._clock)
        self._entries[spec.name] = entry
        self._nursery.start_soon(self._supervise, entry, name=spec.name)

    async def stop(self, name: str, reason: str) -> bool:
        """Close the actor's mailbox, let it finish what is queued, cancel it when its budget is over. Returns whether
        it ended by itself, or was not there."""
        entry = self._entries.get(name)
        if entry is None:
            return True
        entry.stopping.set()
        entry.vitals.enter(ActorState.STOPPING)
        if entry.spec.mailbox is None:
            entry.scope.cancel(reason=reason)
        else:
            entry.spec.mailbox.close(reason)
        with trio.move_on_after(entry.spec.stop_budget_s) as budget:
            await entry.ended.wait()
        if budget.cancelled_caught:
            log.warning("stop_budget_exceeded", actor=name, budget_s=entry.spec.stop_budget_s)
            entry.scope.cancel(reason=f"{reason}: over its stop budget")
            await entry.ended.wait()
        return not budget.cancelled_caught

    async def wait_ended(self, name: str) -> None:
        entry = self._entries.get(name)
        if entry is not None:
            await entry.ended.wait()

    def alive(self, name: str) -> bool:
        return name in self._entries

    def state(self, name: str) -> ActorState | None:
        entry = self._entries.get(name)
        return entry.vitals.state if entry else None

    def report(self) -> list[ActorReport]:
        """A snapshot of every actor, in start order."""
        return [
            ActorReport(
                name=entry.spec.name,
                parent=entry.spec.parent,
                state=entry.vitals.state,
                since=entry.vitals.since,
                activity=entry.vitals.activity,
                activity_since=entry.vitals.activity_since,
                restarts=entry.vitals.restarts,
                last_error=entry.vitals.last_error,
                mailbox=entry.spec.mailbox.report() if entry.spec.mailbox else None,
            )
            for entry in self._entries.values()
        ]

    async def _supervise(self, entry: _Entry) -> None:
        structlog.contextvars.clear_contextvars()  # it is not of the connection or turn that started it
        try:
            with entry.scope:
                while await self._incarnation(entry):
                    await self._pause(entry)
        finally:
            entry.vitals.enter(ActorState.STOPPED)
            self._fail_waiters(entry, "stopped")
            if entry.spec.mailbox is not None:
                entry.spec.mailbox.close("stopped")
            del self._entries[entry.spec.name]
            entry.settled.set()
            entry.ended.set()

    async def _incarnation(self, entry: _Entry) -> bool:
        """Run the actor once. Returns whether it crashed and is to be started again."""
        try:
            await entry.spec.run(entry.vitals, entry)
        except BaseException as error:  # noqa: ASYNC103 - what is not an ordinary failure is re-raised below
            failure, rest = split_cancelled(error)
            if failure is not None:
                entry.vitals.last_error = kind = error_class(failure)
                if not isinstance(failure, ConfigError | CannotListen):  # who starts the program says what is wrong
                    log.error("actor_crashed", actor=entry.spec.name, error=kind, where=where(failure))
                self._fail_waiters(entry, "crashed")
            if entry.spec.vital:
                raise
            if rest is not None:  # a failure while it is cancelled ends no other actor
                raise rest from None  # noqa: ASYNC104 - the part that is no ordinary failure
            return not entry.stopping.is_set()  # noqa: ASYNC104 - an ordinary failure only
        return False

    def _fail_waiters(self, entry: _Entry, why: str) -> None:
        if entry.spec.mailbox is not None:
            entry.spec.mailbox.fail_waiters(ActorStopped(f"{entry.spec.name} {why}"))

    async def _pause(self, entry: _Entry) -> None:
        now = trio.current_time()
        entry.crashes = [when for when in entry.crashes if now - when < WINDOW_S] + [now]
        mailbox = entry.spec.mailbox
        if len(entry.crashes) > MAX_RESTARTS:
            entry.vitals.enter(ActorState.FAILED)
            log.error("actor_failed", actor=entry.spec.name, crashes=len(entry.crashes), retry_s=RETRY_FAILED_S)
            entry.settled.set()
            if mailbox is not None:
                mailbox.close("failed too often; it will be tried again")
                self._fail_waiters(entry, "failed")
            await self._sleep(entry, RETRY_FAILED_S)
            entry.crashes = []
            if mailbox is not None and not entry.stopping.is_set():
                mailbox.reopen()
        else:
            entry.vitals.enter(ActorState.BACKOFF)
            entry.settled.set()
            await self._sleep(entry, BACKOFF.pause_s(len(entry.crashes)))
        if entry.stopping.is_set():
            entry.scope.cancel(reason="stopped while it was not running")
            await trio.lowlevel.checkpoint()
        entry.vitals.restarts += 1
        entry.vitals.enter(ActorState.STARTING)

    async def _sleep(self, entry: _Entry, seconds: float) -> None:
        with trio.move_on_after(seconds):
            await entry.stopping.wait()
