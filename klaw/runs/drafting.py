"""Making and changing a task from what a person or a model wrote. Pure.

Raw input is a mapping as JSON has it: from the command line, from a tool call, from a slash command. Every wrong field
is named at once. A field that is absent, null or an empty text is not given (models fill what they do not use with
either); ``clear`` names the fields that a change is to empty.
"""

import difflib
import re
import unicodedata
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

import attrs

from klaw.actor.clock import from_iso, iso
from klaw.domain.names import InvalidName, UserId, chat_name
from klaw.domain.task import HEARTBEAT, MAX_TASK_MESSAGE_BYTES, At, Cron, Task, TaskName, Trigger, task_name
from klaw.errors import Problem, TaskError
from klaw.runs.triggers import first_fire, read_at, read_cron, read_duration, read_every, read_zone

MAX_TIMEOUT_S = 86_400
MAX_TOKENS = 1_000_000_000

FIELDS = (
    "name",
    "cron",
    "zone",
    "every",
    "at",
    "now",
    "message",
    "model",
    "injectInto",
    "enabled",
    "timeout",
    "maxTokens",
    "dailyTokens",
    "clear",
)
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
_DIGITS = re.compile(r"\d{1,10}", re.ASCII)
_T = TypeVar("_T")


@attrs.frozen(kw_only=True)
class Request:
    """What a subagent is asked to do, at once and once."""

    name: TaskName
    message: str
    model: str | None = None
    inject_into: str | None = None


def draft(
    raw: Mapping[str, Any],
    *,
    user: UserId,
    now: float,
    default_zone: str,
    providers: Collection[str] | None = None,
) -> Task:
    """Make a task.

    Args:
        raw: ``name`` and ``message``, exactly one of ``cron`` (with ``zone``), ``every`` and ``at``, and any of
            ``model``, ``injectInto``, ``enabled``, ``timeout``, ``maxTokens``, ``dailyTokens``; with ``now`` true a
            one-shot whose time is over runs at once.
        now: Unix seconds.
        default_zone: zone of a cron trigger that names none.
        providers: names that a model's provider may have; None when that is not known here.

    Raises:
        TaskError: with every wrong field.
    """
    fields = _Fields(raw)
    name = fields.required("name", read_name)
    message = fields.required("message", read_message)
    trigger = _trigger(fields, now=now, default_zone=default_zone, old=None)
    rest = _optional(fields, providers)
    enabled = fields.read("enabled", _read_bool)
    if fields.given("clear"):
        fields.add("clear", "is for changes only")
    fields.check()
    if name is None or message is None or trigger is None:  # each of them has its problem
        raise AssertionError("a missing field was not named")
    moment = iso(now)
    return Task(
        user=user,
        name=name,
        trigger=trigger,
        message=message,
        enabled=enabled is not False,
        created_at=moment,
        updated_at=moment,
        anchor_at=_anchor(trigger, now),
        **rest,
    )


def edit(
    task: Task,
    raw: Mapping[str, Any],
    *,
    now: float,
    default_zone: str,
    providers: Collection[str] | None = None,
) -> Task:
    """Change the given fields of a task; it is the same object when nothing changes.

    Fire times up to now are over when the trigger changes or the task is enabled; else they stay as they are, so that
    a change of the message neither repeats nor drops a run. ``now`` also lets an enabled one-shot that is over run at
    once.

    Raises:
        TaskError: with every wrong field.
    """
    fields = _Fields(raw)
    if fields.given("name") and raw["name"] != task.name:
        fields.add("name", "cannot be changed; make a new task and remove this one")
    changes: dict[str, Any] = _optional(fields, providers)
    changes |= _cleared(fields)
    if fields.given("message"):
        changes["message"] = fields.read("message", read_message)
    enabled = fields.read("enabled", _read_bool)
    if enabled is not None:
        changes["enabled"] = enabled
    trigger = _trigger(fields, now=now, default_zone=default_zone, old=task.trigger)
    enabling = enabled is True and not task.enabled
    if trigger is not None:
        changes["trigger"] = trigger
    elif enabling and isinstance(task.trigger, At) and first_fire(task.trigger, now, now) is None:
        if fields.read("now", _read_bool):
            changes["trigger"] = read_at(task.trigger.instant, now=now, allow_past=True)
        else:
            fields.add("at", "is over; give a later time, or ask for it now")
    fields.check()
    changed = attrs.evolve(task, **changes)
    if changed == task:
        return task
    if enabling or changed.trigger != task.trigger:
        changed = attrs.evolve(changed, anchor_at=_anchor(changed.trigger, now))
    return attrs.evolve(changed, updated_at=iso(now))


def request(raw: Mapping[str, Any], *, providers: Collection[str] | None = None) -> Request:
    """Read the order to start a subagent: ``name``, ``message``, and any of ``model`` and ``injectInto``.

    Raises:
        TaskError: with every wrong field.
    """
    fields = _Fields(raw, known=("name", "message", "model", "injectInto"))
    name = fields.required("name", read_name)
    message = fields.required("message", read_message)
    model = fields.read("model", lambda value: read_model(value, providers))
    inject_into = fields.read("injectInto", read_chat)
    fields.check()
    if name is None or message is None:
        raise AssertionError("a missing field was not named")
    return Request(name=name, message=message, model=model, inject_into=inject_into)


def read_name(value: Any) -> TaskName:
    """Check a task's name. Raises ValueError."""
    name = task_name(_text(value))
    if name == HEARTBEAT:
        raise ValueError(f"{HEARTBEAT!r} is the name of the heartbeat's own runs; take another")
    return name


def read_message(value: Any) -> str:
    """Check a request to a subagent, without white space around it. Raises ValueError."""
    text = _text(value).strip()
    if not text:
        raise ValueError("must say what is to be done, and not be empty")
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise ValueError("must be valid Unicode text") from error
    if size > MAX_TASK_MESSAGE_BYTES:
        raise ValueError(f"must have at most {MAX_TASK_MESSAGE_BYTES} bytes in UTF-8, got {size}")
    if any(unicodedata.category(character) == "Cc" and character not in "\n\r\t" for character in text):
        raise ValueError("must have no control characters but line ends and tabs")
    return text


def read_model(value: Any, providers: Collection[str] | None = None) -> str:
    """Check the name of a model. Raises ValueError."""
    text = _text(value)
    if len(text) > _MAX_MODEL or not _MODEL.fullmatch(text) or not text.isprintable():
        raise ValueError("must have the form provider/model")
    provider = text.partition("/")[0]
    if providers is not None and provider not in providers:
        raise ValueError(f"the provider must be one of {', '.join(sorted(providers))}")
    return text


def read_chat(value: Any) -> str:
    """Check and normalise the name of a chat; whether the user has it is seen when a run begins. Raises ValueError."""
    return chat_name(_text(value))


class _Fields:
    """Reads fields of raw input and collects what is wrong."""

    def __init__(self, raw: Mapping[str, Any], known: tuple[str, ...] = FIELDS) -> None:
        self._raw = raw
        self._problems: list[Problem] = []
        for name in raw:
            if name not in known:
                written = str(name) if len(str(name)) <= _LONGEST_FIELD and str(name).isprintable() else "?"
                near = difflib.get_close_matches(written, known, n=1)
                self.add(written, "unknown field" + (f"; did you mean {near[0]}?" if near else ""))

    def given(self, name: str) -> bool:
        value = self._raw.get(name)
        return value is not None and value != ""

    def value(self, name: str) -> Any:
        return self._raw[name] if self.given(name) else None

    def read(self, name: str, reader: Callable[[Any], _T]) -> _T | None:
        """The field's value; None when it is not given or wrong."""
        if not self.given(name):
            return None
        try:
            return reader(self._raw[name])
        except (ValueError, InvalidName) as error:
            self.add(name, str(error))
        except TaskError as error:
            self._problems += error.problems
        return None

    def required(self, name: str, reader: Callable[[Any], _T]) -> _T | None:
        if not self.given(name):
            self.add(name, "is required")
        return self.read(name, reader)

    def add(self, name: str, message: str) -> None:
        self._problems.append(Problem(path=name, message=message))

    def check(self) -> None:
        if self._problems:
            raise TaskError(self._problems)


def _trigger(fields: _Fields, *, now: float, default_zone: str, old: Trigger | None) -> Trigger | None:
    """The trigger that the fields give; None when they give none, or a wrong one."""
    kinds = [kind for kind in ("cron", "every", "at") if fields.given(kind)]
    if len(kinds) > 1 or (not kinds and old is None):
        message = "exactly one of cron, every and at must be given"
        for kind in kinds or ["cron"]:
            fields.add(kind, message + (f", got {', '.join(kinds)}" if kinds else ""))
        return None
    zone = fields.value("zone")
    at_once = fields.read("now", _read_bool) is True
    if at_once and kinds and kinds != ["at"]:
        fields.add("now", "goes with at only")
    match kinds:
        case ["cron"]:
            used = zone or (old.zone if isinstance(old, Cron) else default_zone)
            return fields.read("cron", lambda text: read_cron(text, used))
        case ["at"]:
            return fields.read("at", lambda text: read_at(text, zone=zone, now=now, allow_past=at_once))
        case ["every"]:
            if zone is not None:
                fields.add("zone", "goes with cron and at only")
            return fields.read("every", read_every)
    if zone is None:
        return None
    if not isinstance(old, Cron):
        fields.add("zone", "goes with cron and at only")
        return None
    known = fields.read("zone", read_zone)
    return attrs.evolve(old, zone=known) if known else None


def _optional(fields: _Fields, providers: Collection[str] | None) -> dict[str, Any]:
    """The optional attributes that are given, by their names in a task."""
    read = {
        "model": fields.read("model", lambda value: read_model(value, providers)),
        "inject_into": fields.read("injectInto", read_chat),
        "timeout_s": fields.read("timeout", _read_timeout),
        "max_tokens": fields.read("maxTokens", _read_tokens),
        "daily_tokens": fields.read("dailyTokens", _read_tokens),
    }
    return {name: value for name, value in read.items() if value is not None}


def _cleared(fields: _Fields) -> dict[str, None]:
    """The attributes that ``clear`` empties: a list of fields, or one text with commas."""
    given = fields.value("clear")
    names = given.split(",") if isinstance(given, str) else given
    if names is None:
        return {}
    if not isinstance(names, list | tuple):
        names = [None]
    cleared: dict[str, None] = {}
    for name in names:
        key = name.strip() if isinstance(name, str) else ""
        if key not in CLEARABLE:
            fields.add("clear", f"must name fields out of {', '.join(CLEARABLE)}")
            return {}
        if fields.given(key):
            fields.add(key, "is given and cleared at the same time")
        cleared[CLEARABLE[key]] = None
    return cleared


def _anchor(trigger: Trigger, now: float) -> str:
    """Fire times up to now are over, but for a one-shot that was asked for now."""
    if isinstance(trigger, At):
        return iso(min(now, from_iso(trigger.instant) - 1))
    return iso(now)


def _read_timeout(value: Any) -> int:
    seconds = read_duration(value)
    if not 1 <= seconds <= MAX_TIMEOUT_S:
        raise ValueError(f"must be from 1 to {MAX_TIMEOUT_S} seconds, got {seconds}")
    return seconds


def _read_tokens(value: Any) -> int:
    if isinstance(value, str) and _DIGITS.fullmatch(value.strip()):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MAX_TOKENS:
        raise ValueError(f"must be a whole number of tokens from 1 to {MAX_TOKENS}")
    return value


def _read_bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    raise ValueError("must be true or false")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"must be a text, got {type(value).__name__}")  # noqa: TRY004 - one class for all bad input
    return value
