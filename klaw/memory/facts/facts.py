"""Archival memory: saving facts so that nothing is kept twice, and finding the old one that a new one repeats.

One change at a time: two calls of one round that say the same must see each other. Every change is in the memory
journal and in the fact's history, and ``undo`` takes any of them back.

A near vector alone cannot tell whether a fact says anything new: multilingual-e5 puts "Anna lives in Berlin" at cosine
0.91 to the same with Munich, and «Аня живёт в Берлине» at 0.97. So a fact counts as known when its vector is very close
to that of a kept one, every word of it that means something is in that one too, and both deny as much."""

import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal

import attrs
import trio

from klaw.actor.clock import Clock, iso
from klaw.domain.fact import Fact, FactId, FactSource, Origin, fact_text
from klaw.domain.names import UserId
from klaw.errors import EmbeddingUnavailable, FactExists, NoSuchFact
from klaw.memory.embed.embedder import Embedder
from klaw.memory.recall.query import content_words
from klaw.store.changes import earlier
from klaw.store.engine import meta, vector_model
from klaw.store.engine.database import Readers
from klaw.store.engine.tokenizer import stem, words
from klaw.store.engine.writer import Writer
from klaw.store.kinds import facts
from klaw.store.kinds.facts import FactVector
from klaw.store.search import passages

NEAR_COSINE = 0.97
"""Rephrasings of one statement lie at 0.97 to 0.995."""
_MAX_WORDS = 400

_DENYING = frozenset(
    stem(word)
    for word in (
        *("no", "not", "never", "none", "nobody", "nothing", "without", "t"),
        *("нет", "не", "ни", "никогда", "никто", "ничего", "без", "нельзя"),
    )
)


def adds_nothing(new: str, kept: str) -> bool:
    """Whether every telling word of a text is in another one, and both deny as much."""
    telling = {stem(word) for word in content_words(new, _MAX_WORDS)}
    known = {stem(word) for word in content_words(kept, _MAX_WORDS)}
    return bool(telling) and telling <= known and _denials(new) == _denials(kept)


def _denials(text: str) -> int:
    return sum(stem(word) in _DENYING for word in words(text))


EMBED_S = 2.0
"""How long a save waits for its text's vector; without it the embedder makes it later."""
_NEIGHBOURS = 5


@attrs.define(eq=False)
class Facts:
    """Facts of all users over one store. Each method may raise StorageError (a value breaks its rule, or nothing can be
    written) and ActorStopped; edit and undo also FactExists: another fact says the same in the same words, nothing was
    changed. When cancelled, a change may be made or not."""

    _writer: Writer
    _readers: Readers
    _embedder: Embedder
    _clock: Clock
    _new_id: Callable[[], str]
    _one_at_a_time: trio.Lock = attrs.field(factory=trio.Lock, init=False)

    async def save(
        self,
        user: UserId,
        text: str,
        *,
        source: FactSource,
        origin: Origin,
        replaces: FactId | None = None,
        background: bool = False,
        as_of: int | None = None,
        **fields: Any,
    ) -> tuple[Fact, bool]:
        """Keep a statement, unless it is known already, perhaps in other words. Returns the fact that is kept, and
        whether it was added. Raises InvalidValue, SourceForgotten; NoSuchFact: there is nothing to replace.

        ``replaces``: an active fact that becomes history by it; ``background``: nobody waits, so its vector is made
        last; ``as_of``: the memory journal's last entry before what it is drawn from was read."""
        now = self._now()
        fact = Fact(
            id=FactId(self._new_id()),
            user=user,
            text=fact_text(text),
            source=source,
            origin=origin,
            created_at=now,
            updated_at=now,
            **fields,
        )
        async with self._one_at_a_time:
            vector = await self._vector(fact.text, background=background)
            known = await self._known(fact, vector, replaces)
            if known is not None:
                return known, False
            try:
                return await self._put(fact, vector, as_of, new=True, supersedes=replaces), True
            except FactExists as error:  # put there by somebody who saves without this class
                exists = error
            there = await self._readers.run(facts.get, user, FactId(exists.fact))
            if there is None:  # and removed again
                raise exists
            return there, False

    async def edit(
        self,
        user: UserId,
        fact: FactId,
        *,
        text: str | None = None,
        source: FactSource = FactSource.USER,
        origin: Origin = Origin.USER,
        client: str | None = None,
        **changes: Any,
    ) -> Fact:
        """Change what is given; raises InvalidValue, NoSuchFact. With another text it becomes the statement of whoever
        changes it, by default the person, and its vector is made again."""
        wanted = fact_text(text) if text is not None else None
        async with self._one_at_a_time:
            as_of = await self._readers.run(meta.last_entry)
            present = await self._readers.run(facts.get, user, fact)
            if present is None or not present.active:
                raise NoSuchFact
            changed = attrs.evolve(present, **changes)
            vector = None
            if wanted is not None and wanted != present.text:
                changed = attrs.evolve(changed, text=wanted, source=source, origin=origin, client=client)
                vector = await self._vector(wanted)
            if changed == present:
                return present
            return await self._put(attrs.evolve(changed, updated_at=self._now()), vector, as_of)

    async def remove(self, user: UserId, fact: FactId) -> Fact:
        """Remove a fact and return what it was; its history stays, for ``undo``. Raises NoSuchFact."""
        async with self._one_at_a_time:
            present = await self._readers.run(facts.get, user, fact)
            if present is None or not present.active:
                raise NoSuchFact
            return await self._writer.run(facts.remove, user, fact, self._now())

    async def undo(self, user: UserId, fact: FactId, *, to: int | None = None) -> tuple[Fact | None, tuple[Fact, ...]]:
        """Undo the newest change of a fact, which may be removed already, or all after the entry ``to`` of its history.
        That can be undone, too. Returns what it is now, and when its creation was undone the older facts that it had
        replaced: they hold again. Raises NoSuchFact, CannotUndo."""
        async with self._one_at_a_time:
            as_of = await self._readers.run(meta.last_entry)
            past = await self._readers.run(facts.history, user, fact)
            if not past:
                raise NoSuchFact
            wanted = earlier(past, to)
            if wanted is None or wanted.value is None:
                return await self._unmake(user, fact, self._now(), as_of)
            return await self._restore(wanted.value, as_of, new=past[-1].value is None), ()

    async def _unmake(self, user: UserId, fact: FactId, now: str, as_of: int) -> tuple[None, tuple[Fact, ...]]:
        older = await self._readers.run(facts.superseded_by, user, fact)
        revived = []
        for each in older:  # first: a crash in between leaves both, and nothing is lost
            again = attrs.evolve(each, superseded_by=None, updated_at=now)
            with suppress(FactExists):
                revived.append(await self._put(again, await self._vector(each.text), as_of))
        await self._writer.run(facts.remove, user, fact, now)
        return None, tuple(revived)

    async def _restore(self, wanted: Fact, as_of: int, *, new: bool) -> Fact:
        vector = await self._vector(wanted.text) if wanted.active else None
        again = await self._readers.run(facts.revived_from, wanted.user, wanted.id) if new and wanted.active else []
        restored, older = attrs.evolve(wanted, updated_at=self._now()), again[0].id if again else None
        stored = await self._put(restored, vector, as_of, new=new, supersedes=older)
        for each in again[1:]:
            await self._put(attrs.evolve(each, superseded_by=wanted.id, updated_at=self._now()), None, as_of)
        return stored

    async def _put(
        self,
        fact: Fact,
        vector: FactVector | None,
        as_of: int | None,
        *,
        new: bool = False,
        supersedes: FactId | None = None,
    ) -> Fact:
        expected: Literal["new", "existing"] = "new" if new else "existing"
        stored = await self._writer.run(facts.put, fact, expected, supersedes=supersedes, vector=vector, as_of=as_of)
        self._embedder.nudge()  # it makes the vector when there was no time for it
        return stored

    def _now(self) -> str:
        return iso(self._clock.now())

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

    async def _vector(self, text: str, *, background: bool = False) -> FactVector | None:
        embed = self._embedder.passage_in_background if background else self._embedder.passage
        with suppress(EmbeddingUnavailable), trio.move_on_after(math.inf if background else EMBED_S):
            vector = await embed(text)
            model = await self._readers.run(vector_model.current)
            return FactVector(model_id=model[0], vector=vector) if model is not None else None
        return None
