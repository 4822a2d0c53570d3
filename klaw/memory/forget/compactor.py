"""Actor ``memory.compactor``: rids the database's files of what users forgot in their chats, for all of them together.
At its start it finishes the large forgettings that a kill interrupted.

Who sends to it: forgettings, by a nudge. SQLite overwrites what is deleted, but the write-ahead log still has it, and
now and then a page keeps a copy. So soon after a forgetting the log is emptied into the database, at most every
``EMPTY_EVERY_S``; and the file is rebuilt, during which nobody can write, at most every ``ANEW_EVERY_S``, so that no
user can keep the others waiting by forgetting. ``klaw forget`` does both at once, for its report.
"""

from collections.abc import Awaitable, Callable

import structlog
import trio

from klaw.actor.failure import error_class
from klaw.actor.mailbox import Nudge
from klaw.actor.supervisor import TaskStarted, Vitals
from klaw.errors import StorageError

ACTOR_NAME = "memory.compactor"
SETTLE_S = 5.0
"""What is forgotten within so long is compacted together."""
EMPTY_EVERY_S = 60.0
ANEW_EVERY_S = 6 * 3_600.0

log = structlog.get_logger("klaw.forget")


async def run(
    vitals: Vitals,
    task_status: TaskStarted,
    *,
    compactor: Nudge,
    compact: Callable[[bool], Awaitable[None]],
    resume: Callable[[], Awaitable[None]],
) -> None:
    """Finish large forgettings that were interrupted; then compact after nudges, until cancelled.

    Args:
        compactor: its handle: a nudge says that something was forgotten.
        compact: empties the write-ahead log, and with True rebuilds the file as well. Raises StorageError.
        resume: finishes what was interrupted. Raises StorageError.
    """
    task_status.started()
    vitals.doing("finishing a forgetting")
    try:
        await resume()
    except StorageError as error:
        log.warning("not_resumed", error=error_class(error))
    anew_at = trio.current_time()
    owed = False
    while True:
        vitals.doing("idle")
        pause = max(0.0, anew_at - trio.current_time()) if owed else float("inf")
        owed = await compactor.wait_for_news(pause) or owed
        await trio.sleep(SETTLE_S)
        vacuum = trio.current_time() >= anew_at
        vitals.doing("compacting the database")
        try:
            await compact(vacuum)
        except StorageError as error:
            log.warning("not_compacted", error=error_class(error))
        else:
            owed = owed and not vacuum
            anew_at = trio.current_time() + ANEW_EVERY_S if vacuum else anew_at
        await trio.sleep(EMPTY_EVERY_S)
