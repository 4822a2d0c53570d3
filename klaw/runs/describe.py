"""Tasks and runs as plain JSON values: the same for the admin socket, the tools and the slash commands. Pure.

Times at which a task fires are given on the clock of its zone with their offset, because that is how they were asked
for; what happened is given in UTC, as everywhere else.
"""

from collections.abc import Container
from typing import Any

import attrs

from klaw.domain.names import local_time
from klaw.domain.task import Run, RunStatus, Task
from klaw.runs.triggers import shown

WAITING = "waiting"
"""Status of a run that is stored as running and has no place yet."""


@attrs.frozen(kw_only=True)
class TaskView:
    """A task as people see it."""

    task: Task
    zone: str
    """IANA zone on whose clock its fire times are shown: its own, or for want of one the configured one."""
    next_fires: tuple[float, ...]
    """Unix seconds; empty when it is disabled or will not fire again."""
    last: Run | None = None
    running: bool = False
    warning: str | None = None
    """What is odd about it and may be meant."""


def task_json(view: TaskView) -> dict[str, Any]:
    """A task with all that is known of it."""
    task = view.task
    kind = type(task.trigger).__name__.lower()
    return {
        **_fields(task, without={"anchor_at"}),
        "trigger": {"kind": kind, **attrs.asdict(task.trigger), "shown": shown(task.trigger)},
        "zone": view.zone,
        "next_fires": [local_time(moment, view.zone) for moment in view.next_fires],
        "running": view.running,
        "last_run": run_json(view.last) if view.last is not None else None,
        "warning": view.warning,
    }


def run_json(run: Run, *, waits: bool = False, whole: bool = False) -> dict[str, Any]:
    """A run.

    Args:
        run: its record.
        waits: whether it is stored as running and has no place yet.
        whole: with what was asked and what came of it; both may be long.
    """
    told = _fields(run, without=set() if whole else _LONG)
    if waits and run.status is RunStatus.RUNNING:
        told["status"] = WAITING
    return told


_LONG = {"message", "result", "notify", "depth", "details"}


def _fields(value: Task | Run, without: Container[str]) -> dict[str, Any]:
    """A record's fields; an enum's member is a text already."""
    return {each.name: getattr(value, each.name) for each in attrs.fields(type(value)) if each.name not in without}
