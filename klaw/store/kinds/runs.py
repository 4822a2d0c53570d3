"""Runs of tasks: their lines, rows and transcripts.

A run has a line for each of its states, all in the log of the month in which it began; the one with the highest
``change`` counts.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import apsw
import attrs

from klaw.convert import JOURNAL, Wire
from klaw.domain.message import Message, MessageKind, NewMessage, Role
from klaw.domain.names import UserId
from klaw.domain.task import Run, RunKind, RunStatus, TaskName, notice_id, run_folder
from klaw.store import changes, rows
from klaw.store.engine.tables import table
from klaw.store.kinds import messages
from klaw.store.kinds.messages import CONVERSATIONS, message_line
from klaw.store.rows import dumps

RUNS = "runs"


@attrs.frozen
class RunState:
    """One line of a run's log."""

    change: int
    """Grows over all changes of all runs."""
    run: Run


def run_path(run: Run) -> str:
    return f"{RUNS}/{run.started_at[:7]}.jsonl"


def run_line(state: RunState) -> str:
    return dumps({"change": state.change, **JOURNAL.write(state.run)})


def fields(run: Run) -> dict[str, Any]:
    """A run as JSON's values; two runs are the same when these are."""
    found: dict[str, Any] = json.loads(dumps(JOURNAL.write(run)))  # a tuple comes back as a list
    return found


def without_names(record: dict[str, Any], last: Mapping[str, Any]) -> dict[str, Any]:
    """A line of a run of whose texts names were taken out. ``last``: ``change``, texts and details of the run's last
    state, without them; of earlier states only what the run was asked is left."""
    texts = dict(last) if record.get("change") == last["change"] else {"result": "", "details": {}}
    return {**record, "note": None, "error": None, **texts, "message": last["message"], "change": record.get("change")}


def parse_run(record: dict[str, Any]) -> RunState:
    """A run's state of a log's line. Raises KeyError or ValueError for a malformed one."""
    run = JOURNAL.read(record, Run)
    return RunState(JOURNAL.read(record["change"], int), run)


# -- transcripts ------------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class TranscriptLine:
    id: str
    user: Annotated[UserId, Wire("user_id")]
    folder: Annotated[str, Wire("chat_id")]
    seq: int
    """Place within the run."""
    role: Role
    type: MessageKind
    content: str
    metadata: dict[str, Any]
    tokens: int
    created_at: str

    @property
    def run(self) -> str:
        return str(self.metadata["run"])


def transcript_path(run: Run) -> str:
    """Log of a run's transcript: one file a task and UTC day of the run's beginning."""
    return f"{CONVERSATIONS}/{run_folder(run.user, run.task)}/{run.started_at[:10]}.jsonl"


def is_transcript(path: str) -> bool:
    """Whether a log below the data folder, or its folder, is one of runs: a chat's folder has an encoded colon."""
    top, _, rest = path.partition("/")
    folder = rest.split("/", 1)[0]
    return top == CONVERSATIONS and folder.startswith("scheduler_") and "%" not in folder


def transcript_line(run: Run, seq: int, message: NewMessage) -> str:
    """In the form of a chat's log; ``rowid`` is null, for it is no row of ``messages``."""
    return message_line(
        message,
        rowid=None,
        user_id=run.user,
        chat_id=run_folder(run.user, run.task),
        seq=seq,
        metadata={"model": run.model, **message.metadata, "run": run.id},
        segment=0,
    )


def parse_transcript(record: dict[str, Any]) -> TranscriptLine:
    """A transcript's line. Raises KeyError or ValueError for a malformed one."""
    spoken = JOURNAL.read(record, TranscriptLine)
    JOURNAL.read(spoken.metadata["run"], str)
    return spoken


# -- rows --------------------------------------------------------------------------------------------------------------

_CONTENT = f"id, change, {rows.columns(Run).removeprefix('id, ')}"
_AFTER = "SELECT id FROM runs WHERE change > ?"
RUN: changes.Kind[Run] = changes.Kind(
    what="run",
    plural="runs",
    cls=Run,
    table="runs",
    changed="change",
    tables=(table("runs", "runs", "id", _CONTENT, first="", bound="change", changed=_AFTER),),
)
_RUNS = rows.Rows(Run, "runs")
get = RUN.get


# -- one run ----------------------------------------------------------------------------------------------------------


def same_start(connection: apsw.Connection, run: Run) -> Run | None:
    """The run of the same user, task, kind, due and attempt; at most one."""
    query = "WHERE user_id = ? AND task = ? AND kind = ? AND due = ? AND attempt = ?"
    return _RUNS.one(connection, query, run.user, run.task, run.kind, run.due, run.attempt)


def change_of(connection: apsw.Connection, run: str) -> int:
    """Number of the run's last change that this database has; 0 when it has none."""
    return int(connection.execute("SELECT change FROM runs WHERE id = ?", (run,)).get or 0)


_INSERT = rows.insert("runs", Run, "change")


def put(connection: apsw.Connection, run: Run) -> RunState:
    """Store a run's next state. Raises apsw.ConstraintError: its start is another run's."""
    _write(connection, None, run)
    return RunState(connection.last_insert_rowid(), run)


def is_known(connection: apsw.Connection, state: RunState) -> bool:
    return change_of(connection, state.run.id) >= state.change


def restore(connection: apsw.Connection, state: RunState) -> bool:
    """Store a state of the logs. False when it, or a later one, is there already. Raises apsw.ConstraintError: its
    number or its start is another run's."""
    if is_known(connection, state):
        return False
    _write(connection, state.change, state.run)
    return True


def _write(connection: apsw.Connection, change: int | None, run: Run) -> None:
    connection.execute("DELETE FROM runs WHERE id = ?", (run.id,))
    connection.execute(_INSERT, {**rows.values(run), "change": change})


# -- lists ------------------------------------------------------------------------------------------------------------

_OF_USER = """
WHERE user_id = ?1 AND (?2 IS NULL OR status = ?2)
    AND (?3 IS NULL OR (started_at, id) < (SELECT started_at, id FROM runs WHERE user_id = ?1 AND id = ?3))
ORDER BY started_at DESC, id DESC LIMIT ?4
"""
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
    """A user's runs, the one that began last first; ``before``: id of the run after which the list goes on."""
    if task is None:
        return _RUNS.all(connection, _OF_USER, user, status, before, limit)
    return _RUNS.all(connection, _OF_TASK, user, status, before, limit, task)


def count_failed(connection: apsw.Connection, error: str, since: str) -> int:
    """How many runs of all users failed with an error code. ``since``: ISO-8601 UTC; only those begun from then on."""
    query = "SELECT count(*) FROM runs WHERE status = 'failed' AND error = ? AND started_at >= ?"
    return int(connection.execute(query, (error, since)).get)


def by_ids(connection: apsw.Connection, user: UserId, ids: Sequence[str]) -> list[Run]:
    """A user's runs by their ids, the oldest first; missing ones are left out."""
    query = "WHERE user_id = ? AND id IN (SELECT value FROM json_each(?)) ORDER BY started_at, id"
    return _RUNS.all(connection, query, user, json.dumps(list(ids)))


def running(connection: apsw.Connection) -> list[Run]:
    """All users' runs that have not ended, the oldest first: for the scheduler; after a start they are interrupted."""
    return _RUNS.all(connection, "WHERE status = 'running' ORDER BY started_at, id")


def attempts(connection: apsw.Connection, user: UserId, task: TaskName, kind: RunKind, due: str) -> list[Run]:
    query = "WHERE user_id = ? AND task = ? AND kind = ? AND due = ? ORDER BY attempt"
    return _RUNS.all(connection, query, user, task, kind, due)


# -- spending ---------------------------------------------------------------------------------------------------------


def tokens_by_task(connection: apsw.Connection, since: str) -> Mapping[tuple[UserId, TaskName], int]:
    """Tokens of all users' runs that began at or after an instant, by user and task; reads all runs, so seldom."""
    query = """
    SELECT user_id, task, sum(prompt_tokens + completion_tokens) FROM runs WHERE started_at >= ? GROUP BY user_id, task
    """
    rows = connection.execute(query, (since,))
    return {(UserId(user), TaskName(task)): tokens for user, task, tokens in rows}


# -- what they said ---------------------------------------------------------------------------------------------------

# "0" follows "/" in ASCII: all ids that begin with the run's and a slash, by the index of (user_id, id).
_SAID = """
SELECT rowid FROM messages WHERE user_id = ?1 AND id > ?2 || '/' AND id < ?2 || '0' AND id <> ?3 ORDER BY rowid
"""


def delivered_of(connection: apsw.Connection, user: UserId, run: str) -> list[Message]:
    """The run's messages in chats, in order, without its notice: what was delivered, whatever the run's record says."""
    rowids = [rowid for (rowid,) in connection.execute(_SAID, (user, run, notice_id(run)))]
    return messages.by_rowids(connection, rowids)


def notice_of(connection: apsw.Connection, user: UserId, run: str) -> Message | None:
    return messages.find(connection, user, notice_id(run))


# -- for the scheduler -------------------------------------------------------------------------------------------------

_KIND = "CASE t.name WHEN 'heartbeat' THEN 'heartbeat' ELSE 'scheduled' END"

_LATEST = f"""
WITH latest AS MATERIALIZED (
    SELECT t.user_id AS user_id, t.name AS task, {_KIND} AS kind, (
        SELECT max(r.due) FROM runs r
        WHERE r.user_id = t.user_id AND r.task = t.name AND r.kind = {_KIND} AND r.due <= ?1
    ) AS due
    FROM tasks t WHERE t.enabled
)
SELECT {_RUNS.columns} FROM latest CROSS JOIN runs USING (user_id, task, kind, due) ORDER BY user_id, task, attempt
"""  # noqa: S608 - constant columns


def latest_attempts(connection: apsw.Connection, now: str) -> dict[tuple[UserId, TaskName], list[Run]]:
    """The attempts of each enabled task that has any, in order, at its latest fire time up to now."""
    found: dict[tuple[UserId, TaskName], list[Run]] = {}
    for run in map(_RUNS.read, connection.execute(_LATEST, (now,))):
        found.setdefault((run.user, run.task), []).append(run)
    return found


def last_of_tasks(connection: apsw.Connection) -> list[Run]:
    """The last run of each task that has any, of all users."""
    query = """
    WHERE id IN (
        SELECT (SELECT r.id FROM runs r WHERE r.user_id = t.user_id AND r.task = t.name
                ORDER BY r.started_at DESC, r.id DESC LIMIT 1)
        FROM tasks t
    )
    """
    return _RUNS.all(connection, query)


def to_repeat(connection: apsw.Connection) -> list[Run]:
    """Runs that were asked for once, were interrupted before they delivered anything, and have no second attempt."""
    query = """
    AS first WHERE status = 'interrupted' AND kind IN ('spawned', 'manual') AND attempt = 1 AND delivered = 0
        AND NOT EXISTS (
            SELECT 1 FROM runs r WHERE r.user_id = first.user_id AND r.task = first.task AND r.kind = first.kind
                AND r.due = first.due AND r.attempt > 1
        )
    ORDER BY started_at, id
    """
    return _RUNS.all(connection, query)


def told(connection: apsw.Connection, user: UserId, task: TaskName | None, day: str, error: str | None = None) -> bool:
    """Whether the user was told of a failure (with this error) of a run of the task (None: any) of one day (UTC)."""
    query = """
    SELECT EXISTS (
        SELECT 1 FROM runs WHERE user_id = ?1 AND (?2 IS NULL OR task = ?2) AND started_at BETWEEN ?3 AND ?3 || '~'
            AND error IS NOT NULL AND (?4 IS NULL OR error = ?4) AND json_extract(details, '$.told') = 1
    )
    """
    return bool(connection.execute(query, (user, task, day, error)).get)
