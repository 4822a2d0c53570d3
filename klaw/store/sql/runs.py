"""SQL of runs, and of what they said in chats."""

from collections.abc import Mapping, Sequence
from typing import Any

import apsw

from klaw.domain.message import Message
from klaw.domain.names import UserId
from klaw.domain.task import Run, RunKind, RunStatus, TaskName, notice_id
from klaw.store import rows
from klaw.store.run_records import RunState
from klaw.store.sql import messages

COLUMNS = f"change, {rows.columns(Run)}"
_run = rows.reader(Run)


def state_of(row: Sequence[Any]) -> RunState:
    """The state in a row of ``COLUMNS``."""
    return RunState(row[0], _run(row[1:]))


# -- one run ----------------------------------------------------------------------------------------------------------

_GET = f"SELECT {COLUMNS} FROM runs WHERE user_id = ? AND id = ?"  # noqa: S608 - constant columns


def get(connection: apsw.Connection, user: UserId, run: str) -> Run | None:
    """A user's run by its id."""
    row = connection.execute(_GET, (user, run)).fetchone()
    return state_of(row).run if row else None


_AT = f"""
SELECT {COLUMNS} FROM runs WHERE user_id = ? AND task = ? AND kind = ? AND due = ? AND attempt = ?
"""  # noqa: S608 - constant columns


def same_start(connection: apsw.Connection, run: Run) -> Run | None:
    """The run of the same user, task, kind, due and attempt; at most one."""
    row = connection.execute(_AT, (run.user, run.task, run.kind, run.due, run.attempt)).fetchone()
    return state_of(row).run if row else None


_CHANGE = "SELECT change FROM runs WHERE id = ?"


def change_of(connection: apsw.Connection, run: str) -> int:
    """Number of the run's last change that this database has; 0 when it has none."""
    return int(connection.execute(_CHANGE, (run,)).get or 0)


_REMOVE = "DELETE FROM runs WHERE id = ?"
_INSERT = rows.insert("runs", Run, "change")


def put(connection: apsw.Connection, run: Run) -> RunState:
    """Store a run's first or next state, with the next number.

    Raises:
        apsw.ConstraintError: its start is another run's.
    """
    _write(connection, None, run)
    return RunState(connection.last_insert_rowid(), run)


def restore(connection: apsw.Connection, state: RunState) -> bool:
    """Store a state of the logs with the number it has there. False when it, or a later one, is there already.

    Raises:
        apsw.ConstraintError: its number or its start is another run's.
    """
    if change_of(connection, state.run.id) >= state.change:
        return False
    _write(connection, state.change, state.run)
    return True


def _write(connection: apsw.Connection, change: int | None, run: Run) -> None:
    connection.execute(_REMOVE, (run.id,))
    connection.execute(_INSERT, {**rows.values(run), "change": change})


_CLEAR = "DELETE FROM runs"


def clear(connection: apsw.Connection) -> None:
    """Remove all runs; for a database that is being made from the logs."""
    connection.execute(_CLEAR)


# -- lists ------------------------------------------------------------------------------------------------------------

_OF_USER = f"""
SELECT {COLUMNS} FROM runs
WHERE user_id = ?1 AND (?2 IS NULL OR status = ?2)
    AND (?3 IS NULL OR (started_at, id) < (SELECT started_at, id FROM runs WHERE user_id = ?1 AND id = ?3))
ORDER BY started_at DESC, id DESC LIMIT ?4
"""  # noqa: S608 - constant columns
_OF_TASK = _OF_USER.replace("WHERE user_id = ?1", "WHERE user_id = ?1 AND task = ?5", 1)


def newest(
    connection: apsw.Connection,
    user: UserId,
    *,
    task: TaskName | None = None,
    status: RunStatus | None = None,
    before: str | None = None,
    limit: int,
) -> list[Run]:
    """A user's runs, the one that began last first.

    Args:
        connection: to read from.
        user: whose.
        task: only this task's.
        status: only these.
        before: id of the run after which the list goes on; an unknown one gives nothing.
        limit: so many at most.
    """
    arguments = (user, status, before, limit)
    rows = connection.execute(_OF_USER, arguments) if task is None else connection.execute(_OF_TASK, (*arguments, task))
    return [state_of(row).run for row in rows]


_FAILED = """
SELECT count(*) FROM runs WHERE status = 'failed' AND error = ? AND started_at >= ?
"""


def count_failed(connection: apsw.Connection, error: str, since: str) -> int:
    """How many runs of all users failed with an error code. ``since``: ISO-8601 UTC; only those begun from then on."""
    found: list[tuple[int]] = list(connection.execute(_FAILED, (error, since)))
    return found[0][0]


_RUNNING = f"SELECT {COLUMNS} FROM runs WHERE status = 'running' ORDER BY started_at, id"  # noqa: S608 - constant


def running(connection: apsw.Connection) -> list[Run]:
    """All users' runs that have not ended, the oldest first: for the scheduler; after a start they are interrupted."""
    return [state_of(row).run for row in connection.execute(_RUNNING)]


_ATTEMPTS = f"""
SELECT {COLUMNS} FROM runs WHERE user_id = ? AND task = ? AND kind = ? AND due = ? ORDER BY attempt
"""  # noqa: S608 - constant columns


def attempts(connection: apsw.Connection, user: UserId, task: TaskName, kind: RunKind, due: str) -> list[Run]:
    """All attempts at one fire time, in order."""
    return [state_of(row).run for row in connection.execute(_ATTEMPTS, (user, task, kind, due))]


# -- spending ---------------------------------------------------------------------------------------------------------

_USED = """
SELECT user_id, task, sum(prompt_tokens + completion_tokens) FROM runs WHERE started_at >= ? GROUP BY user_id, task
"""


def tokens_by_task(connection: apsw.Connection, since: str) -> Mapping[tuple[UserId, TaskName], int]:
    """Tokens of all users' runs that began at or after an instant, by user and task; reads all runs, so seldom."""
    rows = connection.execute(_USED, (since,))
    return {(UserId(user), TaskName(task)): tokens for user, task, tokens in rows}


# -- what they said ---------------------------------------------------------------------------------------------------

# "0" follows "/" in ASCII: all ids that begin with the run's and a slash, by the index of (user_id, id).
_SAID = """
SELECT rowid FROM messages WHERE user_id = ?1 AND id > ?2 || '/' AND id < ?2 || '0' AND id <> ?3 ORDER BY rowid
"""


def delivered_of(connection: apsw.Connection, user: UserId, run: str) -> list[Message]:
    """The run's messages that stand in chats, in the order of delivery; without its notice.

    A process that dies between the two logs of a delivery leaves the message and not the run's new state: what this
    finds was delivered, whatever the run's record says.
    """
    rowids = [rowid for (rowid,) in connection.execute(_SAID, (user, run, notice_id(run)))]
    return messages.by_rowids(connection, rowids)


def notice_of(connection: apsw.Connection, user: UserId, run: str) -> Message | None:
    """What a chat was told of the run."""
    return messages.find(connection, user, notice_id(run))
