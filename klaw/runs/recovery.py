"""After a start: runs that the last process left under way are interrupted, and what was to run once is tried again.
And the same for one run whose own task broke. All steps look only at what is stored, so a kill does no harm."""

from contextlib import suppress

import attrs
import structlog
import trio

from klaw.actor.clock import iso
from klaw.actor.failure import error_class
from klaw.actor.mailbox import answer_within
from klaw.core import Core
from klaw.domain.task import Run, RunKind, RunStatus
from klaw.errors import ActorStopped, KlawError, NoSuchChat
from klaw.runs.run_state import DISK_FULL, OUTSIDE, QUEUED, WRITE_S, notice_of, notice_text
from klaw.store.kinds import run_edits, runs

INTERRUPTED = "Klaw was stopped while it ran"
AGAIN = "a second attempt; Klaw was stopped during the first"

log = structlog.get_logger("klaw.scheduler")


async def recover(core: Core) -> list[Run]:
    """Correct the records. Raises StorageFull: ask again later.

    Returns stored runs that are to be started, the oldest first: those that still waited for a place, which is no
    attempt, and second attempts of what was asked for once. Those of one-shot tasks follow from their records."""
    running = await core.readers.run(runs.running)
    again = [run for run in running if run.details.get(QUEUED) is True]
    left = [run for run in running if run not in again]
    for run in left:
        await _interrupt(run, core)
    for run in await core.readers.run(runs.to_repeat):
        second = attrs.evolve(
            run,
            id=core.new_id(),
            attempt=run.attempt + 1,
            status=RunStatus.RUNNING,
            started_at=iso(core.clock.now()),
            ended_at=None,
            prompt_tokens=0,
            completion_tokens=0,
            error=None,
            note=AGAIN,
            result="",
            details={QUEUED: True, **{key: run.details[key] for key in (OUTSIDE,) if key in run.details}},
        )
        begun = await core.writer.run(run_edits.begin, second)
        if not begun.repeated:
            again.append(begun.run)
    if left:
        log.warning("runs_interrupted", count=len(left))
    return sorted(again, key=lambda run: run.due)


async def settle(run: Run, core: Core, *, error: str, note: str) -> Run:
    """End a run whose own task could not: what the store holds of it counts. Returns it as it is stored, as soon as
    the store works; ``error`` and ``note`` are for a run that had not ended there. Raises ActorStopped. When cancelled,
    it is found as interrupted at the next start."""
    failures = 0
    while True:
        try:
            with answer_within(WRITE_S, "the store"):
                return await _settle(run, core, error, note)
        except ActorStopped:
            raise
        except (KlawError, trio.TooSlowError) as failure:
            log.error("run_end_not_stored", run=run.id, error=error_class(failure))
            failures += 1
            await trio.sleep(DISK_FULL.pause_s(failures))


async def _settle(run: Run, core: Core, error: str, note: str) -> Run:
    await core.writer.ping()  # what was asked for before, and given up, has been done or refused now
    stored = await core.readers.run(runs.get, run.user, run.id)
    if stored is None or stored.status.over:
        return stored or run
    ended = await _with_traces(stored, core, status=RunStatus.FAILED, note=note)
    if ended.status is not RunStatus.FAILED or ended.error is not None:
        return await _save(ended, None, core)
    ended = attrs.evolve(ended, error=error)
    return await _save(ended, notice_text(ended, "", tells=True), core)


async def _interrupt(run: Run, core: Core) -> None:
    ended = await _with_traces(run, core, status=RunStatus.INTERRUPTED, note=INTERRUPTED)
    told = None
    if ended.status is RunStatus.INTERRUPTED and run.kind is not RunKind.HEARTBEAT:
        if not ended.delivered and ended.attempt > 1:
            told = f"{run.task} was not finished: Klaw was stopped twice while it ran."
        elif ended.delivered and run.kind is RunKind.SPAWNED:
            told = f"The subagent {run.task} was interrupted because Klaw stopped; what it had delivered stays."
    await _save(ended, told, core)


async def _with_traces(run: Run, core: Core, *, status: RunStatus, note: str) -> Run:
    """The run's end as the chats know it: a kill may have left messages there without the run's new state."""
    said = await core.readers.run(runs.delivered_of, run.user, run.id)
    result = run.result or (said[-1].content if said else "")
    error = run.error
    told = await core.readers.run(runs.notice_of, run.user, run.id)
    if told is not None and told.metadata.get("status") in set(RunStatus):
        # The chat was told of the end: so it had ended, and must not be tried again.
        status = RunStatus(told.metadata["status"])
        error = told.metadata.get("error")
        result = result or ("" if status is RunStatus.INTERRUPTED else told.content)
    return attrs.evolve(
        run,
        status=status,
        error=error,
        ended_at=iso(core.clock.now()),
        note=run.noted(note),
        delivered=max(run.delivered, len(said)),
        result=result,
    )


async def _save(ended: Run, told: str | None, core: Core) -> Run:
    with suppress(NoSuchChat):
        notice = notice_of(ended, told, iso(core.clock.now()))
        return (await core.writer.run(run_edits.save, ended, notice=notice)).run
    return (await core.writer.run(run_edits.save, ended)).run
