"""Taking what is forgotten out of the database and the logs a part at a time, so that nobody has to wait for long."""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

import trio

from klaw.actor.threads import Threads
from klaw.domain.names import UserId
from klaw.store.engine import log_rewrite
from klaw.store.engine.database import Readers
from klaw.store.engine.log_rewrite import LogRewrite
from klaw.store.engine.transaction import Transaction
from klaw.store.engine.writer import Writer
from klaw.store.forget import execute, logs
from klaw.store.forget.execute import ForgetEntry, ForgetResult
from klaw.store.forget.logs import Cleaner
from klaw.store.kinds.knowledge import document_steps, documents
from klaw.store.search import fulltext_renewal

P = ParamSpec("P")
T = TypeVar("T")

AT_ONCE = 20
"""Messages that are taken out in one transaction, at 3 to 6 ms each, mostly because their words must leave no trace in
the full-text index."""
MANY = logs.MOST_AT_START
"""From so many on, the full-text index may be rebuilt without them; see ``fulltext_renewal``. No start finishes so
many: it would leave what a kill left of that."""
AT_ONCE_WITHOUT_TEXT = 60
"""Messages that are taken out in one transaction after that."""
PAUSE_FACTOR = 0.5
"""A pause is so many times as long as the transaction before it: who waits shares none with the next one."""
ORPHANS_AT_ONCE = 100
LOGS_AT_ONCE = 8
"""Logs that are exchanged while everybody waits."""
ROUNDS = 5
"""Searches for lines that were written while the logs were cleaned."""
CLOSE_S = 10.0
"""Within so long the drafts of logs are removed, while the writer may be at it."""


async def rest(writer: Writer, readers: Readers, user: UserId, rowids: Sequence[int], at: str) -> list[ForgetEntry]:
    """Take further messages of a forgetting out of the database; see ``execute.forget_rest``. Then what was read of
    files goes. Returns the entries.

    Cancellation: what was taken out so far is; a start, or ``Forgetter.resume``, goes on.
    """
    count = AT_ONCE
    if len(rowids) >= MANY and await readers.run(fulltext_renewal.is_worth_it, len(rowids)):
        await _renew_text(writer, frozenset(rowids))
        count = AT_ONCE_WITHOUT_TEXT
    parts = [rowids[first : first + count] for first in range(0, len(rowids), count)]
    done = [await giving_way(writer, execute.forget_rest, user, part, at) for part in parts]
    await sweep_documents(readers, writer)
    return done


async def _renew_text(writer: Writer, going: Collection[int]) -> None:
    await _drop_text(writer)
    await writer.run(fulltext_renewal.begin)
    last: int | None = 0
    while last is not None:
        last = await giving_way(writer, fulltext_renewal.fill, last, going)
    await _drop_text(writer)


async def _drop_text(writer: Writer) -> None:
    for index in (fulltext_renewal.NEW, fulltext_renewal.OLD):
        while not await giving_way(writer, fulltext_renewal.drop_some, index):
            pass


async def giving_way(
    writer: Writer, function: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """One part of long work, and a pause behind it, so that nobody has to wait for long."""
    begin = trio.current_time()
    done = await writer.run(function, *args, **kwargs)
    await trio.sleep((trio.current_time() - begin) * PAUSE_FACTOR)
    return done


async def sweep_documents(readers: Readers, writer: Writer) -> int:
    """Remove documents whose source is gone, a part at a time. Returns how many there were. Cancellation: the rest is
    left to the next call."""
    total = 0
    while found := await readers.run(documents.orphans, ORPHANS_AT_ONCE):
        for each in found:
            while await giving_way(writer, document_steps.remove_some, each):
                pass
        total += len(found)
    return total


async def clean_logs(writer: Writer, readers: Readers, files: Threads, root: Path, done: ForgetResult) -> int:
    """Clean all logs of what was taken out of the database. Returns how many lines changed. Raises StorageError: the
    logs could not be cleaned, which the next start does."""
    lines = 0
    cleaner = await readers.run(Cleaner, done.entry, done.finder)
    for own in (False, True):
        cleaner.own = own
        if own:  # after this round a start does not know any more what else to look for
            await files.run(logs.remove_copies, root, done.entry, done.finder)
        for _ in range(ROUNDS):
            paths = await files.run(logs.logs_with, root, cleaner)
            changed = 0
            for first in range(0, len(paths), LOGS_AT_ONCE):
                changed += await _rewrite(writer, files, cleaner, paths[first : first + LOGS_AT_ONCE])
            lines += changed
            if not changed:
                break
    return lines


async def _rewrite(writer: Writer, files: Threads, cleaner: Cleaner, paths: Sequence[str]) -> int:
    waiting = rewrites = await writer.run_alone(logs.begin_cleaning, cleaner, paths)
    try:
        with logs.left_to_the_next_start():
            while waiting:
                for each in waiting:
                    while each.left > log_rewrite.STEP_BYTES:
                        await files.run(each.step)
                await files.run(_take_in, waiting)
                waiting = await writer.run_alone(logs.exchange_logs, waiting)
            for each in rewrites:  # before it is noted that it is done
                await files.run(each.sync_folder)
        return sum(each.changed for each in rewrites)
    finally:
        with trio.move_on_after(CLOSE_S, shield=True):
            for each in rewrites:
                await files.run(each.close)


def _take_in(rewrites: Sequence[LogRewrite]) -> None:
    for each in rewrites:
        while each.left:
            each.step()
        each.sync()
