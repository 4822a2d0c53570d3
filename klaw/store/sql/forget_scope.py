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
from klaw.domain.topic import TopicId
from klaw.store.sql import messages, topic_changes

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
    texts: tuple[str, ...]
    """All that is forgotten. Content: never logged."""


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
    own = [each for each in messages.by_rowids(connection, rowids) if each.user == user]
    marked = json.dumps([each.rowid for each in own])
    now = {TopicId(row[0]) for row in connection.execute(_TOPICS, (user, marked))}
    ended = sorted(now | topic_changes.past_topics(connection, user, [each.rowid for each in own]))
    covering = [(ChatId(chat), number) for chat, number in connection.execute(_SUMMARIES, (user, marked))]
    texts = [each.content for each in own]
    for fact in wanted:
        texts += fact_texts(connection, user, fact)
    quotes = Quotes.of(fragments(texts))
    related = {row[0] for row in connection.execute(_FACTS_MADE, (user, marked, json.dumps(ended)))}
    said, dead = _saying(connection, user, quotes)
    related = (related | said) - set(wanted)
    gone = {*wanted, *dead, *(related if with_facts else ())}
    if with_facts:
        for fact_id in sorted(related):
            texts += fact_texts(connection, user, FactId(fact_id))
    made = {PersonId(row[0]) for row in connection.execute(_PEOPLE_MADE, (user, marked))} - set(extra.people)
    return Scope(
        user=user,
        own=tuple(own),
        facts=fact_ids(gone),
        kept_facts=fact_ids(related - gone),
        topics=tuple(sorted({*ended, *extra.topics})),
        summaries=tuple(sorted({*covering, *extra.summaries})),
        people=tuple(sorted({*extra.people, *(made if with_facts else ())})),
        kept_people=() if with_facts else tuple(sorted(made)),
        texts=tuple(texts),
    )
