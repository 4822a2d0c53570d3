"""Whether the rows of a noun agree with each other, with their history and with their indexes, for ``klaw doctor``."""

from collections.abc import Mapping
from typing import Literal, TypeAlias

import apsw
import attrs

from klaw.store.engine.connect import snapshot
from klaw.store.kinds.topics import ARCHIVED

Checked: TypeAlias = Literal["topics", "facts", "people"]

_UNLIKE = """
SELECT count(*) FROM {table} AS t LEFT JOIN {changes} AS c
    ON c.entry = t.entry AND c.user_id = t.user_id AND c.{id} = t.id
WHERE c.value IS NULL OR c.value ->> '$.{field}' <> t.{field}
"""
_MISSING = """
SELECT count(*) FROM {changes} AS c
WHERE c.value IS NOT NULL
    AND c.entry = (SELECT max(entry) FROM {changes} WHERE user_id = c.user_id AND {id} = c.{id})
    AND NOT EXISTS (SELECT 1 FROM {table} WHERE user_id = c.user_id AND id = c.{id})
"""
_OF_FACTS = {"table": "facts", "changes": "fact_changes", "id": "fact_id", "field": "text"}
_OF_PEOPLE = {"table": "people", "changes": "person_changes", "id": "person_id", "field": "name"}

_COUNT: Mapping[Checked, str] = {
    "topics": "SELECT count(*) FROM topics",
    "facts": "SELECT count(*) FROM facts WHERE superseded_by IS NULL",
    "people": "SELECT count(*) FROM people",
}
FAULTS: Mapping[Checked, Mapping[str, str]] = {
    "topics": {
        "messages belong to a topic that is gone": """
            SELECT count(*) FROM messages WHERE topic_id IS NOT NULL AND topic_id NOT IN (SELECT id FROM topics)
        """,
        "messages are in a topic of another user or chat": """
            SELECT count(*) FROM messages AS m JOIN topics AS t ON t.id = m.topic_id
            WHERE m.user_id <> t.user_id OR m.chat_id <> t.chat_id
        """,
        "messages have a topic and are of a kind without": f"""
            SELECT count(*) FROM messages WHERE topic_id IS NOT NULL AND NOT ({ARCHIVED})
        """,  # noqa: S608 - a constant condition
        "topics do not say what their messages are": """
            SELECT count(*) FROM topics AS t WHERE (t.messages, t.chars, t.first_rowid, t.last_rowid) IS NOT (
                SELECT count(*), sum(length(m.content)), min(m.rowid), max(m.rowid) FROM messages AS m
                WHERE m.topic_id = t.id)
        """,
        "vectors are of no topic": "SELECT count(*) FROM vec_topics WHERE rowid NOT IN (SELECT id FROM topics)",
        "topics are not in full text": """
            SELECT count(*) FROM topics WHERE id NOT IN (SELECT id FROM topics_fts_docsize)
        """,
        "rows of full text are of no topic": """
            SELECT count(*) FROM topics_fts_docsize WHERE id NOT IN (SELECT id FROM topics)
        """,
        "topics are there and on the list of those that are gone": """
            SELECT count(*) FROM topic_ends WHERE id IN (SELECT id FROM topics)
        """,
    },
    "facts": {
        "facts do not say what their history says": _UNLIKE.format(**_OF_FACTS),
        "facts are only in their history": _MISSING.format(**_OF_FACTS),
        "facts are not in full text": """
            SELECT count(*) FROM facts WHERE superseded_by IS NULL AND rowid NOT IN (SELECT id FROM facts_fts_docsize)
        """,
        "rows of full text are of no fact": """
            SELECT count(*) FROM facts_fts_docsize
            WHERE id NOT IN (SELECT rowid FROM facts WHERE superseded_by IS NULL)
        """,
        "vectors are of no fact": "SELECT count(*) FROM vec_facts WHERE rowid NOT IN (SELECT rowid FROM facts)",
    },
    "people": {
        "people do not say what their history says": _UNLIKE.format(**_OF_PEOPLE),
        "people are only in their history": _MISSING.format(**_OF_PEOPLE),
        "people are not found by a name": """
            SELECT count(*) FROM people AS p WHERE merged_into IS NULL
                AND NOT EXISTS (SELECT 1 FROM person_names WHERE person = p.rowid AND user_id = p.user_id)
        """,
        "names are of nobody": """
            SELECT count(*) FROM person_names AS n LEFT JOIN people AS p ON p.rowid = n.person
            WHERE p.rowid IS NULL OR p.user_id <> n.user_id OR p.merged_into IS NOT NULL
        """,
        "mentions are of nobody": """
            SELECT count(*) FROM person_mentions AS m WHERE NOT EXISTS (
                SELECT 1 FROM person_changes
                WHERE user_id = m.user_id AND person_id = m.person_id AND value IS NOT NULL)
        """,
        "mentions are by no message of their user": """
            SELECT count(*) FROM person_mentions AS m
            WHERE NOT EXISTS (SELECT 1 FROM messages WHERE id = m.message_id AND user_id = m.user_id)
        """,
    },
}
"""What must never be, in words that follow a number, and how many rows are so."""


@attrs.frozen(kw_only=True)
class Soundness:
    """What was found of one noun, of all users at one moment."""

    count: int
    faults: Mapping[str, int]
    """How many rows there are with each fault that there is."""


def faults(connection: apsw.Connection, noun: Checked) -> dict[str, int]:
    """The faults of a noun's rows; reads everything."""
    found = {fault: int(connection.execute(statement).get) for fault, statement in FAULTS[noun].items()}
    return {fault: count for fault, count in found.items() if count}


def check(connection: apsw.Connection, noun: Checked) -> Soundness:
    """Look at all rows of a noun."""
    with snapshot(connection):
        return Soundness(count=int(connection.execute(_COUNT[noun]).get), faults=faults(connection, noun))
