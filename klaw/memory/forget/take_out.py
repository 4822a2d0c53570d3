"""Taking many messages out of the database a part at a time, so that nobody has to wait for long."""

from collections.abc import Callable, Collection, Sequence
from typing import Concatenate, ParamSpec, TypeVar

import trio

from klaw.domain.names import UserId
from klaw.store.engine.database import Readers
from klaw.store.engine.transaction import Transaction
from klaw.store.engine.writer import Writer
from klaw.store.forget import execute, logs
from klaw.store.forget.journal_entry import ForgetEntry
from klaw.store.search import fulltext_renewal

P = ParamSpec("P")
T = TypeVar("T")

AT_ONCE = 20
"""Messages that are taken out in one transaction, at 3 to 6 ms each, for the most part because their words must leave
no trace in the full-text index."""
MANY = logs.MOST_AT_START
"""Of so many the full-text index may be rebuilt without them; see ``fulltext_renewal``. No start finishes so many: it
would leave what a kill left of that."""
AT_ONCE_WITHOUT_TEXT = 60
"""Messages in one transaction, when that was done."""
PAUSE_FACTOR = 0.5
"""A pause is so many times as long as the transaction before it: who waits shares none with the next one."""


async def rest(writer: Writer, readers: Readers, user: UserId, rowids: Sequence[int], at: str) -> list[ForgetEntry]:
    """Take further messages of a forgetting out of the database; see ``execute.forget_rest``. Returns the entries.

    Cancellation: what was taken out so far is; what a start or ``Forgetter.resume`` does about it see there.
    """
    entries, count = [], AT_ONCE
    if len(rowids) >= MANY and await readers.run(fulltext_renewal.is_worth_it, len(rowids)):
        await _renew_text(writer, frozenset(rowids))
        count = AT_ONCE_WITHOUT_TEXT
    for first in range(0, len(rowids), count):
        done = await _giving_way(writer, execute.forget_rest, user, rowids[first : first + count], at)
        entries.append(done.entry)
    return entries


async def _renew_text(writer: Writer, going: Collection[int]) -> None:
    await _drop_text(writer)
    await writer.run(fulltext_renewal.begin)
    last: int | None = 0
    while last is not None:
        last = await _giving_way(writer, fulltext_renewal.fill, last, going)
    await _drop_text(writer)


async def _drop_text(writer: Writer) -> None:
    for index in (fulltext_renewal.NEW, fulltext_renewal.OLD):
        while not await _giving_way(writer, fulltext_renewal.drop_some, index):
            pass


async def _giving_way(
    writer: Writer, function: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs
) -> T:
    begin = trio.current_time()
    done = await writer.run(function, *args, **kwargs)
    await trio.sleep((trio.current_time() - begin) * PAUSE_FACTOR)
    return done
