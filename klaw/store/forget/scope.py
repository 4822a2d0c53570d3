"""SQL that finds what belongs to what is to be forgotten, and tells it in words. Every question names the user."""

import heapq
import json
from collections.abc import Sequence
from typing import Self

import apsw
import attrs

from klaw.domain.attachment import Attachment
from klaw.domain.fact import FactId
from klaw.domain.forget import Quotes, fact_ids, fragments, most_pieces
from klaw.domain.message import Message
from klaw.domain.names import ChatId, UserId
from klaw.domain.person import PersonId
from klaw.domain.task import TaskName
from klaw.domain.topic import TopicId
from klaw.store.engine import meta
from klaw.store.forget import derived as derivation
from klaw.store.forget.derived import CoreMade, Derived, Effects, FileMade, TaskMade
from klaw.store.forget.quoting import Named
from klaw.store.kinds import attachments, messages, topic_changes
from klaw.store.kinds.inventory import last_numbers

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
    titles: tuple[ChatId, ...] = ()
    """Chats whose titles name them."""
    tasks: tuple[TaskMade, ...] = ()
    """All that they ever asked; their runs go too."""
    named: Named | None = None
    """Of a person: what names it."""
    deleted: tuple[tuple[ChatId, int], ...] = ()
    """Chats that go as a whole, up to a ``seq``."""
    followed: bool = False
    """What was made of it went already, by another entry of the same forgetting."""
    channel: str = ""
    """Of an import, whose messages ``rowids`` are: too many to hold their texts, and no turn made anything of them."""


@attrs.frozen(kw_only=True)
class Scope:
    """What a forgetting is about."""

    user: UserId
    own: tuple[Message, ...]
    """The messages, those too that were made of them; of an import those with files."""
    rowids: tuple[int, ...]
    """Of all of them."""
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
    asked_tasks: tuple[TaskMade, ...] = ()
    """That were named; they go."""
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
    """All that was named; of an import the longest. Content: never logged."""


def topics_with(connection: apsw.Connection, user: UserId, rowids: Sequence[int]) -> list[TopicId]:
    """Topics that have one of a user's messages, or once had."""
    now = {TopicId(row[0]) for row in connection.execute(_TOPICS, (user, json.dumps(list(rowids))))}
    return sorted(now | topic_changes.past_topics(connection, user, rowids))


@attrs.frozen(kw_only=True)
class Said:
    """Of a scope what is found by reading its messages: seconds, where there are tens of thousands."""

    user: UserId
    asked: tuple[int, ...]
    derived: Derived
    own: tuple[Message, ...]
    attachments: tuple[Attachment, ...]
    texts: tuple[str, ...]
    quotes: Quotes


def read_said(connection: apsw.Connection, wanted: Wanted, *, with_facts: bool) -> Said:
    """Read what goes in any case, and what was made of it. Arguments as of ``scope``."""
    if wanted.channel:
        return _said_elsewhere(connection, wanted)
    user = wanted.user
    asked = [each for each in messages.by_rowids(connection, wanted.rowids) if each.user == user]
    rowids = [each.rowid for each in asked]
    if wanted.followed:
        derived = Derived(rowids=tuple(sorted(rowids)), shown=(), turns=(), runs=(), effects=Effects())
        found = {each.rowid: each for each in asked}
    else:
        runs = derivation.runs_of_tasks(connection, user, [each.name for each in wanted.tasks])
        derived, found = derivation.follow(connection, user, asked, with_tasks=with_facts, of_runs=runs)
    own = [*(found[rowid] for rowid in derived.rowids), *messages.by_rowids(connection, derived.shown)]
    alone = attachments.only_of(connection, user, own)
    texts = [*(each.content for each in asked), *attachments.texts_of(alone)]
    if wanted.followed and not connection.execute(_HAS_FACTS, (user,)).get:  # what else they are for was done before
        texts = []
    for fact in wanted.facts:
        texts += fact_texts(connection, user, fact)
    texts += [each.message for each in wanted.tasks]
    return _as_said(user, rowids, derived, own, alone, texts)


_HAS_FACTS = "SELECT EXISTS (SELECT 1 FROM fact_changes WHERE user_id = ?)"
_IMPORTED = """
FROM messages INDEXED BY messages_imported
WHERE user_id = ? AND channel = ? AND channel GLOB 'import:*' AND role <> 'system'
"""


def _said_elsewhere(connection: apsw.Connection, wanted: Wanted) -> Said:
    """Of an import: only the longest texts, and the messages with files."""
    user, bound = wanted.user, (wanted.user, wanted.channel)
    with_files = connection.execute(f"SELECT rowid {_IMPORTED} AND instr(metadata, '\"files\":')", bound)
    own = messages.by_rowids(connection, [rowid for (rowid,) in with_files])
    alone = attachments.only_of(connection, user, own)
    contents = (text for (text,) in connection.execute(f"SELECT content {_IMPORTED}", bound))
    most = most_pieces(len(wanted.rowids))
    texts = heapq.nlargest(most, contents, key=len) + attachments.texts_of(alone)
    texts += [text for fact in wanted.facts for text in fact_texts(connection, user, fact)]
    shown = derivation.shown(connection, user)
    derived = Derived(rowids=wanted.rowids, shown=shown, turns=(), runs=(), effects=Effects())
    return _as_said(user, wanted.rowids, derived, own, alone, texts)


def _as_said(
    user: UserId,
    asked: Sequence[int],
    derived: Derived,
    own: Sequence[Message],
    alone: Sequence[Attachment],
    texts: Sequence[str],
) -> Said:
    return Said(
        user=user,
        asked=tuple(asked),
        derived=derived,
        own=tuple(own),
        attachments=tuple(alone),
        texts=tuple(texts),
        quotes=Quotes.of(fragments(texts, most_pieces(len(asked)))),
    )


def scope(connection: apsw.Connection, wanted: Wanted, *, with_facts: bool, said: Said | None = None) -> Scope:
    """What was made of a user's messages, and what says the same. Others' messages are left out.

    Args:
        wanted: what goes in any case.
        with_facts: also facts that were made of the messages, or say the same, and people known by nothing else.
        said: read a moment ago, and still so (``is_read``).
    """
    user = wanted.user
    said = said or read_said(connection, wanted, with_facts=with_facts)
    derived, texts = said.derived, list(said.texts)
    marked = json.dumps(derived.rowids)
    ended = topics_with(connection, user, derived.rowids)
    covering = [(ChatId(chat), number) for chat, number in connection.execute(_SUMMARIES, (user, marked))]
    related = {row[0] for row in connection.execute(_FACTS_MADE, (user, marked, json.dumps(ended)))}
    related -= derivation.facts_of_others(connection, user, derived)
    saved, dead = derivation.facts_of(connection, user, derived)
    there, said_once = _saying(connection, user, said.quotes)
    related = (related | saved | there) - set(wanted.facts)
    gone = {*wanted.facts, *dead, *said_once, *(related if with_facts else ())}
    for fact_id in sorted(related if with_facts else ()):
        texts += fact_texts(connection, user, FactId(fact_id))
    made = {PersonId(row[0]) for row in connection.execute(_PEOPLE_MADE, (user, marked))} - set(wanted.people)
    tasks = derivation.tasks_there(connection, user, derived.effects)
    return Scope(
        user=user,
        own=said.own,
        rowids=(*derived.rowids, *derived.shown),
        facts=fact_ids(gone),
        kept_facts=fact_ids(related - gone),
        topics=tuple(sorted({*ended, *wanted.topics})),
        summaries=tuple(sorted({*covering, *wanted.summaries})),
        people=tuple(sorted({*wanted.people, *(made if with_facts else ())})),
        kept_people=() if with_facts else tuple(sorted(made)),
        tasks=tuple(tasks),
        asked_tasks=wanted.tasks,
        changed_tasks=tuple(sorted({each.name for each in derived.effects.tasks} - {each.name for each in tasks})),
        core=derived.effects.core,
        files=derived.effects.files,
        attachments=said.attachments,
        programs=derived.effects.programs,
        runs=derived.runs,
        asked=said.asked,
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
    """When something was read, by the numbers that grow with whatever it depends on."""

    rowid: int
    """Of the last message."""
    change: int
    """The last of a run."""
    entry: int | None
    """The memory journal's last, where that makes a difference: by facts and tasks."""
    chats: tuple[tuple[object, ...], ...]
    """The last message and turn of each chat that it is about."""

    @classmethod
    def of(cls, connection: apsw.Connection, wanted: Wanted, said: Said) -> Self:
        last = last_numbers(connection)
        chats = json.dumps(sorted({each.chat for each in said.own}))
        return cls(
            rowid=last["rowid"],
            change=last["change"],
            entry=meta.last_entry(connection) if wanted.facts or wanted.tasks or said.derived.effects.tasks else None,
            chats=tuple(connection.execute(_LAST_IN, (chats,))),
        )


def is_read(connection: apsw.Connection, wanted: Wanted, said: Said, seen: Seen) -> bool:
    """Whether what was read is the same as when it was seen. Of other chats of the user only files, answers of
    commands, and what a turn or a run has sent there make a difference; to an import nothing does."""
    if wanted.channel:
        return True
    if connection.execute(_ELSEWHERE, (seen.rowid, wanted.user)).get:
        return False
    return Seen.of(connection, wanted, said) == attrs.evolve(seen, rowid=last_numbers(connection)["rowid"])
