"""Storing runs of tasks, their transcripts, and what they say in chats.

No result is lost or delivered twice when the process dies: the message and the run's new state are one group of the
journal, so both are there or none. After a kill before that, recovery interrupts the run and, where that is due, tries
again; after it, to save the same state again is answered as repeated. In a home that an older Klaw left between the two
lines, ``runs.delivered_of`` finds the message by its id.
"""

from collections.abc import Sequence

import attrs

from klaw.domain.message import NewMessage
from klaw.domain.names import name_of
from klaw.domain.task import Run, delivery_id, notice_id, task_name
from klaw.errors import IdConflict, NoSuchChat, NoSuchRun, RunOver, StorageError
from klaw.store.engine.transaction import Transaction
from klaw.store.kinds import chats, runs
from klaw.store.kinds.messages import append_one


@attrs.frozen(kw_only=True)
class RunLines:
    """Messages of a run for its transcript; recall never finds them."""

    first_seq: int
    """Place of the first one within the run: 1, 2 …"""
    messages: tuple[NewMessage, ...]


@attrs.frozen
class StartedRun:
    run: Run
    repeated: bool
    """``run`` was there already, and nothing was written."""


@attrs.frozen
class RunSaved:
    run: Run
    repeated: bool
    """The same was saved before, and nothing was written."""


def begin(
    tx: Transaction, run: Run, notice: NewMessage | None = None, *, delivery: NewMessage | None = None
) -> StartedRun:
    """Store a run that begins, or one that was refused. A second one of the same user, task, kind, due and attempt is
    not stored, so that no fire time runs twice. ``notice``: what a chat is told (``domain.task.notice_message``);
    ``delivery``: all that a run says that is over at once; its chat need not be there. Raises NoSuchChat: that of the
    notice, and nothing was stored; IdConflict: the id is another run's."""
    task_name(run.task)  # it becomes a folder
    present = runs.same_start(tx.connection, run)
    if present is not None:
        return StartedRun(present, repeated=True)
    if runs.change_of(tx.connection, run.id):
        raise IdConflict("this id is already another run's")
    if notice is not None:
        _say(tx, run, notice, notice_id(run.id))
    if delivery is not None:
        append_one(tx, delivery)
    _put(tx, run)
    return StartedRun(run, repeated=False)


def append_transcript(tx: Transaction, run: Run, first_seq: int, added: Sequence[NewMessage]) -> None:
    """Add messages to a run's transcript, the first with the number ``first_seq`` within the run, from 1. A repetition
    would double them; readers know them by their ids. Raises NoSuchRun, RunOver."""
    if _stored(tx, run).status.over:
        raise _over(run)
    _transcribe(tx, run, first_seq, added)


def save(
    tx: Transaction,
    run: Run,
    *,
    transcript: RunLines | None = None,
    delivery: NewMessage | None = None,
    notice: NewMessage | None = None,
) -> RunSaved:
    """Store the next state of a run that has not ended.

    Args:
        run: the new state. With a delivery its ``delivered`` counts that already.
        transcript: its newest lines.
        delivery: a result for the run's chat, ``domain.task.delivery_message`` with the number ``run.delivered``.
        notice: what another chat is told (``domain.task.notice_message``).

    Raises:
        NoSuchChat: the user has no chat of the delivery or the notice; nothing was stored.
        NoSuchRun
        RunOver: it has ended in another way.
        StorageError: the state does not follow the stored one, or the delivery does not fit the state.
    """
    stored = _stored(tx, run)
    same = runs.fields(stored) == runs.fields(run)
    if same and (run.status.over or delivery is not None):
        return RunSaved(stored, repeated=True)
    if stored.status.over:
        raise _over(run)
    if run.delivered < stored.delivered:
        raise StorageError("a run cannot have delivered less than before")
    if delivery is not None:
        _say(tx, run, delivery, delivery_id(run.id, run.delivered))
    if notice is not None:
        _say(tx, run, notice, notice_id(run.id))
    if transcript is not None:
        _transcribe(tx, run, transcript.first_seq, transcript.messages)
    _put(tx, run)
    return RunSaved(run, repeated=False)


def _stored(tx: Transaction, run: Run) -> Run:
    stored = runs.get(tx.connection, run.user, run.id)
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


def _put(tx: Transaction, run: Run) -> None:
    tx.write(runs.run_path(run), runs.run_line(runs.put(tx.connection, run)))


def _transcribe(tx: Transaction, run: Run, first_seq: int, added: Sequence[NewMessage]) -> None:
    path = runs.transcript_path(run)
    for seq, message in enumerate(added, first_seq):
        tx.write(path, runs.transcript_line(run, seq, message))


def _say(tx: Transaction, run: Run, new: NewMessage, wanted_id: str) -> None:
    """Append a message of a run to a chat that is there, and its user's."""
    if new.id != wanted_id or new.user != run.user or new.metadata.get("run") != run.id:
        raise StorageError("the message is not the one that this state of the run says")
    if chats.get(tx.connection, run.user, new.chat) is None:
        raise NoSuchChat(name_of(new.chat))
    appended = append_one(tx, new)
    if appended.message.metadata.get("run") != run.id:
        raise IdConflict("this message id is already used by another message")
