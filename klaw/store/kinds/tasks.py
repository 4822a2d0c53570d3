"""Tasks: their rows and history; what users chose for their times, the zone; and their browsers that are notified."""

import json
from collections.abc import Sequence
from datetime import tzinfo
from typing import Annotated, Literal

import apsw
import attrs

from klaw.convert import Form, Wire
from klaw.domain import names
from klaw.domain.forget import MARK
from klaw.domain.names import UserId
from klaw.domain.task import Task, TaskName, task_name
from klaw.errors import NoSuchTask, TaskExists
from klaw.store import rows
from klaw.store.changes import Kind, earlier
from klaw.store.engine.tables import entries, table
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


_CONTENT = (
    "user_id || '/' || name AS key, fires, expression, zone, every_s, at, message, model, inject_into, enabled,"
    " timeout_s, max_tokens, daily_tokens, reminder, created_at, updated_at, anchor_at"
)
TASK: Kind[Task] = Kind(
    what="task",
    plural="tasks",
    cls=Task,
    table="tasks",
    id="name",
    past="task_changes",
    forgets_past=True,
    on_purpose=True,
    ops={"put": Task, "remove": None},
    key=Form(task_name, str),
    beside=("user_id", "name"),
    moves=lambda given: attrs.evolve(given, enabled=False),
    tables=(
        table("tasks", "tasks", "key", _CONTENT, first="", small=True),
        entries("changes of tasks", "task_changes", "entry, user_id, task_id, at, value"),
    ),
)
get, history = TASK.get, TASK.history


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


def undo(tx: Transaction, user: UserId, name: TaskName, to: int | None, at: str) -> Task | None:
    """Let a task be what it was before its newest change, or by an entry of its history. Fire times up to now are over
    where that has another trigger, or is enabled again. Returns it; None: it is gone. Raises NoSuchTask, CannotUndo."""
    past, present = history(tx.connection, user, name), get(tx.connection, user, name)
    if not past:
        raise NoSuchTask(f"there is no task {name}, and there was none")
    wanted = earlier(past, to)
    if wanted is None or wanted.value is None:
        tx.journal(TASK.removed(user, name, at))
        return None
    same = present is not None and present.trigger == wanted.value.trigger and present.enabled >= wanted.value.enabled
    anchor = present.anchor_at if present is not None and same else at
    task = attrs.evolve(wanted.value, updated_at=at, anchor_at=anchor)
    tx.journal(TASK.put(user, name, task, at))
    return task


_FORGET = f"""
UPDATE task_changes AS c SET value = json_set(value, '$.message', '{MARK}')
WHERE user_id = ?1 AND value ->> '$.message' <> '{MARK}' AND (task_id IN (SELECT value FROM json_each(?2))
    OR value ->> '$.message' IS NOT (SELECT message FROM tasks WHERE user_id = ?1 AND name = c.task_id))
"""  # noqa: S608 - a constant


def forget_past(connection: apsw.Connection, user: UserId, names: Sequence[TaskName]) -> None:
    """Take out of the history of a user's tasks what they ask no more; of some, all that they ever asked."""
    connection.execute(_FORGET, (user, json.dumps(list(names))))


@attrs.frozen(kw_only=True)
class UserSettings:
    user: Annotated[UserId, Wire("user_id")]
    zone: str
    updated_at: str


SETTINGS: Kind[UserSettings] = Kind(
    what="settings",
    plural="user settings",
    cls=UserSettings,
    table="user_settings",
    id="user_id",
    counted="tasks",
    ops={"put": UserSettings},
    beside=("user_id",),
    tables=(table("user settings", "user_settings", "user_id", "user_id, zone, updated_at", first="", small=True),),
)


def zone(connection: apsw.Connection, user: UserId) -> str | None:
    """The IANA name of the zone that a user chose; None: the server's holds."""
    found = SETTINGS.get(connection, user, user)
    return None if found is None else found.zone


def days_zone(connection: apsw.Connection, user: UserId) -> tzinfo | None:
    """The zone in which a user's "yesterday" is meant; None: the machine's."""
    chosen = zone(connection, user)
    return None if chosen is None else names.zone(chosen)


def set_zone(tx: Transaction, user: UserId, name: str, at: str) -> None:
    tx.journal(SETTINGS.put(user, user, UserSettings(user=user, zone=name, updated_at=at), at))


MAX_SUBSCRIPTIONS = 20


@attrs.frozen(kw_only=True)
class Subscription:
    """A browser that is notified, through its push service, of what its user has not seen."""

    user: Annotated[UserId, Wire("user_id")]
    id: str
    """Made of the endpoint: a browser is notified for one user."""
    endpoint: str = attrs.field(repr=False)
    p256dh: str = attrs.field(repr=False)
    auth: str = attrs.field(repr=False)
    login: str | None
    """Id of the login or token by which it was made, and with which it ends; None: this machine needs none."""
    words: bool
    """Whether notifications have the chat's title and the first words, or only say that something came."""
    created_at: str


SUBSCRIPTION: Kind[Subscription] = Kind(
    what="push",
    plural="browsers that are notified",
    cls=Subscription,
    table="push_subscriptions",
    counted="tasks",
    ops={"put": Subscription, "remove": None},
    beside=("user_id", "id"),
    tables=(
        table(
            "browsers that are notified",
            "push_subscriptions",
            "id",
            "id, user_id, endpoint, p256dh, auth, login, words, created_at",
            first="",
            small=True,
        ),
    ),
)


def subscriptions(connection: apsw.Connection, user: UserId | None = None) -> list[Subscription]:
    """Those of a user, or of everybody, the oldest first."""
    return SUBSCRIPTION.rows.all(connection, "WHERE ?1 IS NULL OR user_id = ?1 ORDER BY rowid", user)


def subscribe(tx: Transaction, made: Subscription) -> None:
    """Notify a browser from now on. Of too many of its user the oldest ends, and that of another user in it."""
    there = subscriptions(tx.connection)
    if any(attrs.evolve(each, created_at=made.created_at) == made for each in there):
        return
    others = [each for each in there if each.user == made.user and each.id != made.id]
    gone = others[: max(0, len(others) - MAX_SUBSCRIPTIONS + 1)]
    unsubscribe(tx, [*gone, *(each for each in there if each.id == made.id)], made.created_at)
    tx.journal(SUBSCRIPTION.put(made.user, made.id, made, made.created_at))


def unsubscribe(tx: Transaction, gone: Sequence[Subscription], at: str) -> None:
    for each in gone:
        if SUBSCRIPTION.is_there(tx.connection, each.user, each.id):
            tx.journal(SUBSCRIPTION.removed(each.user, each.id, at))
