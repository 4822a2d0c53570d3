"""People whom a user speaks of: making, changing, merging and removing them, one change at a time, and taking each of
that back. Every change is in the memory journal and in the person's history."""

from collections.abc import Callable, Sequence

import attrs
import trio

from klaw.actor.clock import Clock, iso
from klaw.domain import person as rules
from klaw.domain.names import UserId
from klaw.domain.person import Mention, Person, PersonId, PersonSource
from klaw.errors import NoSuchPerson, SamePerson
from klaw.store.changes import earlier
from klaw.store.engine import meta
from klaw.store.engine.database import Readers
from klaw.store.engine.writer import Writer
from klaw.store.kinds import people


@attrs.define(eq=False)
class People:
    """People of all users over one store. Each method may raise StorageError (SourceForgotten: the user forgot
    something meanwhile, nothing was changed) and ActorStopped; when cancelled, a change may be made or not. ``as_of``:
    the memory journal's last entry before what a change is made of was read; None: nothing older than the call."""

    _writer: Writer
    _readers: Readers
    _clock: Clock
    _new_id: Callable[[], str]
    _one_at_a_time: trio.Lock = attrs.field(factory=trio.Lock, init=False)

    async def find(self, user: UserId, text: str) -> list[Person]:
        by_id = await self._readers.run(people.get, user, PersonId(text))
        if by_id is not None:
            return [by_id]
        return await self._readers.run(people.by_names, user, [text]) if rules.normal_name(text) else []

    async def add(
        self,
        user: UserId,
        name: str,
        *,
        aliases: Sequence[str] = (),
        relation: str = "",
        source: PersonSource,
        said_at: str | None = None,
        mention: Mention | None = None,
        as_of: int | None = None,
    ) -> Person:
        """Keep a person whose name is not known yet. Raises InvalidValue. ``said_at``: None for now."""
        now = iso(self._clock.now())
        kept = rules.person_name(name)
        person = Person(
            id=PersonId(self._new_id()),
            user=user,
            name=kept,
            aliases=rules.aliases_of(kept, aliases),
            relation=rules.relation_text(relation),
            source=source,
            said_at=said_at or now,
            created_at=now,
            updated_at=now,
        )
        noted = [(person.id, mention)] if mention is not None else []
        await self._writer.run(people.change, user, now, put=[person], mentions=noted, as_of=as_of)
        return person

    async def edit(
        self,
        user: UserId,
        person: PersonId,
        *,
        name: str | None = None,
        aliases: Sequence[str] | None = None,
        relation: str | None = None,
    ) -> Person:
        """Change what is given, for the user; ``aliases`` replaces all. Raises InvalidValue, NoSuchPerson."""
        async with self._one_at_a_time:
            as_of = await self._entry()
            present = await self._active(user, person)
            kept = present.name if name is None else rules.person_name(name)
            given = present.aliases if aliases is None else tuple(aliases)
            changed = attrs.evolve(
                present,
                name=kept,
                aliases=rules.aliases_of(kept, given),
                relation=present.relation if relation is None else rules.relation_text(relation),
            )
            if changed == present:
                return present
            now = iso(self._clock.now())
            changed = attrs.evolve(changed, source=PersonSource.USER, said_at=now, updated_at=now)
            await self._writer.run(people.change, user, now, put=[changed], as_of=as_of)
            return changed

    async def note(
        self,
        user: UserId,
        person: PersonId,
        mention: Mention,
        *,
        name: str = "",
        aliases: Sequence[str] = (),
        relation: str = "",
        as_of: int | None = None,
    ) -> tuple[bool, bool]:
        """Note that a topic names a person, and what it says that is new. Aliases are added; another name and another
        relation count only when they were said after what is known, and the former name stays as an alias. Returns
        whether the person became different, and whether the mention is new. Raises InvalidValue, NoSuchPerson."""
        async with self._one_at_a_time:
            as_of = await self._entry(as_of)
            present = await self._readers.run(people.resolve, user, person)
            if present is None:
                raise NoSuchPerson
            newer = mention.at >= present.said_at
            kept = rules.person_name(name) if name and newer else present.name
            if rules.normal_name(kept) == rules.normal_name(present.name):
                kept = present.name
            changed = attrs.evolve(
                present,
                name=kept,
                aliases=rules.aliases_of(kept, [*present.names, *aliases, *([name] if name else [])]),
                relation=rules.relation_text(relation) if relation and newer else present.relation,
            )
            now = iso(self._clock.now())
            put = []
            if changed != present:
                said_at = mention.at if newer else present.said_at
                put = [attrs.evolve(changed, said_at=said_at, updated_at=now)]
            known = await self._readers.run(people.is_mentioned, user, present.id, mention.topic)
            if put or not known:
                await self._writer.run(people.change, user, now, put=put, mentions=[(present.id, mention)], as_of=as_of)
            return bool(put), not known

    async def merge(self, user: UserId, person: PersonId, into: PersonId, *, as_of: int | None = None) -> Person:
        """Say that a person is another one; returns that one, with both names. Raises NoSuchPerson, SamePerson."""
        async with self._one_at_a_time:
            if person == into:
                raise SamePerson("these are one person already")
            as_of = await self._entry(as_of)
            loser, keeper = await self._active(user, person), await self._active(user, into)
            now = iso(self._clock.now())
            # The loser's change first: so the keeper's stands for both when it is taken back.
            gone = attrs.evolve(loser, merged_into=keeper.id, updated_at=now)
            both = attrs.evolve(rules.merged(keeper, loser), updated_at=now)
            await self._writer.run(people.change, user, now, put=[gone, both], as_of=as_of)
            return both

    async def remove(self, user: UserId, person: PersonId) -> Person:
        """Remove a person and return what it was; its history stays, for ``undo``. Raises NoSuchPerson."""
        async with self._one_at_a_time:
            present = await self._active(user, person)
            await self._writer.run(people.change, user, iso(self._clock.now()), removed=[person])
            return present

    async def undo(
        self, user: UserId, person: PersonId, *, to: int | None = None
    ) -> tuple[Person | None, tuple[Person, ...]]:
        """Undo the newest change of a person, who may be merged or removed, or all after the entry ``to`` of the
        history. That can be undone, too. Returns who it is now, and those who were merged into it since then and are
        people of their own again. Raises NoSuchPerson, CannotUndo."""
        async with self._one_at_a_time:
            as_of = await self._entry()
            past = await self._readers.run(people.history, user, person)
            if not past:
                raise NoSuchPerson
            keeper = past[-1].value.merged_into if past[-1].value is not None else None
            if keeper is not None and to is None:
                of_keeper = await self._readers.run(people.history, user, keeper)
                if of_keeper and of_keeper[-1].entry == past[-1].entry + 1:
                    person, past = keeper, of_keeper  # nothing came after the merge: both sides of it are taken back
            before = earlier(past, to)
            wanted = before.value if before is not None else None
            now = iso(self._clock.now())
            back = await self._readers.run(people.merged_into, user, person, after=before.entry if before else 0)
            revived = [attrs.evolve(each, merged_into=None, updated_at=now) for each in back]
            if wanted is None:
                await self._writer.run(people.change, user, now, put=revived, removed=[person], as_of=as_of)
                return None, tuple(revived)
            restored = attrs.evolve(wanted, updated_at=now)
            await self._writer.run(people.change, user, now, put=[restored, *revived], as_of=as_of)
            return restored, tuple(revived)

    async def _entry(self, as_of: int | None = None) -> int:
        return as_of if as_of is not None else await self._readers.run(meta.last_entry)

    async def _active(self, user: UserId, person: PersonId) -> Person:
        found = await self._readers.run(people.get, user, person)
        if found is None or not found.active:
            raise NoSuchPerson
        return found
