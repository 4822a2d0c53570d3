"""The single DB writer: owns the read-write connection and the logs. Everything that waits is committed as one group.

Everything that is stored comes through its handle: ``writer.run(facts.put, fact, "new")``. When it fails, the process
ends and systemd restarts it, because what it holds in memory may be ahead of the disk.
"""

from collections.abc import Callable, Sequence
from typing import Concatenate, ParamSpec, TypeVar, cast

import apsw
import structlog
import trio

from klaw.actor.mailbox import Mailbox, Reply
from klaw.actor.supervisor import TaskStarted, Vitals
from klaw.domain.message import Message
from klaw.errors import KlawError, StorageFull
from klaw.store.engine.database import Database
from klaw.store.engine.journal import Journal
from klaw.store.engine.transaction import StoppedStore, Transaction, WriteRequest, checkpoint, commit_group

P = ParamSpec("P")
T = TypeVar("T")

MAILBOX_CAPACITY = 1024
MAX_GROUP = 256
SLOW_COMMIT_S, MAX_PATIENCE_S = 0.006, 0.02
"""A group that takes longer shows a disk on which it pays to wait for a fuller one, but no longer than this."""
STOP_BUDGET_S = 20.0
IDLE_CHECKPOINT_S = 300.0
"""Without a write for so long, the commit log is emptied."""

log = structlog.get_logger("klaw.writer")


def pace(group: int, waiting: int, took_s: float) -> tuple[int, float]:
    """For how many requests to wait, and how long, after a group that took so long while ``waiting`` others came in. On
    a slow disk two half groups would take turns, each with a whole fsync; waiting a little for those who were just
    answered makes one full group. A lone requester never waits, nor does anybody on a quick disk."""
    return min(MAX_GROUP, group + waiting), min(MAX_PATIENCE_S, took_s / 2) if took_s >= SLOW_COMMIT_S else 0.0


Publish = Callable[[Sequence[Message]], None]
"""Called with newly committed messages in commit order, before their requesters are answered. Sync and quick."""


class Writer:
    def __init__(self) -> None:
        self.mailbox: Mailbox[WriteRequest] = Mailbox("store.writer", MAILBOX_CAPACITY)

    async def run(self, function: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a writing ``function(transaction, ...)`` in the writer's thread; durable when this returns. It may be
        called twice, so it must change nothing but the transaction. Cancelled, it may be done or not. Raises its
        KlawError; StorageError: a value cannot be stored; StorageFull; ActorStopped: the writer is gone."""
        return await (await self.begin(function, *args, **kwargs)).wait()

    async def begin(
        self, function: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> Reply[T]:
        """Like ``run``, but returns when the request is queued; requests are carried out in their order."""
        request = WriteRequest(function, args, kwargs)
        await self.mailbox.post(request)
        return request.reply

    def offer(
        self, function: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> Reply[T] | None:
        """Like ``begin``, without waiting; None: too much is queued."""
        request = WriteRequest(function, args, kwargs)
        return request.reply if self.mailbox.has_room and self.mailbox.tell(request) else None

    async def run_alone(
        self, function: Callable[Concatenate[StoppedStore, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a function between two groups, outside of any transaction. Cancelled, it may be done or not. Raises its
        KlawError; any other error ends the process."""
        request = WriteRequest(function, args, kwargs, alone=True)
        await self.mailbox.post(request)
        return cast("T", await request.reply.wait())

    async def ping(self) -> None:
        await self.run(lambda _: None)


async def run(
    vitals: Vitals,
    task_status: TaskStarted,
    *,
    writer: Writer,
    database: Database,
    journal: Journal,
    publish: Publish,
    swapped: Callable[[], None] = lambda: None,
) -> None:
    """The writer's loop, until its mailbox is closed and empty. ``swapped``: another database is in its place."""
    mailbox = writer.mailbox
    expected, patience_s = 1, 0.0
    task_status.started()
    while True:
        vitals.doing("idle")
        group: list[WriteRequest] = []
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
        if group[0].alone:
            vitals.doing("working alone")
            await _run_alone(database, journal, group[0], swapped)
            continue
        if patience_s > 0:
            with trio.move_on_after(patience_s):
                await mailbox.wait_for_depth(expected - 1)
        else:  # those who are about to send do; a deadline of no time would cost a cancellation
            await trio.lowlevel.checkpoint()
        group += mailbox.take_while(lambda request: not request.alone, MAX_GROUP - 1)
        vitals.doing("committing")
        begin = trio.current_time()
        await _commit(database, journal, group, publish)
        expected, patience_s = pace(len(group), mailbox.report().depth, trio.current_time() - begin)


async def _commit(database: Database, journal: Journal, group: Sequence[WriteRequest], publish: Publish) -> None:
    try:
        outcomes = await database.run(commit_group, journal, group)
    except StorageFull as error:
        log.error("storage_full", count=len(group), error=type(error).__name__)
        for request in group:
            request.reply.fail(error)
        return
    publish([message for outcome in outcomes for message in outcome.transaction.published])
    for request, outcome in zip(group, outcomes, strict=True):
        if outcome.error is None:
            request.reply.set(outcome.value)
        else:
            request.reply.fail(outcome.error)


async def _run_alone(database: Database, journal: Journal, request: WriteRequest, swapped: Callable[[], None]) -> None:
    """A failure that is no KlawError, also of the exchange, ends the process."""
    begin = trio.current_time()

    def work(connection: apsw.Connection) -> tuple[object, Callable[[], None] | None]:
        stopped = StoppedStore(connection, journal)
        return request.function(stopped, *request.args, **request.kwargs), stopped.exchange

    try:
        value, exchange = await database.run(work)
    except KlawError as error:
        request.reply.fail(error)
        return
    if exchange is not None:
        await database.replace(exchange)
        swapped()
        log.info("database_swapped", duration_ms=round((trio.current_time() - begin) * 1000))
    request.reply.set(value)
