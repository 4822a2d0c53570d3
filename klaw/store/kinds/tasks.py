"""Tasks: what is to be done at which time."""

from typing import Literal

from klaw.domain.names import UserId
from klaw.domain.task import Task, TaskName, task_name
from klaw.errors import NoSuchTask, TaskExists
from klaw.store.engine.transaction import Transaction
from klaw.store.sql import tasks


def put(tx: Transaction, task: Task, expected: Literal["new", "existing"]) -> Task:
    """Store a task.

    Raises:
        TaskExists: a new one was expected, and the user has one of its name.
        NoSuchTask: one was to be changed, and the user has none of its name.
    """
    task_name(task.name)
    present = tasks.get(tx.connection, task.user, task.name)
    if expected == "new" and present is not None:
        raise TaskExists
    if expected == "existing" and present is None:
        raise NoSuchTask(f"there is no task {task.name}")
    tx.journal(tasks.TASK.put(task.user, task.name, task, task.updated_at))
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
    present = tasks.get(tx.connection, user, name)
    if present is None:
        raise NoSuchTask(f"there is no task {name}")
    tx.journal(tasks.TASK.removed(user, name, at))
    return present
