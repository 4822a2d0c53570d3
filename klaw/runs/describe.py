"""Tasks and runs as plain JSON values: the same for the admin socket, the tools and the slash commands. Pure.

Times at which a task fires are given on the clock of its zone with their offset, because that is how they were asked
for; what happened is given in UTC, as everywhere else.
"""

from typing import Any, assert_never

import attrs

from klaw.domain.names import local_time
from klaw.domain.task import At, Cron, Every, Run, RunStatus, Task, Trigger
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
    return {
        "user": task.user,
        "name": task.name,
        "trigger": {**_trigger(task.trigger), "shown": shown(task.trigger)},
        "enabled": task.enabled,
        "zone": view.zone,
        "next_fires": [local_time(moment, view.zone) for moment in view.next_fires],
        "message": task.message,
        "model": task.model,
        "inject_into": task.inject_into,
        "timeout_s": task.timeout_s,
        "max_tokens": task.max_tokens,
        "daily_tokens": task.daily_tokens,
        "created_at": task.created_at,
        "updated_at": task.updated_at,
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
    told: dict[str, Any] = {
        "id": run.id,
        "user": run.user,
        "task": run.task,
        "kind": run.kind.value,
        "status": WAITING if waits and run.status is RunStatus.RUNNING else run.status.value,
        "due": run.due,
        "attempt": run.attempt,
        "started_at": run.started_at,
        "ended_at": run.ended_at,
        "model": run.model,
        "inject_into": run.inject_into,
        "prompt_tokens": run.prompt_tokens,
        "completion_tokens": run.completion_tokens,
        "delivered": run.delivered,
        "error": run.error,
        "note": run.note,
        "parent": run.parent,
    }
    if whole:
        told |= {
            "notify": run.notify,
            "depth": run.depth,
            "message": run.message,
            "result": run.result,
            "details": dict(run.details),
        }
    return told


def _trigger(trigger: Trigger) -> dict[str, Any]:
    match trigger:
        case Cron():
            return {"kind": "cron", **attrs.asdict(trigger)}
        case Every():
            return {"kind": "every", **attrs.asdict(trigger)}
        case At():
            return {"kind": "at", **attrs.asdict(trigger)}
        case _:
            assert_never(trigger)
