"""Tasks and runs by the admin socket: what the ``schedule_…`` and run commands answer.

The answers hold what tasks ask for and what runs answered: they go to the terminal of whoever asks, who is the server's
own user, and never into a log.
"""

from typing import Any, assert_never

from klaw.actor.clock import iso
from klaw.admin.answers import check_user
from klaw.admin.requests import BadRequest, Scheduled
from klaw.admin.schedule_requests import (
    RunCancel,
    Runs,
    RunShow,
    ScheduleAdd,
    ScheduleEdit,
    ScheduleEnable,
    ScheduleList,
    ScheduleRemove,
    ScheduleRun,
)
from klaw.domain.names import LOCAL_USER, UserId
from klaw.domain.task import Run, RunStatus
from klaw.errors import ConfigError, NoSuchTask, TaskError, TaskExists
from klaw.subagents.beginning import NotStarted
from klaw.subagents.describe import run_json, task_json
from klaw.subagents.service import Overview, Scheduling

DEFAULT_LIMIT = 20


async def run_scheduled(scheduling: Scheduling, request: Scheduled) -> dict[str, Any]:
    """Carry out a request.

    Raises:
        BadRequest: ``bad_args``; ``bad_task`` with every wrong field; ``unknown_task``, ``task_exists``,
            ``unknown_run``, ``run_over``, ``not_started``, ``bad_model``.
        StorageError: the store refused or failed.
        ActorStopped, ActorTooSlow: the scheduler did not answer.

    Cancellation: a change may or may not be made.
    """
    user = check_user(request.user) if request.user is not None else UserId(LOCAL_USER)
    try:
        return await _carry_out(scheduling, user, request)
    except TaskError as error:
        raise BadRequest("bad_task", problems=error.problems) from None
    except NoSuchTask as error:
        raise BadRequest("unknown_task", str(error)) from None
    except TaskExists:
        raise BadRequest("task_exists", "there is a task of this name already: edit it, or remove it first") from None
    except NotStarted as error:
        raise BadRequest("not_started", f"the run was not started: {error}") from None
    except ConfigError as error:
        raise BadRequest("bad_model", f"the run was not started: {error}") from None


async def _carry_out(scheduling: Scheduling, user: UserId, request: Scheduled) -> dict[str, Any]:
    match request:
        case ScheduleList():
            return {"user": user, "tasks": [task_json(view) for view in await scheduling.tasks(user)]}
        case ScheduleAdd():
            return {"task": task_json(await scheduling.add(user, request.fields))}
        case ScheduleEdit():
            return {"task": task_json(await scheduling.edit(user, request.name, request.fields))}
        case ScheduleEnable():
            return {"task": task_json(await scheduling.enable(user, request.name, request.enabled, now=request.now))}
        case ScheduleRemove():
            removed = await scheduling.remove(user, request.name)
            return {"removed": {"user": removed.user, "name": removed.name}}
        case ScheduleRun():
            return {"run": _told(scheduling, await scheduling.run_now(user, request.name))}
        case Runs():
            return await _runs(scheduling, user, request)
        case RunShow():
            return {"run": _told(scheduling, await _run(scheduling, user, request.run), whole=True)}
        case RunCancel():
            return await _cancel(scheduling, user, request.run)
        case _:
            assert_never(request)


async def _runs(scheduling: Scheduling, user: UserId, request: Runs) -> dict[str, Any]:
    limit = request.limit or DEFAULT_LIMIT
    try:
        status = RunStatus(request.status) if request.status is not None else None
    except ValueError:
        raise BadRequest("bad_args", f"args.status: must be one of {', '.join(RunStatus)}") from None
    if request.before is not None:
        await _run(scheduling, user, request.before)
    # One more than is shown, to know whether there are more.
    found = await scheduling.runs(user, task=request.task, status=status, before=request.before, limit=limit + 1)
    shown = found[:limit]
    return {
        "user": user,
        "task": request.task,
        "status": status.value if status is not None else None,
        "runs": [_told(scheduling, run) for run in shown],
        "next": shown[-1].id if len(found) > limit else None,
    }


async def _cancel(scheduling: Scheduling, user: UserId, run: str) -> dict[str, Any]:
    if not await scheduling.cancel(user, run):
        over = await _run(scheduling, user, run)
        raise BadRequest("run_over", f"this run is over ({over.status.value.replace('_', ' ')})")
    return {"run": _told(scheduling, await _run(scheduling, user, run)), "cancelled": True}


async def _run(scheduling: Scheduling, user: UserId, run: str) -> Run:
    found = await scheduling.run(user, run)
    if found is None:
        raise BadRequest("unknown_run", "there is no such run")
    return found


def _told(scheduling: Scheduling, run: Run, *, whole: bool = False) -> dict[str, Any]:
    return run_json(run, waits=scheduling.waits(run.id), whole=whole)


def describe_overview(overview: Overview) -> dict[str, Any]:
    """How all users' tasks and runs stand, for the status."""
    key = overview.next_task
    return {
        "count": overview.tasks,
        "enabled": overview.enabled,
        "next": {"at": iso(overview.next_fire), "user": key[0], "task": key[1]}
        if overview.next_fire is not None and key is not None
        else None,
        "running": overview.running,
        "queued": overview.queued,
        "failing": [
            {"user": user, "task": task, "error": error} for (user, task), error in sorted(overview.failing.items())
        ],
        "undelivered": overview.undelivered,
    }
