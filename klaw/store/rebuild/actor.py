"""Actor ``store.reindexer``: rebuilds the database while the server goes on, at low priority.

The admin socket begins and stops it, through the ``Reindexer`` handle. The work is done in slices of a few milliseconds
in one thread, with as long a pause after each. Messages go to the database in use and to the logs as always, and from
the logs into the new database, which is compared with a snapshot of the one in use. A few passes take in what came in
meanwhile; the rest the writer takes in between two commits, and swaps the two: so it always ends, and acknowledgements
wait for that last step only.
"""

import time
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import suppress
from typing import Literal, TypeAlias, TypeVar, cast

import apsw
import attrs
import structlog
import trio

from klaw.actor.failure import error_class, where
from klaw.actor.supervisor import TaskStarted, Vitals
from klaw.actor.threads import Threads
from klaw.errors import ActorStopped, KlawError
from klaw.store.engine import connect
from klaw.store.engine.connect import DAMAGE
from klaw.store.engine.database import Readers
from klaw.store.engine.tables import Bound
from klaw.store.engine.writer import Writer
from klaw.store.rebuild import logs
from klaw.store.rebuild.building import Building, take_over
from klaw.store.rebuild.compare import compare
from klaw.store.rebuild.files import Places, check_begin, check_room
from klaw.store.rebuild.handover import CommitMark, end_reading, hand_over, mark_commits
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


class Reindexer:
    def __init__(self) -> None:
        self.status = ReindexStatus()
        self.slice_s = SLICE_S
        self.begin: Callable[[ReindexOptions], _Job] | None = None
        """Set while the actor runs."""
        self._job: _Job | None = None

    async def start(self, options: ReindexOptions) -> None:
        """Begin a reindex; how it goes is in ``status``. Raises ReindexRefused: one is running; ActorStopped: the
        server is stopping."""
        await trio.lowlevel.checkpoint()
        if self.begin is None:
            raise ActorStopped(f"{ACTOR_NAME} is not running")
        if self.status.state == "running":
            raise ReindexRefused(_running(self.status.progress))
        self.status = ReindexStatus(state="running")
        self._job = self.begin(options)

    async def cancel(self) -> bool:
        """Stop a running reindex; what it built is kept. Returns whether there was one."""
        await trio.lowlevel.checkpoint()
        if self._job is None or self.status.state != "running":
            return False
        self._job.scope.cancel(reason="the operator stopped the reindex")
        await self._job.ended.wait()
        return True


async def run(
    vitals: Vitals,
    task_status: TaskStarted,
    *,
    reindexer: Reindexer,
    places: Places,
    min_tokens: int,
    writer: Writer,
    readers: Readers,
    swapped: Callable[[], Awaitable[None]],
) -> None:
    """One reindex at a time, until cancelled.

    Args:
        min_tokens: shorter messages have no vector.
        swapped: called after a swap.
    """
    if reindexer.status.state == "running":
        reindexer.status = ReindexStatus(state="failed", error="the reindex crashed; the log has its place")
    async with trio.open_nursery() as nursery:

        def begin(options: ReindexOptions) -> _Job:
            job = _Job(vitals, reindexer, places, options, min_tokens, writer, readers, swapped)
            nursery.start_soon(job.run, name="reindex")
            return job

        reindexer.begin = begin
        vitals.doing("idle")
        task_status.started()
        try:
            await trio.sleep_forever()
        finally:
            reindexer.begin = None


def _running(progress: Progress) -> str:
    share = f", {100 * progress.done // progress.total} %" if progress.total else ""
    return f"a reindex is running already (at {progress.phase}{share}): wait for its end"


@attrs.define(eq=False)
class _Job:
    vitals: Vitals
    reindexer: Reindexer
    places: Places
    options: ReindexOptions
    min_tokens: int
    writer: Writer
    readers: Readers
    swapped: Callable[[], Awaitable[None]]
    scope: trio.CancelScope = attrs.Factory(trio.CancelScope)
    ended: trio.Event = attrs.Factory(trio.Event)
    _threads: Threads = attrs.Factory(lambda: Threads("reindex", 1))
    _live: apsw.Connection | None = None
    """Reads the database in use; a snapshot of it while that is compared."""
    _taken: int = 0
    _waiting: int = 0

    async def run(self) -> None:
        """To the end, which is told in the status; a failure concerns nobody else."""
        try:
            with self.scope:
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
            self.ended.set()

    def _end(self, *, state: State, report: ReindexReport | None = None, error: str | None = None) -> None:
        self.vitals.doing("idle")
        progress = self.reindexer.status.progress
        self.reindexer.status = ReindexStatus(state=state, progress=progress, report=report, error=error)
        log.info("reindex_ended", state=state)

    async def _reindex(self) -> ReindexReport:
        begin = time.monotonic()
        sizes = await self._threads.run(logs.sizes, self.places.database.parent)
        await self._threads.run(check_begin, self.places, sum(sizes.values()))
        building = Building(self.places, slice_s=self.reindexer.slice_s)
        try:
            # A log that is being written to while its size is read may be taken back since; a mark is right.
            mark = await self.writer.run_alone(mark_commits)
            await self._steps(building.read_all(mark.sizes, embed_again=self.options.embed_again))
            self._live = await self._threads.run(connect.open_alone, self.places.database)
            await self._take_over(building)
            mark, _ = await self._catch_up(building, PAUSE_FACTOR, self._live)
            tables = await self._compare(building)
            await self._threads.run(self._live.execute, "COMMIT")  # the write-ahead log may be emptied again
            reason, swapped = None, False
            if self.options.accept_differences or all(table.same for table in tables):
                reason = await self._swap(building, mark.last)
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
    ) -> tuple[CommitMark, int]:
        """Take in what has come in up to a new mark. Returns the mark, and how many bytes of logs that was."""
        mark = await self.writer.run_alone(mark_commits, snapshot)
        size = sum(end - start for start, end in logs.grown(building.positions, mark.sizes).values())
        await self._steps(building.read(mark.sizes, whole=False), phase="catch_up", pause=pause)
        return mark, size

    async def _take_over(self, building: Building) -> None:
        """All documents and vectors that the database in use has now. The few that it gets later are made again."""
        assert self._live is not None
        again, slice_s = self.options.embed_again, self.reindexer.slice_s
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
        check = None if self.options.accept_differences else compared
        reason = await self.writer.run_alone(hand_over, self.places, positions, check)
        if reason is None:
            await self.readers.renew_idle()
            await self.swapped()
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
        self.reindexer.status = attrs.evolve(self.reindexer.status, progress=progress)
        self.vitals.doing(f"reindex: {progress.phase} {progress.done}/{progress.total}")


def _next(work: Generator[Progress, None, T], places: Places) -> tuple[Progress | None, T | None]:
    """The next report, or what the work returned."""
    check_room(places)
    try:
        return next(work), None
    except StopIteration as end:
        return None, end.value
