"""Scheduled tasks and their runs, and what a run says in a chat. Pure.

A task is a standing order of one user; a run is one execution of it, or of a subagent that was spawned at once. Ids of
a run's messages follow from the run, so a repetition is recognised; no client can choose one: ``/`` is not allowed in a
client's id."""

import enum
import re
import unicodedata
from collections.abc import Mapping
from typing import Annotated, Any, NewType, TypeAlias

import attrs

from klaw.convert import JOURNAL, OMIT, Bounds, Check, Form, Wire
from klaw.domain import tokens
from klaw.domain.message import MessageKind, NewMessage, Role
from klaw.domain.names import LOCAL_USER, ChatId, UserId, chat_name
from klaw.domain.notes import Column, Edit, MadeFrom, Quotes
from klaw.errors import InvalidName
from klaw.json_schema import SchemaType

TaskName = NewType("TaskName", str)
"""Unique among the tasks of one user."""
TaskKey: TypeAlias = tuple[UserId, TaskName]

MAX_TASKS = 200
MAX_TASK_MESSAGE_BYTES = 16_384
MAX_TIMEOUT_S = 86_400
MAX_RUN_TOKENS = 1_000_000_000

HEARTBEAT = TaskName("heartbeat")
"""The task of the heartbeat; no other may take the name."""

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_MAX_MODEL = 200
_MODEL = re.compile(r"[^/\s]+/\S+")
_MAX_DURATION_TEXT = 64
_DURATION_UNITS = {"d": 86_400, "h": 3600, "m": 60, "s": 1}
_DURATION = re.compile("".join(rf"(?:(\d{{1,9}}){unit})?" for unit in _DURATION_UNITS), re.ASCII)
_SECONDS = re.compile(r"\d{1,9}", re.ASCII)


def task_name(text: str) -> TaskName:
    if not _NAME.fullmatch(text):
        raise InvalidName("a task name has 1 to 64 of a-z, 0-9, _ and -, and begins with a letter or digit")
    return TaskName(text)


def task_message(text: str) -> str:
    """A request to a subagent, without outer white space. Raises ValueError."""
    text = text.strip()
    if not text:
        raise ValueError("must say what is to be done, and not be empty")
    if (size := len(text.encode())) > MAX_TASK_MESSAGE_BYTES:
        raise ValueError(f"must have at most {MAX_TASK_MESSAGE_BYTES} bytes in UTF-8, got {size}")
    if any(unicodedata.category(character) == "Cc" and character not in "\n\r\t" for character in text):
        raise ValueError("must have no control characters but line ends and tabs")
    return text


def _model_name(text: str) -> str:
    if len(text) > _MAX_MODEL or not _MODEL.fullmatch(text) or not text.isprintable():
        raise ValueError("must have the form provider/model")
    return text


def read_duration(value: Any) -> int:
    """Whole seconds of ``90``, ``"90"``, ``"30m"`` or ``"1h30m"``. Raises ValueError."""
    if isinstance(value, int) and not isinstance(value, bool):
        if 0 <= value <= 10**9:
            return value
    elif isinstance(value, str) and len(value) <= _MAX_DURATION_TEXT:
        text = value.strip().lower()
        if _SECONDS.fullmatch(text):
            return int(text)
        if text and (parts := _DURATION.fullmatch(text)):
            return sum(
                int(part or 0) * unit for part, unit in zip(parts.groups(), _DURATION_UNITS.values(), strict=True)
            )
    raise ValueError("must be a duration such as 90s, 30m, 2h, 1d or 1h30m, or a number of seconds")


def duration_text(seconds: int) -> str:
    """Seconds in the form that ``read_duration`` reads: ``1h30m``."""
    text = ""
    for name, unit in _DURATION_UNITS.items():
        number, seconds = divmod(seconds, unit)
        if number:
            text += f"{number}{name}"
    return text or "0s"


def _timeout(value: Any) -> int:
    seconds = read_duration(value)
    if not 1 <= seconds <= MAX_TIMEOUT_S:
        raise ValueError(f"must be from 1 to {MAX_TIMEOUT_S} seconds, got {seconds}")
    return seconds


_Name = Annotated[TaskName, Check(task_name)]
_Message = Annotated[str, Check(task_message)]
_Model = Annotated[str, Check(_model_name)]
_Chat = Annotated[str, Check(chat_name)]
_Timeout = Annotated[int, Form(_timeout, int), SchemaType(str)]
_Tokens = Annotated[int, Bounds(1, MAX_RUN_TOKENS)]


def run_folder(user: UserId, name: TaskName) -> str:
    """Folder of a task's transcripts below ``conversations``. No chat's folder has this name."""
    return f"scheduler_{name}" if user == LOCAL_USER else f"scheduler_{name}@{user}"


@attrs.frozen(kw_only=True)
class Cron:
    expression: Annotated[str, Wire("cron")]
    zone: str


@attrs.frozen(kw_only=True)
class Every:
    seconds: Annotated[int, Wire("every_s")]


@attrs.frozen(kw_only=True)
class At:
    instant: Annotated[str, Wire("at")]
    """ISO-8601 UTC with milliseconds."""
    zone: Annotated[str | None, OMIT] = None
    """IANA name of the zone on whose clock it was given; None: with an offset."""


Trigger: TypeAlias = Cron | Every | At


def _read_trigger(value: Any) -> Trigger:
    kind: Any = Cron if "cron" in value else Every if "every_s" in value else At
    found: Trigger = JOURNAL.read(value, kind)
    return found


@attrs.frozen(kw_only=True)
class TriggerInput:
    cron: Annotated[str | None, Edit("five cron fields: 0 9 * * MON-FRI", title="Calendar")] = None
    zone: Annotated[str | None, Edit("time zone of cron and at: Europe/Berlin", title="Time zone")] = None
    every: Annotated[str | None, Edit("interval: 30m, 2h, 1d", title="Interval")] = None
    at: Annotated[str | None, Edit("once: 2026-12-24T18:00+01:00", title="Time")] = None
    when: Annotated[str | None, Edit("as people say it: tomorrow at 9, every Monday at 8", title="When")] = None
    now: Annotated[bool, Edit("with at: if the time has passed, run at once")] = False


@attrs.frozen(kw_only=True)
class Task:
    user: Annotated[UserId, Wire("user_id")]
    name: Annotated[TaskName, Quotes(stays=True), Edit("its name: a-z, 0-9, _ and -", given=_Name), Column("task")]
    trigger: Annotated[
        Trigger, Form(_read_trigger, JOURNAL.write), Column("runs", shown=lambda told: str(told["shown"]))
    ]
    """People give it as ``TriggerInput``."""
    message: Annotated[
        str,
        Quotes(),
        Edit("what to do, complete in itself: this conversation is not shown", given=_Message),
        Column("asks", alone=True, wide=True),
    ]
    model: Annotated[
        str | None,
        Edit("provider/model, if not the usual one", title="Model", given=_Model),
        Column("model", alone=True),
    ] = None
    """None takes the route of subagents."""
    inject_into: Annotated[
        str | None,
        Edit("chat that gets the results", title="Post results to", name="injectInto", given=_Chat),
        Column("chat"),
    ] = None
    """None keeps the result in the run's record. Whether the user has the chat is seen when a run begins."""
    enabled: Annotated[
        bool,
        Edit("whether it runs by its schedule", given=bool),
        Column("enabled", alone=True, shown=lambda on: "yes" if on else "no"),
    ] = True
    timeout_s: Annotated[
        int | None,
        Edit("how long one run may take, for instance 5m", title="Time limit per run", name="timeout", given=_Timeout),
        Column("timeout", alone=True, shown=lambda seconds: f"{seconds} s"),
    ] = None
    """None takes ``subagents.timeoutSeconds``."""
    max_tokens: Annotated[
        int | None,
        Edit("tokens that one run may use", title="Tokens of one run", name="maxTokens", given=_Tokens),
        Column("tokens of a run", alone=True),
    ] = None
    """Prompts and answers together; None takes ``subagents.maxTokens``."""
    daily_tokens: Annotated[
        int | None,
        Edit(
            "tokens that all its runs together may use in one day",
            title="Tokens of one day",
            name="dailyTokens",
            given=_Tokens,
        ),
        Column("tokens of a day", alone=True),
    ] = None
    """In a UTC day; None for no limit."""
    reminder: Annotated[
        bool | None,
        OMIT,
        Edit("deliver the message itself, and ask no model", given=bool),
        Column("reminder", alone=True),
    ] = None
    created_at: str
    updated_at: str
    anchor_at: str
    """Fire times up to here are over: when the task was made, enabled, or given another trigger."""


class RunKind(enum.StrEnum):
    SCHEDULED = "scheduled"
    MANUAL = "manual"
    SPAWNED = "spawned"
    """A model or a person started a subagent."""
    HEARTBEAT = "heartbeat"


class RunStatus(enum.StrEnum):
    RUNNING = "running"
    DONE = "done"
    SILENT = "silent"
    """It ended well and chose to deliver nothing."""
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"
    """The process ended while it ran."""
    REFUSED = "refused"
    """A spending limit forbade it."""

    @property
    def over(self) -> bool:
        return self is not RunStatus.RUNNING


@attrs.frozen(kw_only=True)
class Run:
    """A task's fire time has one run for each attempt."""

    id: str
    user: Annotated[UserId, Wire("user_id")]
    task: Annotated[TaskName, Check(task_name), Quotes(stays=True)]
    kind: RunKind
    due: str
    """The fire time that it is for; for the other kinds, when it was asked for. ISO-8601 UTC with milliseconds."""
    attempt: int = 1
    """1, 2 …; unique with user, task, kind and due."""
    status: RunStatus
    message: Annotated[str, Quotes()]
    """The request as it was when the run began."""
    model: str
    """``provider/model`` that it was begun with."""
    inject_into: str | None = None
    started_at: str
    ended_at: str | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    error: Annotated[str | None, Quotes()] = None
    note: Annotated[str | None, Quotes()] = None
    """What a person should know: it was late after downtime, a limit was reached, a chat does not exist."""
    result: Annotated[str, Quotes()] = ""
    """The final text; also kept when it could not be delivered."""
    delivered: int = 0
    """How many messages of it stand in a chat."""
    parent: Annotated[str | None, MadeFrom("run")] = None
    notify: str | None = None
    """Name of the chat that is notified when a spawned subagent ends."""
    depth: int = 0
    """0 for a task's own runs and for what a chat spawned; one more for each spawning run above it."""
    details: Annotated[Mapping[str, Any], Quotes()] = attrs.Factory(dict)
    """Rounds, tool calls and the like; JSON."""

    @property
    def listener(self) -> str | None:
        """Name of the chat that is told of its end."""
        return self.notify or self.inject_into

    def noted(self, note: str | None) -> str | None:
        """The run's note, followed by another one."""
        return "; ".join(filter(None, (self.note, note))) or None


SCHEDULED_ORIGIN = "scheduled"
NOTICE_ORIGIN = "notice"
_CHANNEL = "klaw"


def delivery_id(run: str, number: int) -> str:
    return f"{run}/{number}"


def notice_id(run: str) -> str:
    return f"{run}/notice"


def delivery_message(run: Run, number: int, chat: ChatId, text: str, created_at: str) -> NewMessage:
    """A result for the run's chat: an assistant message of origin ``scheduled``."""
    return _message(run, delivery_id(run.id, number), chat, text, created_at, origin=SCHEDULED_ORIGIN)


def notice_message(run: Run, chat: ChatId, text: str, created_at: str) -> NewMessage:
    """The one notice in a chat that a run has ended. It says how: a kill before the run's own record leaves no other
    trace."""
    how = {"status": run.status.value} | ({} if run.error is None else {"error": run.error})
    return _message(run, notice_id(run.id), chat, text, created_at, origin=NOTICE_ORIGIN, **how)


def _message(run: Run, message_id: str, chat: ChatId, text: str, created_at: str, **about: str) -> NewMessage:
    return NewMessage(
        id=message_id,
        chat=chat,
        user=run.user,
        channel=_CHANNEL,
        role=Role.ASSISTANT,
        type=MessageKind.SCHEDULED,
        content=text,
        tokens=tokens.estimate(text),
        created_at=created_at,
        metadata={"task": run.task, "run": run.id, **about},
    )
