"""SQL of ``klaw doctor`` about facts and people: whether their rows say what their history says. Only reads."""

from collections.abc import Mapping

import apsw
import attrs

from klaw.store.engine.connect import snapshot


@attrs.frozen(kw_only=True)
class KeptChecked:
    """What was found."""

    facts: int
    people: int
    fact_faults: Mapping[str, int]
    """How many rows of each kind do not fit, by what is wrong with them."""
    person_faults: Mapping[str, int]


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
_FACTS = {
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
}
_PEOPLE = {
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
            SELECT 1 FROM person_changes WHERE user_id = m.user_id AND person_id = m.person_id AND value IS NOT NULL)
    """,
    "mentions are by no message of their user": """
        SELECT count(*) FROM person_mentions AS m
        WHERE NOT EXISTS (SELECT 1 FROM messages WHERE id = m.message_id AND user_id = m.user_id)
    """,
}
_COUNTS = "SELECT (SELECT count(*) FROM facts WHERE superseded_by IS NULL), (SELECT count(*) FROM people)"


def kept_checked(connection: apsw.Connection) -> KeptChecked:
    """Look at all facts and people of all users at one moment; reads everything."""
    with snapshot(connection):
        facts, people = connection.execute(_COUNTS).get
        return KeptChecked(
            facts=facts,
            people=people,
            fact_faults={fault: connection.execute(statement).get for fault, statement in _FACTS.items()},
            person_faults={fault: connection.execute(statement).get for fault, statement in _PEOPLE.items()},
        )
