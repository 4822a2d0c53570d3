"""The tools by which a model schedules tasks, starts subagents, and speaks from within a run."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import attrs

from klaw.agent.linked_answer import link_sources
from klaw.convert import Bounds
from klaw.domain.names import name_of
from klaw.domain.notes import Edit, notes
from klaw.domain.task import Run, Task, TriggerInput
from klaw.errors import NoSuchChat
from klaw.runs.scheduler import Scheduler
from klaw.runs.service import Scheduling
from klaw.toolbox.spec import Permission, ToolContext, ToolFailure, ToolSpec, tool

MAX_DELIVERIES = 10
SHOWN_RUNS = 10
RESULT_CHARS = 2000

Name = Annotated[str, "a-z, 0-9, _ and -"]
_SET = {**notes(Task, Edit), **notes(TriggerInput, Edit)}


def _arguments(tool_name: str, *required: str, optional: Sequence[str]) -> type[attrs.AttrsInstance]:
    """Fields of a task as arguments of a tool; the model gives each as a text."""
    members = {
        **{name: attrs.field(type=_described(name)) for name in required},
        **{name: attrs.field(type=_described(name) | None, default=None) for name in optional},
    }
    return attrs.make_class(tool_name, members, frozen=True, kw_only=True)


def _described(name: str) -> Any:
    return Annotated[str, _SET[name].help]


_WHERE_AND_HOW = ("model", "inject_into")
_WHEN = ("when", "cron", "zone", "every", "at")
_ADD = _arguments("schedule_add", "name", "message", optional=(*_WHEN, *_WHERE_AND_HOW))
_EDIT = _arguments("schedule_edit", "name", optional=("message", *_WHEN, *_WHERE_AND_HOW))
_SPAWN = _arguments("subagent_spawn", "name", "message", optional=_WHERE_AND_HOW)


def scheduling_tools(scheduling: Scheduling, scheduler: Scheduler) -> tuple[ToolSpec, ...]:
    return (*_task_tools(scheduling), *_subagent_tools(scheduling), _deliver_tool(scheduler))


def _in_chat(context: ToolContext) -> bool:
    """Tasks are made and changed where a person can see it."""
    return context.run is None


def _task_tools(scheduling: Scheduling) -> tuple[ToolSpec, ...]:
    @tool(permission=Permission.WRITE, when=_in_chat, arguments=_ADD)
    async def schedule_add(context: ToolContext, **given: str) -> Any:
        """Schedule a task that a subagent carries out on time: give exactly one of when, cron, every and at. Without
        inject_into this chat gets the results."""
        return describe_task(await scheduling.add(context.user, _raw({"inject_into": _own_chat(context), **given})))

    @tool(permission=Permission.WRITE, when=_in_chat)
    async def remind(
        context: ToolContext,
        when: Annotated[str, "as people say it: tomorrow at 9, in 20 minutes, every Monday at 8"],
        text: Annotated[str, "what the user shall read then", Bounds(at_least=1)],
    ) -> Any:
        """Remind the user: the text comes into this chat at that time. Use it for every wish to be reminded. Tell the
        user the time in full."""
        made = await scheduling.remind(context.user, text, when, _own_chat(context))
        return {**describe_task(made["task"]), "told": made["told"]}

    @tool(permission=Permission.READ)
    async def schedule_list(context: ToolContext) -> Any:
        """List the user's scheduled tasks with their next fire times and last runs."""
        return [describe_task(told) for told in await scheduling.tasks(context.user)] or "There are no tasks."

    @tool(permission=Permission.WRITE, when=_in_chat, arguments=_EDIT)
    async def schedule_edit(context: ToolContext, **given: str) -> Any:
        """Change a scheduled task; what is left out stays as it is."""
        return describe_task(await scheduling.edit(context.user, given.pop("name"), _raw(given)))

    @tool(permission=Permission.WRITE, when=_in_chat, lasting=False)
    async def schedule_remove(context: ToolContext, name: Name) -> str:
        """Remove a scheduled task. schedule_undo brings it back."""
        removed = await scheduling.remove(context.user, name)
        return f"The task {removed.name} was removed."

    @tool(permission=Permission.WRITE, when=_in_chat)
    async def schedule_undo(context: ToolContext, name: Name) -> Any:
        """Undo the newest change of a scheduled task, also its removal or its creation."""
        task = await scheduling.undo(context.user, name)
        return describe_task(task) if task is not None else f"The task {name} was removed."

    @tool(permission=Permission.WRITE, when=_in_chat)
    async def schedule_enable(context: ToolContext, name: Name) -> Any:
        """Switch a scheduled task on again."""
        return describe_task(await scheduling.enable(context.user, name, True))

    @tool(permission=Permission.WRITE, when=_in_chat, lasting=False)
    async def schedule_disable(context: ToolContext, name: Name) -> Any:
        """Switch a scheduled task off without removing it."""
        return describe_task(await scheduling.enable(context.user, name, False))

    changing = schedule_edit, schedule_remove, schedule_undo, schedule_enable, schedule_disable
    return schedule_add, remind, schedule_list, *changing


def _subagent_tools(scheduling: Scheduling) -> tuple[ToolSpec, ...]:
    @tool(permission=Permission.WRITE, lasting=False, arguments=_SPAWN)
    async def subagent_spawn(context: ToolContext, **given: str) -> Any:
        """Start a subagent at once, in the background. This chat gets a notice with its result when it ends."""
        run = await scheduling.spawn(
            context.user,
            _raw(given),
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

    @tool(permission=Permission.WRITE, lasting=False)
    async def subagent_cancel(context: ToolContext, run: Annotated[str, "its id"]) -> Any:
        """End a run of a task or subagent that goes on."""
        if run == context.run:
            return ToolFailure("This is your own run: just finish.")
        if await scheduling.cancel(context.user, run):
            return f"The run {run} is being ended."
        return ToolFailure(f"There is no run {run} in progress.")

    return subagent_spawn, subagent_status, subagent_cancel


def _deliver_tool(scheduler: Scheduler) -> ToolSpec:
    @tool(permission=Permission.WRITE, when=lambda context: bool(context.run and context.deliver_to), lasting=False)
    async def schedule_deliver(
        context: ToolContext, text: Annotated[str, "The message, as the user shall read it", Bounds(at_least=1)]
    ) -> Any:
        """Send a message to the user's chat now. Your final answer is then not sent."""
        live = scheduler.live.get(context.run or "")
        if live is None:
            return ToolFailure("This run is over.")
        if not text.strip():
            return ToolFailure("The text is empty: nothing was sent.")
        if live.run.delivered >= MAX_DELIVERIES:
            return ToolFailure(f"A run may send {MAX_DELIVERIES} messages, and this one has.")
        try:
            await live.deliver(link_sources(text.strip(), context.trail.sources).whole)
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
    told = {"run": run.id, "name": run.task, **_some(scheduling.run_json(run), _OF_RUN)}
    told["tokens"] = run.prompt_tokens + run.completion_tokens
    if run.result:
        told["result"] = run.result[:RESULT_CHARS]
    return told


def _some(told: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: told[name] for name in names if told[name] is not None or name in _ALWAYS}


def _raw(given: Mapping[str, str | None]) -> dict[str, str]:
    return {_SET[field].name or field: value for field, value in given.items() if value is not None}


def _own_chat(context: ToolContext) -> str | None:
    chat = context.chat or context.deliver_to
    return name_of(chat) if chat is not None else None
