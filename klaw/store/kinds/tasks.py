"""Tasks."""

from typing import Literal

import apsw
import attrs

from klaw.convert import Form
from klaw.domain.names import UserId
from klaw.domain.task import Task, TaskName, task_name
from klaw.errors import NoSuchTask, TaskExists
from klaw.store import rows
from klaw.store.changes import Change, Kind
from klaw.store.engine.tables import table
from klaw.store.engine.transaction import Transaction

_TASKS = rows.Rows(Task, "tasks")


def existing(connection: apsw.Connection, user: UserId, name: TaskName) -> Task:
    """Like ``get``. Raises NoSuchTask."""
    found = get(connection, user, name)
    if found is None:
        raise NoSuchTask(f"there is no task {name}")
    return found


def of_user(connection: apsw.Connection, user: UserId) -> list[Task]:
    return _TASKS.all(connection, "WHERE user_id = ? ORDER BY name", user)


def everybodys(connection: apsw.Connection, *, enabled_only: bool) -> list[Task]:
    """All users' tasks: for the scheduler, and for the operator."""
    return _TASKS.all(connection, "WHERE enabled >= ? ORDER BY user_id, name", enabled_only)


_PUT = rows.insert("tasks", Task).replace("INSERT", "INSERT OR REPLACE", 1)


def _apply(connection: apsw.Connection, change: Change[Task]) -> None:
    if change.value is None:
        connection.execute("DELETE FROM tasks WHERE user_id = ? AND name = ?", (change.user, change.key))
    else:
        connection.execute(_PUT, rows.values(change.value))


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
    beside=("user_id", "name"),
    apply=_apply,
    moves=lambda given: attrs.evolve(given, enabled=False),
    tables=(table("tasks", "tasks", "key", _CONTENT, first="", small=True),),
)
get = TASK.get


def put(tx: Transaction, task: Task, expected: Literal["new", "existing"]) -> Task:
    """Store a task. Raises TaskExists: it is not new; NoSuchTask: it does not exist yet."""
    task_name(task.name)
    if expected == "existing":
        existing(tx.connection, task.user, task.name)
    elif get(tx.connection, task.user, task.name) is not None:
        raise TaskExists
    tx.journal(TASK.put(task.user, task.name, task, task.updated_at))
    return task


def remove(tx: Transaction, user: UserId, name: TaskName, at: str) -> Task:
    """Remove a task and return what it was; its runs and transcripts stay. Raises NoSuchTask."""
    present = existing(tx.connection, user, name)
    tx.journal(TASK.removed(user, name, at))
    return present
