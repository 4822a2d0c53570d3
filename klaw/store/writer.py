"""The single DB writer: owns the read-write connection and the logs. Everything that waits is committed as one group.

Who sends to it: chat actors (messages, turns), the embedder (vectors) and the reindexer (marks, the swap), through the
``Writer`` handle. It is vital: when it fails, the process ends and systemd restarts it, because what it holds in memory
may be ahead of the disk.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

import apsw
import attrs
import structlog
import trio

from klaw.actor.failure import error_class, where
from klaw.actor.mailbox import Mailbox
from klaw.actor.reply import Reply
from klaw.actor.supervisor import Started
from klaw.actor.vitals import Vitals
from klaw.domain.coverage import Damage
from klaw.domain.message import Message, NewMessage
from klaw.domain.turn import TurnRecord
from klaw.errors import KlawError, StorageError, StorageFull
from klaw.store.background_requests import BackgroundWrites
from klaw.store.commit import Outcome, checkpoint, commit_group
from klaw.store.database import Database
from klaw.store.forget_commit import execute_alone
from klaw.store.forget_requests import AloneForForgetting
from klaw.store.forget_writes import ForgetWrites
from klaw.store.journal import Journal
from klaw.store.memory_writes import MemoryWrites
from klaw.store.person_writes import PersonWrites
from klaw.store.reindex.handover import Brake, Watched, hand_over, mark
from klaw.store.reindex.places import Places, exchange
from klaw.store.reindex.values import Committed, Handover, Ready
from klaw.store.requests import (
    Append,
    Appended,
    Begun,
    Between,
    EncodeVectors,
    EndReembedding,
    MarkCommits,
    Ping,
    PrepareVectors,
    RepairIndex,
    Request,
    RunSaved,
    StoreVectors,
    SwapDatabase,
)
from klaw.store.sql.coverage import Repaired
from klaw.store.sql.vectors import Prepared
from klaw.store.task_writes import TaskWrites
from klaw.store.topic_writes import TopicWrites

MAILBOX_CAPACITY = 1024
"""Filled by chat actors and the embedder, which wait when it is full."""
MAX_GROUP = 256
"""Requests in one transaction."""
SLOW_COMMIT_S = 0.006
"""A group that takes longer shows a disk on which it pays to wait for a fuller one."""
MAX_PATIENCE_S = 0.02
"""Longest wait for a group to fill."""
STOP_BUDGET_S = 20.0
"""For what is queued and the last checkpoint, also on a slow card."""
IDLE_CHECKPOINT_S = 20.0
"""Without a write for so long, the commit log is emptied."""

log = structlog.get_logger("klaw.writer")


@attrs.frozen(kw_only=True)
class Pace:
    """How long to wait for a group to fill.

    On a slow disk the requesters of one group are busy with its answers while the next group, of the others, is already
    written: two half groups take turns and each pays a whole fsync. Waiting a little for those who were just answered
    makes one full group of them. A lone requester never waits, nor does anybody on a quick disk.
    """

    expected: int = 1
    """How many requests the last round showed to be under way at once."""
    patience_s: float = 0.0

    @classmethod
    def after(cls, group: int, waiting: int, took_s: float) -> "Pace":
        """The pace for the next group.

        Args:
            group: requests of the last group.
            waiting: requests that came in while it was written.
            took_s: how long it took.
        """
        slow = took_s >= SLOW_COMMIT_S
        return cls(
            expected=min(MAX_GROUP, group + waiting), patience_s=min(MAX_PATIENCE_S, took_s / 2) if slow else 0.0
        )


Publish = Callable[[Sequence[Message]], None]
"""Called with newly committed messages in commit order, before their requesters are answered. Sync and quick."""


class Writer(TaskWrites, MemoryWrites, TopicWrites, PersonWrites, ForgetWrites, BackgroundWrites):
    """Handle of the writer actor."""

    def __init__(self) -> None:
        self.mailbox: Mailbox[Request] = Mailbox("store.writer", MAILBOX_CAPACITY)
        self.brake = Brake()
        """The reindexer's."""

    async def append(self, messages: Sequence[NewMessage], turn: TurnRecord | None = None) -> tuple[Appended, ...]:
        """Store messages, and the turn that they end, durably: all or nothing.

        Raises:
            IdConflict: an id is used in another chat of the user.
            StorageFull: no space.
            ActorStopped: the writer is gone.

        Cancellation: they may or may not be stored; the ids make a repetition safe.
        """
        return await (await self.begin_append(messages, turn)).wait()

    async def begin_append(
        self, messages: Sequence[NewMessage], turn: TurnRecord | None = None
    ) -> Reply[tuple[Appended, ...]]:
        """Like ``append``, but returns as soon as the request is queued: what is begun in order is stored in order."""
        reply: Reply[tuple[Appended, ...]] = Reply()
        request = Append(messages=tuple(messages), turn=turn, reply=reply)
        if self.mailbox.has_room:  # the usual case, without a trip through the scheduler for each message
            self.mailbox.tell(request)
        else:
            await self.mailbox.post(request)
        return reply

    async def store_vectors(self, model_id: str, vectors: Sequence[tuple[int, bytes]], as_of: int | None = None) -> int:
        """Store vectors; returns how many were new; ``as_of``: see ``StoreVectors``. Raises like ``append``.

        Raises:
            VectorsDamaged: the vector table cannot take them; nothing of the request was stored.
        """

        def request(reply: Reply[int]) -> StoreVectors:
            return StoreVectors(model_id=model_id, vectors=tuple(vectors), as_of=as_of, reply=reply)

        return await self.mailbox.ask(request)

    async def repair_index(self, damage: Damage) -> Repaired:
        """Put right what the indexes lack or have too much of.

        Raises:
            StorageError: an index is damaged itself.
            StorageFull, ActorStopped: like ``append``.
        """

        def request(reply: Reply[Repaired]) -> RepairIndex:
            return RepairIndex(damage=damage, reply=reply)

        return await self.mailbox.ask(request)

    async def prepare_vectors(self, model_id: str, dimension: int, *, anew: bool = False) -> bool:
        """Make the vector table fit a model, in steps between which messages are stored.

        Args:
            model_id: what made, or will make, the vectors.
            dimension: of each.
            anew: the table is damaged; drop it and let every message be embedded again.

        Returns:
            Whether another model's vectors were dropped and are not all made anew yet.

        Raises:
            VectorsDamaged: not even dropping it works.
            StorageFull, ActorStopped: like ``append``.

        Cancellation: the next call goes on from there.
        """

        def request(reply: Reply[Prepared]) -> PrepareVectors:
            return PrepareVectors(model_id=model_id, dimension=dimension, anew=anew, reply=reply)

        while not (step := await self.mailbox.ask(request)).done:
            pass
        return step.dropped

    async def end_reembedding(self) -> None:
        """Remember that all messages have a vector of the model in use. Raises like ``append``."""

        def request(reply: Reply[None]) -> EndReembedding:
            return EndReembedding(reply=reply)

        await self.mailbox.ask(request)

    async def encode_vectors(self) -> bool:
        """Make codes for some vectors that have none, in a transaction of its own; returns whether there may be more
        to do."""

        def request(reply: Reply[bool]) -> EncodeVectors:
            return EncodeVectors(reply=reply)

        return await self.mailbox.ask(request)

    async def mark_commits(self, step: Literal["begin", "next", "end"]) -> Committed:
        """What was committed since the mark before; for the reindexer, the only one who may watch."""

        def request(reply: Reply[Committed]) -> MarkCommits:
            return MarkCommits(step=step, reply=reply)

        return await self.mailbox.ask(request)

    async def swap_database(self, places: Places, ready: Ready) -> Handover:
        """Go on with the new database, with all that has come in: see ``klaw.store.reindex.handover``.

        Raises:
            StorageError: it could not be finished; the present one stays.
            ActorStopped: the writer failed, and so the process ends; the next start has one of the two databases.

        Cancellation: it may be done or not.
        """

        def request(reply: Reply[Handover]) -> SwapDatabase:
            return SwapDatabase(places=places, ready=ready, reply=reply)

        return await self.mailbox.ask(request)

    async def ping(self) -> None:
        """Return when the writer has committed an empty transaction."""

        def request(reply: Reply[None]) -> Ping:
            return Ping(reply=reply)

        await self.mailbox.ask(request)


async def run(
    vitals: Vitals,
    task_status: Started,
    *,
    writer: Writer,
    database: Database,
    journal: Journal,
    publish: Publish,
    swapped: Callable[[], None] = lambda: None,
) -> None:
    """The writer's loop. Ends when its mailbox is closed and empty, with a last checkpoint.

    Args:
        vitals, task_status: of the actor.
        writer: its handle.
        database: the read-write connection.
        journal: the logs.
        publish: see ``Publish``.
        swapped: called when another database has taken the place of the present one.
    """
    mailbox = writer.mailbox
    pace = Pace()
    watched = Watched()
    task_status.started()
    while True:
        vitals.doing("idle")
        await writer.brake.wait()
        group: list[Request] = []
        closed = False
        with trio.move_on_after(IDLE_CHECKPOINT_S):
            try:
                group.append(await mailbox.receive())
            except trio.EndOfChannel:
                closed = True
        if not group:  # outside of the deadline of idleness: a checkpoint may take as long as it takes
            await database.run(checkpoint, journal)
            if closed:
                return
            continue
        if isinstance(group[0], Between):
            vitals.doing("working alone")
            await _between(database, journal, watched, group[0], swapped)
            continue
        with trio.move_on_after(pace.patience_s):
            await mailbox.wait_for_depth(pace.expected - 1)
        group += mailbox.take_while(lambda request: not isinstance(request, Between), MAX_GROUP - 1)
        vitals.doing("committing")
        begin = trio.current_time()
        await _commit(database, journal, group, publish)
        watched.note(request.vectors for request in group if isinstance(request, StoreVectors))
        pace = Pace.after(len(group), mailbox.report().depth, trio.current_time() - begin)


async def _commit(database: Database, journal: Journal, group: Sequence[Request], publish: Publish) -> None:
    try:
        outcomes = await database.run(commit_group, journal, group)
    except StorageFull as error:
        log.error("storage_full", count=len(group), error=type(error).__name__)
        outcomes = [Outcome(error=error)] * len(group)
    publish(
        [
            appended.message
            for outcome in outcomes
            if outcome.error is None
            for appended in _appended(outcome.value)
            if not appended.repeated
        ]
    )
    for request, outcome in zip(group, outcomes, strict=True):
        _answer(request, outcome.value, outcome.error)


def _appended(value: object) -> tuple[Appended, ...]:
    """The messages that the answer to a request is about."""
    if isinstance(value, tuple):
        return value
    return value.appended if isinstance(value, Begun | RunSaved) else ()


async def _between(
    database: Database,
    journal: Journal,
    watched: Watched,
    request: Between,
    swapped: Callable[[], None],
) -> None:
    """A mark, or the swap. A failure before the decision concerns the reindex only, one after it ends the process."""
    if isinstance(request, MarkCommits):
        request.reply.set(await database.run(mark, journal, watched, request.step))
        return
    if isinstance(request, AloneForForgetting):
        await _clean(database, journal, watched, request)
        return
    begin = trio.current_time()
    try:
        outcome = await database.run(hand_over, journal, watched, request.places, request.ready)
    except (apsw.Error, OSError) as error:
        log.error("swap_failed", error=error_class(error), where=where(error))
        request.reply.fail(StorageError(f"the new database could not be finished ({error_class(error)})"))
        return
    if outcome == "swapped":
        await database.replace(partial(exchange, request.places))
        swapped()
        log.info("database_swapped", duration_ms=round((trio.current_time() - begin) * 1000))
    request.reply.set(outcome)


async def _clean(database: Database, journal: Journal, watched: Watched, request: AloneForForgetting) -> None:
    """What cannot be cleaned now the next start cleans: it is noted in the database and in the memory journal."""
    reply: Reply[object] = request.reply  # type: ignore[assignment]  # execute_alone returns each request's own type
    if watched.vectors is not None:
        reply.fail(StorageError("a reindex is reading the logs: what is left is cleaned at the next start"))
        return
    try:
        reply.set(await database.run(execute_alone, journal, request))
    except (apsw.Error, OSError) as error:
        log.error("clean_failed", error=error_class(error), where=where(error))
        reply.fail(StorageError(f"the logs could not be cleaned ({error_class(error)}); the next start tries again"))


def _answer(request: Request, value: object, error: KlawError | None) -> None:
    reply: Reply[object] = request.reply  # type: ignore[assignment]  # commit_group returns each request's own type
    if error is None:
        reply.set(value)
    else:
        reply.fail(error)
