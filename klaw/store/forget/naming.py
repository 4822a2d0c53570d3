"""SQL of forgetting a person: which of a user's rows name somebody. Reads all their texts: not for a turn."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import apsw
import attrs

from klaw.domain.fact import FactId
from klaw.domain.names import ChatId, UserId
from klaw.domain.person import Finder, PersonId, normal_name
from klaw.domain.topic import TopicId
from klaw.store.engine.connect import snapshot
from klaw.store.kinds import people as stored_people

_OTHERS = (
    ("core memory", "core_memory", "document"),
    ("tasks", "tasks", "message"),
    ("memory files", "chunks", "heading || ' ' || text"),
)
"""What is told, and not changed."""


@attrs.frozen(kw_only=True)
class Named:
    """What names a person."""

    names: tuple[str, ...]
    """That were looked for."""
    people: tuple[PersonId, ...]
    """The person, those who were merged into it, and those of its names who were removed."""
    namesakes: tuple[PersonId, ...]
    """Others with one of the names: what names them is found too."""
    facts: Mapping[FactId, str]
    """With their last texts; also history."""
    messages: tuple[int, ...]
    """Row ids."""
    topics: tuple[TopicId, ...]
    """By their summaries, also those that they once had."""
    summaries: tuple[tuple[ChatId, int], ...]
    """Also by their notes on tool calls."""
    turns: tuple[str, ...]
    """By their receipts."""
    runs: tuple[str, ...]
    others: Mapping[str, int]
    """How many rows of anything else."""


_FACTS = "SELECT fact_id, value ->> '$.text' FROM fact_changes WHERE user_id = ? AND value IS NOT NULL ORDER BY entry"
_MESSAGES = "SELECT rowid, content || ' ' || metadata FROM messages WHERE user_id = ? ORDER BY rowid"
_TOPICS = "SELECT id, summary FROM topics WHERE user_id = ? ORDER BY id"
_PAST_TOPICS = """
SELECT s.value ->> '$.id', s.value ->> '$.summary' FROM topic_changes AS c, json_each(c.before) AS s
WHERE c.user_id = ? ORDER BY 1
"""
_RECEIPTS = "SELECT turn_id, receipt FROM turns WHERE user_id = ? ORDER BY turn_id"
_RUNS = """
SELECT id, message || ' ' || result || ' ' || coalesce(note, '') || ' ' || coalesce(error, '') || ' ' || details
FROM runs WHERE user_id = ? ORDER BY id
"""
_SUMMARIES = """
SELECT chat_id, number, text FROM summaries WHERE user_id = ?1
UNION ALL SELECT chat_id, number, text FROM tool_notes WHERE user_id = ?1
"""


def look(connection: apsw.Connection, user: UserId, person: PersonId) -> Named | None:
    """What names a user's person, by any name that it ever had; None when there never was one of this id."""
    with snapshot(connection):
        names, same = _names(connection, user, person)
        if not same:
            return None
        finder = Finder(names)
        facts = {FactId(fact): text for fact, text in _naming(connection, finder, _FACTS, user)}
        found = {(ChatId(chat), int(number)) for chat, number, _ in _naming(connection, finder, _SUMMARIES, user)}
        return Named(
            names=names,
            people=same,
            namesakes=tuple(
                each.id for each in stored_people.by_names(connection, user, names) if names and each.id not in same
            ),
            facts=facts,
            messages=tuple(row[0] for row in _naming(connection, finder, _MESSAGES, user)),
            topics=_topics(connection, finder, user),
            summaries=tuple(sorted(found)),
            turns=tuple(row[0] for row in _naming(connection, finder, _RECEIPTS, user)),
            runs=tuple(row[0] for row in _naming(connection, finder, _RUNS, user)),
            others=_count_others(connection, user, finder, same),
        )


def count(connection: apsw.Connection, user: UserId, names: Sequence[str]) -> dict[str, int]:
    """How many rows of each kind name somebody now."""
    with snapshot(connection):
        finder = Finder(tuple(names))
        summaries = {tuple(row[:2]) for row in _naming(connection, finder, _SUMMARIES, user)}
        counts = {
            "facts": len({row[0] for row in _naming(connection, finder, _FACTS, user)}),
            "messages": sum(1 for _ in _naming(connection, finder, _MESSAGES, user)),
            "topics": len(_topics(connection, finder, user)),
            "summaries": len(summaries),
            **_count_others(connection, user, finder),
        }
    return {kind: number for kind, number in counts.items() if number}


# What they were last: who was somebody else for a time, by a merge that was taken back, is none of these.
_DEAD = """
SELECT c.person_id, c.value FROM person_changes AS c WHERE c.user_id = ?1 AND c.value IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM people AS p WHERE p.user_id = c.user_id AND p.id = c.person_id)
    AND c.entry = (SELECT max(entry) FROM person_changes
        WHERE user_id = c.user_id AND person_id = c.person_id AND value IS NOT NULL)
"""


def _names(connection: apsw.Connection, user: UserId, person: PersonId) -> tuple[tuple[str, ...], tuple[PersonId, ...]]:
    merged = [each.id for each in stored_people.merged_into(connection, user, person)]
    same = dict.fromkeys(each for each in (person, *merged) if stored_people.history(connection, user, each))
    names = stored_people.own_names(connection, user, same)
    for gone, value in connection.execute(_DEAD, (user,)):
        past = json.loads(value)
        if names and any(normal_name(name) in names for name in (past["name"], *past["aliases"])):
            same[PersonId(gone)] = None
    return tuple(names.values()), tuple(same)


def _topics(connection: apsw.Connection, finder: Finder, user: UserId) -> tuple[TopicId, ...]:
    statements = (_TOPICS, _PAST_TOPICS)
    found = {TopicId(row[0]) for each in statements for row in _naming(connection, finder, each, user)}
    return tuple(sorted(found))


def _naming(connection: apsw.Connection, finder: Finder, statement: str, user: UserId) -> Iterator[Any]:
    """Rows whose last column names somebody."""
    return (row for row in connection.execute(statement, (user,)) if row[-1] and finder.finds(_plain(row[-1])))


_PEOPLE = """
SELECT person_id, value ->> '$.name' || ' ' || (value ->> '$.aliases') || ' ' || (value ->> '$.relation')
FROM person_changes WHERE user_id = ? AND value IS NOT NULL
"""


def _count_others(
    connection: apsw.Connection, user: UserId, finder: Finder, same: Sequence[PersonId] = ()
) -> dict[str, int]:
    found = {"people": len({row[0] for row in _naming(connection, finder, _PEOPLE, user)} - set(same))}
    for kind, statement in (("receipts", _RECEIPTS), ("runs", _RUNS)):
        found[kind] = sum(1 for _ in _naming(connection, finder, statement, user))
    for kind, table, column in _OTHERS:
        statement = f"SELECT {column} FROM {table} WHERE user_id = ?"  # noqa: S608 - constants
        found[kind] = sum(1 for _ in _naming(connection, finder, statement, user))
    return {kind: number for kind, number in found.items() if number}


def _plain(text: str) -> str:
    """JSON's line ends are letters to whoever looks for whole words."""
    return text.replace("\\n", " ").replace("\\t", " ").replace("\\r", " ")
