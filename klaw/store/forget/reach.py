"""What is forgotten with something: what was made of it, and what says the same. Every question names the user.

message -> the turns that answered it -> what they stored: tool calls, results, the answer, messages in other chats ->
what the calls did: facts, core memory, tasks, runs, files -> what the runs said and saved. A link is an id, or what a
call was told and what is still there word for word; the same text alone is no link. From there on, the notes
``MadeFrom`` of all kinds in KINDS are followed until nothing more is found. A preview shows what ``plan`` found, and a
forgetting carries out the same.
"""

import heapq
import json
from collections.abc import Collection, Mapping
from typing import Any

import apsw
import attrs

from klaw.domain.attachment import Attachment
from klaw.domain.fact import FactId
from klaw.domain.forget import PieceFinder, fragments, most_pieces
from klaw.domain.message import Message, MessageKind, Role
from klaw.domain.names import ChatId, UserId
from klaw.domain.person import PersonId
from klaw.domain.task import TaskName
from klaw.domain.topic import TopicId
from klaw.store.changes import Kind
from klaw.store.engine import meta
from klaw.store.engine.connect import snapshot
from klaw.store.forget import quotes
from klaw.store.forget.effects import Effects, TaskMade, effects_of
from klaw.store.forget.quotes import PersonTraces, QuotesFound
from klaw.store.kinds import attachments, forgotten, imports, messages, tasks
from klaw.store.kinds.facts import FACT
from klaw.store.kinds.inventory import last_numbers
from klaw.store.kinds.knowledge import message_files
from klaw.store.kinds.people import PERSON
from klaw.store.kinds.records import KINDS
from klaw.store.kinds.summaries import SUMMARY
from klaw.store.kinds.topic_changes import TOPIC

MAX_ROUNDS = 20
"""Limit of following links: a run that spawned a run that sent a message …"""


@attrs.frozen(kw_only=True)
class ForgetTarget:
    """What is to be forgotten."""

    user: UserId
    rowids: tuple[int, ...] = ()
    facts: tuple[FactId, ...] = ()
    people: tuple[PersonId, ...] = ()
    tasks: tuple[TaskMade, ...] = ()
    """All that they ever asked; their runs go too."""
    named: PersonTraces | None = None
    """What names a person that is to be forgotten."""
    deleted: tuple[tuple[ChatId, int], ...] = ()
    """Chats that go as a whole, up to a ``seq``."""
    channel: str = ""
    """For an import, whose messages ``rowids`` are: too many to hold their texts, and no turn answered them."""

    @property
    def traces(self) -> PersonTraces:
        """What goes with a person, or loses its names."""
        return self.named if self.named is not None and self.named.with_messages else PersonTraces()


@attrs.frozen(kw_only=True)
class Reach:
    """What a forgetting takes, and what quotes that, at one moment. Kinds are named by their words."""

    wanted: ForgetTarget
    with_facts: bool
    """Also what is kept on purpose goes, where it was made of the messages or says the same."""

    # -- what messages had to be read for: of tens of thousands that takes seconds -------------------------------------

    asked: tuple[int, ...]
    """Row ids of the messages that were named."""
    made: tuple[int, ...]
    """Row ids of those and of the messages that were made of them."""
    shown: tuple[int, ...]
    """Row ids of answers that showed what would be forgotten, whatever it was."""
    turns: tuple[str, ...]
    runs: tuple[str, ...]
    effects: Effects
    own: tuple[Message, ...]
    """All these messages; of an import those with files."""
    attachments: tuple[Attachment, ...]
    """Files of the messages that no other message has."""
    said: tuple[str, ...]
    """All that was named; of an import the longest. Content: never logged."""
    finder: PieceFinder
    """Finds ``said`` and parts of it."""

    # -- what was made of that, and what quotes it ---------------------------------------------------------------------

    gone: Mapping[str, tuple[Any, ...]] = attrs.field(factory=dict)
    """Keys of what goes, by kind."""
    kept: Mapping[str, tuple[Any, ...]] = attrs.field(factory=dict)
    """Keys of what was made of it, or says the same, and stays because people keep it on purpose."""
    tasks: tuple[TaskMade, ...] = ()
    """Those that are as a call made them; they go with the facts. What others were goes with any forgetting."""
    texts: tuple[str, ...] = ()
    """``said``, and what else goes. Content: never logged."""
    quotes: QuotesFound = attrs.field(factory=QuotesFound)
    marks: tuple[Any, ...] = ()
    """When it was read, by numbers that grow with whatever it depends on; see ``is_current``."""

    @property
    def user(self) -> UserId:
        return self.wanted.user

    @property
    def rowids(self) -> tuple[int, ...]:
        """Row ids of all messages that go."""
        return (*self.made, *self.shown)

    def keys(self, kind: Kind[Any]) -> tuple[Any, ...]:
        """What goes of a kind."""
        return self.gone.get(kind.what, ())

    @property
    def facts(self) -> tuple[FactId, ...]:
        return self.keys(FACT)

    @property
    def people(self) -> tuple[PersonId, ...]:
        return self.keys(PERSON)

    @property
    def topics(self) -> tuple[TopicId, ...]:
        return self.keys(TOPIC)

    @property
    def going_tasks(self) -> set[TaskName]:
        return {each.name for each in (*self.wanted.tasks, *(self.tasks if self.with_facts else ()))}

    @property
    def is_empty(self) -> bool:
        return not (self.asked or any(self.gone.values()) or self.wanted.deleted or self.wanted.tasks)


def plan(connection: apsw.Connection, wanted: ForgetTarget, *, with_facts: bool) -> Reach:
    """Find out what a forgetting takes, and what quotes it. Others' messages are left out."""
    with snapshot(connection):
        found = _with_made(connection, _traced(connection, wanted, with_facts=with_facts))
        quoting = quotes.look(connection, wanted.user, found.texts, found.rowids, found.asked)
        marks = (last_numbers(connection)["rowid"], *_marks(connection, found))
        return attrs.evolve(found, quotes=quoting, marks=marks)


def renewed(connection: apsw.Connection, found: Reach) -> Reach:
    """What a forgetting takes now; for the writer, who reads little of it again while everybody waits."""
    if found.wanted.channel:
        return found
    traced = found
    if not is_current(connection, found):
        traced = _traced(connection, found.wanted, with_facts=found.with_facts)
    return attrs.evolve(_with_made(connection, traced), quotes=found.quotes)


def is_current(connection: apsw.Connection, found: Reach) -> bool:
    """Whether the messages that it was made of are the same; facts, topics and the like may be others. Of other chats
    of the user only files, answers of commands, and what a turn or a run has sent there make a difference; to an import
    nothing does."""
    if found.wanted.channel:
        return True
    last_rowid, *marks = found.marks
    return not forgotten.linked_since(connection, found.user, last_rowid) and marks == [*_marks(connection, found)]


def _marks(connection: apsw.Connection, found: Reach) -> tuple[Any, ...]:
    by_entry = found.wanted.facts or found.wanted.tasks or found.effects.tasks
    return (
        last_numbers(connection)["change"],
        meta.last_entry(connection) if by_entry else None,
        forgotten.last_in(connection, {each.chat for each in found.own}),
    )


# -- by messages -------------------------------------------------------------------------------------------------------


def _traced(connection: apsw.Connection, wanted: ForgetTarget, *, with_facts: bool) -> Reach:
    """What goes in any case, and the messages that were made of it."""
    user, shown = wanted.user, forgotten.shown(connection, wanted.user)
    turns, runs, effects = set[str](), set[str](), Effects()
    if wanted.channel:
        asked = made = wanted.rowids
        own, contents = imports.texts_of(connection, user, wanted.channel)
        said = heapq.nlargest(most_pieces(len(asked)), contents, key=len)
    else:
        named = [each for each in messages.whole(connection, wanted.rowids) if each.user == user]
        found = {each.rowid: each for each in named}
        turns, runs, effects = _follow(connection, wanted, found, with_tasks=with_facts)
        asked, made = tuple(each.rowid for each in named), tuple(sorted(found))
        shown = tuple(row for row in shown if row not in found)
        own = [*(found[rowid] for rowid in made), *messages.whole(connection, shown)]
        said = [each.content for each in named]
    alone = attachments.only_of(connection, user, own)
    said += [*attachments.texts_of(alone), *message_files.texts_of(connection, user, alone)]
    said += [text for fact in wanted.facts for text in FACT.texts(connection, user, fact)]
    said += [each.message for each in wanted.tasks]
    return Reach(
        wanted=wanted,
        with_facts=with_facts,
        asked=asked,
        made=made,
        shown=shown,
        turns=tuple(sorted(turns)),
        runs=tuple(sorted(runs)),
        effects=effects,
        own=tuple(own),
        attachments=tuple(alone),
        said=tuple(said),
        finder=PieceFinder.of(fragments(said, most_pieces(len(asked)))),
    )


def _follow(
    connection: apsw.Connection, wanted: ForgetTarget, own: dict[int, Message], *, with_tasks: bool
) -> tuple[set[str], set[str], Effects]:
    """Follow every link from messages of a user, and add the messages that were made of them. Returns turns, runs and
    what calls did."""
    user, turns = wanted.user, set[str]()
    runs = forgotten.runs_of_tasks(connection, user, [each.name for each in wanted.tasks])
    effects = Effects()
    for _ in range(MAX_ROUNDS):
        before = len(own), len(turns), len(runs)
        asked = forgotten.by_chat(each for each in own.values() if each.role is Role.USER)
        for chat, said in asked.items():
            turns |= forgotten.turns_of(connection, user, chat, [each.seq for each in said])
        for chat, said in asked.items():
            turns |= forgotten.interrupted(connection, chat, [each.seq for each in said], turns)
        effects = effects_of((each.role, each.type, each.content, each.metadata) for each in own.values())
        for made in effects.spawned:
            runs |= forgotten.runs_asked(connection, user, made.name, made.message, spawned=True)
        for made in effects.tasks:
            if made.message and (with_tasks or not _is_there(connection, user, made)):
                runs |= forgotten.runs_asked(connection, user, made.name, made.message, spawned=False)
        runs = forgotten.with_children(connection, user, {*runs, *effects.runs})
        found = forgotten.made_by(connection, user, turns, runs, min(own, default=0))
        for chat, calls in forgotten.by_chat(
            each for each in own.values() if each.type is MessageKind.TOOL_CALL
        ).items():
            found |= forgotten.results(connection, chat, calls)
        own |= {each.rowid: each for each in messages.whole(connection, sorted(found - own.keys()))}
        if (len(own), len(turns), len(runs)) == before:
            break
    return turns, runs, effects


def _is_there(connection: apsw.Connection, user: UserId, made: TaskMade) -> bool:
    now = tasks.get(connection, user, made.name)
    return now is not None and now.message.strip() == made.message


# -- by the notes of the kinds -----------------------------------------------------------------------------------------


def _with_made(connection: apsw.Connection, traced: Reach) -> Reach:
    user, wanted, with_facts = traced.user, traced.wanted, traced.with_facts
    named: dict[str, tuple[Any, ...]] = {
        FACT.what: wanted.facts,
        PERSON.what: wanted.people,
        TOPIC.what: wanted.traces.topics,
        SUMMARY.what: wanted.traces.keys(SUMMARY),
    }
    makers: dict[str, Collection[Any]] = {
        "message": messages.ids_of(connection, user, traced.made),
        "turn": (*traced.turns, *traced.runs),
        "run": traced.runs,
    }
    gone: dict[str, set[Any]] = {what: set(keys) for what, keys in named.items()}
    kept: dict[str, set[Any]] = {}
    looked_at: dict[str, int] = {}
    # Topics and the like first: what was made of them follows.
    kinds = sorted((kind for kind in KINDS if _can_be_made(kind)), key=lambda kind: kind.made_of is None)
    while stale := [kind for kind in kinds if looked_at.get(kind.what) != _size(kind, makers)]:
        for kind in stale:
            looked_at[kind.what] = _size(kind, makers)
            made, dead = _made(connection, user, kind, makers, traced)
            makers[kind.what] = made if with_facts or not kind.on_purpose else set()
            gone[kind.what] = {*gone.get(kind.what, ()), *dead, *makers[kind.what]}
            kept[kind.what] = made - gone[kind.what]
    texts = [*traced.said]
    for kind in (kind for kind in kinds if "message" in _makers(kind)):
        for key in sorted(set(makers[kind.what]) - set(named.get(kind.what, ()))):
            texts += kind.texts(connection, user, key)
    there = {made.name: made for made in traced.effects.tasks if made.message and _is_there(connection, user, made)}
    return attrs.evolve(
        traced,
        gone={what: tuple(sorted(keys)) for what, keys in gone.items()},
        kept={what: tuple(sorted(keys)) for what, keys in kept.items()},
        tasks=tuple(there.values()),
        texts=tuple(texts),
    )


def _can_be_made(kind: Kind[Any]) -> bool:
    return kind.made_of is not None or bool(kind.made_from and (kind.on_purpose or kind.past))


def _makers(kind: Kind[Any]) -> set[str]:
    return {note.what for note in kind.made_from.values()}


def _size(kind: Kind[Any], makers: Mapping[str, Collection[Any]]) -> int:
    return sum(len(makers.get(maker, ())) for maker in _makers(kind))


def _made(
    connection: apsw.Connection, user: UserId, kind: Kind[Any], makers: Mapping[str, Collection[Any]], traced: Reach
) -> tuple[set[Any], set[Any]]:
    """The keys of a kind's things that were ever made of something that goes, or say the same: of those that are there,
    and of removed ones whose history is there."""
    table, key, field = kind.source
    linked = {
        field.format(name): makers.get(note.what, ()) for name, note in kind.made_from.items() if note.what != "topic"
    }
    linked[key] = traced.effects.facts if kind is FACT else ()
    linked = {column: among for column, among in linked.items() if among}
    there = f"EXISTS (SELECT 1 FROM {kind.table} AS t WHERE t.user_id = p.user_id AND t.{kind.id} = p.{key})"  # noqa: S608
    among = " OR ".join(f"{column} IN (SELECT value FROM json_each(?))" for column in linked)  # noqa: S608
    statement = f"SELECT DISTINCT {key}, {there} FROM {table} AS p WHERE user_id = ? AND ({among})"  # noqa: S608
    if kind.past:
        statement += " AND value IS NOT NULL"
    bound = (user, *(json.dumps(list(each)) for each in linked.values()))
    rows = connection.execute(statement, bound).fetchall() if linked else []
    made = {each for each, is_there in rows if is_there}
    dead = {each for each, is_there in rows if not is_there}
    if makers.get("topic"):
        made |= _of_topics_only(connection, user, kind, makers)
    if kind.on_purpose and "message" in _makers(kind):  # others only lose the words
        made |= set(quotes.quoting(connection, user, kind, traced.finder))
        dead |= set(quotes.once_quoting(connection, user, kind, traced.finder, gone=True))
    if kind.made_of is not None:
        made |= kind.made_of(connection, user, traced.made)
    return made, dead


def _of_topics_only(
    connection: apsw.Connection, user: UserId, kind: Kind[Any], makers: Mapping[str, Collection[Any]]
) -> set[Any]:
    """What was made of a topic that goes, but not what was made of another message of it, which stays."""
    columns = {maker: [name for name, note in kind.made_from.items() if note.what == maker] for maker in _makers(kind)}
    going, topics = set(makers["message"]), json.dumps(list(makers["topic"]))
    linked = [f"{column} IN (SELECT CAST(value AS TEXT) FROM json_each(?2))" for column in columns.get("topic", ())]  # noqa: S608
    of = ", ".join([kind.id, *columns.get("message", ())])
    statement = f"SELECT {of} FROM {kind.table} WHERE user_id = ?1 AND ({' OR '.join(linked)})"  # noqa: S608

    def stays(message: str | None) -> bool:
        found = messages.find(connection, user, message) if message and message not in going else None
        return found is not None and found.content != ""

    rows: list[Any] = connection.execute(statement, (user, topics)).fetchall() if linked else []
    return {key for key, *of_messages in rows if not any(map(stays, of_messages))}
