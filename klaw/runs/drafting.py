"""Making and changing a task from what a person or a model wrote. Pure.

Raw input is a mapping as JSON has it: from the command line, from a tool call, from a slash command. Every wrong field
is named at once. A field that is absent, null or an empty text is not given (models fill what they do not use with
either); ``clear`` names the fields that a change is to empty.
"""

import difflib
import re
import unicodedata
from collections.abc import Collection, Mapping
from itertools import islice
from typing import Annotated, Any, TypeVar

import attrs

from klaw.actor.clock import from_iso, iso
from klaw.convert import MOST_PROBLEMS, Bounds, Check, Converter, Form, Wire, wire_names
from klaw.domain.names import UserId, chat_name, zone
from klaw.domain.task import HEARTBEAT, MAX_TASK_MESSAGE_BYTES, At, Cron, Every, Task, TaskName, Trigger, task_name
from klaw.errors import BadValue, Problem, TaskError
from klaw.runs.cron import normalise
from klaw.runs.triggers import first_fire, read_at, read_duration, read_every

MAX_TIMEOUT_S = 86_400
MAX_TOKENS = 1_000_000_000
CLEARABLE = {
    "model": "model",
    "injectInto": "inject_into",
    "timeout": "timeout_s",
    "maxTokens": "max_tokens",
    "dailyTokens": "daily_tokens",
}
"""Fields that may be empty, and their attributes."""

_LONGEST_FIELD = 32
_MAX_MODEL = 200
_MODEL = re.compile(r"[^/\s]+/\S+")
_WRITTEN = Converter(lenient=True)
_T = TypeVar("_T", bound=attrs.AttrsInstance)


def own_name(text: str) -> TaskName:
    """Check the name of a task or a subagent. Raises ValueError."""
    name = task_name(text)
    if name == HEARTBEAT:
        raise ValueError(f"{HEARTBEAT!r} is the name of the heartbeat's own runs; take another")
    return name


def _message(text: str) -> str:
    """A request to a subagent, without white space around it."""
    text = text.strip()
    if not text:
        raise ValueError("must say what is to be done, and not be empty")
    if (size := len(text.encode())) > MAX_TASK_MESSAGE_BYTES:
        raise ValueError(f"must have at most {MAX_TASK_MESSAGE_BYTES} bytes in UTF-8, got {size}")
    if any(unicodedata.category(character) == "Cc" and character not in "\n\r\t" for character in text):
        raise ValueError("must have no control characters but line ends and tabs")
    return text


def _model(text: str) -> str:
    if len(text) > _MAX_MODEL or not _MODEL.fullmatch(text) or not text.isprintable():
        raise ValueError("must have the form provider/model")
    return text


def _timeout(value: Any) -> int:
    seconds = read_duration(value)
    if not 1 <= seconds <= MAX_TIMEOUT_S:
        raise ValueError(f"must be from 1 to {MAX_TIMEOUT_S} seconds, got {seconds}")
    return seconds


def _clear(given: Any) -> frozenset[str]:
    """A list of fields, or one text with commas."""
    names = given.split(",") if isinstance(given, str) else given if isinstance(given, list | tuple) else [None]
    found = frozenset(name.strip() if isinstance(name, str) else "" for name in names)
    if not found <= CLEARABLE.keys():
        raise ValueError(f"must name fields out of {', '.join(CLEARABLE)}")
    return found


_Message = Annotated[str, Check(_message)]
_Model = Annotated[str | None, Check(_model)]
_Chat = Annotated[str | None, Wire("injectInto"), Check(chat_name)]
_Tokens = Bounds(1, MAX_TOKENS)


@attrs.frozen(kw_only=True)
class TaskFields:
    """What may be said of a task."""

    name: str | None = None
    cron: Annotated[str | None, Check(normalise)] = None
    zone: Annotated[str | None, Check(lambda name: zone(name).key)] = None
    """Of cron, or of a time without an offset."""
    every: Annotated[Every | None, Form(read_every, str)] = None
    at: str | None = None
    now: bool = False
    """A one-shot whose time is over runs at once."""
    message: _Message | None = None
    model: _Model = None
    inject_into: _Chat = None
    """Whether the user has it is seen when a run begins."""
    enabled: bool | None = None
    timeout_s: Annotated[int | None, Wire("timeout"), Form(_timeout, int)] = None
    max_tokens: Annotated[int | None, Wire("maxTokens"), _Tokens] = None
    daily_tokens: Annotated[int | None, Wire("dailyTokens"), _Tokens] = None
    clear: Annotated[frozenset[str], Form(_clear, list)] = frozenset()


@attrs.frozen(kw_only=True)
class _NewTask(TaskFields):
    name: Annotated[str, Check(own_name)]
    message: _Message


@attrs.frozen(kw_only=True)
class SubagentOrder:
    """What a subagent is asked to do, at once and once."""

    name: Annotated[TaskName, Check(own_name)]
    message: _Message
    model: _Model = None
    inject_into: _Chat = None


def draft(
    raw: Mapping[str, Any], *, user: UserId, now: float, default_zone: str, providers: Collection[str] | None = None
) -> Task:
    """Make a task.

    Args:
        raw: see ``TaskFields``; ``name``, ``message`` and exactly one of ``cron``, ``every`` and ``at`` must be there.
        user: whose it is.
        now: Unix seconds.
        default_zone: zone of a cron trigger, and of a time without an offset, that names none.
        providers: names that a model's provider may have; None when that is not known here.

    Raises:
        TaskError: with every wrong field.
    """
    given, problems = _given(raw, _NewTask, providers)
    asked = _read(given, _NewTask, problems) or _sound(given, problems)
    trigger = _trigger(asked, given, problems, now=now, default_zone=default_zone, old=None)
    if "clear" in given:
        problems.append(Problem("clear", "is for changes only"))
    if problems or trigger is None or asked.name is None or asked.message is None:  # each has its problem
        raise TaskError(problems)
    moment = iso(now)
    return Task(
        user=user,
        name=TaskName(asked.name),
        trigger=trigger,
        message=asked.message,
        enabled=asked.enabled is not False,
        created_at=moment,
        updated_at=moment,
        anchor_at=iso(anchor(trigger, now)),
        **{name: getattr(asked, name) for name in CLEARABLE.values()},
    )


def edit(
    task: Task, raw: Mapping[str, Any], *, now: float, default_zone: str, providers: Collection[str] | None = None
) -> Task:
    """Change the given fields of a task; it is the same object when nothing changes.

    Fire times up to now are over when the trigger changes or the task is enabled; else they stay as they are, so that
    a change of the message neither repeats nor drops a run. ``now`` also lets an enabled one-shot that is over run at
    once.

    Raises:
        TaskError: with every wrong field.
    """
    given, problems = _given(raw, TaskFields, providers)
    asked = _read(given, TaskFields, problems) or _sound(given, problems)
    if asked.name not in (None, task.name):
        problems.append(Problem("name", "cannot be changed; make a new task and remove this one"))
    wanted = {name: getattr(asked, name) for name in ("message", "enabled", *CLEARABLE.values())}
    changes: dict[str, Any] = {name: value for name, value in wanted.items() if value is not None}
    for field in asked.clear:
        changes[CLEARABLE[field]] = None
        if field in given:
            problems.append(Problem(field, "is given and cleared at the same time"))
    trigger = _trigger(asked, given, problems, now=now, default_zone=default_zone, old=task.trigger)
    enabling = asked.enabled is True and not task.enabled
    if trigger is not None:
        changes["trigger"] = trigger
    elif enabling and isinstance(task.trigger, At) and first_fire(task.trigger, now, now) is None:
        if asked.now:
            again = read_at(task.trigger.instant, now=now, allow_past=True)
            changes["trigger"] = attrs.evolve(again, zone=task.trigger.zone)
        else:
            problems.append(Problem("at", "is over; give a later time, or ask for it now"))
    if problems:
        raise TaskError(problems)
    changed = attrs.evolve(task, **changes)
    if changed == task:
        return task
    if enabling or changed.trigger != task.trigger:
        changed = attrs.evolve(changed, anchor_at=iso(anchor(changed.trigger, now)))
    return attrs.evolve(changed, updated_at=iso(now))


def trigger_of(raw: Mapping[str, Any], *, now: float, default_zone: str) -> Trigger:
    """The trigger that ``cron``, ``every`` or ``at`` gives, for a task that is not made yet. Raises TaskError, with
    every wrong field."""
    given, problems = _given(raw, TaskFields, None)
    asked = _read(given, TaskFields, problems) or _sound(given, problems)
    trigger = _trigger(asked, given, problems, now=now, default_zone=default_zone, old=None)
    if problems or trigger is None:
        raise TaskError(problems)
    return trigger


def subagent_order(raw: Mapping[str, Any], *, providers: Collection[str] | None = None) -> SubagentOrder:
    """Read the order to start a subagent. Raises TaskError, with every wrong field."""
    given, problems = _given(raw, SubagentOrder, providers)
    order = _read(given, SubagentOrder, problems)
    if problems or order is None:
        raise TaskError(problems)
    return order


def _given(
    raw: Mapping[str, Any], kind: type[Any], providers: Collection[str] | None
) -> tuple[dict[str, Any], list[Problem]]:
    """The fields that are given, and what is wrong without a look at their values' form."""
    known, problems = wire_names(kind), []
    for name in islice((each for each in raw if each not in known), MOST_PROBLEMS):
        written = str(name) if len(str(name)) <= _LONGEST_FIELD and str(name).isprintable() else "?"
        near = difflib.get_close_matches(written, known, n=1)
        problems.append(Problem(written, "unknown field" + (f"; did you mean {near[0]}?" if near else "")))
    given = {name: value for name, value in raw.items() if name in known and value is not None and value != ""}
    model = given.get("model")
    if providers is not None and isinstance(model, str) and model.partition("/")[0] not in providers:
        problems.append(Problem("model", f"the provider must be one of {', '.join(sorted(providers))}"))
    return given, problems


def _read(given: Mapping[str, Any], kind: type[_T], problems: list[Problem]) -> _T | None:
    try:
        return _WRITTEN.read(given, kind)
    except BadValue as wrong:
        problems += [problem for problem in wrong.problems if problem.path not in {known.path for known in problems}]
        return None


def _sound(given: Mapping[str, Any], problems: list[Problem]) -> TaskFields:
    """The fields that are right, so that what is wrong with them together can be told too."""
    wrong = {problem.path for problem in problems}
    return _WRITTEN.read({name: value for name, value in given.items() if name not in wrong}, TaskFields)


def _trigger(
    asked: TaskFields,
    given: Collection[str],
    problems: list[Problem],
    *,
    now: float,
    default_zone: str,
    old: Trigger | None,
) -> Trigger | None:
    """The trigger that the fields give; None when they give none, or a wrong one."""
    kinds = [kind for kind in ("cron", "every", "at") if kind in given]
    if len(kinds) > 1 or not (kinds or old):
        got = f", got {', '.join(kinds)}" if kinds else ""
        problems += [
            Problem(kind, f"exactly one of cron, every and at must be given{got}") for kind in kinds or ["cron"]
        ]
        return None
    if asked.now and kinds not in ([], ["at"]):
        problems.append(Problem("now", "goes with at only"))
    zoned = old if isinstance(old, Cron) else None
    if "zone" in given and (kinds == ["every"] or (not kinds and zoned is None)):
        problems.append(Problem("zone", "goes with cron and at only"))
    if asked.cron is not None:
        return Cron(expression=asked.cron, zone=asked.zone or (zoned.zone if zoned is not None else default_zone))
    if asked.at is not None:
        try:
            return read_at(
                asked.at, zone=asked.zone or getattr(old, "zone", None) or default_zone, now=now, allow_past=asked.now
            )
        except ValueError as wrong:
            problems.append(Problem("at", str(wrong)))
    elif not kinds and zoned is not None and asked.zone is not None:
        return attrs.evolve(zoned, zone=asked.zone)
    return asked.every


def anchor(trigger: Trigger, now: float) -> float:
    """Fire times up to this moment are over: up to now, but for a one-shot that was asked for now."""
    return min(now, from_iso(trigger.instant) - 1) if isinstance(trigger, At) else now
