"""SQL of ``klaw doctor``: SQLite's own checks, the covered counts, what the logs are compared with, whether rows of
facts and people say what their history says, topics. Only reads."""

from collections.abc import Iterable, Mapping, Sequence

import apsw
import attrs

from klaw.domain.coverage import Damage, Tallies, add_rows
from klaw.domain.names import ChatId
from klaw.store import migrations
from klaw.store.engine import meta, vector_model
from klaw.store.engine.connect import snapshot
from klaw.store.kinds import runs, topic_vectors, turns
from klaw.store.kinds.last_numbers import last_numbers
from klaw.store.kinds.topic_vectors import Flaws
from klaw.store.kinds.topics import ARCHIVED
from klaw.store.rebuild.line_inserter import FARTHEST
from klaw.store.rebuild.logcheck import Numbers, Told
from klaw.store.search import coverage, vectors

BATCH_ROWS = 2_000
MAX_COMPLAINTS = 100


@attrs.frozen(kw_only=True)
class Schema:
    """Version of the database and of this program."""

    found: int
    known: int


def schema(connection: apsw.Connection) -> Schema:
    return Schema(found=migrations.current(connection), known=migrations.latest())


_QUICK = f"PRAGMA quick_check({MAX_COMPLAINTS})"
_WHOLE = f"PRAGMA integrity_check({MAX_COMPLAINTS})"


def complaints(connection: apsw.Connection, *, whole: bool) -> list[str]:
    """What SQLite finds wrong with the file and with the structure of full text; empty when all is well.

    Args:
        whole: also compare every index with its table, which reads everything.
    """
    rows = [str(row[0]) for row in connection.execute(_WHOLE if whole else _QUICK)]
    return [] if rows == ["ok"] else rows


@attrs.frozen(kw_only=True)
class Covered:
    """The ``covered`` invariant over the whole database."""

    tallies: Tallies
    window_starts: Mapping[ChatId, int]
    """Of the chats that have messages which search cannot find."""
    damage: Damage
    stray_texts: int
    stray_vectors: int
    vector_table_missing: bool
    model: str | None
    """Id of the model whose vectors are stored."""
    waiting: int
    """Messages that wait for their vector."""


def covered(connection: apsw.Connection, sliding_window: int, min_tokens: int) -> Covered:
    """Look at every message. In steps, so that the database can be written meanwhile."""
    tallies: Tallies = {}
    damage = Damage()
    at = 0
    while at < coverage.LAST_ROWID:
        batch = coverage.read(connection, at, coverage.LAST_ROWID, BATCH_ROWS)
        add_rows(tallies, batch.rows)
        damage += batch.damage
        at = batch.last_rowid
    with snapshot(connection):
        missing = coverage.vector_table_missing(connection)
        stored = vector_model.current(connection)
        return Covered(
            tallies=tallies,
            window_starts={
                chat: coverage.window_start(connection, chat, sliding_window)
                for chat, tally in tallies.items()
                if tally.lost
            },
            damage=damage,
            stray_texts=coverage.stray_texts(connection),
            stray_vectors=coverage.stray_vectors(connection),
            vector_table_missing=missing,
            model=stored[0] if stored else None,
            waiting=vectors.count_unembedded(connection, min_tokens),
        )


def last_seqs(connection: apsw.Connection) -> dict[ChatId, int]:
    """The number of each chat's newest message."""
    return {ChatId(chat): seq for chat, seq in connection.execute("SELECT chat_id, last_seq FROM sessions")}


_PLACE = """
SELECT
    EXISTS (SELECT 1 FROM messages WHERE user_id = ?1 AND id = ?2),
    EXISTS (SELECT 1 FROM messages WHERE (chat_id = ?3 AND seq = ?4) OR rowid = ?5)
"""


def unknown_messages(connection: apsw.Connection, wanted: Iterable[Told]) -> dict[ChatId, int]:
    """How many messages of the logs the database lacks and can take, by chat; chats without any are left out.

    One whose place another message has, or whose number is none, no start will put in.
    """
    farthest = last_numbers(connection)["rowid"] + FARTHEST
    lacking: dict[ChatId, int] = {}
    for told in wanted:
        bound = (told.user, told.id, told.chat, told.seq, told.rowid)
        there, taken = connection.execute(_PLACE, bound).get
        if not there and not taken and told.rowid <= farthest:
            lacking[told.chat] = lacking.get(told.chat, 0) + 1
    return lacking


def has_any(connection: apsw.Connection, gaps: Mapping[ChatId, Sequence[tuple[int, int]]]) -> int:
    """How many messages the database has that the logs lack, by the gaps in their numbers."""
    query = "SELECT count(*) FROM messages WHERE chat_id = ? AND seq BETWEEN ? AND ?"
    return sum(connection.execute(query, (chat, *gap)).get for chat, found in gaps.items() for gap in found)


def unknown_turns(connection: apsw.Connection, wanted: Sequence[str]) -> int:
    """How many of the given turns the database lacks."""
    return sum(not turns.exists(connection, turn) for turn in wanted)


def unknown_runs(connection: apsw.Connection, wanted: Mapping[str, int]) -> int:
    """Of how many runs the database lacks the given change, or the whole run."""
    farthest = last_numbers(connection)["change"] + FARTHEST
    return sum(runs.change_of(connection, run) < change <= farthest for run, change in wanted.items())


def lacks_entries(connection: apsw.Connection, entries: Numbers) -> int:
    """How many entries of the memory journal, of which these were read, the database lacks."""
    known = meta.last_entry(connection)
    return entries.last(known) - known


def last_changes(connection: apsw.Connection) -> tuple[int, int]:
    """Numbers of the newest change of a run and of the newest entry of the memory journal; 0 for none."""
    return int(connection.execute("SELECT max(change) FROM runs").get or 0), meta.last_entry(connection)


def newest_time(connection: apsw.Connection) -> str | None:
    """When the newest message was stored; None when there is none."""
    found = connection.execute("SELECT max(updated_at) FROM sessions").get
    return str(found) if found is not None else None


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
_COUNT_KEPT = "SELECT (SELECT count(*) FROM facts WHERE superseded_by IS NULL), (SELECT count(*) FROM people)"


def kept_checked(connection: apsw.Connection) -> KeptChecked:
    """Look at all facts and people of all users at one moment; reads everything."""
    with snapshot(connection):
        facts, people = connection.execute(_COUNT_KEPT).get
        return KeptChecked(
            facts=facts,
            people=people,
            fact_faults={fault: connection.execute(statement).get for fault, statement in _FACTS.items()},
            person_faults={fault: connection.execute(statement).get for fault, statement in _PEOPLE.items()},
        )


@attrs.frozen
class TopicsChecked:
    """What was found; all but the last two must be nothing."""

    flaws: Flaws
    misfits: int
    """Messages with a topic that are of a kind without: commands, forgotten ones."""
    unindexed: int
    """Topics whose summary full text does not have."""
    orphans: int
    """Summaries in full text of topics that are gone."""
    returned: int
    """Topics that are there and on the list of those that are gone."""
    topics: int
    waiting: int
    """Topics that wait for their vector."""


_COUNT_TOPICS = f"""
SELECT (SELECT count(*) FROM messages WHERE topic_id IS NOT NULL AND NOT ({ARCHIVED})),
    (SELECT count(*) FROM topics WHERE id NOT IN (SELECT id FROM topics_fts_docsize)),
    (SELECT count(*) FROM topics_fts_docsize WHERE id NOT IN (SELECT id FROM topics)),
    (SELECT count(*) FROM topic_ends WHERE id IN (SELECT id FROM topics)),
    (SELECT count(*) FROM topics)
"""  # noqa: S608 - constant condition


def topics_checked(connection: apsw.Connection) -> TopicsChecked:
    """Look at all topics of all users at one moment; reads everything."""
    with snapshot(connection):
        counts = connection.execute(_COUNT_TOPICS).get
        waiting = topic_vectors.count_unembedded(connection)
        return TopicsChecked(topic_vectors.flaws(connection), *(*counts, waiting))
