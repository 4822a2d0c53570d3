"""Facts and people drawn from a topic: the archivist calls it once for each, before that is compared with others.

What the user said is the source. The assistant's answers are shown for the sense of it, but not those of turns that
called a tool or were given passages of knowledge bases: they may repeat what comes from outside. Tool results, results
of tasks and recalled text are never shown.

Old facts and messages are named by their numbers in the lists that the model was shown, so no answer can name a fact of
another user. A change that cannot be used takes none of the others with it. Called again after a crash it does no harm:
what is kept already is refused as known.
"""

from collections.abc import Collection, Sequence
from functools import partial
from typing import Annotated, Literal

import attrs
import structlog

from klaw.convert import Form
from klaw.domain import context_used, tokens
from klaw.domain.fact import CATEGORIES, Fact, FactSource, Origin, fact_text, normal_form
from klaw.domain.message import Message, MessageKind, Role
from klaw.domain.text import minute, tagged
from klaw.domain.topic import Topic
from klaw.errors import BadAnswer, InvalidValue, NoSuchFact, TopicChanged
from klaw.json_schema import SchemaType
from klaw.llm.ask_json import Text, Usable, Whole, usable
from klaw.memory.background_llm import Asker
from klaw.memory.facts.facts import Facts, FactSaved, NoOlder
from klaw.memory.topics.people_extractor import PeopleChanges, PeopleExtractor, ProposedPerson, line, people_changes
from klaw.memory.topics.texts import middle_out, render
from klaw.store.engine import meta
from klaw.store.engine.database import Readers
from klaw.store.kinds import facts as sql
from klaw.store.kinds import messages, topic_vectors, usage
from klaw.store.kinds import turns as stored_turns
from klaw.store.search import passages

PROMPT = "facts"
NEAREST, SHOWN_CHARS = 30, 300
"""So many kept facts the model is shown, and characters of each."""
MOST_CALLS = 1_000
"""Messages that a turn's calls and results are at most."""
MAX_CHANGES = 20
"""Changes of one answer; of more the most important ones count."""
MAX_CHARS = 500
"""Characters of one statement: what is longer is a copy of the conversation."""
MIN_IMPORTANCE = 20

log = structlog.get_logger("klaw.facts")


def _category(value: object) -> str:
    return value if isinstance(value, str) and value in CATEGORIES else "other"


@attrs.frozen(kw_only=True)
class ProposedFact:
    action: Literal["add", "update", "delete"]
    fact: Whole = 0
    """Number of the kept fact, from 1; 0 with ``add``."""
    text: Text = ""
    category: Annotated[str, Form(_category, str), SchemaType(tuple(CATEGORIES))] = "other"
    importance: Whole = -1
    message: Whole


NONE: Usable[ProposedPerson] = Usable()


def _people(value: object) -> Usable[ProposedPerson]:
    """A wrong form of the people costs no fact."""
    return usable(value, ProposedPerson) if isinstance(value, list) else Usable(refused=1)


@attrs.frozen
class FactsAnswer:
    facts: Annotated[
        Usable[ProposedFact], Form(partial(usable, cls=ProposedFact), list), SchemaType(list[ProposedFact])
    ]
    people: Annotated[Usable[ProposedPerson], Form(_people, list), SchemaType(list[ProposedPerson])] = NONE


@attrs.frozen
class FactChanges:
    wanted: tuple[ProposedFact, ...]
    refused: int
    people: PeopleChanges


def changes_of(answer: FactsAnswer, *, kept: int, said: Collection[int], known: int) -> FactChanges:
    """The usable changes of an answer. The model was shown so many kept facts and known people; ``said`` are the
    numbers of the user's messages. Raises BadAnswer if there are changes, and none can be used."""
    items = answer.facts
    read = [change for entry in items.entries if (change := _checked(entry, kept, said)) is not None]
    total = len(items.entries) + items.refused
    if total and not read:
        raise BadAnswer("no entry of facts can be used: check action, fact, text, importance and message of each")
    wanted = _once(read)
    if len(wanted) > MAX_CHANGES:
        best = sorted(range(len(wanted)), key=lambda place: (-wanted[place].importance, place))[:MAX_CHANGES]
        wanted = [wanted[place] for place in sorted(best)]
    wanted = [change for change in wanted if change.action == "delete" or change.importance >= MIN_IMPORTANCE]
    return FactChanges(tuple(wanted), total - len(wanted), people_changes(answer.people, known=known, said=said))


def _checked(change: ProposedFact, kept: int, said: Collection[int]) -> ProposedFact | None:
    if change.message not in said or (change.action != "add" and not 1 <= change.fact <= kept):
        return None
    if change.action == "delete":
        return ProposedFact(action="delete", fact=change.fact, importance=100, message=change.message)
    text = _statement(change.text)
    if text is None or not 0 <= change.importance <= 100:
        return None
    return attrs.evolve(change, text=text, fact=0 if change.action == "add" else change.fact)


def _once(changes: Sequence[ProposedFact]) -> list[ProposedFact]:
    facts: set[int] = set()
    texts: set[str] = set()
    once = []
    for change in changes:
        if (change.fact and change.fact in facts) or (change.text and change.text in texts):
            continue
        facts.add(change.fact)
        texts.add(change.text)
        once.append(change)
    return once


def _statement(written: str) -> str | None:
    if len(written) > 4 * MAX_CHARS:
        return None
    try:
        text = " ".join(fact_text(written).split())
    except InvalidValue:
        return None
    return text if len(text) <= MAX_CHARS else None


@attrs.frozen
class FactExtractor:
    """The archivist's ``OnTopic``. The asker is for the model of ``routing.tasks.topics``."""

    asker: Asker
    facts: Facts
    people: PeopleExtractor
    readers: Readers

    async def __call__(self, topic: Topic, messages_of_topic: Sequence[Message]) -> None:
        """Draw a new topic's facts from its messages, without those that an older Klaw drew from with a whole day's
        talk. Cancelled, some may be kept; the next call goes on. Raises ProviderError, ConfigError: the model cannot be
        asked now; StorageError, also TopicChanged: a message was forgotten meanwhile; ActorStopped."""
        drawn = await self.readers.run(usage.drawn_with_day, topic.user, [each.rowid for each in messages_of_topic])
        own = [
            each
            for each in messages_of_topic
            if each.user == topic.user and each.chat == topic.chat and each.rowid not in drawn
        ]
        if not own:
            return
        # Calls stand before the answer of their turn, maybe in the topic before.
        first, last = own[0].seq - MOST_CALLS, own[-1].seq
        turns = await self.readers.run(stored_turns.with_tools, own[0].chat, _turns(own), first, last)
        left = [message for message in own if is_source(message, turns)]
        while any(message.role is Role.USER for message in left):
            left = left[await self._draw(topic, left) :]

    async def _draw(self, topic: Topic, said: Sequence[Message]) -> int:
        """Ask about the first messages that fit. Returns how many that were."""
        # Before anything that the model is shown is read, the kept facts and people too: it may quote any of it.
        as_of = await self.readers.run(meta.last_entry)
        kept, known = await self._near(topic), await self.people.shown(topic, said)
        list_of_facts = "\n".join(_line(number, fact) for number, fact in enumerate(kept, 1)) or "(none)"
        list_of_people = "\n".join(line(number, each) for number, each in enumerate(known, 1)) or "(none)"
        lists = f"{tagged('kept facts', list_of_facts)}\n\n{tagged('known people', list_of_people)}"
        room = self.asker.room("topics", PROMPT) - tokens.estimate(lists) - tokens.PER_MESSAGE
        shown, handled = render(said, max(64, room))
        sources = {number for number, each in enumerate(said[:handled], 1) if each.role is Role.USER}
        if not sources:
            return handled
        read = partial(changes_of, kept=len(kept), said=sources, known=len(known))
        material = f"{lists}\n\n{tagged('conversation', shown)}"
        async with self.asker.charged("facts", topic.user, said[0].chat) as asker:
            changes = await asker.ask("topics", PROMPT, material, "facts", FactsAnswer, read)
        if changes is None:
            return handled  # the messages themselves stay findable
        if await self.readers.run(messages.by_rowids, [each.rowid for each in said]) != list(said):
            raise TopicChanged("some of the messages were forgotten while the model read them")
        done = 0
        for change in changes.wanted:
            done += await self._apply(topic, change, kept, said[change.message - 1], as_of)
        await self.people.apply(topic, changes.people, known, said[:handled], as_of)
        log.info("facts_drawn", messages=handled, count=done, missing=changes.refused)
        return handled

    async def _near(self, topic: Topic) -> list[Fact]:
        """The user's kept facts that are nearest to the topic; without vectors the most important ones."""
        vector = await self.readers.run(topic_vectors.read, topic.user, topic.id)
        if vector is not None:
            near = await self.readers.run(passages.nearest, "fact", topic.user, vector, NEAREST)
            found = await self.readers.run(sql.by_rowids, topic.user, [each.rowid for each in near])
            if found:
                return list(found.values())
        return await self.readers.run(sql.of_user, topic.user, limit=NEAREST)

    async def _apply(
        self, topic: Topic, change: ProposedFact, kept: Sequence[Fact], evidence: Message, as_of: int
    ) -> bool:
        old = kept[change.fact - 1] if change.fact else None
        if old is not None and not await self._is_newer(evidence, old):
            return False
        if change.action == "delete":
            assert old is not None
            return old.source is not FactSource.USER and await self._removed(old)
        if old is not None and normal_form(old.text) == normal_form(change.text):
            return False
        outcome = await self.facts.save(
            topic.user,
            change.text,
            category=change.category,
            importance=change.importance,
            source=FactSource.ARCHIVIST,
            origin=Origin.ASSISTANT,  # a model wrote it down, if also out of the user's words
            replaces=old.id if old is not None else None,
            chat=evidence.chat,
            message=evidence.id,
            topic=str(topic.id),
            background=True,
            as_of=as_of,
        )
        if isinstance(outcome, NoOlder):
            log.info("fact_gone_meanwhile")
        return isinstance(outcome, FactSaved)

    async def _removed(self, fact: Fact) -> bool:
        try:
            await self.facts.remove(fact.user, fact.id)
        except NoSuchFact:
            return False
        return True

    async def _is_newer(self, evidence: Message, old: Fact) -> bool:
        """Whether a message was said after what a kept fact says: topics may be archived in another order."""
        if old.message is None or old.source is FactSource.USER:
            return old.updated_at <= evidence.created_at
        source = await self.readers.run(messages.find, old.user, old.message)
        return (source.created_at if source is not None else old.created_at) <= evidence.created_at


def is_source(message: Message, turns_with_tools: set[str]) -> bool:
    """Whether the model is shown a message: what the user and the assistant said by themselves. Pure."""
    if message.type is not MessageKind.TEXT:
        return False
    if message.role is Role.USER:
        return True
    if message.role is not Role.ASSISTANT or context_used.KEY in message.metadata:
        return False
    return message.metadata.get("turn") not in turns_with_tools


def _turns(own: Sequence[Message]) -> list[str]:
    return [turn for message in own if isinstance(turn := message.metadata.get("turn"), str)]


def _line(number: int, fact: Fact) -> str:
    return f"{number}. [{minute(fact.updated_at)}] {fact.category}: {middle_out(fact.text, SHOWN_CHARS)}"
