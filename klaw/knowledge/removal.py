"""Removing bases and sources: nobody sees them any more at once, then their passages with full text and vectors go,
their files, and what the logs say of them. The journal comes first: in the other order a watched folder would be read
again meanwhile."""

from collections.abc import Sequence

from klaw.actor.clock import iso
from klaw.core import Core
from klaw.domain.names import UserId
from klaw.knowledge.graph.graphs import Graphs
from klaw.memory.forget.forget import CleanedLogs, Forgetter
from klaw.memory.forget.take_out import sweep_documents
from klaw.store.engine.transaction import Transaction
from klaw.store.forget import execute
from klaw.store.forget.execute import ForgetResult, Forgetting
from klaw.store.forget.finding import NothingToForget
from klaw.store.kinds import forgotten
from klaw.store.kinds.knowledge import bases, sources
from klaw.store.kinds.knowledge.removal import Going, turns_naming

AT_ONCE = 100
"""Documents that are looked for, and receipts that are changed, at once."""


async def remove(
    going: Going, user: UserId, core: Core, graphs: Graphs, forgetter: Forgetter, *, everywhere: bool
) -> CleanedLogs:
    """Remove what a user looked at (``kinds.knowledge.removal.look``), and look for what of it is still there. For
    ``everywhere`` see ``Forgetter.preview``. What a cancellation or a failure leaves, the next start does.

    Raises:
        NoSuchBase, NoSuchSource, NotAllowed: the user may not any more.
        NothingToForget: a reindex is running, so nothing was changed.
        StorageError: the logs could not be cleaned.
    """
    if forgetter.reindexing():
        raise NothingToForget("a reindex is running: wait for its end, or stop it; nothing was changed")
    at = iso(core.clock.now())
    done = await core.writer.run(take_out, user, going, at)
    for each in done:
        turns = each.entry.used
        for first in range(0, len(turns), AT_ONCE):
            await core.writer.run(blank_receipts, each.entry.user, going.ids, turns[first : first + AT_ONCE])
    await sweep_documents(core.readers, core.writer)
    for source in going.sources:
        await graphs.remove(source)
        await core.originals.remove(source.id)
    return await forgetter.clean_after(done, going.pieces, everywhere=everywhere)


def take_out(tx: Transaction, user: UserId, going: Going, at: str) -> list[ForgetResult]:
    """Remove it from the database, and remember to clean the logs and the receipts of it. Returns what is to be
    cleaned, for each user whose it is. Raises NoSuchBase, NoSuchSource, NotAllowed."""
    if going.whole:
        bases.remove(tx, user, going.base.id, at)
    else:
        for each in going.sources:
            sources.remove(tx, user, each.id, at)
    turns: dict[UserId, list[str]] = {going.owner: []}
    since = turns_naming(tx.connection, going.base.id if going.whole else going.sources[0].id, going.last_turn)
    for of, turn in dict.fromkeys((*going.turns, *since)):
        turns.setdefault(of, []).append(turn)
    return [
        execute.journal(tx, of, Forgetting(knowledge=going.ids, used=tuple(used)), at) for of, used in turns.items()
    ]


def blank_receipts(tx: Transaction, user: UserId, gone: Sequence[str], turns: Sequence[str]) -> None:
    forgotten.blank_receipts(tx.connection, user, gone, turns)
