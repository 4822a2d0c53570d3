"""The requests that change tasks and runs, carried out in the writer's transaction; their lines join the group's.

Why no result is lost or delivered twice when the process dies. A delivery has two lines: the message in its chat's log,
and the run's new state in the log of runs; the commit writes all messages of a group before all states of runs.

- Killed before the message's line: nobody was told anything. The run is still running in both logs and database; the
  scheduler marks it as interrupted and, where that is due, tries again.
- Killed between the two lines: the next start finds the message in its log and inserts it, so whoever was away gets it
  on resume. The run's state still says running, without this delivery; ``runs.delivered_of`` finds the message by its
  id, which follows from the run's id, and recovery records it instead of delivering again.
- Killed after both lines and before the database's commit: the next start inserts both.
- Killed after the commit and before the answer: all is there. To save the same state again is answered as repeated.

In none of them can a run say that it delivered what no log has. The database is never ahead of the logs.
"""

import apsw

from klaw.domain.delivery import delivery_id, notice_id
from klaw.domain.message import NewMessage
from klaw.domain.names import UserId, name_of, user_of
from klaw.domain.task import Run, Task, TaskName, task_name
from klaw.errors import IdConflict, NoSuchChat, NoSuchRun, NoSuchTask, RunOver, StorageError, TaskExists
from klaw.store import run_records
from klaw.store.appending import append_message
from klaw.store.journal import Entry
from klaw.store.memory_commit import journal
from klaw.store.memory_records import TaskEntry
from klaw.store.requests import (
    Appended,
    AppendTranscript,
    BeginRun,
    Begun,
    OfTasks,
    PutTask,
    RemoveTask,
    RunSaved,
    SaveRun,
    Transcript,
)
from klaw.store.sql import messages, runs, tasks


def execute_of_tasks(
    connection: apsw.Connection, request: OfTasks, entries: list[Entry]
) -> Task | Begun | RunSaved | None:
    """Carry out a request inside a savepoint.

    Raises:
        KlawError: it is refused; the caller takes back what was done.
        ValueError, TypeError, LookupError, apsw.ConstraintError: likewise, a value cannot be stored.
    """
    match request:
        case PutTask():
            return _put_task(connection, request, entries)
        case RemoveTask():
            return _remove_task(connection, request, entries)
        case BeginRun():
            return _begin_run(connection, request, entries)
        case AppendTranscript():
            _append_transcript(connection, request, entries)
            return None
        case SaveRun():
            return _save_run(connection, request, entries)


# -- tasks -------------------------------------------------------------------------------------------------------------


def _put_task(connection: apsw.Connection, request: PutTask, entries: list[Entry]) -> Task:
    task = request.task
    task_name(task.name)
    present = tasks.get(connection, task.user, task.name)
    if request.expected == "new" and present is not None:
        raise TaskExists(f"there is a task {task.name} already")
    if request.expected == "existing" and present is None:
        raise _no_task(task.name)
    _journal(connection, entries, task.updated_at, task.user, task.name, task)
    return task


def _remove_task(connection: apsw.Connection, request: RemoveTask, entries: list[Entry]) -> Task:
    present = tasks.get(connection, request.user, request.name)
    if present is None:
        raise _no_task(request.name)
    _journal(connection, entries, request.at, request.user, request.name, None)
    return present


def _no_task(name: TaskName) -> NoSuchTask:
    return NoSuchTask(f"there is no task {name}")


def _journal(
    connection: apsw.Connection, entries: list[Entry], time: str, user: UserId, name: TaskName, task: Task | None
) -> None:
    journal(connection, entries, TaskEntry(entry=0, time=time, user=user, name=name, task=task))


# -- runs --------------------------------------------------------------------------------------------------------------


def _begin_run(connection: apsw.Connection, request: BeginRun, entries: list[Entry]) -> Begun:
    run = request.run
    task_name(run.task)  # it becomes a folder
    present = runs.same_start(connection, run)
    if present is not None:
        return Begun(present, repeated=True)
    if runs.change_of(connection, run.id):
        raise IdConflict("this id is already another run's")
    appended = () if request.notice is None else (_say(connection, run, request.notice, entries, notice_id(run.id)),)
    _put(connection, run, entries)
    return Begun(run, repeated=False, appended=appended)


def _append_transcript(connection: apsw.Connection, request: AppendTranscript, entries: list[Entry]) -> None:
    if _stored(connection, request.run).status.over:
        raise _over(request.run)
    _transcribe(request.run, request.transcript, entries)


def _save_run(connection: apsw.Connection, request: SaveRun, entries: list[Entry]) -> RunSaved:
    run, delivery, notice = request.run, request.delivery, request.notice
    stored = _stored(connection, run)
    same = run_records.fields(stored) == run_records.fields(run)
    if same and (run.status.over or delivery is not None):
        found = (messages.find(connection, run.user, new.id) for new in (delivery, notice) if new is not None)
        appended = tuple(Appended(message, repeated=True) for message in found if message is not None)
        return RunSaved(stored, appended, repeated=True)
    if stored.status.over:
        raise _over(run)
    if run.delivered < stored.delivered:
        raise StorageError("a run cannot have delivered less than before")
    said = []
    if delivery is not None:
        said.append(_say(connection, run, delivery, entries, delivery_id(run.id, run.delivered)))
    if notice is not None:
        said.append(_say(connection, run, notice, entries, notice_id(run.id)))
    if request.transcript is not None:
        _transcribe(run, request.transcript, entries)
    _put(connection, run, entries)
    return RunSaved(run, tuple(said), repeated=False)


def _stored(connection: apsw.Connection, run: Run) -> Run:
    stored = runs.get(connection, run.user, run.id)
    if stored is None:
        raise NoSuchRun(f"there is no such run of {run.task}")
    if _start(stored) != _start(run):
        raise StorageError("the run began otherwise: user, task, kind, due, attempt and start stay as they were")
    return stored


def _start(run: Run) -> tuple[object, ...]:
    """What never changes; the run's logs are found by it."""
    return run.user, run.task, run.kind, run.due, run.attempt, run.started_at


def _over(run: Run) -> RunOver:
    return RunOver(f"the run of {run.task} has ended already")


def _put(connection: apsw.Connection, run: Run, entries: list[Entry]) -> None:
    _write(entries, run_records.run_path(run), run_records.run_line(runs.put(connection, run)))


def _transcribe(run: Run, transcript: Transcript, entries: list[Entry]) -> None:
    path = run_records.transcript_path(run)
    for seq, message in enumerate(transcript.messages, transcript.first_seq):
        _write(entries, path, run_records.transcript_line(run, seq, message))


def _say(connection: apsw.Connection, run: Run, new: NewMessage, entries: list[Entry], wanted_id: str) -> Appended:
    """Append a message of a run to a chat that is there, and its user's."""
    if new.id != wanted_id or new.user != run.user or new.metadata.get("run") != run.id:
        raise StorageError("the message is not the one that this state of the run says")
    session = messages.session(connection, new.chat)
    if session is None or session.user != run.user or user_of(new.chat) != run.user:
        raise NoSuchChat(name_of(new.chat))
    appended = append_message(connection, new, entries)
    if appended.message.metadata.get("run") != run.id:
        raise IdConflict("this message id is already used by another message")
    return appended


def _write(entries: list[Entry], path: str, line: str) -> None:
    line.encode()  # a lone surrogate is refused here, for this request only
    entries.append(Entry(path, line))
