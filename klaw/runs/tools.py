"""The tools by which a model schedules tasks, starts subagents, and speaks from within a run."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from klaw.convert import Bounds
from klaw.domain.names import name_of
from klaw.domain.task import Run
from klaw.errors import NoSuchChat
from klaw.runs.scheduler import Scheduler
from klaw.runs.service import Scheduling
from klaw.toolbox.spec import Permission, ToolContext, ToolFailure, ToolSpec, never, tool

MAX_DELIVERIES = 10
"""Messages that one run may send."""
SHOWN_RUNS = 10
RESULT_CHARS = 2000
"""So much of a result is shown to the model."""

Name = Annotated[str, "a-z, 0-9, _ and -"]
CronText = Annotated[str | None, "five cron fields: 0 9 * * 1-5"]
Zone = Annotated[str | None, "IANA zone of cron: Europe/Berlin"]
EveryText = Annotated[str | None, "interval: 30m, 2h, 1d"]
AtText = Annotated[str | None, "once: 2026-12-24T18:00+01:00"]
Message = Annotated[str, "what to do, complete in itself: the subagent does not see this conversation"]
Model = Annotated[str | None, "provider/model, if not the usual one"]
InjectInto = Annotated[str | None, "chat that gets the result, if not this one"]


def scheduling_tools(scheduling: Scheduling, scheduler: Scheduler) -> tuple[ToolSpec, ...]:
    """All tools of this module."""
    return (*_task_tools(scheduling), *_subagent_tools(scheduling), _deliver_tool(scheduler))


def _in_chat(context: ToolContext) -> bool:
    """Tasks are made and changed where a person can see it."""
    return context.run is None


def _delivers(context: ToolContext) -> bool:
    return context.run is not None and context.deliver_to is not None


def _task_tools(scheduling: Scheduling) -> tuple[ToolSpec, ...]:
    @tool(permission=Permission.WRITE, when=_in_chat)
    async def schedule_add(
        context: ToolContext,
        name: Name,
        message: Message,
        cron: CronText = None,
        zone: Zone = None,
        every: EveryText = None,
        at: AtText = None,
        model: Model = None,
        inject_into: InjectInto = None,
    ) -> Any:
        """Schedule a task that a subagent carries out on time: give exactly one of cron, every and at."""
        raw = _raw(
            inject_into or _own_chat(context),
            name=name,
            message=message,
            cron=cron,
            zone=zone,
            every=every,
            at=at,
            model=model,
        )
        return describe_task(await scheduling.add(context.user, raw))

    @tool(permission=Permission.READ)
    async def schedule_list(context: ToolContext) -> Any:
        """List the user's scheduled tasks with their next fire times and last runs."""
        return [describe_task(told) for told in await scheduling.tasks(context.user)] or "There are no tasks."

    @tool(permission=Permission.WRITE, when=_in_chat)
    async def schedule_edit(
        context: ToolContext,
        name: Name,
        message: Annotated[str | None, "the new request"] = None,
        cron: CronText = None,
        zone: Zone = None,
        every: EveryText = None,
        at: AtText = None,
        model: Model = None,
        inject_into: Annotated[str | None, "chat that gets the result"] = None,
    ) -> Any:
        """Change a scheduled task; what is left out stays as it is."""
        raw = _raw(inject_into, message=message, cron=cron, zone=zone, every=every, at=at, model=model)
        return describe_task(await scheduling.edit(context.user, name, raw))

    @tool(permission=Permission.WRITE, when=_in_chat, lasting=never)
    async def schedule_remove(context: ToolContext, name: Name) -> str:
        """Remove a scheduled task for good."""
        removed = await scheduling.remove(context.user, name)
        return f"The task {removed.name} was removed."

    @tool(permission=Permission.WRITE, when=_in_chat)
    async def schedule_enable(context: ToolContext, name: Name) -> Any:
        """Switch a scheduled task on again."""
        return describe_task(await scheduling.enable(context.user, name, True))

    @tool(permission=Permission.WRITE, when=_in_chat, lasting=never)
    async def schedule_disable(context: ToolContext, name: Name) -> Any:
        """Switch a scheduled task off without removing it."""
        return describe_task(await scheduling.enable(context.user, name, False))

    return schedule_add, schedule_list, schedule_edit, schedule_remove, schedule_enable, schedule_disable


def _subagent_tools(scheduling: Scheduling) -> tuple[ToolSpec, ...]:
    @tool(permission=Permission.WRITE, lasting=never)
    async def subagent_spawn(
        context: ToolContext,
        name: Annotated[str, "short name of the work: a-z, 0-9, _ and -"],
        message: Message,
        model: Model = None,
        inject_into: Annotated[str | None, "chat that gets the result as a message"] = None,
    ) -> Any:
        """Start a subagent at once, in the background. The chat gets a notice with its result when it ends."""
        run = await scheduling.spawn(
            context.user,
            _raw(inject_into, name=name, message=message, model=model),
            parent=context.run,
            notify=_own_chat(context),
            depth=0 if context.run is None else context.depth + 1,
            outside=context.trail.outside,
        )
        return {"run": run.id, "name": run.task, "status": "started"}

    @tool(permission=Permission.READ)
    async def subagent_status(
        context: ToolContext,
        run: Annotated[str | None, "its id; without it the last runs"] = None,
        name: Annotated[str | None, "only of this task or subagent"] = None,
    ) -> Any:
        """Show how runs of tasks and subagents stand, and their results."""
        if run is None:
            found: Sequence[Run] = await scheduling.runs(context.user, task=name, limit=SHOWN_RUNS)
            return [describe_run(one, scheduling) for one in found] or "There are no runs."
        one = await scheduling.run(context.user, run)
        return describe_run(one, scheduling) if one is not None else ToolFailure(f"There is no run {run}.")

    @tool(permission=Permission.WRITE, lasting=never)
    async def subagent_cancel(context: ToolContext, run: Annotated[str, "its id"]) -> Any:
        """End a run of a task or subagent that goes on."""
        if run == context.run:
            return ToolFailure("This is your own run: just finish.")
        if await scheduling.cancel(context.user, run):
            return f"The run {run} is being ended."
        return ToolFailure(f"There is no run {run} in progress.")

    return subagent_spawn, subagent_status, subagent_cancel


def _deliver_tool(scheduler: Scheduler) -> ToolSpec:
    @tool(permission=Permission.WRITE, when=_delivers, lasting=never)
    async def schedule_deliver(
        context: ToolContext, text: Annotated[str, "The message, as the user shall read it", Bounds(at_least=1)]
    ) -> Any:
        """Send a message to the user's chat now. Your final answer is then not sent."""
        job = scheduler.live.get(context.run or "")
        if job is None:
            return ToolFailure("This run is over.")
        if not text.strip():
            return ToolFailure("The text is empty: nothing was sent.")
        if job.run.delivered >= MAX_DELIVERIES:
            return ToolFailure(f"A run may send {MAX_DELIVERIES} messages, and this one has.")
        try:
            await job.live.deliver(text.strip())
        except NoSuchChat as error:
            return ToolFailure(
                f"There is no chat {error.chat}: the text was not sent. It is kept in the record of this run."
            )
        return "Sent."

    return schedule_deliver


_OF_TASK = ("name", "trigger", "enabled", "next_fires", "inject_into", "message", "model", "warning")
_OF_RUN = ("kind", "status", "started_at", "ended_at", "delivered", "error", "note")
_ALWAYS = frozenset({"inject_into", "ended_at"})
"""Fields that say something by being empty."""


def describe_task(told: Mapping[str, Any]) -> dict[str, Any]:
    """A task as JSON for the model: shorter than for people."""
    short = _some({**told, "trigger": told["trigger"]["shown"]}, _OF_TASK)
    if (last := told["last_run"]) is not None:
        short["last_run"] = {"status": last["status"], "at": last["started_at"], "note": last["note"]}
    return short


def describe_run(run: Run, scheduling: Scheduling) -> Mapping[str, Any]:
    """A run as JSON for the model: shorter than for people."""
    told = {"run": run.id, "name": run.task, **_some(scheduling.run_json(run), _OF_RUN)}
    told["tokens"] = run.prompt_tokens + run.completion_tokens
    if run.result:
        told["result"] = run.result[:RESULT_CHARS]
    return told


def _some(told: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: told[name] for name in names if told[name] is not None or name in _ALWAYS}


def _raw(inject_into: str | None, **fields: str | None) -> dict[str, str]:
    """What was given, under the names of ``drafting``."""
    return {name: value for name, value in {**fields, "injectInto": inject_into}.items() if value is not None}


def _own_chat(context: ToolContext) -> str | None:
    chat = context.chat or context.deliver_to
    return name_of(chat) if chat is not None else None
