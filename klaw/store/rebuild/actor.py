"""Actor ``store.reindexer``: rebuilds the database while the server goes on, at low priority.

The admin socket begins and stops it. The work is done in slices of a few milliseconds
in one thread, with as long a pause after each. Messages go to the database in use and to the logs as always, and from
the logs into the new database, which is compared with a snapshot of the one in use. A few passes take in what came in
meanwhile; the rest the writer takes in between two commits, and swaps the two: so it always ends, and acknowledgements
wait for that last step only.
"""

import time
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import suppress
from functools import partial
from typing import Literal, TypeAlias, TypeVar, cast

import apsw
import attrs
import structlog
import trio

from klaw.actor.failure import error_class, where
from klaw.actor.supervisor import TaskStarted, Vitals
from klaw.actor.threads import Threads
from klaw.errors import ActorStopped, KlawError, StorageError
from klaw.store.engine import connect, vector_model
from klaw.store.engine.connect import DAMAGE
from klaw.store.engine.database import Readers
from klaw.store.engine.tables import Bound
from klaw.store.engine.transaction import StoppedStore
from klaw.store.engine.writer import Writer
from klaw.store.kinds.inventory import last_numbers
from klaw.store.kinds.knowledge import document_copies
from klaw.store.rebuild.building import Building, grown, take_over
from klaw.store.rebuild.compare import compare, compare_tail
from klaw.store.rebuild.files import Places, check_begin, check_room, decide, exchange, log_sizes
from klaw.store.rebuild.values import Progress, ReindexOptions, ReindexRefused, ReindexReport, TableComparison, Vectors
from klaw.store.search import vectors

T = TypeVar("T")

ACTOR_NAME = "store.reindexer"
STOP_BUDGET_S = 15.0
SLICE_S = 0.015
"""Work between two pauses: what another thread may have to wait for the interpreter."""
PAUSE_FACTOR = 1.0
"""A pause is so many times as long as the work before it."""
MAX_PASSES = 3
"""Most passes over what came in meanwhile; what is missing after them the swap takes in."""
SMALL_BYTES = 32 * 1024
"""So little is missing that no further pass is worth it."""
CLOSE_S = 10.0

State: TypeAlias = Literal["idle", "running", "done", "failed", "cancelled"]
log = structlog.get_logger("klaw.reindex")


@attrs.frozen(kw_only=True)
class ReindexStatus:
    state: State = "idle"
    progress: Progress = attrs.Factory(lambda: Progress("scan"))
    report: ReindexReport | None = None
    error: str | None = None


@attrs.define(eq=False)
class Reindexer:
    """The actor and its handle: one reindex at a time; how it goes is in ``status``. Messages with less than
    ``min_tokens`` have no vector."""

    places: Places
    min_tokens: int
    writer: Writer
    readers: Readers
    slice_s: float = SLICE_S
    status: ReindexStatus = attrs.field(factory=ReindexStatus, init=False)
    _vitals: Vitals = attrs.field(init=False)
    _nursery: trio.Nursery | None = attrs.field(default=None, init=False)
    """There while the actor runs."""
    _swapped: Callable[[], Awaitable[None]] = attrs.field(init=False)
    _options: ReindexOptions = attrs.field(factory=ReindexOptions, init=False)
    _scope: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    _ended: trio.Event = attrs.field(factory=trio.Event, init=False)
    _threads: Threads = attrs.field(factory=lambda: Threads("reindex", 1), init=False)
    _live: apsw.Connection | None = attrs.field(default=None, init=False)
    """Reads the database in use; a snapshot of it while that is compared."""
    _taken: int = attrs.field(default=0, init=False)
    _waiting: int = attrs.field(default=0, init=False)

    async def run(self, vitals: Vitals, task_status: TaskStarted, *, swapped: Callable[[], Awaitable[None]]) -> None:
        """Until cancelled; ``swapped`` is called after a swap."""
        if self.status.state == "running":
            self.status = ReindexStatus(state="failed", error="the reindex crashed; the log has its place")
        self._vitals, self._swapped = vitals, swapped
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            vitals.doing("idle")
            task_status.started()
            try:
                await trio.sleep_forever()
            finally:
                self._nursery = None

    async def start(self, options: ReindexOptions) -> None:
        """Begin a reindex. Raises ReindexRefused: one is running; ActorStopped: the server is stopping."""
        await trio.lowlevel.checkpoint()
        if self._nursery is None:
            raise ActorStopped(f"{ACTOR_NAME} is not running")
        if self.status.state == "running":
            progress = self.status.progress
            share = f", {progress.percent} %" if progress.total else ""
            raise ReindexRefused(f"a reindex is running already (at {progress.phase}{share}): wait for its end")
        self.status, self._options, self._taken = ReindexStatus(state="running"), options, 0
        self._scope, self._ended = trio.CancelScope(), trio.Event()
        self._nursery.start_soon(self._carry_out, name="reindex")

    async def cancel(self) -> bool:
        """Stop a running reindex; what it built is kept. Returns whether there was one."""
        await trio.lowlevel.checkpoint()
        if self.status.state != "running":
            return False
        self._scope.cancel(reason="the operator stopped the reindex")
        await self._ended.wait()
        return True

    async def _carry_out(self) -> None:
        """To the end, which is told in the status; a failure concerns nobody else."""
        try:
            with self._scope:
                report = await self._reindex()
                self._end(state="done", report=report)
                return
            self._end(state="cancelled", error="the reindex was stopped; what was built is kept")
        except KlawError as error:
            self._end(state="failed", error=str(error))
        except (apsw.Error, OSError, *DAMAGE) as error:
            log.error("reindex_failed", error=error_class(error), where=where(error))
            reason = f"a file cannot be used ({error_class(error)})"
            if isinstance(error, apsw.FullError):
                reason = "the disk is full"
            elif isinstance(error, DAMAGE):
                reason += ": stop the server and run `klaw reindex --accept-differences`"
            self._end(state="failed", error=f"{reason}; what was built is kept in {self.places.building.name}")
        finally:
            self._ended.set()

    def _end(self, *, state: State, report: ReindexReport | None = None, error: str | None = None) -> None:
        self._vitals.doing("idle")
        self.status = ReindexStatus(state=state, progress=self.status.progress, report=report, error=error)
        log.info("reindex_ended", state=state)

    async def _reindex(self) -> ReindexReport:
        begin = time.monotonic()
        await self._threads.run(check_begin, self.places)
        building = Building(self.places, slice_s=self.slice_s)
        try:
            # A log that is being written to while its size is read may be taken back since; a mark is right.
            sizes, _ = await self.writer.run_alone(mark_commits)
            await self._steps(building.read_all(sizes, embed_again=self._options.embed_again))
            self._live = await self._threads.run(connect.open_alone, self.places.database)
            await self._take_over(building)
            last, _ = await self._catch_up(building, PAUSE_FACTOR, self._live)
            tables = await self._compare(building)
            await self._threads.run(self._live.execute, "COMMIT")  # the write-ahead log may be emptied again
            reason, swapped = None, False
            if self._options.accept_differences or all(table.same for table in tables):
                reason = await self._swap(building, last)
                swapped = reason is None
            return ReindexReport(
                swapped=swapped,
                tally=building.tally,
                vectors=Vectors(taken_over=self._taken, waiting=self._waiting),
                tables=tuple(tables),
                compared=True,
                reason=reason,
                seconds=time.monotonic() - begin,
            )
        finally:
            with trio.move_on_after(CLOSE_S, shield=True):
                await self._threads.run(self._close, building)
                with suppress(ActorStopped):  # the server is stopping
                    await self.writer.run_alone(end_reading)

    def _close(self, building: Building) -> None:
        building.close()
        if self._live is not None:
            self._live.close()
            self._live = None

    # -- steps -----------------------------------------------------------------------------------------------------

    async def _catch_up(
        self, building: Building, pause: float, snapshot: apsw.Connection | None = None
    ) -> tuple[Mapping[Bound, int], int]:
        """Take in what has come in up to now. Returns the highest numbers then, and how many bytes of logs that was."""
        sizes, last = await self.writer.run_alone(mark_commits, snapshot)
        size = sum(end - start for start, end in grown(building.positions, sizes).values())
        await self._steps(building.read(sizes, whole=False), phase="catch_up", pause=pause)
        return last, size

    async def _take_over(self, building: Building) -> None:
        """All documents and vectors that the database in use has now. The few that it gets later are made again."""
        assert self._live is not None
        again, slice_s = self._options.embed_again, self.slice_s
        self._taken += await self._steps(take_over(building.connection, self._live, embed_again=again, slice_s=slice_s))
        await self._threads.run(building.settle)
        self._waiting = await self._threads.run(vectors.count_unembedded, building.connection, self.min_tokens)

    async def _compare(self, building: Building) -> list[TableComparison]:
        assert self._live is not None
        try:
            return await self._steps(compare(self._live, building.connection))
        except DAMAGE as error:
            log.error("old_database_damaged", error=error_class(error), where=where(error))
            raise ReindexRefused(
                "the database in use is damaged and cannot be compared: stop the server and run"
                " `klaw reindex --accept-differences`; what was built is used again"
            ) from error

    async def _swap(self, building: Building, compared: Mapping[Bound, int]) -> str | None:
        """Swap; returns why it could not be."""
        await self._catch_up(building, PAUSE_FACTOR)
        await self._take_over(building)
        for _pass in range(MAX_PASSES):  # each takes in what came in during the one before: usually much less
            _, size = await self._catch_up(building, 0.0)
            if size <= SMALL_BYTES:
                break
        self._show(Progress("swap"))
        positions = dict(building.positions)
        await self._threads.run(self._close, building)
        check = None if self._options.accept_differences else compared
        reason = await self.writer.run_alone(hand_over, self.places, positions, check)
        if reason is None:
            await self.readers.renew_idle()
            await self._swapped()
        return reason

    # -- slices ----------------------------------------------------------------------------------------------------

    async def _steps(
        self, work: Generator[Progress, None, T], phase: Literal["catch_up"] | None = None, pause: float = PAUSE_FACTOR
    ) -> T:
        """Do the work of a generator slice by slice. Returns what it returns."""
        try:
            while True:
                begin = trio.current_time()
                step, value = await self._threads.run(_next, work, self.places)
                if step is None:
                    return cast("T", value)
                self._show(step if phase is None else Progress(phase, step.done, step.total))
                await trio.sleep((trio.current_time() - begin) * pause)
        finally:
            work.close()

    def _show(self, progress: Progress) -> None:
        self.status = attrs.evolve(self.status, progress=progress)
        self._vitals.doing(f"reindex: {progress.phase} {progress.done}/{progress.total}")


def _next(work: Generator[Progress, None, T], places: Places) -> tuple[Progress | None, T | None]:
    check_room(places)
    try:
        return next(work), None
    except StopIteration as end:
        return None, end.value


# -- the writer's part: in its thread, while nothing is written; acknowledgements wait for it --------------------------


def mark_commits(
    stopped: StoppedStore, live: apsw.Connection | None = None
) -> tuple[Mapping[str, int], Mapping[Bound, int]]:
    """How far the store is: the bytes of each log, below which nothing changes any more until ``end_reading``, and the
    highest numbers; that of turns is only for this very file. ``live``, another connection, reads the database as it is
    now until it ends its transaction. Raises StorageError: the database cannot be read."""
    try:
        if live is not None:
            live.execute("BEGIN")
            live.execute("SELECT count(*) FROM sqlite_schema").fetchall()
        last = last_numbers(stopped.connection)
    except (apsw.Error, *DAMAGE) as error:
        raise StorageError(f"the database in use cannot be read ({error_class(error)}): see klaw doctor") from error
    stopped.journal.is_read = True
    return log_sizes(stopped.data_dir), last


def end_reading(stopped: StoppedStore) -> None:
    """Let logs be rewritten again."""
    stopped.journal.is_read = False


def hand_over(
    stopped: StoppedStore, places: Places, positions: Mapping[str, int], compared: Mapping[Bound, int] | None
) -> str | None:
    """Bring the new database, into which each log was read up to its position, up to the last commit, compare what is
    new, and decide for it. Up to the numbers of ``compared`` everything is the same in both; None: differences were
    accepted. Returns why it could not be. Raises StorageError: nothing was decided; the present one stays."""
    building = Building(places, slice_s=float("inf"))
    try:
        building.reopen(positions)
        if vector_model.current(building.connection) != vector_model.current(stopped.connection):
            return "the embedding model is being changed: run it again when that has ended"
        for _step in building.read(log_sizes(stopped.data_dir), whole=False):
            pass
        if compared is not None and not compare_tail(stopped.connection, building.connection, compared):
            return "the newest rows, the chats or the tasks are not the same in both databases"
        document_copies.hand_over(building.connection, stopped.connection)
        building.finish()
        # What running readers do not need is brought into the file; the rest stays in the log that moves with it.
        stopped.connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        decide(places)
    except (apsw.Error, OSError) as error:
        log.error("swap_failed", error=error_class(error), where=where(error))
        raise StorageError(f"the new database could not be finished ({error_class(error)})") from error
    finally:
        building.close()
    stopped.exchange = partial(exchange, places)
    return None
