"""Scheduled tasks. The answers hold what tasks ask for, so they never go into a log."""

from typing import Annotated, Any, NotRequired, TypeAlias, TypedDict, cast

import attrs

from klaw.convert import Form, Wire
from klaw.domain.names import clock_text, name_of
from klaw.domain.notes import Column, Edit, notes
from klaw.domain.prompt_files import HEARTBEAT_FILE
from klaw.domain.task import MAX_TASK_MESSAGE_BYTES, Task, TriggerInput
from klaw.domain.text import span
from klaw.errors import ConfigError, NoSuchTask, NotStarted
from klaw.operations import operation as op
from klaw.operations import stored
from klaw.operations.handler import Caller, Parts
from klaw.operations.lines import Lines, Table, details, minute
from klaw.operations.record_fields import cell, class_of, editable, fields_of, typed
from klaw.operations.records import Records
from klaw.operations.runs import OneRun, RunFilters, RunPage, list_of_runs, run_table, runs_page, status_of

NOUN = op.Noun("schedule", "make, change and list scheduled tasks (docs/scheduling.md)", invalid="bad_task")
SHOWN_IN_CHAT = 50


@attrs.frozen(kw_only=True)
class OfTask(op.OfUser):
    name: op.Name = op.required("the task's name")


def _texts(cls: type[Any], *without: str) -> dict[str, Any]:
    """The fields that people set, each as a text: ``runs.task_input`` reads all of them together."""
    made = {}
    for field, note in editable(cls):
        if field.name not in without:
            kind: Any = bool | None if op.without_none(field.type) is bool else str | None
            name = field.name if note.name != note.name.lower() else note.name or field.name
            made[name] = typed(Annotated[kind, Wire(note.name or name)], op.argument(note.help, title=note.title))
    return made


_MESSAGE = op.argument(
    "what the model is asked", metavar="TEXT", stdin=True, file=True, most_bytes=MAX_TASK_MESSAGE_BYTES, title="Request"
)
_FIELDS = {**_texts(TriggerInput), "message": typed(str | None, _MESSAGE), **_texts(Task, "name", "message", "enabled")}
_NEW = op.argument("make it, but do not run it by its schedule yet", default=True, option="--disabled")
_CLEAR = op.argument(
    "an option to empty: model, inject-into, timeout, max-tokens or daily-tokens (or give it as ''); repeatable",
    metavar="OPTION",
)
TriggerFields: Any = class_of("TriggerFields", _texts(TriggerInput))
NewTask: Any = class_of(
    "NewTask",
    {
        **_FIELDS,
        "name": typed(str, op.required("its name: a-z, 0-9, _ and -", title="Name")),
        "enabled": typed(bool, _NEW),
    },
)
TaskChanges: Any = class_of("TaskChanges", {**_FIELDS, "clear": typed(tuple[str, ...] | None, _CLEAR)})
_OPTIONAL = {
    name.replace("_", "-") if name != "timeout_s" else "timeout": note.name or name
    for name, note in notes(Task, Edit).items()
    if attrs.fields_dict(Task)[name].default is None
}
"""What ``clear`` calls the fields that may be empty, and their names in JSON."""


def _fields(raw: Any) -> dict[str, Any]:
    if not isinstance(raw, dict):
        raise TypeError("must be an object")
    # To task_input an empty text is a field that is not given, because models fill what they do not use with it.
    return {name: " " if value == "" else value for name, value in raw.items()}


def _changes(raw: Any) -> dict[str, Any]:
    given = _fields(raw)
    empty = [name for name in _OPTIONAL.values() if raw.get(name) == ""]
    fields = {name: value for name, value in given.items() if name not in empty}
    clear = fields.get("clear") or []
    names = clear.split(",") if isinstance(clear, str) else clear
    if isinstance(names, list) and (names or empty):
        told = (_OPTIONAL.get(each.strip(), each) if isinstance(each, str) else each for each in names)
        fields["clear"] = [*empty, *told]
    if fields:
        return fields
    raise ValueError("must have what is to be changed")


@attrs.frozen(kw_only=True)
class TaskAdd(op.OfUser):
    fields: Annotated[NewTask, Form(_fields, dict)] = op.argument("the task", default=attrs.NOTHING)
    channel: op.Name | None = op.argument(
        "the messenger that gets the results, in your conversation there: klaw channels list", metavar="NAME"
    )


@attrs.frozen(kw_only=True)
class TaskEdit(OfTask):
    fields: Annotated[TaskChanges, Form(_changes, dict)] = op.argument("what to change", default=attrs.NOTHING)


@attrs.frozen(kw_only=True)
class TaskEnable(OfTask):
    enabled: bool = op.argument("whether it runs by its schedule", default=True, hidden=True)
    now: bool = op.argument("if the time of a one-time task has passed, run it at once", default=False)


@attrs.frozen(kw_only=True)
class TaskRuns(RunFilters):
    name: op.Name = op.required("the task's name")


@attrs.frozen(kw_only=True)
class Heartbeat(op.OfUser):
    state: str | None = op.argument("off: it speaks nowhere")


class TriggerAnswer(TypedDict):
    """``kind`` tells which of the others are there."""

    kind: str
    shown: str
    expression: NotRequired[str]
    zone: NotRequired[str | None]
    seconds: NotRequired[int]
    instant: NotRequired[str]
    repeat: str | None


TaskAnswer: TypeAlias = Annotated[
    dict[str, Any],
    fields_of(
        "TaskAnswer",
        Task,
        "anchor_at",
        trigger=TriggerAnswer,
        zone=str,
        next_fires=list[str],
        running=bool,
        last_run="RunAnswer | None",
        warning=str | None,
    ),
]


TASKS = Records(
    NOUN,
    Task,
    "task",
    "tasks",
    kind=lambda: stored.tasks.TASK,
    id_help="the task's name",
    unknown=lambda: NoSuchTask("there is no such task, and there was none"),
    version=fields_of("TaskVersion", Task, "anchor_at", trigger=TriggerAnswer),
    told=lambda task, parts: parts.tasks.scheduling.stored_json(task),
)


class TaskList(TypedDict):
    user: str
    tasks: list[TaskAnswer]


class OneTask(TypedDict):
    task: TaskAnswer


class UndoneTask(TypedDict):
    id: str
    task: TaskAnswer | None


class NamedTask(TypedDict):
    user: str
    name: str


class RemovedTask(TypedDict):
    removed: NamedTask


class PreviewedTrigger(TypedDict):
    trigger: TriggerAnswer
    zone: str
    next_fires: list[str]


class Heart(TypedDict):
    chat: str | None
    every: str | None


# -- how they are shown -----------------------------------------------------------------------------------------------


def _table(answer: dict[str, Any]) -> Lines:
    tasks = answer["tasks"]
    if not tasks:
        return ["no tasks: `klaw schedule add` makes one"]
    rows = [["task", "runs", "next", "chat", "last run"], *map(_row, tasks)]
    return [Table(rows), *(f"{task['name']}: {task['warning']}" for task in tasks if task["warning"])]


def _row(task: dict[str, Any]) -> list[str]:
    last = f"{status_of(task['last_run'])}  {minute(task['last_run']['started_at'])}" if task["last_run"] else "-"
    return [task["name"], task["trigger"]["shown"], _next(task), task["inject_into"] or "-", last]


def _next(task: dict[str, Any], else_: str = "never") -> str:
    if not task["enabled"]:
        return "disabled"
    if task["running"]:
        return "running now"
    return clock_text(task["next_fires"][0]) if task["next_fires"] else else_


_COLUMNS = notes(Task, Column)
_SHOWN = ("message", "model", "timeout_s", "max_tokens", "daily_tokens")


def _task(answer: dict[str, Any]) -> Lines:
    task = answer["task"]
    fires = [clock_text(moment) for moment in task["next_fires"]] or (["never"] if task["enabled"] else [])
    results = f"none: see its results with `klaw runs --task {task['name']}` (or set --inject-into CHAT)"
    rows = [
        ("task", task["name"] if task["enabled"] else f"{task['name']} (disabled)"),
        ("runs", task["trigger"]["shown"]),
        *(("" if place else "next", moment) for place, moment in enumerate(fires)),
        ("chat", task["inject_into"] or results),
        *((_COLUMNS[name].title, cell(name, _COLUMNS[name], task[name])) for name in _SHOWN if task[name] is not None),
        ("warning", task["warning"] or None),
    ]
    return [details(rows)]


def _preview(answer: dict[str, Any]) -> Lines:
    return [clock_text(moment) for moment in answer["next_fires"]]


def _in_chat(answer: dict[str, Any]) -> Lines:
    tasks = answer["tasks"]
    if not tasks:
        return ["There are no tasks; `klaw schedule add` makes one."]
    left = len(tasks) - SHOWN_IN_CHAT
    more = [f"  … and {left} more; `klaw schedule list` shows all."] if left > 0 else []
    return ["Tasks:", *map(_short, tasks[:SHOWN_IN_CHAT]), *more]


def _short(task: dict[str, Any]) -> str:
    state = _next(task, "will not run again")
    parts = [task["trigger"]["shown"], f"next {state}" if state[:1].isdigit() else state]
    if task["last_run"] is not None and task["last_run"]["ended_at"] is not None:
        parts.append(f"last run {status_of(task['last_run'])}")
    return f"  {task['name']}: {'; '.join([*parts, *([task['warning']] if task['warning'] else [])])}"


def _started(answer: dict[str, Any]) -> Lines:
    return [*run_table([answer["run"]]), "", f"its result: klaw runs show {answer['run']['id']}"]


def _removed(answer: dict[str, Any]) -> Lines:
    name = answer["removed"]["name"]
    return [f"removed {name}; its runs stay: `klaw forget task:{name}` removes them and what it asked", _to_undo(name)]


def _to_undo(name: str) -> str:
    return f"to undo this: klaw schedule undo {name}"


def _undone(answer: dict[str, Any]) -> Lines:
    return _task(answer) if answer["task"] is not None else [f"removed {answer['id']}", _to_undo(answer["id"])]


def _heartbeat(answer: dict[str, Any]) -> Lines:
    if answer["chat"] is None:
        return ["The heartbeat speaks in no chat from now on, and its list is not looked after."]
    every = f"Every {answer['every']} I go through {HEARTBEAT_FILE} in your workspace; while it is missing or empty,"
    return [f"The heartbeat speaks in this chat from now on. {every} nothing happens."]


# -- the operations ---------------------------------------------------------------------------------------------------


_LIST = op.Slash(word="/tasks", help="list your tasks: when they run next, and how they ended last", show=_in_chat)
_HEARTBEAT = op.Slash(
    word="/heartbeat", help="let the heartbeat speak in this chat; /heartbeat off takes that back", rest="state"
)


@NOUN.operation("schedule_list", op.OfUser, cli="list", show=_table, slash=_LIST)
async def list_tasks(_asked: op.OfUser, caller: Caller, parts: Parts) -> TaskList:
    """List the tasks with their next and their last runs."""
    return {"user": caller.user, "tasks": await parts.tasks.scheduling.tasks(caller.user)}


@NOUN.operation("schedule_preview", TriggerFields, cli="preview", show=_preview, scope=op.Scope.USER)
async def preview(asked: Any, caller: Caller, parts: Parts) -> PreviewedTrigger:
    """Show the next times of a schedule without making a task: give one of --when, --cron, --every and --at."""
    given = {name: value for name, value in attrs.asdict(asked).items() if value is not None}
    return cast("PreviewedTrigger", await parts.tasks.scheduling.preview(caller.user, given))


@NOUN.operation("schedule_add", TaskAdd, cli="add", show=_task, changes=True)
async def add(asked: TaskAdd, caller: Caller, parts: Parts) -> OneTask:
    """Make a task: give --message and one of --when, --cron, --every and --at."""
    fields = dict(asked.fields)
    if asked.channel is not None:
        links = await parts.readers.run(stored.channels.links, asked.channel)
        own = [each.chat for each in links if each.user == caller.user]
        if not own:
            text = "has no conversation with you; `klaw channels list` shows the channels"
            raise op.OperationError("unknown_channel", text, field="channel")
        fields["injectInto"] = own[0]
    return {"task": await parts.tasks.scheduling.add(caller.user, fields)}


@NOUN.operation("schedule_edit", TaskEdit, cli="edit", show=_task, changes=True)
async def edit(asked: TaskEdit, caller: Caller, parts: Parts) -> OneTask:
    """Change a task; what is not given stays as it is."""
    return {"task": await parts.tasks.scheduling.edit(caller.user, asked.name, asked.fields)}


@NOUN.operation("schedule_remove", OfTask, cli="remove", show=_removed, changes=True)
async def remove(asked: OfTask, caller: Caller, parts: Parts) -> RemovedTask:
    """Remove a task; its runs and its history stay, so that this can be undone."""
    removed = await parts.tasks.scheduling.remove(caller.user, asked.name)
    return {"removed": {"user": removed.user, "name": removed.name}}


TASKS.declare("history")


@TASKS.handler("undo", show=_undone, answers=UndoneTask)
async def undo(asked: Any, caller: Caller, parts: Parts) -> dict[str, Any]:
    """Undo the newest change of a task, also its removal or its creation. It does not run for the past."""
    return {"id": asked.task, "task": await parts.tasks.scheduling.undo(caller.user, asked.task, asked.entry)}


@NOUN.operation("schedule_enable", TaskEnable, cli="enable", show=_task, changes=True)
async def enable(asked: TaskEnable, caller: Caller, parts: Parts) -> OneTask:
    """Let a task run by its schedule again, from now on."""
    return {"task": await parts.tasks.scheduling.enable(caller.user, asked.name, asked.enabled, now=asked.now)}


@NOUN.operation("schedule_disable", OfTask, cli="disable", show=_task, changes=True)
async def disable(asked: OfTask, caller: Caller, parts: Parts) -> OneTask:
    """Do not run a task by its schedule, without removing it."""
    return {"task": await parts.tasks.scheduling.enable(caller.user, asked.name, enabled=False)}


@NOUN.operation("schedule_run", OfTask, cli="run", show=_started, changes=True)
async def run_now(asked: OfTask, caller: Caller, parts: Parts) -> OneRun:
    """Start a run now, whatever the schedule says, and do not wait for its end."""
    try:
        run = await parts.tasks.scheduling.run_now(caller.user, asked.name)
    except NotStarted as error:
        raise op.OperationError("not_started", f"the run was not started: {error}") from None
    except ConfigError as error:
        raise op.OperationError("bad_model", f"the run was not started: {error}") from None
    return {"run": parts.tasks.scheduling.run_json(run)}


@NOUN.operation("schedule_runs", TaskRuns, cli="runs", show=runs_page)
async def runs(asked: TaskRuns, caller: Caller, parts: Parts) -> RunPage:
    """List the runs of a task, the newest first."""
    return await list_of_runs(asked, asked.name, caller, parts)


@NOUN.operation("heartbeat", Heartbeat, show=_heartbeat, changes=True, slash=_HEARTBEAT)
async def heartbeat(asked: Heartbeat, caller: Caller, parts: Parts) -> Heart:
    """Let the heartbeat speak in the chat where this is asked, or nowhere."""
    scheduling = parts.tasks.scheduling
    if (asked.state or "").lower() == "off":
        await scheduling.pair_heartbeat(caller.user, None)
        return {"chat": None, "every": None}
    if asked.state is not None or caller.chat is None:
        text = "say /heartbeat in a chat to let the heartbeat speak there, or /heartbeat off"
        raise op.OperationError("bad_args", text, field="state")
    if not scheduling.heartbeat_s:
        raise op.OperationError(
            "heartbeat_off",
            "Heartbeats are off, so nothing was changed: set heartbeat.intervalSeconds in the configuration, start the "
            "server again, and then say /heartbeat here.",
        )
    await scheduling.pair_heartbeat(caller.user, name_of(caller.chat))
    return {"chat": name_of(caller.chat), "every": span(scheduling.heartbeat_s)}
