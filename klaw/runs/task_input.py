"""Making and changing a task from what a person or a model wrote. Pure.

The fields are those of ``Task`` with an ``Edit`` note, and ``TriggerInput`` in place of the trigger. Every wrong field
is named at once. A field that is absent, null or an empty text is not given, because models fill what they do not use
with either; ``clear`` names the fields that a change is to empty."""

import difflib
from collections.abc import Collection, Mapping
from functools import partial
from itertools import islice
from typing import Annotated, Any

import attrs

from klaw.actor.clock import from_iso, iso
from klaw.convert import MOST_PROBLEMS, Check, Converter, Form
from klaw.domain.names import UserId, zone
from klaw.domain.notes import Edit, notes
from klaw.domain.task import HEARTBEAT, At, Cron, Every, Task, TaskName, Trigger
from klaw.errors import BadValue, Problem, TaskError
from klaw.runs.triggers import first_fire, normalise, read_at, read_every
from klaw.runs.when import read_when

_LONGEST_FIELD = 32
_WRITTEN = Converter(lenient=True)

FIELDS: Mapping[str, str] = {note.name or field: field for field, note in notes(Task, Edit).items()}
"""The fields that people set, by the names that they use for them; the trigger not included."""
CLEARABLE = {given: field for given, field in FIELDS.items() if attrs.fields_dict(Task)[field].default is None}


def _clear(given: Any) -> frozenset[str]:
    names = given.split(",") if isinstance(given, str) else given if isinstance(given, list | tuple) else [None]
    found = frozenset(name.strip() if isinstance(name, str) else "" for name in names)
    if not found <= CLEARABLE.keys():
        raise ValueError(f"must name some of {', '.join(CLEARABLE)}")
    return found


_TYPES: Mapping[str, Any] = {
    **{note.name or field: note.given for field, note in notes(Task, Edit).items()},
    "cron": Annotated[str, Check(normalise)],
    "zone": Annotated[str, Check(lambda name: zone(name).key)],
    "every": Annotated[Every, Form(read_every, str)],
    "at": str,
    "when": str,
    "now": bool,
    "clear": Annotated[frozenset[str], Form(_clear, list)],
}


@attrs.frozen
class SubagentOrder:
    name: TaskName
    message: str
    model: str | None = None
    inject_into: str | None = None


_ORDER = tuple(given for given, field in FIELDS.items() if field in attrs.fields_dict(SubagentOrder))


@attrs.define
class TaskInput:
    """The fields that were given. ``known``: the names that they may have; ``required``: those that must be there;
    ``providers``: names that a model's provider may have; None when that is not known here."""

    raw: Mapping[str, Any]
    known: Collection[str] = attrs.field(default=_TYPES)
    required: Collection[str] = ()
    providers: Collection[str] | None = None
    given: Collection[str] = attrs.field(init=False)
    """Names of all that were given, also of wrong ones."""
    sound: dict[str, Any] = attrs.field(init=False, factory=dict)
    problems: list[Problem] = attrs.field(init=False, factory=list)

    def __attrs_post_init__(self) -> None:
        given = {
            name: each for name, each in self.raw.items() if name in self.known and each is not None and each != ""
        }
        self.given = given.keys()
        for name in islice((each for each in self.raw if each not in self.known), MOST_PROBLEMS):
            written = str(name) if len(str(name)) <= _LONGEST_FIELD and str(name).isprintable() else "?"
            near = difflib.get_close_matches(written, self.known, n=1)
            self.wrong(written, "unknown field" + (f"; did you mean {near[0]}?" if near else ""))
        for name, value in given.items():
            try:
                self.sound[name] = _WRITTEN.read(value, _TYPES[name])
            except BadValue as bad:
                self.wrong(name, bad.problems[0].message)
        for name in self.required:
            if name not in given:
                self.wrong(name, "is required")
        if self.sound.get("name") == HEARTBEAT:
            self.wrong("name", f"{HEARTBEAT!r} is the name of the heartbeat's own runs; take another")
        model = self.sound.get("model")
        if model is not None and self.providers is not None and model.partition("/")[0] not in self.providers:
            self.wrong("model", f"the provider must be one of {', '.join(sorted(self.providers))}")

    def wrong(self, name: str, message: str) -> None:
        self.problems.append(Problem(name, message))

    def settings(self) -> dict[str, Any]:
        return {FIELDS[name]: value for name, value in self.sound.items() if name in FIELDS}

    def trigger(self, *, now: float, default_zone: str, old: Trigger | None = None) -> Trigger | None:
        """The trigger that the fields give, or what they make of the ``old`` one; None when they give none, or a wrong
        one. ``default_zone``: zone of a cron trigger, and of a time without an offset, that names none."""
        sound = self.sound
        kinds = [kind for kind in ("cron", "every", "at", "when") if kind in self.given]
        if len(kinds) > 1 or not (kinds or old):
            got = f", got {', '.join(kinds)}" if kinds else ""
            for kind in kinds or ["cron"]:
                self.wrong(kind, f"exactly one of cron, every, at and when must be given{got}")
            return None
        if sound.get("now") and kinds not in ([], ["at"]):
            self.wrong("now", "goes with at only")
        zoned = old if isinstance(old, Cron) else None
        if "zone" in self.given and (kinds == ["every"] or (not kinds and zoned is None)):
            self.wrong("zone", "goes with cron, at and when only")
        zone = sound.get("zone")
        if "cron" in sound:
            return Cron(expression=sound["cron"], zone=zone or (zoned.zone if zoned is not None else default_zone))
        if one := next((each for each in ("at", "when") if each in sound), None):
            read = read_when if one == "when" else partial(read_at, allow_past=sound.get("now", False))
            try:
                return read(sound[one], zone=zone or getattr(old, "zone", None) or default_zone, now=now)
            except ValueError as bad:
                self.wrong(one, str(bad))
        elif not kinds and zoned is not None and zone is not None:
            return attrs.evolve(zoned, zone=zone)
        every: Every | None = sound.get("every")
        return every


def draft(
    raw: Mapping[str, Any], *, user: UserId, now: float, default_zone: str, providers: Collection[str] | None = None
) -> Task:
    """Make a task of ``name``, ``message``, a time (``TriggerInput``) and more. Raises TaskError."""
    asked = TaskInput(raw, required=("name", "message"), providers=providers)
    trigger = asked.trigger(now=now, default_zone=default_zone)
    if "clear" in asked.given:
        asked.wrong("clear", "is for changes only")
    if asked.problems or trigger is None:
        raise TaskError(asked.problems)
    moment, start = iso(now), iso(anchor(trigger, now))
    return Task(user=user, trigger=trigger, created_at=moment, updated_at=moment, anchor_at=start, **asked.settings())


def check(task: Task) -> Task:
    """A task that another Klaw had, as this one would have stored it. Raises TaskError."""
    given = {name: getattr(task, field) for name, field in FIELDS.items()}
    match task.trigger:
        case Cron(expression=expression, zone=zone):
            given |= {"cron": expression, "zone": zone}
        case Every(seconds=seconds):
            given["every"] = seconds
        case At(instant=instant, zone=zone):
            given |= {"at": instant, "zone": zone, "now": True}
    made = draft(given, user=task.user, now=from_iso(task.created_at), default_zone="UTC")
    trigger = made.trigger
    if isinstance(trigger, At):
        trigger = attrs.evolve(trigger, zone=getattr(task.trigger, "zone", None) or None)
    return attrs.evolve(made, trigger=trigger, updated_at=task.updated_at, anchor_at=task.anchor_at)


def edit(
    task: Task, raw: Mapping[str, Any], *, now: float, default_zone: str, providers: Collection[str] | None = None
) -> Task:
    """Change the given fields of a task; it is the same object when nothing changes. Raises TaskError.

    Fire times up to now are over when the trigger changes or the task is enabled; a change of the message neither
    repeats nor drops a run. ``now`` also lets an enabled one-shot that is over run at once."""
    asked = TaskInput({**raw, "name": None} if raw.get("name") == task.name else raw, providers=providers)
    changes = asked.settings()
    if changes.pop("name", None) is not None:
        asked.wrong("name", "cannot be changed; make a new task and remove this one")
    for name in asked.sound.get("clear", ()):
        changes[CLEARABLE[name]] = None
        if name in asked.given:
            asked.wrong(name, "is given and cleared at the same time")
    trigger = asked.trigger(now=now, default_zone=default_zone, old=task.trigger)
    enabling = changes.get("enabled") is True and not task.enabled
    if trigger is not None:
        changes["trigger"] = trigger
    elif enabling and isinstance(task.trigger, At) and first_fire(task.trigger, now, now) is None:
        if asked.sound.get("now"):
            again = read_at(task.trigger.instant, now=now, allow_past=True)
            changes["trigger"] = attrs.evolve(again, zone=task.trigger.zone)
        else:
            asked.wrong("at", "is over; give a later time, or ask for it now")
    if asked.problems:
        raise TaskError(asked.problems)
    changed = attrs.evolve(task, **changes)
    if changed == task:
        return task
    if enabling or changed.trigger != task.trigger:
        changed = attrs.evolve(changed, anchor_at=iso(anchor(changed.trigger, now)))
    return attrs.evolve(changed, updated_at=iso(now))


def trigger_of(raw: Mapping[str, Any], *, now: float, default_zone: str) -> Trigger:
    """The trigger that ``cron``, ``every`` or ``at`` gives, for a task that is not made yet. Raises TaskError."""
    asked = TaskInput(raw)
    trigger = asked.trigger(now=now, default_zone=default_zone)
    if asked.problems or trigger is None:
        raise TaskError(asked.problems)
    return trigger


def subagent_order(raw: Mapping[str, Any], *, providers: Collection[str] | None = None) -> SubagentOrder:
    asked = TaskInput(raw, known=_ORDER, required=("name", "message"), providers=providers)
    if asked.problems:
        raise TaskError(asked.problems)
    return SubagentOrder(**asked.settings())


def anchor(trigger: Trigger, now: float) -> float:
    """Fire times up to this moment are over: up to now, but for a one-shot that was asked for now."""
    return min(now, from_iso(trigger.instant) - 1) if isinstance(trigger, At) else now
