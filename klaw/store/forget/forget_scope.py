"""SQL that finds what belongs to what is to be forgotten. Every question names the user."""

import json
from collections.abc import Sequence

import apsw
import attrs

from klaw.domain.fact import FactId
from klaw.domain.forget import Quotes, fact_ids, fragments
from klaw.domain.message import Message
from klaw.domain.names import ChatId, UserId
from klaw.domain.person import PersonId
from klaw.domain.task import TaskName
from klaw.domain.topic import TopicId
from klaw.store.forget import derivation
from klaw.store.forget.derivation import CoreMade, FileMade, TaskMade
from klaw.store.kinds import messages, topic_changes

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
class Extra:
    """What goes beside messages and facts."""

    people: tuple[PersonId, ...] = ()
    topics: tuple[TopicId, ...] = ()
    """Whose summaries name what is forgotten."""
    summaries: tuple[tuple[ChatId, int], ...] = ()
    turns: tuple[str, ...] = ()
    """Whose receipts name the people."""
    runs: tuple[str, ...] = ()
    """That name them."""


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
    programs: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    """That go."""
    asked: tuple[int, ...] = ()
    """Row ids of the messages that were named; the others were made of them."""
    shown: tuple[int, ...] = ()
    """Row ids of answers that showed what would be forgotten."""
    with_facts: bool = False
    texts: tuple[str, ...]
    """All that was named. Content: never logged."""


def scope(
    connection: apsw.Connection,
    user: UserId,
    rowids: Sequence[int],
    wanted: Sequence[FactId],
    *,
    with_facts: bool,
    extra: Extra,
) -> Scope:
    """What was made of a user's messages, and what says the same. Others' messages are left out.

    Args:
        connection: to read from.
        user: whose.
        rowids: the messages.
        wanted: facts that go in any case.
        with_facts: also those that were made of the messages, or say the same, and people known by nothing else.
        extra: what else goes in any case.
    """
    asked = [each for each in messages.by_rowids(connection, rowids) if each.user == user]
    derived = derivation.follow(connection, user, [each.rowid for each in asked], with_tasks=with_facts)
    own = messages.by_rowids(connection, [*derived.rowids, *derived.shown])
    marked = json.dumps(derived.rowids)
    now = {TopicId(row[0]) for row in connection.execute(_TOPICS, (user, marked))}
    ended = sorted(now | topic_changes.past_topics(connection, user, derived.rowids))
    covering = [(ChatId(chat), number) for chat, number in connection.execute(_SUMMARIES, (user, marked))]
    texts = [each.content for each in asked]
    for fact in wanted:
        texts += fact_texts(connection, user, fact)
    related = {row[0] for row in connection.execute(_FACTS_MADE, (user, marked, json.dumps(ended)))}
    related -= derivation.facts_of_others(connection, user, derived)
    saved, dead = derivation.facts_of(connection, user, derived)
    said, said_once = _saying(connection, user, Quotes.of(fragments(texts)))
    related = (related | saved | said) - set(wanted)
    gone = {*wanted, *dead, *said_once, *(related if with_facts else ())}
    for fact_id in sorted(related if with_facts else ()):
        texts += fact_texts(connection, user, FactId(fact_id))
    made = {PersonId(row[0]) for row in connection.execute(_PEOPLE_MADE, (user, marked))} - set(extra.people)
    there = derivation.tasks_there(connection, user, derived.effects)
    return Scope(
        user=user,
        own=tuple(own),
        facts=fact_ids(gone),
        kept_facts=fact_ids(related - gone),
        topics=tuple(sorted({*ended, *extra.topics})),
        summaries=tuple(sorted({*covering, *extra.summaries})),
        people=tuple(sorted({*extra.people, *(made if with_facts else ())})),
        kept_people=() if with_facts else tuple(sorted(made)),
        tasks=tuple(there),
        changed_tasks=tuple(sorted({each.name for each in derived.effects.tasks} - {each.name for each in there})),
        core=derived.effects.core,
        files=derived.effects.files,
        programs=derived.effects.programs,
        runs=derived.runs,
        asked=tuple(each.rowid for each in asked),
        shown=derived.shown,
        with_facts=with_facts,
        texts=tuple(texts),
    )
