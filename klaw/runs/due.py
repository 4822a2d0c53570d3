"""Which tasks start now, and when to look again. Pure.

The rules:

- A fire time is over when a run of it is recorded, or when a later one has a run. So nothing fires twice, whatever
  happens to the process or to the clock.
- Misfire: after downtime, suspend or a busy time a task fires once, for its latest fire time; the run's note says how
  late it is and how many fire times before it were skipped.
- A task never overlaps itself: what comes due while it runs fires once when the run has ended.
- At most ``subagents.maxConcurrent`` runs; the longest waiting first.
- A run that failed for a passing reason is tried again after 60 s, 120 s …, unless the task's next fire time comes
  first. A one-shot that was interrupted is tried again once. Neither is when something of it was delivered already.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import attrs
import structlog

from klaw.actor.backoff import Backoff
from klaw.actor.clock import EARLIEST, from_iso, iso
from klaw.actor.failure import error_class, where
from klaw.config.schema import SubagentsConfig
from klaw.domain.task import At, Run, RunStatus, Task, TaskKey
from klaw.domain.text import span
from klaw.runs.triggers import MAX_COUNTED, first_fire, missed

MAX_SLEEP_S = 60.0
"""The scheduler looks at least this often, so that a jump of the clock or a suspend is noticed."""
LATE_S = 60.0
"""A start that is later than this is said in the run's note."""
log = structlog.get_logger("klaw.scheduler")

RETRY_S = 60.0
"""Pause before the first of ``subagents.retries``; it doubles."""
PASSING_ERRORS = frozenset({"llm_unreachable", "llm_timeout", "llm_failed"})
"""Error codes after which another attempt may work; a run's ``details["retryable"]``, where it stands, decides."""


@attrs.frozen(kw_only=True)
class SchedulerState:
    """What is known when the scheduler wakes. Times are Unix seconds."""

    tasks: Sequence[Task]
    attempts: Mapping[TaskKey, Sequence[Run]]
    """The attempts of each task, in their order, for its latest fire time **that is not after now** and has a run of
    kind ``scheduled``. After a clock was set back there may be later ones; they count again when their time comes."""
    running: Sequence[TaskKey]
    """One for each run that goes on, of any kind; a task's own manual run keeps it from starting too."""
    now: float
    awake_since: float
    """When the scheduler began to watch without a break: its start, or the last jump of the clock."""


@attrs.frozen(kw_only=True)
class Fire:
    """A run that is to start. Times are Unix seconds."""

    task: Task
    due: int
    attempt: int
    ready_at: float
    """Since when it could have started: the fire time, or the time of its retry."""
    skipped: int = 0
    """Earlier fire times that this run stands for too; ``MAX_COUNTED`` means that many or more."""
    note: str | None = None

    @property
    def key(self) -> TaskKey:
        return self.task.user, self.task.name


@attrs.frozen(kw_only=True)
class StartPlan:
    start: tuple[Fire, ...]
    """Longest waiting first."""
    wake_at: float
    """When to ask again at the latest, in Unix seconds: at most ``MAX_SLEEP_S`` from now."""
    unusable: tuple[TaskKey, ...] = ()
    """Stored tasks that cannot be understood (their journal is damaged); they stop no other."""


def decide(state: SchedulerState, rules: SubagentsConfig) -> StartPlan:
    ready: list[Fire] = []
    unusable: list[TaskKey] = []
    wake_at = state.now + MAX_SLEEP_S
    for task in state.tasks:
        if not task.enabled:
            continue
        key = task.user, task.name
        try:
            fire, later = _look(task, state.attempts.get(key, ()), state, rules)
        except Exception as error:  # noqa: BLE001 - whatever its journal holds
            log.error("task_unusable", error=error_class(error), where=where(error))
            unusable.append(key)
            continue
        if fire is not None:
            ready.append(fire)
        if later is not None:
            wake_at = min(wake_at, later)
    reminders = tuple(fire for fire in ready if fire.task.reminder)  # they take no time, and so no place
    start = _admitted([fire for fire in ready if not fire.task.reminder], state.running, rules.max_concurrent)
    return StartPlan(start=reminders + start, wake_at=wake_at, unusable=tuple(unusable))


def _admitted(ready: Iterable[Fire], running: Sequence[TaskKey], max_concurrent: int) -> tuple[Fire, ...]:
    """Longest waiting first, then of the user with fewer runs; no task runs beside itself."""
    busy = set(running)
    runs_of = Counter(user for user, _ in running)
    start: list[Fire] = []
    left = sorted(ready, key=lambda fire: (fire.ready_at, fire.key))
    while left and len(running) + len(start) < max_concurrent:
        oldest = left[0].ready_at
        fire = min((fire for fire in left if fire.ready_at == oldest), key=lambda fire: runs_of[fire.task.user])
        left.remove(fire)
        if fire.key not in busy:
            start.append(fire)
            busy.add(fire.key)
            runs_of[fire.task.user] += 1
    return tuple(start)


def repeats_after_interruption(attempts: Sequence[Run]) -> bool:
    """Whether a one-shot is tried again after the process ended in its midst: once, if nothing was delivered."""
    if not attempts or attempts[-1].status is not RunStatus.INTERRUPTED:
        return False
    interrupted = sum(run.status is RunStatus.INTERRUPTED for run in attempts)
    return interrupted == 1 and not any(run.delivered for run in attempts)


def is_retried(task: Task, attempts: Sequence[Run], rules: SubagentsConfig, *, now: float) -> bool:
    """Whether another attempt follows the last of the attempts at a fire time, as far as can be known now."""
    if not task.enabled:
        return False
    anchor = from_iso(task.anchor_at)
    upcoming = first_fire(task.trigger, anchor, max(anchor, _latest_due(attempts)))
    return _retry(task, attempts, anchor, upcoming, now, rules) is not None


def next_fire(task: Task, attempts: Sequence[Run], *, now: float) -> int | None:
    """The task's next fire time after now, in Unix seconds; None when it is disabled or has none."""
    if not task.enabled:
        return None
    return first_fire(task.trigger, from_iso(task.anchor_at), max(now, _latest_due(attempts)))


def _look(
    task: Task, attempts: Sequence[Run], state: SchedulerState, rules: SubagentsConfig
) -> tuple[Fire | None, float | None]:
    anchor = from_iso(task.anchor_at)
    floor = max(anchor, _latest_due(attempts))
    if anchor > state.now:
        # It was made while the clock was ahead. Its times count from when that was noticed.
        anchor = min(state.awake_since, state.now)
        floor = max(anchor, _latest_due(attempts))
    upcoming = first_fire(task.trigger, anchor, floor)
    if upcoming is not None and upcoming <= state.now:
        found = missed(task.trigger, anchor=anchor, after=floor, now=state.now)
        if found is not None:
            latest, skipped = found[0], found[1] - 1
            note = _note(latest, skipped, attempts, state)
            fire = Fire(task=task, due=latest, attempt=1, ready_at=latest, skipped=skipped, note=note)
            return fire, first_fire(task.trigger, anchor, latest)
    retry = _retry(task, attempts, anchor, upcoming, state.now, rules)
    if retry is None:
        return None, upcoming
    if retry.ready_at <= state.now:
        return retry, upcoming
    return None, retry.ready_at


def _latest_due(attempts: Sequence[Run]) -> float:
    return math.floor(from_iso(attempts[-1].due)) if attempts else -math.inf


def _retry(
    task: Task, attempts: Sequence[Run], anchor: float, upcoming: int | None, now: float, rules: SubagentsConfig
) -> Fire | None:
    if not attempts or _latest_due(attempts) <= anchor:  # the task was changed or enabled since
        return None
    last = attempts[-1]
    ended = min(from_iso(last.ended_at or last.started_at), now)
    if repeats_after_interruption(attempts) and isinstance(task.trigger, At):
        ready_at, why = ended, "a second attempt; Klaw was stopped during the first"
    elif last.status is RunStatus.FAILED and _may_pass(last) and not any(run.delivered for run in attempts):
        failures = sum(run.status is RunStatus.FAILED for run in attempts)
        if failures > rules.retries:
            return None
        # A clock that was set back since must not make it wait for years: then it is tried at once.
        pause = Backoff(RETRY_S).pause_s(failures) if ended == from_iso(last.ended_at or last.started_at) else 0.0
        ready_at, why = ended + pause, f"attempt {last.attempt + 1}; the one before failed ({last.error})"
        if upcoming is not None and ready_at >= upcoming:
            return None
    else:
        return None
    due = math.floor(from_iso(last.due))
    return Fire(task=task, due=due, attempt=last.attempt + 1, ready_at=ready_at, note=why)


def _may_pass(run: Run) -> bool:
    said = run.details.get("retryable")
    return said if isinstance(said, bool) else run.error in PASSING_ERRORS


def _note(due: int, skipped: int, attempts: Sequence[Run], state: SchedulerState) -> str | None:
    parts = []
    if state.now - due >= LATE_S or skipped:
        if due < state.awake_since:
            why = "Klaw was not running, or the machine slept, or its clock was set"
        elif attempts and from_iso(attempts[-1].ended_at or attempts[-1].started_at) > due:
            why = "the run before was still going"
        else:
            why = "other runs had to end first"
        parts.append(f"{span(state.now - due)} late: {why}")
    if skipped:
        number = f"{skipped} or more" if skipped >= MAX_COUNTED - 1 else str(skipped)
        parts.append(f"earlier fire times skipped: {number}")
    return "; ".join(parts) or None


THRESHOLD_S = 5.0
"""Smaller differences are a clock that is being steered, or a thread that had to wait."""
BEHIND_S = 86_400.0
"""A clock that is so far behind the newest message was not set yet."""
PATIENCE_S = 86_400.0
"""Who sets the clock has set it by then, and it was the messages that were ahead."""


@attrs.define(kw_only=True)
class Clocks:
    """The clock and the monotonic one, which stands still while a machine is suspended, when they were last looked at;
    and whether the clock can be right: a board without one of its own starts in 1970, or where it was stopped."""

    wall: float
    monotonic: float
    last_seen: float = -math.inf
    """Time of the newest message when Klaw started, in Unix seconds."""
    since: float = attrs.field(default=attrs.Factory(lambda self: self.monotonic, takes_self=True), init=False)
    trusted: bool = False
    """Once it was right, somebody who sets it back means it."""

    def jumped_s(self, *, wall: float, monotonic: float) -> float:
        """How far the clock went beyond the time that passed since the last look: positive after suspend or when it was
        set forward, negative when it was set back, 0 when it did not jump."""
        jump = (wall - self.wall) - (monotonic - self.monotonic)
        self.wall, self.monotonic = wall, monotonic
        return jump if abs(jump) >= THRESHOLD_S else 0.0

    def doubt(self, *, synchronized: Callable[[], bool]) -> str | None:
        """Why the clock is not believed, for people. ``synchronized``: whether the system has set it by the network."""
        told = f"the clock says {iso(self.wall)[:16].replace('T', ' ')} UTC"
        if self.wall < EARLIEST:
            return f"{told}, which cannot be right"
        if not self.trusted:
            late = self.wall < self.last_seen - BEHIND_S and self.monotonic - self.since < PATIENCE_S
            self.trusted = not late or synchronized()
        return None if self.trusted else f"{told}, and the newest message is of {iso(self.last_seen)[:10]}"
