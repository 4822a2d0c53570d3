"""People drawn from what was said, out of the answer that has its facts: whom the model is shown, what it may change.

A new person, and every new name, has to stand in the user's own messages. Known people are named by their numbers in
the list that the model was shown, so no answer can name a person of another user. Called again after a crash it does no
harm.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Literal

import attrs
import structlog

from klaw.domain.message import Message, Role
from klaw.domain.person import (
    Mention,
    Person,
    PersonSource,
    Words,
    aliases_of,
    normal_name,
    person_name,
    relation_text,
    words_of,
)
from klaw.domain.topic import Topic
from klaw.errors import InvalidValue, NoSuchPerson, SamePerson
from klaw.llm.ask_json import Text, Usable, Whole
from klaw.memory.facts.people import People
from klaw.memory.topics.texts import middle_out
from klaw.store.engine.database import Readers
from klaw.store.kinds import people as sql
from klaw.store.kinds.people import KnownPerson

MAX_PEOPLE = 20
"""Entries of one answer; of more the first ones count."""
MOST_SHOWN, SHOWN_CHARS = 30, 200
"""So many known people the model is shown, and characters of each."""

log = structlog.get_logger("klaw.people")


class _RefusedChange(Exception):
    """One change cannot be used or carried out; the text is one word that says why."""


@attrs.frozen(kw_only=True)
class ProposedPerson:
    action: Literal["add", "update", "merge"]
    person: Whole = 0
    """Number of the known person, from 1; 0 with ``add``."""
    into: Whole = 0
    """With ``merge``: the number of the one who it turned out to be; else 0."""
    name: Text = ""
    aliases: tuple[Text, ...] = ()
    relation: Text = ""
    message: Whole


@attrs.frozen
class PeopleChanges:
    wanted: tuple[ProposedPerson, ...] = ()
    refused: Mapping[str, int] = attrs.field(factory=dict)
    """How many entries cannot be used, by a word that says why."""


def people_changes(answered: Usable[ProposedPerson], *, known: int, said: Collection[int]) -> PeopleChanges:
    """The usable entries of an answer; the model was shown so many known people and the messages ``said``."""
    refused = Counter({"bad_form": answered.refused})
    wanted: list[ProposedPerson] = []
    for entry in answered.entries:
        try:
            change = _checked(entry, known, said)
        except _RefusedChange as reason:
            refused[str(reason)] += 1
            continue
        if change in wanted:
            refused["twice"] += 1
        elif len(wanted) == MAX_PEOPLE:
            refused["too_many"] += 1
        else:
            wanted.append(change)
    return PeopleChanges(tuple(wanted), {reason: count for reason, count in refused.items() if count})


def _checked(change: ProposedPerson, known: int, said: Collection[int]) -> ProposedPerson:
    if change.message not in said:
        raise _RefusedChange("no_message")
    if change.action != "add" and not 1 <= change.person <= known:
        raise _RefusedChange("unknown_person")
    if change.action == "merge":
        if not 1 <= change.into <= known or change.into == change.person:
            raise _RefusedChange("unknown_person")
        return ProposedPerson(action="merge", person=change.person, into=change.into, message=change.message)
    adds = change.action == "add"
    try:
        name = person_name(change.name) if change.name or adds else ""
        return attrs.evolve(
            change,
            person=0 if adds else change.person,
            into=0,
            name=name,
            aliases=aliases_of(name, [alias for alias in change.aliases if alias]),
            relation=relation_text(change.relation),
        )
    except InvalidValue as error:
        raise _RefusedChange(f"bad_{str(error).partition(':')[0]}") from None


@attrs.frozen
class PeopleExtractor:
    people: People
    readers: Readers

    async def shown(self, topic: Topic, said: Sequence[Message]) -> list[KnownPerson]:
        """Whom it may name: those whose name stands in what was said, then those named most often."""
        text = "\n".join(message.content for message in said)
        return await self.readers.run(sql.named_first, topic.user, text, MOST_SHOWN)

    async def apply(
        self, topic: Topic, changes: PeopleChanges, shown: Sequence[KnownPerson], said: Sequence[Message], as_of: int
    ) -> int:
        """Carry out what can be; the rest is counted in the log. Returns how many people became different or new.
        ``as_of``: the memory journal's last entry before anything shown was read. Raises StorageError."""
        refused = Counter(changes.refused)
        own_words = words_of("\n".join(message.content for message in said if message.role is Role.USER))
        done = 0
        for change in changes.wanted:
            try:
                done += await self._apply(topic, change, shown, said[change.message - 1], own_words, as_of)
            except _RefusedChange as refusal:
                refused[str(refusal)] += 1
            except InvalidValue as error:
                refused[f"bad_{str(error).partition(':')[0]}"] += 1
            except (NoSuchPerson, SamePerson):
                refused["gone"] += 1
        for reason, number in sorted(refused.items()):
            log.info("people_refused", reason=reason, count=number)
        if done:
            log.info("people_drawn", count=done)
        return done

    async def _apply(
        self,
        topic: Topic,
        change: ProposedPerson,
        shown: Sequence[KnownPerson],
        evidence: Message,
        own_words: Words,
        as_of: int,
    ) -> bool:
        if change.action == "merge":
            one, other = shown[change.person - 1].person, shown[change.into - 1].person
            await self.people.merge(topic.user, one.id, other.id, as_of=as_of)
            return True
        mention = Mention(topic=str(topic.id), message=evidence.id, at=evidence.created_at)
        if change.action == "update":
            return await self._note(shown[change.person - 1].person, change, mention, own_words, as_of)
        if not own_words.name([change.name, *change.aliases]):
            raise _RefusedChange("not_said")
        same = await self._same(topic, change)
        if same is not None:
            return await self._note(same, change, mention, own_words, as_of)
        await self.people.add(
            topic.user,
            change.name,
            aliases=_said(change.aliases, own_words),
            relation=change.relation,
            source=PersonSource.ARCHIVIST,
            said_at=evidence.created_at,
            mention=mention,
            as_of=as_of,
        )
        return True

    async def _note(
        self, person: Person, change: ProposedPerson, mention: Mention, own_words: Words, as_of: int
    ) -> bool:
        became_other, _ = await self.people.note(
            person.user,
            person.id,
            mention,
            name="".join(_said([change.name], own_words)),
            aliases=_said(change.aliases, own_words),
            relation=change.relation,
            as_of=as_of,
        )
        return became_other

    async def _same(self, topic: Topic, change: ProposedPerson) -> Person | None:
        """The known person that an ``add`` names again; others of the name have a relation of their own."""
        named = await self.readers.run(sql.by_names, topic.user, [change.name, *change.aliases])
        relation = normal_name(change.relation)
        fitting = [each for each in named if not relation or normal_name(each.relation) in ("", relation)]
        if len(fitting) > 1:
            raise _RefusedChange("ambiguous")
        return fitting[0] if fitting else None


def _said(names: Sequence[str], own_words: Words) -> list[str]:
    return [name for name in names if name and own_words.name([name])]


def line(number: int, known: KnownPerson) -> str:
    person = known.person
    also = f" (also {', '.join(person.aliases)})" if person.aliases else ""
    relation = f"; {person.relation}" if person.relation else ""
    return f"{number}. {middle_out(person.name + also + relation, SHOWN_CHARS)}; topics: {known.topics}"
