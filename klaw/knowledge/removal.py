"""Removing bases and sources: nobody sees them any more at once, then their passages with full text and vectors go,
their files, and what the logs say of them. The journal comes first: in the other order a watched folder would be read
again meanwhile."""

import trio

from klaw.actor.clock import iso
from klaw.core import Core
from klaw.domain.names import UserId
from klaw.knowledge.graph.graphs import Graphs
from klaw.memory.forget.finding import NothingToForget
from klaw.memory.forget.forget import Forgetter
from klaw.memory.forget.values import Cleaned
from klaw.store.engine.database import Readers
from klaw.store.engine.writer import Writer
from klaw.store.forget import knowledge
from klaw.store.forget.knowledge import Going
from klaw.store.kinds.knowledge import document_steps, documents

AT_ONCE = 100
"""Documents that are looked for, and receipts that are changed, at once."""
PAUSE_FACTOR = 0.5
"""A pause is so many times as long as the transaction before it: who waits shares none with the next one."""


async def remove(
    going: Going, user: UserId, core: Core, graphs: Graphs, forgetter: Forgetter, *, everywhere: bool
) -> Cleaned:
    """Remove what somebody looked at, and look for what of it is still there.

    Args:
        going: see ``knowledge.look``.
        user: who asks.
        core: of the server.
        graphs: those that were made of the sources are removed.
        forgetter: cleans the logs.
        everywhere: see ``Forgetter.preview``.

    Raises:
        NoSuchBase, NoSuchSource, NotAllowed: the user may not any more.
        NothingToForget: a reindex is running, so nothing was changed.
        StorageError: the logs could not be cleaned, which the next start does.

    Cancellation: nothing is done, or the next start does what is left.
    """
    if forgetter.reindexing():
        raise NothingToForget("a reindex is running: wait for its end, or stop it; nothing was changed")
    at = iso(core.clock.now())
    done = await core.writer.run(knowledge.remove, user, going, at)
    for each in done:
        turns = each.entry.used
        for first in range(0, len(turns), AT_ONCE):
            await core.writer.run(knowledge.blank, each.entry.user, going.ids, turns[first : first + AT_ONCE])
    await sweep(core.readers, core.writer)
    for source in going.sources:
        await graphs.remove(source)
        await core.originals.remove(source.id)
    return await forgetter.clean_after(done, at, going.pieces, everywhere=everywhere)


async def sweep(readers: Readers, writer: Writer) -> int:
    """Remove documents whose source is gone, a part at a time, so that nobody has to wait for long. Returns how many
    there were. Cancellation: the rest is left to the next call."""
    total = 0
    while found := await readers.run(documents.orphans, AT_ONCE):
        for each in found:
            begin, more = trio.current_time(), True
            while more:
                more = await writer.run(document_steps.remove_some, each)
                await trio.sleep((trio.current_time() - begin) * PAUSE_FACTOR)
                begin = trio.current_time()
        total += len(found)
    return total
