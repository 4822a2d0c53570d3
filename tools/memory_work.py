"""What the memory drill's process does: each operation on memory, with what is to hold before and after it.

``begin`` lines say what is about to change, so that the drill can tell all of it from nothing; ``done`` lines that it
was acknowledged. People, facts and what is to be forgotten have words of their own, which stand nowhere else.
"""

import json
import random
import re
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import attrs

from klaw.actor.clock import SystemClock, iso
from klaw.domain.fact import Fact, FactId
from klaw.domain.message import NewMessage, Role
from klaw.domain.names import ChatId, UserId, chat_id
from klaw.domain.person import Person, PersonId, PersonSource
from klaw.domain.topic import Topic
from klaw.llm.types import Request
from klaw.memory.embed.embedder import Embedder
from klaw.memory.facts.facts import Facts
from klaw.memory.facts.people import People
from klaw.memory.topics.fact_extractor import FactExtractor
from klaw.memory.topics.people_extractor import PeopleExtractor
from klaw.store.kinds import facts, messages, topic_edits, topics, usage
from klaw.store.kinds import people as people_sql
from klaw.store.kinds.facts import FactVector
from klaw.store.search import vectors as stored_vectors
from klaw.store.store import Store
from tests.support.facts import fact
from tests.support.forgetting import forgetter, secret_past
from tests.support.memory.derived import TOOLS, turn_of
from tests.support.reindexing import DIMENSION, MODEL, unit
from tests.support.scripted import Scripted
from tests.support.stores import START, new
from tests.support.topics import draft

USERS = ("anna", "boris", "вера")
AT = iso(START + 5_000_000)
_SAID = re.compile(r"^#(\d+).*?: .*?(?:(NOTE|CHANGE) (w[a-z]+))(?: with (Z[a-z]+))?", re.MULTILINE)
_KEPT = re.compile(r"^(\d+)\. \[.*?\] \w+: (w[a-z]+) is", re.MULTILINE)


@attrs.define(kw_only=True)
class Work:
    """One life's."""

    store: Store
    root: Path
    chance: random.Random
    say: Callable[..., None]
    arm: Callable[[bool], None]
    """Whether it may be killed now."""
    number: int
    """Of the life; ids and words are made of it."""
    _count: "count[int]" = attrs.field(factory=lambda: count(1))

    def id(self) -> str:
        return f"n{self.number}x{next(self._count)}"

    def word(self) -> str:
        """Letters that stand nowhere else."""
        value = self.number * 1_000 + next(self._count)
        return "".join(chr(ord("a") + value // 26**place % 26) for place in range(6))

    def user(self, *, fresh: bool = False) -> UserId:
        return UserId(f"u{self.id()}" if fresh else self.chance.choice(USERS))

    async def tell(self, user: UserId, chat: str, *texts: str, at: float | None = None) -> list[int]:
        """Messages with vectors; returns their row ids."""
        made = []
        for place, text in enumerate(texts):
            values: dict[str, Any] = {"user": user, "chat": chat, "at": None if at is None else at + place}
            made.append(new(text, id=self.id(), **values))
        return await self.keep(made)

    async def keep(self, made: Sequence[NewMessage]) -> list[int]:
        stored = [each.message for each in await self.store.writer.run(messages.append, made)]
        self.say("said", user=stored[0].user, ids=[each.id for each in stored])
        await stored_vectors.prepare(self.store.writer, MODEL, DIMENSION)
        await self.store.writer.run(stored_vectors.store, MODEL, [(each.rowid, unit(each.rowid)) for each in stored])
        return [each.rowid for each in stored]

    async def doing(self, kind: str, action: Callable[[], Awaitable[Any]], **values: Any) -> None:
        """Carry the operation out, where it may be killed."""
        self.say("begin", about=kind, **values)
        self.arm(True)
        await action()
        self.arm(False)
        self.say("done", about=kind, **values)

    async def archived(self, user: UserId, chat: ChatId, *groups: Sequence[int], **changes: Any) -> list[Topic]:
        given = {"consolidated": True, "facts": True, **changes}
        drafts = [draft(f"about {group[0]}", *group, vector=unit(group[0]), **given) for group in groups]
        return await self.store.writer.run(topic_edits.store, user, chat, drafts, AT, model_id=MODEL)


# -- topics ------------------------------------------------------------------------------------------------------------


async def _six(work: Work) -> tuple[UserId, ChatId, list[int]]:
    user, chat = work.user(), work.id()
    return user, chat_id(user, chat), await work.tell(user, chat, *(f"слово {n} of a talk" for n in range(6)))


async def archive(work: Work, _place: int) -> None:
    user, chat, rows = await _six(work)
    groups = [rows[:2], rows[2:5], rows[5:]]
    await work.doing(
        "topics", lambda: work.archived(user, chat, *groups), user=user, rowids=rows, before=[], after=groups
    )


async def split(work: Work, _place: int) -> None:
    user, chat, rows = await _six(work)
    (one,) = await work.archived(user, chat, rows)
    drafts = [draft(f"half {part[0]}", *part, vector=unit(part[0]), facts=True) for part in (rows[:4], rows[4:])]

    async def act() -> None:
        await work.store.writer.run(
            topic_edits.store, user, chat, drafts, AT, replaces=one.id, model_id=MODEL, by="person"
        )

    await work.doing("topics", act, user=user, rowids=rows, before=[rows], after=[rows[:4], rows[4:]])


async def merge(work: Work, _place: int) -> None:
    user, chat, rows = await _six(work)
    one, two = await work.archived(user, chat, rows[:3], rows[3:])

    async def act() -> None:
        await work.store.writer.run(
            topic_edits.merge, two, one, "both", AT, vector=unit(rows[0]), model_id=MODEL, by="person"
        )

    await work.doing("topics", act, user=user, rowids=rows, before=[rows[:3], rows[3:]], after=[rows])


async def undo(work: Work, place: int) -> None:
    """Of a merge, a split or a rebuild."""
    user, chat, rows = await _six(work)
    parts, writer = [rows[:3], rows[3:]], work.store.writer
    if place % 3 == 0:
        one, two = await work.archived(user, chat, *parts)
        await writer.run(topic_edits.merge, two, one, "both", AT, by="person")
        before, after = [rows], parts
    elif place % 3 == 1:
        (one,) = await work.archived(user, chat, rows)
        drafts = [draft("half", *part, facts=True) for part in parts]
        await writer.run(topic_edits.store, user, chat, drafts, AT, replaces=one.id, by="person")
        before, after = parts, [rows]
    else:
        await work.archived(user, chat, *parts)
        await writer.run(topic_edits.rebuild, user, chat, None, AT)
        before, after = [], parts
    await work.doing(
        "topics",
        lambda: writer.run(topic_edits.undo, user, None, AT),
        user=user,
        rowids=rows,
        before=before,
        after=after,
    )


async def rebuild(work: Work, _place: int) -> None:
    user, chat, rows = await _six(work)
    await work.archived(user, chat, rows[:3], rows[3:])
    await work.doing(
        "topics",
        lambda: work.store.writer.run(topic_edits.rebuild, user, chat, None, AT),
        user=user,
        rowids=rows,
        before=[rows[:3], rows[3:]],
        after=[],
    )


# -- facts and people --------------------------------------------------------------------------------------------------


async def supersede(work: Work, _place: int) -> None:
    user, word = work.user(), work.word()
    older, newer = (
        fact(f"w{word} {'x' * work.chance.choice([1, 1_500])} lives in {town}", id=FactId(work.id()), user=user)
        for town in ("Berlin", "Казань")
    )
    vector = FactVector(model_id=MODEL, vector=unit(1))
    await stored_vectors.prepare(work.store.writer, MODEL, DIMENSION)
    await work.store.writer.run(facts.put, older, "new", vector=vector)

    async def act() -> None:
        await work.store.writer.run(facts.put, newer, "new", supersedes=older.id, vector=vector)

    await work.doing("supersede", act, user=user, older=older.id, newer=newer.id)


async def merge_people(work: Work, _place: int) -> None:
    user, people = work.user(), _people(work)

    async def known() -> Person:
        return await people.add(user, f"Z{work.word()}", aliases=[f"Z{work.word()}"], source=PersonSource.USER)

    loser, keeper = await known(), await known()
    names = [*loser.names, *keeper.names]
    await work.doing(
        "people",
        lambda: people.merge(user, loser.id, keeper.id),
        user=user,
        loser=loser.id,
        keeper=keeper.id,
        names=names,
    )


def _people(work: Work) -> People:
    return People(work.store.writer, work.store.readers, SystemClock(), work.id)


# -- drawing -----------------------------------------------------------------------------------------------------------


def _answer(request: Request) -> str:
    """What a model says: a fact and a person for each NOTE, the newer statement for each CHANGE."""
    material = request.messages[1].content
    kept = {word: int(number) for number, word in _KEPT.findall(material)}
    facts_, people_ = [], []
    for number, what, word, name in _SAID.findall(material.partition("<conversation>")[2]):
        old = kept.get(word, 0) if what == "CHANGE" else 0
        text = f"{word} is {'new' if what == 'CHANGE' else 'noted'} now"
        rest = {"category": "person", "importance": 60, "message": int(number)}
        facts_.append({"action": "update" if old else "add", "fact": old, "text": text, **rest})
        if name:
            about = {"action": "add", "person": 0, "into": 0, "name": name, "aliases": [], "relation": "friend"}
            people_.append({**about, "message": int(number)})
    return json.dumps({"facts": facts_, "people": people_}, ensure_ascii=False)


def _drawer(work: Work) -> FactExtractor:
    clock = SystemClock()
    kept = Facts(work.store.writer, work.store.readers, Embedder(clock, enabled=False), clock, work.id)
    drawer = PeopleExtractor(_people(work), work.store.readers)
    return FactExtractor(Scripted(_answer).asker(), kept, drawer, work.store.readers)


async def _material(work: Work, user: UserId) -> tuple[list[str], dict[str, Any]]:
    words, names = [f"w{work.word()}" for _ in range(3)], [f"Z{work.word()}" for _ in range(2)]
    old: Fact = fact(f"{words[2]} is old", id=FactId(work.id()), user=user)
    await work.store.writer.run(facts.put, old, "new")
    texts = [f"NOTE {words[0]} with {names[0]}", f"NOTE {words[1]} with {names[1]}", f"CHANGE {words[2]} today"]
    return texts, {"words": words, "names": names, "old": old.id}


async def draw_topic(work: Work, _place: int) -> None:
    user, chat = work.user(fresh=True), "talk"
    texts, about = await _material(work, user)
    rows = await work.tell(user, chat, *texts)
    (topic,) = await work.archived(user, chat_id(user, chat), rows, facts=False)
    await work.doing("draw", partial(_draw, work, topic), user=user, **about)


async def _draw(work: Work, topic: Topic) -> None:
    own = await work.store.readers.run(topics.read, topic.user, topic.id)
    await _drawer(work)(topic, own)
    await work.store.writer.run(topic_edits.mark, topic.user, topic.id, "facts", AT)


async def finish_background(work: Work) -> None:
    """What an earlier life began."""
    left = await work.store.readers.run(topics.unfinished, with_facts=True, after=0, limit=1_000)
    for topic in left:
        if not topic.facts:
            await _draw(work, topic)
    work.say("finished")


async def spend(work: Work, _place: int) -> None:
    user, word = work.user(), work.word()
    parts = [{"model": f"test/{word}", "calls": 1, "prompt_tokens": 7, "completion_tokens": 3}]
    await work.doing(
        "spend", lambda: work.store.writer.run(usage.note_spent, "topics", user, None, parts, AT), user=user, word=word
    )


# -- forgetting --------------------------------------------------------------------------------------------------------


async def _forget(work: Work, user: UserId, what: str, word: str, message: int) -> None:
    tool = forgetter(work.store, work.root)
    wanted = await tool.find(what, user)
    act = partial(tool.forget, wanted, with_facts=True, everywhere=True)
    await work.doing("forget", act, user=user, word=word, message=message, person=None)


async def forget_message(work: Work, place: int) -> None:
    """A message that is quoted wherever that can be, short or over pages of the database."""
    user, word = work.user(fresh=True), f"q{work.word()}q"
    text = f"My secret word is {word}, say it to nobody." if place % 2 == 0 else f"{word} это пароль от дачи. " * 300
    secret = await secret_past(work.store, work.root, text, user=user)
    await _forget(work, user, "main#2", word, secret.rowid)


async def forget_derived(work: Work, place: int) -> None:
    """A message of which tools made all that they can; every other time beside a turn that failed or was killed."""
    user, word = work.user(fresh=True), f"q{work.word()}q"
    tools = [name for name in TOOLS if name != "appended"]  # such a file stays
    await work.tell(user, "other", "Hello there")
    secret = await turn_of(work.store, work.root, word, tools, user=user, cut=("", "failed", "killed")[place % 3])
    await _forget(work, user, secret.id, word, secret.rowid)


async def forget_person(work: Work, _place: int) -> None:
    """Somebody who is named in messages, answers, a topic, facts, and by the names of another one who it was."""
    user, word, store = work.user(fresh=True), f"q{work.word()}q", work.store
    name, alias = word.capitalize(), f"Mc {word}"
    rows = await work.tell(user, "main", "Hello there", f"Yesterday I met {name} again", "What a day")
    rows += await work.keep([new(f"So {word.upper()} is well?", id=work.id(), user=user, role=Role.ASSISTANT)])
    chat = chat_id(user, "main")
    (topic,) = await store.writer.run(topic_edits.store, user, chat, [draft(f"Of {name}", *rows, facts=True)], AT)
    people = _people(work)
    mention = people_sql.Mention(topic=str(topic.id), message="m", at=AT)
    person = await people.add(user, name, relation="aunt", source=PersonSource.USER, mention=mention)
    twin = await people.add(user, alias, source=PersonSource.USER)
    await people.merge(user, twin.id, person.id)
    for text in (f"{name} likes tea with jam", f"{alias} was born in May"):
        await store.writer.run(facts.put, fact(text, id=FactId(work.id()), user=user), "new")
    tool = forgetter(store, work.root)
    wanted = await tool.find(f"person:{name}", user, with_messages=True)
    await work.doing(
        "forget",
        lambda: tool.forget(wanted, everywhere=True),
        user=user,
        word=word,
        message=rows[1],
        person=PersonId(person.id),
    )


OPERATIONS: dict[str, Callable[[Work, int], Awaitable[None]]] = {
    "archive": archive,
    "split": split,
    "merge": merge,
    "undo": undo,
    "rebuild": rebuild,
    "draw-topic": draw_topic,
    "merge-people": merge_people,
    "supersede": supersede,
    "spend": spend,
    "forget-message": forget_message,
    "forget-derived": forget_derived,
    "forget-person": forget_person,
}
