"""Tasks."""

from collections.abc import Sequence
from typing import Any, Literal

import apsw
import attrs

from klaw.convert import Form
from klaw.domain.names import UserId
from klaw.domain.task import At, Cron, Every, Task, TaskName, Trigger, task_name
from klaw.errors import NoSuchTask, TaskExists
from klaw.store.changes import Change, Kind
from klaw.store.engine.tables import table
from klaw.store.engine.transaction import Transaction

_FIELDS = tuple(field.name for field in attrs.fields(Task) if field.name != "trigger")
_COLUMNS = ", ".join(("fires", "expression", "zone", "every_s", "at", "user_id", *_FIELDS[1:]))
_SELECT = f"SELECT {_COLUMNS} FROM tasks "  # noqa: S608 - constant columns


def _task(row: Sequence[Any]) -> Task:
    own = dict(zip(_FIELDS, row[5:], strict=True))
    return Task(**{**own, "enabled": bool(own["enabled"]), "trigger": _trigger(*row[:5])})


def _trigger(fires: str, expression: str, zone: str, every_s: int, at: str) -> Trigger:
    match fires:
        case "cron":
            return Cron(expression=expression, zone=zone)
        case "every":
            return Every(seconds=every_s)
        case _:
            return At(instant=at, zone=zone)


def _row(task: Task) -> tuple[Any, ...]:
    fires = (getattr(task.trigger, name, None) for name in ("expression", "zone", "seconds", "instant"))
    return type(task.trigger).__name__.lower(), *fires, *(getattr(task, name) for name in _FIELDS)


def get(connection: apsw.Connection, user: UserId, name: TaskName) -> Task | None:
    """A user's task by its name."""
    row = connection.execute(_SELECT + "WHERE user_id = ? AND name = ?", (user, name)).fetchone()
    return _task(row) if row else None


def of_user(connection: apsw.Connection, user: UserId) -> list[Task]:
    """A user's tasks by name."""
    return [_task(row) for row in connection.execute(_SELECT + "WHERE user_id = ? ORDER BY name", (user,))]


_EVERYBODYS = _SELECT + "WHERE enabled >= ? ORDER BY user_id, name"


def everybodys(connection: apsw.Connection, *, enabled_only: bool) -> list[Task]:
    """All users' tasks: for the scheduler, and for whoever runs the server."""
    return [_task(row) for row in connection.execute(_EVERYBODYS, (enabled_only,))]


# -- writing ----------------------------------------------------------------------------------------------------------

_PUT = f"INSERT OR REPLACE INTO tasks ({_COLUMNS}) VALUES ({', '.join('?' * (5 + len(_FIELDS)))})"  # noqa: S608 - constant columns


def _apply(connection: apsw.Connection, change: Change[Task]) -> None:
    if change.value is None:
        connection.execute("DELETE FROM tasks WHERE user_id = ? AND name = ?", (change.user, change.key))
    else:
        connection.execute(_PUT, _row(change.value))


_CONTENT = (
    "user_id || '/' || name AS key, fires, expression, zone, every_s, at, message, model, inject_into, enabled,"
    " timeout_s, max_tokens, daily_tokens, created_at, updated_at, anchor_at"
)
TASK: Kind[Task] = Kind(
    what="task",
    plural="tasks",
    cls=Task,
    table="tasks",
    id="name",
    changed="",
    on_purpose=True,
    counted="tasks",
    ops={"put": Task, "remove": None},
    key=Form(task_name, str),
    beside=("user", "name"),
    apply=_apply,
    clear=("DELETE FROM tasks",),
    tables=(table("tasks", "tasks", "key", _CONTENT, first="", small=True),),
)


def put(tx: Transaction, task: Task, expected: Literal["new", "existing"]) -> Task:
    """Store a task.

    Raises:
        TaskExists: a new one was expected, and the user has one of its name.
        NoSuchTask: one was to be changed, and the user has none of its name.
    """
    task_name(task.name)
    present = get(tx.connection, task.user, task.name)
    if expected == "new" and present is not None:
        raise TaskExists
    if expected == "existing" and present is None:
        raise NoSuchTask(f"there is no task {task.name}")
    tx.journal(TASK.put(task.user, task.name, task, task.updated_at))
    return task


def remove(tx: Transaction, user: UserId, name: TaskName, at: str) -> Task:
    """Remove a task and return what it was; its runs and transcripts stay.

    Args:
        at: the time now, ISO-8601 UTC with milliseconds.

    Raises:
        NoSuchTask: the user has none of this name.
    """
    present = get(tx.connection, user, name)
    if present is None:
        raise NoSuchTask(f"there is no task {name}")
    tx.journal(TASK.removed(user, name, at))
    return present
