"""Runs of tasks and subagents, and reminders. The answers hold what was asked and said, so they never go into a log."""

import datetime as dt
from typing import TYPE_CHECKING, Annotated, Any, NotRequired, TypedDict

import attrs

from klaw.convert import Bounds, Check
from klaw.domain.names import zone as known_zone
from klaw.domain.task import MAX_TASK_MESSAGE_BYTES, Run, RunStatus
from klaw.domain.text import cut, one_line, plural
from klaw.operations import operation as op
from klaw.operations import stored
from klaw.operations.handler import Caller, Parts
from klaw.operations.lines import Again, Lines, Table, details, minute

if TYPE_CHECKING:
    from klaw.operations.answers import RunAnswer
    from klaw.runs.service import Scheduling

NOUN = op.Noun("runs", "list, show and cancel runs of tasks and subagents (docs/scheduling.md)")
MAX_NOTE = 60
SHOWN_IN_CHAT = 10
_HEAD = ["run", "task", "kind", "status", "started", "took", "tokens", "sent", "note"]


@attrs.frozen(kw_only=True)
class RunFilters(op.OfUser):
    status: RunStatus | None = op.argument(
        "running, done, silent, failed, timed_out, cancelled, interrupted or refused", metavar="STATUS"
    )
    limit: op.Limit = op.argument("runs on a page, 1 to 100 (default: 20)", default=20, metavar="N")
    before: op.Name | None = op.argument("list the runs before this one", metavar="RUN", id_of="run")


@attrs.frozen(kw_only=True)
class RunList(RunFilters):
    task: op.Name | None = op.argument("only runs of this task or subagent", metavar="NAME")


@attrs.frozen(kw_only=True)
class OfRun(op.OfUser):
    run: op.Name = op.required("its id as the list shows it, or the beginning of the id", id_of="run")


@attrs.frozen(kw_only=True)
class RunCancel(op.OfUser):
    run: op.Name | None = op.argument(
        "its id or its task (default: the only run in progress)", positional=True, id_of="run"
    )


class RunPage(TypedDict):
    user: str
    task: str | None
    status: str | None
    runs: "list[RunAnswer]"
    next: str | None


class OneRun(TypedDict):
    run: "RunAnswer"
    cancelled: NotRequired[bool]


class CallInRun(TypedDict):
    name: str
    arguments: str


class SaidInRun(TypedDict):
    role: str
    content: str
    calls: list[CallInRun]


class RunTranscript(TypedDict):
    run: str
    messages: list[SaidInRun]
    cut: bool


def run_table(runs: list[dict[str, Any]]) -> Lines:
    if not runs:
        return ["no runs: `klaw schedule run TASK` starts one"]
    return [Table([_HEAD, *map(_row, runs)], right=frozenset({5, 6, 7}))]


def _row(run: dict[str, Any]) -> list[str]:
    note, sent = cut(one_line(run["note"] or run["error"] or ""), MAX_NOTE), str(run["delivered"])
    tokens = str(run["prompt_tokens"] + run["completion_tokens"])
    begun = [run["id"], run["task"], run["kind"], status_of(run), minute(run["started_at"])]
    return [*begun, took(run), tokens, sent, note]


def runs_page(answer: dict[str, Any]) -> Lines:
    more: Lines = ["", Again("more: ", {"before": answer["next"]})] if answer["next"] is not None else []
    return [*run_table(answer["runs"]), *more]


def _in_chat(answer: dict[str, Any]) -> Lines:
    if not answer["runs"]:
        return [f"There are no runs of {answer['task']}." if answer["task"] else "There are no runs."]
    return ["Runs, the newest first:", Table([_short(run) for run in answer["runs"][:SHOWN_IN_CHAT]])]


def _short(run: dict[str, Any]) -> list[str]:
    return [run["id"], run["task"], status_of(run), minute(run["started_at"]), run["note"] or run["error"] or ""]


def _run(answer: dict[str, Any]) -> Lines:
    run = answer["run"]
    sent = f"{run['inject_into']}, {plural(run['delivered'], 'message')} sent"
    rows = [
        ("run", run["id"]),
        ("task", run["task"]),
        ("kind", run["kind"] + (f", attempt {run['attempt']}" if run["attempt"] > 1 else "")),
        ("status", status_of(run) + (f" ({run['error']})" if run["error"] else "")),
        ("note", run["note"] or None),
        ("due", minute(run["due"])),
        ("started", minute(run["started_at"])),
        ("ended", f"{minute(run['ended_at'])}, took {took(run)}" if run["ended_at"] else "-"),
        ("model", run["model"]),
        ("tokens", f"{run['prompt_tokens']} of prompts, {run['completion_tokens']} of answers"),
        ("chat", sent if run["inject_into"] else "none: the result is shown here"),
        ("started by", f"run {run['parent']}" if run["parent"] else None),
    ]
    result = ["", "result", *_indented(run["result"])] if run["result"] else []
    return [details(rows), "", "request", *_indented(run["message"]), *result]


def _indented(text: str) -> list[str]:
    return [f"    {each}".rstrip() for each in text.split("\n")] if text else []


def took(run: dict[str, Any]) -> str:
    """How long a run took, in seconds; empty while it goes on."""
    if run["ended_at"] is None:
        return ""
    begin, end = (dt.datetime.fromisoformat(run[name]) for name in ("started_at", "ended_at"))
    return f"{max(0.0, (end - begin).total_seconds()):.1f} s"


def status_of(run: dict[str, Any]) -> str:
    return str(run["status"]).replace("_", " ")


async def list_of_runs(asked: RunFilters, task: str | None, caller: Caller, parts: Parts) -> RunPage:
    if asked.before is not None:
        await _found(asked.before, caller, parts)
    scheduling, wanted = parts.tasks.scheduling, asked.limit + 1  # one more tells whether there are more
    found = await scheduling.runs(caller.user, task=task, status=asked.status, before=asked.before, limit=wanted)
    shown = found[: asked.limit]
    return {
        "user": caller.user,
        "task": task,
        "status": asked.status.value if asked.status is not None else None,
        "runs": [scheduling.run_json(run) for run in shown],
        "next": shown[-1].id if len(found) > asked.limit else None,
    }


async def _found(run: str, caller: Caller, parts: Parts) -> Run:
    found = await parts.tasks.scheduling.run(caller.user, run)
    if found is None:
        raise op.OperationError("unknown_run", "there is no such run")
    return found


_LIST = op.Slash(
    word="/runs", help="list what tasks and subagents did; /runs TASK for one of them", rest="task", show=_in_chat
)
_CANCEL = op.Slash(word="/cancel", help="end a run: /cancel with its id or the name of its task", rest="run")


@NOUN.operation("runs", RunList, cli="", show=runs_page, slash=_LIST)
async def list_runs(asked: RunList, caller: Caller, parts: Parts) -> RunPage:
    """List the runs, the newest first."""
    return await list_of_runs(asked, asked.task, caller, parts)


@NOUN.operation("run_show", OfRun, cli="show", show=_run)
async def show(asked: OfRun, caller: Caller, parts: Parts) -> OneRun:
    """Show a run with its request and its result."""
    return {"run": parts.tasks.scheduling.run_json(await _found(asked.run, caller, parts), whole=True)}


def _transcript(answer: dict[str, Any]) -> Lines:
    lines = ["the beginning is left out: the run is very long", ""] if answer["cut"] else []
    for said in answer["messages"]:
        calls = [f"{call['name']} {call['arguments']}" for call in said["calls"]]
        lines += [said["role"], *_indented(said["content"]), *_indented("\n".join(calls))]
    return lines or ["nothing was said in this run"]


@NOUN.operation("run_transcript", OfRun, cli="transcript", show=_transcript)
async def transcript(asked: OfRun, caller: Caller, parts: Parts) -> RunTranscript:
    """Show what was said in a run: its request, calls of tools with their results, and answers."""
    run = await _found(asked.run, caller, parts)
    told = await parts.tasks.scheduling.transcript(run)
    return {"run": run.id, "messages": told["messages"], "cut": told["cut"]}


def _cancelled(answer: dict[str, Any]) -> Lines:
    return [f"The run {answer['run']['id']} of {answer['run']['task']} is being ended."]


@NOUN.operation("run_cancel", RunCancel, cli="cancel", show=_cancelled, changes=True, slash=_CANCEL)
async def cancel(asked: RunCancel, caller: Caller, parts: Parts) -> OneRun:
    """End a run that is in progress or queued."""
    scheduling = parts.tasks.scheduling
    run = await _meant(scheduling, caller, asked.run)
    going = await scheduling.cancel(caller.user, run.id)
    told = scheduling.run_json(await _found(run.id, caller, parts))
    if not going:
        raise op.OperationError("run_over", f"this run is over ({status_of(told)})")
    return {"run": told, "cancelled": True}


async def _meant(scheduling: "Scheduling", caller: Caller, which: str | None) -> Run:
    """The run of an id; or the one in progress that a task has, or that there is. Raises OperationError."""
    unfinished = scheduling.unfinished(caller.user)
    meant = [run for run in unfinished if which in (None, run.id, run.task)]
    if len(meant) == 1:
        return meant[0]
    if meant:
        raise op.OperationError("ambiguous_run", "\n".join(["Which one? Give its id:", *_told(scheduling, meant)]))
    if which is not None and (over := await scheduling.run(caller.user, which)) is not None:
        return over
    if not unfinished:
        raise op.OperationError("unknown_run", "No run is in progress." if which is None else "there is no such run")
    told = ["No such run is in progress. These are:", *_told(scheduling, unfinished)]
    raise op.OperationError("unknown_run", "\n".join(told))


def _told(scheduling: "Scheduling", runs: list[Run]) -> list[str]:
    return [f"  {'  '.join(filter(None, _short(scheduling.run_json(run))))}" for run in runs]


# -- reminders, and the time zone of a user's times -------------------------------------------------------------------

REMIND = op.Noun("remind", "set a reminder: klaw remind tomorrow 9:00 water the roses", invalid="bad_task")
SNOOZE = op.Noun("snooze", "get a delivered reminder again, later: klaw snooze 20 minutes", invalid="bad_task")
ZONE = op.Noun("zone", "show or set your time zone, for reminders and tasks")


@attrs.frozen(kw_only=True)
class Reminder(op.OfUser):
    text: Annotated[str, Bounds(1, MAX_TASK_MESSAGE_BYTES)] = op.required(
        "when, and of what: in 20 minutes turn off the oven", words=True, metavar="WHEN WHAT"
    )
    when: Annotated[str, Bounds(1, 200)] | None = op.argument("the time, if not in the text: tomorrow at 9")
    chat: op.ChatName | None = op.argument("the chat (default: the one you used last)", metavar="NAME")


@attrs.frozen(kw_only=True)
class Snooze(op.OfUser):
    when: Annotated[str, Bounds(1, 200)] = op.required("until when: 20 minutes, tomorrow at 9", words=True)
    name: op.Name | None = op.argument("which reminder (default: the one that was delivered last)")


@attrs.frozen(kw_only=True)
class NewZone(op.OfUser):
    zone: Annotated[str, Check(lambda name: known_zone(name).key)] = op.required("its name, such as Europe/Berlin")


class ReminderAnswer(TypedDict):
    name: str
    told: str


class ZoneAnswer(TypedDict):
    zone: str


def _reminded(answer: dict[str, Any]) -> Lines:
    return [answer["told"], f"to change it: klaw schedule edit {answer['name']} --when …"]


def _in_words(answer: dict[str, Any]) -> Lines:
    return [answer.get("told") or f"Your time zone is {answer['zone']}."]


_REMIND = op.Slash(
    word="/remind",
    help="set a reminder: /remind tomorrow 9:00 water the roses",
    rest="text",
    of_chat="chat",
    show=_in_words,
)
_SNOOZE = op.Slash(word="/snooze", help="get the last reminder again: /snooze 20 minutes", rest="when", show=_in_words)
_ZONE = op.Slash(word="/zone", help="show or set your time zone: /zone Europe/Berlin")


@REMIND.operation("remind", Reminder, cli="", show=_reminded, changes=True, slash=_REMIND)
async def remind(asked: Reminder, caller: Caller, parts: Parts) -> ReminderAnswer:
    """Set a reminder: its text comes into the chat at that time, and no model is asked."""
    made = await parts.tasks.scheduling.remind(caller.user, asked.text, asked.when, asked.chat)
    return {"name": made["task"]["name"], "told": made["told"]}


@SNOOZE.operation("snooze", Snooze, cli="", show=_reminded, changes=True, slash=_SNOOZE)
async def snooze(asked: Snooze, caller: Caller, parts: Parts) -> ReminderAnswer:
    """Get a reminder again at another time, once."""
    made = await parts.tasks.scheduling.snooze(caller.user, asked.when, asked.name)
    return {"name": made["task"]["name"], "told": made["told"]}


@ZONE.operation("zone", op.OfUser, cli="", show=_in_words, slash=_ZONE)
async def zone(_asked: op.OfUser, caller: Caller, parts: Parts) -> ZoneAnswer:
    """Show the time zone of your reminders and tasks."""
    return {"zone": await parts.tasks.scheduling.zone_of(caller.user)}


@ZONE.operation("zone_set", NewZone, cli="set", show=_in_words, changes=True, slash=op.Slash(word="/zone", rest="zone"))
async def set_zone(asked: NewZone, caller: Caller, parts: Parts) -> ZoneAnswer:
    """Set your time zone. Reminders and tasks that there are keep theirs."""
    await parts.writer.run(stored.tasks.set_zone, caller.user, asked.zone, parts.now())
    return {"zone": asked.zone}
