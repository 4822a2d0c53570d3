"""After a start: runs that the last process left under way are interrupted, and what was to run once is tried again.

Both steps look only at what is stored, so being killed between or within them does no harm: the next start goes on.
"""

from collections.abc import Callable

import attrs
import structlog

from klaw.actor.clock import Clock, iso
from klaw.domain.delivery import notice_message
from klaw.domain.names import chat_id
from klaw.domain.task import Run, RunKind, RunStatus
from klaw.errors import NoSuchChat
from klaw.store.readers import Readers
from klaw.store.sql import due_runs, runs
from klaw.store.task_writes import TaskWrites

INTERRUPTED = "Klaw was stopped while it ran"
AGAIN = "a second attempt; Klaw was stopped during the first"

log = structlog.get_logger("klaw.scheduler")


async def recover(readers: Readers, writer: TaskWrites, clock: Clock, new_id: Callable[[], str]) -> list[Run]:
    """Put the records right.

    Returns:
        New runs, stored, that are to be started: second attempts of what was asked for once (spawned subagents, tasks
        run by hand). Those of one-shot tasks follow from their records (``due.decide``).

    Raises:
        StorageFull: the records could not be written; ask again later.
    """
    left = await readers.run(runs.running)
    for run in left:
        await _interrupt(run, readers, writer, clock)
    again = []
    for run in await readers.run(due_runs.to_repeat):
        second = attrs.evolve(
            run,
            id=new_id(),
            attempt=run.attempt + 1,
            status=RunStatus.RUNNING,
            started_at=iso(clock.now()),
            ended_at=None,
            prompt_tokens=0,
            completion_tokens=0,
            error=None,
            note=AGAIN,
            result="",
            details={},
        )
        begun = await writer.begin_run(second)
        if not begun.repeated:
            again.append(begun.run)
    if left:
        log.warning("runs_interrupted", count=len(left))
    return again


async def _interrupt(run: Run, readers: Readers, writer: TaskWrites, clock: Clock) -> None:
    # A process that died between the two logs of a delivery left the message without the run's new state.
    said = await readers.run(runs.delivered_of, run.user, run.id)
    ended = attrs.evolve(
        run,
        status=RunStatus.INTERRUPTED,
        ended_at=iso(clock.now()),
        note=INTERRUPTED if run.note is None else f"{run.note}; {INTERRUPTED}",
        delivered=max(run.delivered, len(said)),
        result=run.result or (said[-1].content if said else ""),
    )
    listener = run.notify if run.kind is RunKind.SPAWNED else run.inject_into
    final = ended.attempt > 1 and not ended.delivered
    notice = None
    if final and listener is not None:
        text = f"{run.task} was not finished: Klaw was stopped twice while it ran."
        notice = notice_message(ended, chat_id(run.user, listener), text, iso(clock.now()))
    try:
        await writer.save_run(ended, notice=notice)
    except NoSuchChat:
        await writer.save_run(ended)
