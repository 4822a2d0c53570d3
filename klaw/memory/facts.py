"""Archival memory: saving facts so that nothing is kept twice, and finding the old one that a new one repeats.

Who saves: the tool memory_save now; commands and the archivist later, by the same way. One save at a time: two calls of
one round that say the same must see each other.
"""

from collections.abc import Callable
from typing import TypeAlias

import attrs
import trio

from klaw.actor.clock import Clock, iso
from klaw.domain.fact import DEFAULT_IMPORTANCE, Fact, FactId, FactSource, Origin, fact_text
from klaw.domain.names import ChatId, UserId
from klaw.errors import ActorStopped, FactExists, NoSuchFact
from klaw.memory.embedder import Embedder, EmbeddingUnavailable
from klaw.memory.same import NEAR_COSINE, adds_nothing
from klaw.store.memory_requests import FactVector
from klaw.store.readers import Readers
from klaw.store.sql import facts, passages, vectors
from klaw.store.writer import Writer

EMBED_S = 2.0
"""How long a save waits for its text's vector; without it the embedder makes it later."""
_NEIGHBOURS = 5


@attrs.frozen
class Saved:
    """It is kept."""

    fact: Fact


@attrs.frozen
class Known:
    """Nothing was written: it is there already, maybe in other words."""

    fact: Fact


@attrs.frozen
class NoOlder:
    """Nothing was written: the fact that it was to replace is not there."""


Outcome: TypeAlias = Saved | Known | NoOlder


class Facts:
    """Facts of all users over one store.

    Args:
        writer, readers: of the store.
        embedder: for the vectors of new facts.
        clock, new_id: for what is new.
    """

    def __init__(
        self, writer: Writer, readers: Readers, embedder: Embedder, clock: Clock, new_id: Callable[[], str]
    ) -> None:
        self._writer = writer
        self._readers = readers
        self._embedder = embedder
        self._clock = clock
        self._new_id = new_id
        self._one_at_a_time = trio.Lock()

    async def save(
        self,
        user: UserId,
        text: str,
        *,
        category: str,
        importance: int = DEFAULT_IMPORTANCE,
        source: FactSource,
        origin: Origin,
        replaces: FactId | None = None,
        chat: ChatId | None = None,
        message: str | None = None,
        turn: str | None = None,
        topic: str | None = None,
    ) -> Outcome:
        """Keep a statement, unless it is kept already.

        Args:
            user: whose it is.
            text: the statement; control characters and space around it are left out.
            category, importance, source, origin, chat, message, turn, topic: see ``domain.fact.Fact``.
            replaces: an active fact that becomes history by it.

        Raises:
            InvalidFact: the text is none.
            StorageError: another value breaks its rule, or nothing can be written.
            ActorStopped: the store is gone.

        Cancellation: it may be kept or not.
        """
        now = iso(self._clock.now())
        fact = Fact(
            id=FactId(self._new_id()),
            user=user,
            text=fact_text(text),
            category=category,
            importance=importance,
            source=source,
            origin=origin,
            chat=chat,
            message=message,
            turn=turn,
            topic=topic,
            created_at=now,
            updated_at=now,
        )
        async with self._one_at_a_time:
            vector = await self._vector(fact.text)
            known = await self._known(fact, vector, replaces)
            if known is not None:
                return Known(known)
            taken: FactExists | None = None
            try:
                return Saved(await self._writer.put_fact(fact, "new", supersedes=replaces, vector=vector))
            except NoSuchFact:
                return NoOlder()
            except FactExists as error:  # put there by somebody who saves without this class
                taken = error
            there = await self._readers.run(facts.get, user, FactId(taken.fact))
            if there is None:  # and removed again
                raise taken
            return Known(there)

    async def _known(self, fact: Fact, vector: FactVector | None, replaced: FactId | None) -> Fact | None:
        """A kept fact of the user that the new one adds nothing to; not the one that it is to replace."""
        same = await self._readers.run(facts.same_text, fact.user, fact.text, replaced or fact.id)
        if same is not None or vector is None:
            return same
        near = await self._readers.run(passages.nearest, "fact", fact.user, vector.vector, _NEIGHBOURS)
        close = [each.rowid for each in near if each.distance <= 1 - NEAR_COSINE]
        found = await self._readers.run(facts.by_rowids, fact.user, close)
        kept = (found[rowid] for rowid in close if rowid in found)
        return next((each for each in kept if each.id != replaced and adds_nothing(fact.text, each.text)), None)

    async def _vector(self, text: str) -> FactVector | None:
        try:
            with trio.move_on_after(EMBED_S):
                vector = await self._embedder.passage(text)
                model = await self._readers.run(vectors.model)
                return FactVector(model_id=model[0], vector=vector) if model is not None else None
        except (EmbeddingUnavailable, ActorStopped):
            pass
        return None
