"""SQL that finds what belongs to what is to be forgotten, and tells it in words. Every question names the user."""

import json
from collections.abc import Iterator, Sequence
from typing import Self

import apsw
import attrs

from klaw.domain.attachment import Attachment, files_of
from klaw.domain.core_memory import Document
from klaw.domain.fact import FactId
from klaw.domain.forget import Quotes, Thing, beginning, fact_ids, fragments
from klaw.domain.message import Kind, Message, Role
from klaw.domain.names import ChatId, UserId, name_of
from klaw.domain.person import PersonId
from klaw.domain.task import TaskName
from klaw.domain.topic import TopicId
from klaw.errors import CoreUnreadable
from klaw.store.engine import meta
from klaw.store.forget import derived as derivation
from klaw.store.forget.derived import CoreMade, Derived, Effects, FileMade, TaskMade
from klaw.store.forget.quoting import Named
from klaw.store.kinds import attachments, chats, facts, messages, people, runs, topic_changes, topics
from klaw.store.kinds.core_memory import read_core
from klaw.store.rebuild.tables import last_numbers

_TOPICS = """
WITH RECURSIVE mine (id) AS (
    SELECT DISTINCT topic_id FROM messages
    WHERE +user_id = ?1 AND rowid IN (SELECT value FROM json_each(?2)) AND topic_id IS NOT NULL
    UNION SELECT e.id FROM topic_ends e JOIN mine ON e.into_id = mine.id WHERE e.user_id = ?1)
SELECT id FROM mine ORDER BY id
"""
_SUMMARIES = """
SELECT DISTINCT s.chat_id, s.number FROM messages m
JOIN summaries s ON s.chat_id = m.chat_id AND s.segment = m.segment AND m.seq BETWEEN s.first_seq AND s.last_seq
WHERE +m.user_id = ?1 AND m.rowid IN (SELECT value FROM json_each(?2)) ORDER BY s.chat_id, s.number
"""
_FACTS_MADE = """
SELECT f.id FROM facts f WHERE f.user_id = ?1 AND (
    f.topic IN (SELECT CAST(value AS TEXT) FROM json_each(?3))
    OR f.message_id IN (SELECT id FROM messages WHERE +user_id = ?1 AND rowid IN (SELECT value FROM json_each(?2))))
"""
_EVERY_FACT = """
SELECT c.fact_id, c.value ->> '$.text', f.id IS NOT NULL, f.text FROM fact_changes c
LEFT JOIN facts f ON f.user_id = c.user_id AND f.id = c.fact_id
WHERE c.user_id = ? AND c.value IS NOT NULL
"""
_FACT_TEXTS = "SELECT value ->> '$.text' FROM fact_changes WHERE user_id = ? AND fact_id = ? AND value IS NOT NULL"


# One and the same are all who were merged into somebody, with that one; a removed person stands alone.
_PEOPLE_MADE = """
WITH RECURSIVE heir (id, now) AS (
    SELECT id, id FROM people WHERE user_id = ?1
    UNION SELECT h.id, p.merged_into FROM heir AS h JOIN people AS p ON p.user_id = ?1 AND p.id = h.now
        WHERE p.merged_into IS NOT NULL),
same (id, now) AS (
    SELECT h.id, h.now FROM heir AS h JOIN people AS p ON p.user_id = ?1 AND p.id = h.now WHERE p.merged_into IS NULL
    UNION SELECT person_id, person_id FROM person_changes AS c WHERE user_id = ?1 AND value IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM people WHERE user_id = ?1 AND id = c.person_id)),
gone (id) AS (SELECT id FROM messages WHERE +user_id = ?1 AND rowid IN (SELECT value FROM json_each(?2)))
SELECT id FROM same WHERE now IN (
    SELECT s.now FROM same AS s LEFT JOIN people AS p ON p.user_id = ?1 AND p.id = s.id
        LEFT JOIN person_mentions AS m ON m.user_id = ?1 AND m.person_id = s.id
    GROUP BY s.now HAVING count(m.entry) > 0 AND count(m.entry) = count(iif(m.message_id IN gone, 1, NULL))
        AND min(coalesce(p.source, 'archivist')) = 'archivist' AND max(coalesce(p.source, 'archivist')) = 'archivist')
"""


def fact_texts(connection: apsw.Connection, user: UserId, fact: FactId) -> list[str]:
    """All that a fact ever said."""
    return [row[0] for row in connection.execute(_FACT_TEXTS, (user, fact)) if row[0]]


def _saying(connection: apsw.Connection, user: UserId, quotes: Quotes) -> tuple[set[str], set[str]]:
    """Facts that say one of the pieces now, and removed ones that once did."""
    there: set[str] = set()
    dead: set[str] = set()
    for fact, text, present, now in connection.execute(_EVERY_FACT, (user,)) if quotes else ():
        if present and quotes.found_in(now):
            there.add(fact)
        elif not present and text and quotes.found_in(text):
            dead.add(fact)
    return there, dead


@attrs.frozen(kw_only=True)
class Wanted:
    """What is to be forgotten, by its numbers; it goes in any case."""

    user: UserId
    rowids: tuple[int, ...] = ()
    """Of the messages."""
    facts: tuple[FactId, ...] = ()
    people: tuple[PersonId, ...] = ()
    topics: tuple[TopicId, ...] = ()
    """Whose summaries name what is forgotten."""
    summaries: tuple[tuple[ChatId, int], ...] = ()
    turns: tuple[str, ...] = ()
    """Whose receipts name the people."""
    runs: tuple[str, ...] = ()
    """That name them."""
    named: Named | None = None
    """Of a person: what names it."""
    deleted: tuple[tuple[ChatId, int], ...] = ()
    """Chats that go as a whole, up to a ``seq``."""
    followed: bool = False
    """What was made of it went already, by another entry of the same forgetting."""


@attrs.frozen(kw_only=True)
class Scope:
    """What a forgetting is about."""

    user: UserId
    own: tuple[Message, ...]
    """The messages, those too that were made of them."""
    facts: tuple[FactId, ...]
    """That go."""
    kept_facts: tuple[FactId, ...]
    """Made of the messages, or saying the same, and not to go."""
    topics: tuple[TopicId, ...]
    summaries: tuple[tuple[ChatId, int], ...]
    people: tuple[PersonId, ...] = ()
    """That go."""
    kept_people: tuple[PersonId, ...] = ()
    """Known by nothing but the messages, and not to go."""
    tasks: tuple[TaskMade, ...] = ()
    """That are as a call made them; they go with the facts."""
    changed_tasks: tuple[TaskName, ...] = ()
    """That a call made, and that are gone or other ones now: of what they were nothing stays."""
    core: tuple[CoreMade, ...] = ()
    """What calls wrote into core memory, also what is not there any more; what is there goes with the facts."""
    files: tuple[FileMade, ...] = ()
    """Of the user's workspace."""
    attachments: tuple[Attachment, ...] = ()
    """Files of the messages that no other message has."""
    programs: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    """That go."""
    asked: tuple[int, ...] = ()
    """Row ids of the messages that were named; the others were made of them."""
    shown: tuple[int, ...] = ()
    """Row ids of answers that showed what would be forgotten."""
    with_facts: bool = False
    deleted: tuple[tuple[ChatId, int], ...] = ()
    """See ``Wanted``."""
    texts: tuple[str, ...]
    """All that was named. Content: never logged."""


def topics_with(connection: apsw.Connection, user: UserId, rowids: Sequence[int]) -> list[TopicId]:
    """Topics that have one of a user's messages, or once had."""
    now = {TopicId(row[0]) for row in connection.execute(_TOPICS, (user, json.dumps(list(rowids))))}
    return sorted(now | topic_changes.past_topics(connection, user, rowids))


def scope(connection: apsw.Connection, wanted: Wanted, *, with_facts: bool) -> Scope:
    """What was made of a user's messages, and what says the same. Others' messages are left out.

    Args:
        wanted: what goes in any case.
        with_facts: also facts that were made of the messages, or say the same, and people known by nothing else.
    """
    user = wanted.user
    asked = [each for each in messages.by_rowids(connection, wanted.rowids) if each.user == user]
    rowids = [each.rowid for each in asked]
    if wanted.followed:
        derived = Derived(rowids=tuple(sorted(rowids)), shown=(), turns=(), runs=(), effects=Effects())
    else:
        derived = derivation.follow(connection, user, rowids, with_tasks=with_facts)
    own = messages.by_rowids(connection, [*derived.rowids, *derived.shown])
    marked = json.dumps(derived.rowids)
    ended = topics_with(connection, user, derived.rowids)
    covering = [(ChatId(chat), number) for chat, number in connection.execute(_SUMMARIES, (user, marked))]
    alone = attachments.only_of(connection, user, own)
    texts = [*(each.content for each in asked), *attachments.texts_of(alone)]
    for fact in wanted.facts:
        texts += fact_texts(connection, user, fact)
    related = {row[0] for row in connection.execute(_FACTS_MADE, (user, marked, json.dumps(ended)))}
    related -= derivation.facts_of_others(connection, user, derived)
    saved, dead = derivation.facts_of(connection, user, derived)
    said, said_once = _saying(connection, user, Quotes.of(fragments(texts)))
    related = (related | saved | said) - set(wanted.facts)
    gone = {*wanted.facts, *dead, *said_once, *(related if with_facts else ())}
    for fact_id in sorted(related if with_facts else ()):
        texts += fact_texts(connection, user, FactId(fact_id))
    made = {PersonId(row[0]) for row in connection.execute(_PEOPLE_MADE, (user, marked))} - set(wanted.people)
    there = derivation.tasks_there(connection, user, derived.effects)
    return Scope(
        user=user,
        own=tuple(own),
        facts=fact_ids(gone),
        kept_facts=fact_ids(related - gone),
        topics=tuple(sorted({*ended, *wanted.topics})),
        summaries=tuple(sorted({*covering, *wanted.summaries})),
        people=tuple(sorted({*wanted.people, *(made if with_facts else ())})),
        kept_people=() if with_facts else tuple(sorted(made)),
        tasks=tuple(there),
        changed_tasks=tuple(sorted({each.name for each in derived.effects.tasks} - {each.name for each in there})),
        core=derived.effects.core,
        files=derived.effects.files,
        attachments=tuple(alone),
        programs=derived.effects.programs,
        runs=derived.runs,
        asked=tuple(rowids),
        deleted=wanted.deleted,
        shown=derived.shown,
        with_facts=with_facts,
        texts=tuple(texts),
    )


_LAST_IN = """
SELECT chat_id, last_seq, (SELECT max(rowid) FROM turns WHERE turns.chat_id = sessions.chat_id) FROM sessions
WHERE chat_id IN (SELECT value FROM json_each(?)) ORDER BY chat_id
"""
_ELSEWHERE = """
SELECT EXISTS (SELECT 1 FROM messages WHERE rowid > ? AND user_id = ? AND (
    instr(metadata, '"files":') OR instr(metadata, '"sent_from":') OR role = 'system' AND type = 'command'))
"""


@attrs.frozen(kw_only=True)
class Seen:
    """When a scope was found, by the numbers that grow with whatever it depends on: to find it again of tens of
    thousands of messages takes seconds."""

    entry: int
    """The memory journal's last."""
    change: int
    """The last of a run."""
    rowid: int
    """Of the last message."""
    chats: tuple[tuple[object, ...], ...]
    """The last message and turn of each chat that it is about."""

    @classmethod
    def of(cls, connection: apsw.Connection, found: Scope) -> Self:
        last = last_numbers(connection)
        chats = json.dumps(sorted({each.chat for each in found.own}))
        return cls(
            entry=meta.last_entry(connection),
            change=last["change"],
            rowid=last["rowid"],
            chats=tuple(connection.execute(_LAST_IN, (chats,))),
        )


def is_current(connection: apsw.Connection, found: Scope, seen: Seen) -> bool:
    """Whether a scope is the same as when it was seen. Of other chats of the user only files, answers of commands, and
    what a turn or a run has sent there make a difference."""
    if connection.execute(_ELSEWHERE, (seen.rowid, found.user)).get:
        return False
    return Seen.of(connection, found) == attrs.evolve(seen, rowid=last_numbers(connection)["rowid"])


# -- in words: so that somebody sees it before it goes ----------------------------------------------------------------

_SUMMARY = "SELECT text FROM summaries WHERE user_id = ? AND chat_id = ? AND number = ?"


def things_of(connection: apsw.Connection, scope: Scope) -> list[Thing]:
    """Everything but files of the workspace, in the order in which one was made of another."""
    shown = frozenset(scope.shown)
    found = [_chat(connection, scope.user, chat) for chat, _ in scope.deleted]
    found += [_message(each) for each in scope.own if each.rowid not in shown]
    found += _attachments(scope)
    found += _runs(connection, scope)
    found += _facts(connection, scope.user, scope.facts, goes=True)
    found += _people(connection, scope.user, scope.people, goes=True)
    found += _topics(connection, scope.user, scope.topics)
    found += _summaries(connection, scope.user, scope.summaries)
    found += _tasks(scope)
    found += _core(connection, scope)
    found += _facts(connection, scope.user, scope.kept_facts, goes=False)
    found += _people(connection, scope.user, scope.kept_people, goes=False)
    for program in scope.programs:
        remedy = "what a program or another server did stays: look there"
        found.append(Thing(kind="program", name=program, goes=False, remedy=remedy))
    return found


def _chat(connection: apsw.Connection, user: UserId, chat: ChatId) -> Thing:
    known = chats.get(connection, user, chat)
    return Thing(kind="chat", name=name_of(chat), text=beginning(known.title if known is not None else ""))


def _message(message: Message) -> Thing:
    kind, text = "message", message.content
    if message.type is Kind.TOOL_CALL:
        kind = "tool call"
        calls = (f"{name} {arguments}" for name, arguments in derivation.calls_of(message))
        text = "; ".join(filter(None, (text, *calls)))
    elif message.type is Kind.TOOL_RESULT:
        kind = "tool result"
    elif message.role is Role.ASSISTANT:
        kind = "answer"
    at = message.created_at[:16].replace("T", " ")
    return Thing(
        kind=kind, name=f"{name_of(message.chat)}#{message.seq}  {message.role.value}  {at}Z", text=beginning(text)
    )


def _attachments(scope: Scope) -> Iterator[Thing]:
    going = {each.sha256 for each in scope.attachments}
    for file in (file for message in scope.own for file in files_of(message.metadata)):
        goes = file.sha256 in going
        remedy = "" if goes else "another message has it too"
        text = beginning(f"{file.name}  {file.type}, {file.bytes:,} bytes")
        yield Thing(kind="attachment", name=file.sha256[:12], text=text, goes=goes, remedy=remedy)


def _runs(connection: apsw.Connection, scope: Scope) -> Iterator[Thing]:
    for run in runs.by_ids(connection, scope.user, scope.runs):
        yield Thing(kind="run", name=f"{run.id} of {run.task}", text=beginning(run.message))


def _facts(connection: apsw.Connection, user: UserId, ids: Sequence[FactId], *, goes: bool) -> Iterator[Thing]:
    for fact in ids:
        now = facts.get(connection, user, fact)
        texts = [now.text] if now is not None else fact_texts(connection, user, fact)[-1:]
        kind = "fact" if now is not None and now.active else "former fact"
        yield Thing(kind=kind, name=fact, text=beginning("".join(texts)), goes=goes)


def _people(connection: apsw.Connection, user: UserId, ids: Sequence[PersonId], *, goes: bool) -> Iterator[Thing]:
    for each in ids:
        known = [past.value for past in people.history(connection, user, each) if past.value is not None]
        words = [known[-1].name, known[-1].relation] if known else []
        yield Thing(kind="person", name=each, text=beginning("  ".join(filter(None, words))), goes=goes)


def _topics(connection: apsw.Connection, user: UserId, ids: Sequence[TopicId]) -> Iterator[Thing]:
    for each in ids:
        topic = topics.get(connection, user, each)
        if topic is not None:
            left = "made again from what is left"
            yield Thing(kind="topic", name=str(each), text=beginning(topic.summary), remedy=left)


def _summaries(connection: apsw.Connection, user: UserId, ids: Sequence[tuple[ChatId, int]]) -> Iterator[Thing]:
    for chat, number in ids:
        text = connection.execute(_SUMMARY, (user, chat, number)).get
        yield Thing(kind="summary", name=f"{name_of(chat)} {number}", text=beginning(str(text or "")))


def _tasks(scope: Scope) -> Iterator[Thing]:
    for task in scope.tasks:
        yield Thing(kind="task", name=task.name, text=beginning(task.message), goes=scope.with_facts)


def _core(connection: apsw.Connection, scope: Scope) -> Iterator[Thing]:
    try:
        document: Document = read_core(connection, scope.user) if scope.core else {}
    except CoreUnreadable:
        remedy = "core_memory.json cannot be read: correct it, and look for it there"
        yield Thing(kind="core memory", name="core_memory.json", goes=False, remedy=remedy)
        return
    there = {(made.section, made.key): made.value for made in scope.core if made.is_in(document)}
    for (section, key), value in there.items():
        yield Thing(kind="core memory", name=f"{section}, {key}", text=beginning(value), goes=scope.with_facts)
