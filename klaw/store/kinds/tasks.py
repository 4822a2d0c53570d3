"""Tasks."""

from collections.abc import Sequence
from typing import Any, Literal

import apsw

from klaw.convert import Form
from klaw.domain.names import UserId
from klaw.domain.task import At, Cron, Every, Task, TaskName, Trigger, task_name
from klaw.errors import NoSuchTask, TaskExists
from klaw.store.changes import Change, Kind
from klaw.store.engine.transaction import Transaction
from klaw.store.rebuild.tables import Table

_COLUMNS = (
    "user_id, name, fires, expression, zone, every_s, at, message, model, inject_into, enabled, timeout_s, max_tokens,"
    " daily_tokens, created_at, updated_at, anchor_at"
)


def _task(row: Sequence[Any]) -> Task:
    return Task(
        user=UserId(row[0]),
        name=TaskName(row[1]),
        trigger=_trigger(*row[2:7]),
        message=row[7],
        model=row[8],
        inject_into=row[9],
        enabled=bool(row[10]),
        timeout_s=row[11],
        max_tokens=row[12],
        daily_tokens=row[13],
        created_at=row[14],
        updated_at=row[15],
        anchor_at=row[16],
    )


def _trigger(fires: str, expression: str, zone: str, every_s: int, at: str) -> Trigger:
    match fires:
        case "cron":
            return Cron(expression=expression, zone=zone)
        case "every":
            return Every(seconds=every_s)
        case _:
            return At(instant=at)


def _row(task: Task) -> tuple[Any, ...]:
    match task.trigger:
        case Cron():
            fires: tuple[Any, ...] = ("cron", task.trigger.expression, task.trigger.zone, None, None)
        case Every():
            fires = ("every", None, None, task.trigger.seconds, None)
        case At():
            fires = ("at", None, None, None, task.trigger.instant)
    return (
        task.user,
        task.name,
        *fires,
        task.message,
        task.model,
        task.inject_into,
        int(task.enabled),
        task.timeout_s,
        task.max_tokens,
        task.daily_tokens,
        task.created_at,
        task.updated_at,
        task.anchor_at,
    )


_GET = f"SELECT {_COLUMNS} FROM tasks WHERE user_id = ? AND name = ?"  # noqa: S608 - constant columns


def get(connection: apsw.Connection, user: UserId, name: TaskName) -> Task | None:
    """A user's task by its name."""
    row = connection.execute(_GET, (user, name)).fetchone()
    return _task(row) if row else None


_OF_USER = f"SELECT {_COLUMNS} FROM tasks WHERE user_id = ? ORDER BY name"  # noqa: S608 - constant columns


def of_user(connection: apsw.Connection, user: UserId) -> list[Task]:
    """A user's tasks by name."""
    return [_task(row) for row in connection.execute(_OF_USER, (user,))]


_ALL = f"SELECT {_COLUMNS} FROM tasks ORDER BY user_id, name"  # noqa: S608 - constant columns
_ENABLED = f"SELECT {_COLUMNS} FROM tasks WHERE enabled ORDER BY user_id, name"  # noqa: S608 - constant columns


def everybodys(connection: apsw.Connection, *, enabled_only: bool) -> list[Task]:
    """All users' tasks: for the scheduler, and for whoever runs the server."""
    return [_task(row) for row in connection.execute(_ENABLED if enabled_only else _ALL)]


# -- writing ----------------------------------------------------------------------------------------------------------

_PUT = f"INSERT OR REPLACE INTO tasks ({_COLUMNS}) VALUES ({', '.join('?' * 17)})"  # noqa: S608 - constant columns
_REMOVE = "DELETE FROM tasks WHERE user_id = ? AND name = ?"


def _apply(connection: apsw.Connection, change: Change[Task]) -> None:
    if change.value is None:
        connection.execute(_REMOVE, (change.user, change.key))
    else:
        connection.execute(_PUT, _row(change.value))


_ROWS = """
SELECT user_id || '/' || name AS key, fires, expression, zone, every_s, at, message, model, inject_into, enabled,
    timeout_s, max_tokens, daily_tokens, created_at, updated_at, anchor_at
FROM tasks WHERE key > :after ORDER BY key LIMIT :limit
"""

TASK: Kind[Task] = Kind(
    what="task",
    counted="tasks",
    ops={"put": Task, "remove": None},
    key=Form(task_name, str),
    beside=("user", "name"),
    apply=_apply,
    clear=("DELETE FROM tasks",),
    tables=(Table(name="tasks", first="", statement=_ROWS, small=True),),
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
        tx: the transaction.
        user: its owner.
        name: its name.
        at: the time now, ISO-8601 UTC with milliseconds.

    Raises:
        NoSuchTask: the user has none of this name.
    """
    present = get(tx.connection, user, name)
    if present is None:
        raise NoSuchTask(f"there is no task {name}")
    tx.journal(TASK.removed(user, name, at))
    return present
