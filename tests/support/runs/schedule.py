"""Tasks and runs for tests, and a scheduler that is nothing but the pure decisions and a clock made of numbers."""

import bisect
import random
from collections.abc import Sequence

import attrs

from klaw.actor.clock import iso
from klaw.config.schema import SubagentsConfig
from klaw.domain.names import LOCAL_USER, UserId
from klaw.domain.task import Run, RunKind, RunStatus, Task, TaskKey, Trigger
from klaw.runs.due import Fire, SchedulerState, StartPlan, decide


def a_task(name: str, trigger: Trigger, *, since: float, user: UserId = LOCAL_USER, **more) -> Task:
    moment = iso(since)
    made = Task(
        user=user, name=name, trigger=trigger, message="x", created_at=moment, updated_at=moment, anchor_at=moment
    )
    return attrs.evolve(made, **more)


def a_run(task: Task, due: float, status: RunStatus = RunStatus.DONE, **more) -> Run:
    attempt = more.get("attempt", 1)
    made = Run(
        id=f"{task.name}-{due}-{attempt}",
        user=task.user,
        task=task.name,
        kind=RunKind.SCHEDULED,
        due=iso(due),
        status=status,
        message=task.message,
        model="local/x",
        started_at=iso(due),
        ended_at=iso(due + 1),
    )
    return attrs.evolve(made, **more)


class Simulation:
    """Runs of some tasks as the scheduler would record them. ``now`` is moved by whoever tests."""

    def __init__(self, tasks: Sequence[Task], *, now: float, rules: SubagentsConfig, seed: int = 0) -> None:
        self.tasks = list(tasks)
        self.now = now
        self.awake_since = now
        self.runs: list[Run] = []
        self.fired: list[tuple[float, Fire]] = []
        self._going: dict[TaskKey, tuple[float, int]] = {}
        self._dues: dict[TaskKey, list[int]] = {}
        self._places: dict[tuple[TaskKey, int], list[int]] = {}
        self._rules = rules
        self._random = random.Random(seed)

    def wake(self, *, longest_run: float = 0.0) -> StartPlan:
        """End what has ended, start what is to start, until nothing more happens at this moment."""
        while True:
            self._end_runs()
            decision = decide(self._state(), self._rules)
            assert decision.wake_at > self.now
            if not decision.start:
                return decision
            for fire in decision.start:
                self._start(fire, self._random.uniform(0, longest_run))
            assert len(self._going) <= self._rules.max_concurrent

    def next_end(self) -> float:
        """When the next of the running runs ends."""
        return min((end for end, _ in self._going.values()), default=float("inf"))

    def restart(self) -> None:
        """The process was not there until now; what it ran was interrupted."""
        for _, place in self._going.values():
            run = self.runs[place]
            self.runs[place] = attrs.evolve(run, status=RunStatus.INTERRUPTED, ended_at=iso(self.now))
        self._going.clear()
        self.awake_since = self.now

    def _state(self) -> SchedulerState:
        attempts = {}
        for key, dues in self._dues.items():
            place = bisect.bisect_right(dues, self.now)
            if place:
                attempts[key] = [self.runs[index] for index in self._places[key, dues[place - 1]]]
        return SchedulerState(
            tasks=self.tasks, attempts=attempts, running=list(self._going), now=self.now, awake_since=self.awake_since
        )

    def _start(self, fire: Fire, length: float) -> None:
        assert fire.key not in self._going, "a task must not overlap itself"
        run = a_run(fire.task, fire.due, RunStatus.RUNNING, attempt=fire.attempt, note=fire.note)
        run = attrs.evolve(run, started_at=iso(self.now), ended_at=None)
        earlier = self._places.get((fire.key, fire.due), ())
        assert fire.attempt == len(earlier) + 1, "an attempt must not be made twice"
        self._going[fire.key] = (self.now + length, len(self.runs))
        places = self._places.setdefault((fire.key, fire.due), [])
        if not places:
            bisect.insort(self._dues.setdefault(fire.key, []), fire.due)
        places.append(len(self.runs))
        self.runs.append(run)
        self.fired.append((self.now, fire))

    def _end_runs(self) -> None:
        for key, (end, place) in list(self._going.items()):
            if end <= self.now:
                self.runs[place] = attrs.evolve(self.runs[place], status=RunStatus.DONE, ended_at=iso(end))
                del self._going[key]
