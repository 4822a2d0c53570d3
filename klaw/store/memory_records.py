"""The memory journal ``memory/<month>.jsonl``: every change of what Klaw keeps on a person's behalf, as JSON. Pure.

A line says what kind of thing was put or removed, whose, and under which key; a put has the whole value. Entries are
numbered over all months and kinds: their order is that of the numbers, whatever the clock did. Other kinds of things
(facts, topics, summaries) join with a word of their own in ``what``.
"""

from typing import Any

import attrs

from klaw.domain.names import UserId
from klaw.domain.task import At, Cron, Every, Task, TaskName, Trigger, task_name
from klaw.store.fields import optional_text, optional_whole, text, whole, yes_or_no
from klaw.store.records import dumps

MEMORY = "memory"
TASK = "task"
"""The word in ``what``."""


@attrs.frozen(kw_only=True)
class TaskEntry:
    """One change of a task."""

    entry: int
    """1, 2, 3 … over the whole journal."""
    time: str
    user: UserId
    name: TaskName
    task: Task | None
    """What was put; None: it was removed."""


def memory_path(entry: TaskEntry) -> str:
    return f"{MEMORY}/{entry.time[:7]}.jsonl"


def memory_line(entry: TaskEntry) -> str:
    record = {
        "entry": entry.entry,
        "time": entry.time,
        "user_id": entry.user,
        "op": "remove" if entry.task is None else "put",
        "what": TASK,
        "key": entry.name,
    }
    return dumps(record if entry.task is None else {**record, "value": _value(entry.task)})


def parse_memory(record: dict[str, Any]) -> TaskEntry:
    """A change of a log's line. Raises KeyError, TypeError or ValueError for a malformed one."""
    if record["what"] != TASK:
        raise ValueError("what is of no known kind")
    if record["op"] not in ("put", "remove"):
        raise ValueError("op is neither put nor remove")
    user, name = UserId(text(record["user_id"])), task_name(text(record["key"]))
    return TaskEntry(
        entry=whole(record["entry"]),
        time=text(record["time"]),
        user=user,
        name=name,
        task=_task(user, name, record["value"]) if record["op"] == "put" else None,
    )


def _value(task: Task) -> dict[str, Any]:
    return {
        "trigger": _trigger_value(task.trigger),
        "message": task.message,
        "model": task.model,
        "inject_into": task.inject_into,
        "enabled": task.enabled,
        "timeout_s": task.timeout_s,
        "max_tokens": task.max_tokens,
        "daily_tokens": task.daily_tokens,
        "created_at": task.created_at,
        "updated_at": task.updated_at,
        "anchor_at": task.anchor_at,
    }


def _task(user: UserId, name: TaskName, value: dict[str, Any]) -> Task:
    return Task(
        user=user,
        name=name,
        trigger=_trigger(value["trigger"]),
        message=text(value["message"]),
        model=optional_text(value["model"]),
        inject_into=optional_text(value["inject_into"]),
        enabled=yes_or_no(value["enabled"]),
        timeout_s=optional_whole(value["timeout_s"]),
        max_tokens=optional_whole(value["max_tokens"]),
        daily_tokens=optional_whole(value["daily_tokens"]),
        created_at=text(value["created_at"]),
        updated_at=text(value["updated_at"]),
        anchor_at=text(value["anchor_at"]),
    )


def _trigger_value(trigger: Trigger) -> dict[str, Any]:
    match trigger:
        case Cron():
            return {"cron": trigger.expression, "zone": trigger.zone}
        case Every():
            return {"every_s": trigger.seconds}
        case At():
            return {"at": trigger.instant}


def _trigger(value: dict[str, Any]) -> Trigger:
    if "cron" in value:
        return Cron(expression=text(value["cron"]), zone=text(value["zone"]))
    if "every_s" in value:
        return Every(seconds=whole(value["every_s"]))
    return At(instant=text(value["at"]))
