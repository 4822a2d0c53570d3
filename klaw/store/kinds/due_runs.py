"""SQL of what the scheduler decides by: the last runs of tasks, and what was interrupted."""

from typing import Any

import apsw

from klaw.domain.names import UserId
from klaw.domain.task import Run, TaskName
from klaw.store.kinds import runs

_KIND = "CASE t.name WHEN 'heartbeat' THEN 'heartbeat' ELSE 'scheduled' END"

_ATTEMPTS = f"""
WITH latest AS MATERIALIZED (
    SELECT t.user_id AS user_id, t.name AS task, {_KIND} AS kind, (
        SELECT max(r.due) FROM runs r
        WHERE r.user_id = t.user_id AND r.task = t.name AND r.kind = {_KIND} AND r.due <= ?1
    ) AS due
    FROM tasks t WHERE t.enabled
)
SELECT {runs.COLUMNS} FROM latest CROSS JOIN runs USING (user_id, task, kind, due) ORDER BY user_id, task, attempt
"""  # noqa: S608 - constant columns


def latest_attempts(connection: apsw.Connection, now: str) -> dict[tuple[UserId, TaskName], list[Run]]:
    """Of each enabled task the attempts, in their order, at its latest fire time that is not after now; tasks without
    any are left out."""
    found: dict[tuple[UserId, TaskName], list[Run]] = {}
    for run in _all(connection, _ATTEMPTS, (now,)):
        found.setdefault((run.user, run.task), []).append(run)
    return found


_LAST = f"""
SELECT {runs.COLUMNS} FROM runs WHERE id IN (
    SELECT (SELECT r.id FROM runs r WHERE r.user_id = t.user_id AND r.task = t.name
            ORDER BY r.started_at DESC, r.id DESC LIMIT 1)
    FROM tasks t
)
"""  # noqa: S608 - constant columns


def last_of_tasks(connection: apsw.Connection) -> list[Run]:
    """The last run of each task that has any, of all users."""
    return _all(connection, _LAST, ())


_TO_REPEAT = f"""
SELECT {runs.COLUMNS} FROM runs first
WHERE status = 'interrupted' AND kind IN ('spawned', 'manual') AND attempt = 1 AND delivered = 0
    AND NOT EXISTS (
        SELECT 1 FROM runs r WHERE r.user_id = first.user_id AND r.task = first.task AND r.kind = first.kind
            AND r.due = first.due AND r.attempt > 1
    )
ORDER BY started_at, id
"""  # noqa: S608 - constant columns


def to_repeat(connection: apsw.Connection) -> list[Run]:
    """Runs that were asked for once, were interrupted before they delivered anything, and have no second attempt."""
    return _all(connection, _TO_REPEAT, ())


_LIMITED = f"""
SELECT {runs.COLUMNS} FROM runs WHERE user_id = ?1 AND started_at >= ?2 AND error = ?3 ORDER BY started_at, id
"""  # noqa: S608 - constant columns


def limited(connection: apsw.Connection, user: UserId, since: str, error: str) -> list[Run]:
    """A user's runs since an instant that one spending limit refused or ended."""
    return _all(connection, _LIMITED, (user, since, error))


_TOLD = """
SELECT EXISTS (
    SELECT 1 FROM runs WHERE user_id = ?1 AND task = ?2 AND started_at >= ?3 AND error IS NOT NULL
        AND json_extract(details, '$.told') = 1
)
"""


def told(connection: apsw.Connection, user: UserId, task: TaskName, since: str) -> bool:
    """Whether the user was told of a failure of the task since an instant."""
    return bool(connection.execute(_TOLD, (user, task, since)).get)


def _all(connection: apsw.Connection, sql: str, bindings: tuple[Any, ...]) -> list[Run]:
    return [runs.state_of(row).run for row in connection.execute(sql, bindings)]
