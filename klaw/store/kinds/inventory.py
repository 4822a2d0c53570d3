"""Questions over several nouns and all users: how much there is, the highest numbers, ids that begin with a text, what
of the logs the database lacks, and whether all rows agree."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import apsw
import attrs

from klaw.domain.names import ChatId, UserId
from klaw.store import migrations
from klaw.store.changes import Kind
from klaw.store.engine import meta
from klaw.store.engine.connect import snapshot
from klaw.store.engine.tables import Bound
from klaw.store.kinds import messages
from klaw.store.kinds.memory_journal import KINDS
from klaw.store.rows import documents


@attrs.frozen
class Counts:
    """How much there is."""

    schema: int
    """Version of the database's schema."""
    users: int
    chats: int
    messages: int
    turns: int
    topics: int
    facts: int
    """Those that hold; history does not count."""
    people: int
    bases: int
    documents: int
    """Documents of knowledge bases."""
    documents_waiting: int
    documents_failed: int
    passages: int


_COUNTS = """
SELECT
    (SELECT count(DISTINCT user_id) FROM sessions),
    (SELECT count(*) FROM sessions),
    (SELECT count(*) FROM messages),
    (SELECT count(*) FROM turns),
    (SELECT count(*) FROM topics),
    (SELECT count(*) FROM facts WHERE superseded_by IS NULL),
    (SELECT count(*) FROM people WHERE merged_into IS NULL),
    (SELECT count(*) FROM kb_bases),
    (SELECT count(*) FROM kb_documents),
    (SELECT count(*) FROM kb_documents WHERE state = 'waiting'),
    (SELECT count(*) FROM kb_documents WHERE state = 'failed'),
    (SELECT count(*) FROM kb_passages)
"""


def counts(connection: apsw.Connection) -> Counts:
    """Count everything; reads whole indexes, so not for every message."""
    return Counts(migrations.current(connection), *connection.execute(_COUNTS).get)


def count_messages(connection: apsw.Connection) -> int:
    return int(connection.execute("SELECT count(*) FROM messages").get)


# -- numbers ----------------------------------------------------------------------------------------------------------

_LAST = """
SELECT coalesce((SELECT max(rowid) FROM messages), 0), coalesce((SELECT max(rowid) FROM turns), 0),
    coalesce((SELECT max(change) FROM runs), 0)
"""


def last_numbers(connection: apsw.Connection) -> dict[Bound, int]:
    """The highest number of each bound; 0 where there are no records."""
    rowid, turn, change = connection.execute(_LAST).get
    return {"rowid": rowid, "turn": turn, "change": change, "entry": meta.last_entry(connection)}


def last_seqs(connection: apsw.Connection) -> dict[ChatId, int]:
    """The number of each chat's newest message."""
    return {ChatId(chat): seq for chat, seq in connection.execute("SELECT chat_id, last_seq FROM sessions")}


def newest_time(connection: apsw.Connection) -> str | None:
    """When the newest message was stored; None before the first."""
    found = connection.execute("SELECT max(updated_at) FROM sessions").get
    return str(found) if found is not None else None


# -- ids --------------------------------------------------------------------------------------------------------------

IdKind: TypeAlias = Literal["fact", "person", "run", "turn", "message", "kb", "kb_source", "kb_document"]

_AMONG: dict[IdKind, str] = {
    "fact": "SELECT DISTINCT fact_id AS id FROM fact_changes WHERE user_id = ?1 AND fact_id",
    "person": "SELECT DISTINCT person_id AS id FROM person_changes WHERE user_id = ?1 AND person_id",
    "run": "SELECT id FROM runs WHERE user_id = ?1 AND id",
    "turn": "SELECT turn_id AS id FROM turns WHERE (?1 IS NULL OR user_id = ?1) AND turn_id",
    "message": "SELECT id FROM messages WHERE user_id = ?1 AND id",
    "kb": "SELECT base_id AS id FROM kb_members WHERE user_id = ?1 AND base_id",
    "kb_source": """
        SELECT s.id AS id FROM kb_members AS m JOIN kb_sources AS s ON s.base_id = m.base_id
        WHERE m.user_id = ?1 AND s.id""",
    "kb_document": """
        SELECT d.id AS id FROM kb_members AS m JOIN kb_documents AS d ON d.base_id = m.base_id
        WHERE m.user_id = ?1 AND d.id""",
}
"""Where the ids of a user, and those of all users' turns, are. What was removed is in the history."""


def beginning_with(connection: apsw.Connection, kind: IdKind, user: UserId | None, text: str, limit: int) -> list[str]:
    """The ids that begin with a text, in their order; the text alone where it is one itself."""
    query = f"{_AMONG[kind]} BETWEEN ?2 AND ?3 ORDER BY id LIMIT ?4"
    found = [str(row[0]) for row in connection.execute(query, (user, text, text + "\U0010ffff", limit))]
    return found[:1] if found[:1] == [text] else found


# -- what the logs have -----------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class LoggedMessage:
    """A message that a log has."""

    chat: ChatId
    user: UserId
    id: str
    seq: int
    rowid: int


_PLACE = """
SELECT
    EXISTS (SELECT 1 FROM messages WHERE user_id = ?1 AND id = ?2),
    EXISTS (SELECT 1 FROM messages WHERE (chat_id = ?3 AND seq = ?4) OR rowid = ?5)
"""


def unknown_messages(connection: apsw.Connection, wanted: Iterable[LoggedMessage], farthest: int) -> dict[ChatId, int]:
    """How many messages of the logs the database lacks and can take, by chat; chats without any are left out.

    One whose place another message has, or whose row id is above ``farthest``, no start will put in.
    """
    lacking: dict[ChatId, int] = {}
    for each in wanted:
        there, taken = connection.execute(_PLACE, (each.user, each.id, each.chat, each.seq, each.rowid)).get
        if not there and not taken and each.rowid <= farthest:
            lacking[each.chat] = lacking.get(each.chat, 0) + 1
    return lacking


def messages_between(connection: apsw.Connection, gaps: Mapping[ChatId, Sequence[tuple[int, int]]]) -> int:
    """How many messages the database has with numbers in ranges, which may be gaps in the logs."""
    query = "SELECT count(*) FROM messages WHERE chat_id = ? AND seq BETWEEN ? AND ?"
    return sum(connection.execute(query, (chat, *gap)).get for chat, found in gaps.items() for gap in found)


# -- whether rows agree with their history and their indexes, for `klaw doctor` ------------------------------------

_UNLIKE = """
SELECT count(*) FROM {kind.table} AS t LEFT JOIN {kind.past} AS c
    ON c.entry = t.{kind.changed} AND c.user_id = t.user_id AND c.{kind.what}_id = t.{kind.id}
WHERE c.value IS NULL OR {differ}
"""
_MISSING = """
SELECT count(*) FROM {kind.past} AS c
WHERE c.value IS NOT NULL
    AND c.entry = (SELECT max(entry) FROM {kind.past} WHERE user_id = c.user_id AND {kind.what}_id = c.{kind.what}_id)
    AND NOT EXISTS (SELECT 1 FROM {kind.table} WHERE user_id = c.user_id AND {kind.id} = c.{kind.what}_id)
"""
_NO_TEXT = """
SELECT count(*) FROM {kind.table}_search WHERE rowid NOT IN (SELECT id FROM {kind.table}_fts_docsize)
"""
_TEXT_OF_NONE = """
SELECT count(*) FROM {kind.table}_fts_docsize WHERE id NOT IN (SELECT rowid FROM {kind.table}_search)
"""
_VECTOR_OF_NONE = "SELECT count(*) FROM {kind.vectors} WHERE rowid NOT IN (SELECT rowid FROM {kind.table})"


def flaws(kind: Kind[Any]) -> dict[str, str]:
    """What must never be of a kind's rows, in words behind a number, with the statements that count it."""
    found: dict[str, str] = {}
    if kind.past:
        texts = [name for name in kind.quotes if name not in documents(kind.cls)]
        differ = " OR ".join(f"c.value ->> '$.{name}' <> t.{name}" for name in texts)
        found[f"{kind.plural} do not say what their history says"] = _UNLIKE.format(kind=kind, differ=differ)
        found[f"{kind.plural} are only in their history"] = _MISSING.format(kind=kind)
    if kind.full_text:
        found[f"{kind.plural} are not in full text"] = _NO_TEXT.format(kind=kind)
        found[f"rows of full text are of no {kind.what}"] = _TEXT_OF_NONE.format(kind=kind)
    if kind.vectors:
        found[f"vectors are of no {kind.what}"] = _VECTOR_OF_NONE.format(kind=kind)
    return {**found, **kind.flaws}


def checked() -> list[Kind[Any]]:
    """The kinds with anything to check; of messages ``search.coverage`` looks at the indexes."""
    return [kind for kind in KINDS if kind is not messages.MESSAGE and flaws(kind)]


@attrs.frozen(kw_only=True)
class Soundness:
    """What was found of one kind, of all users at one moment."""

    count: int
    faults: Mapping[str, int]
    """How many rows there are with each flaw that there is."""


def faults(connection: apsw.Connection, kind: Kind[Any]) -> dict[str, int]:
    """The flaws of a kind's rows; reads everything."""
    found = {flaw: int(connection.execute(statement).get) for flaw, statement in flaws(kind).items()}
    return {flaw: count for flaw, count in found.items() if count}


def check(connection: apsw.Connection, kind: Kind[Any]) -> Soundness:
    """Look at all rows of a kind."""
    table = f"{kind.table}_search" if kind.full_text else kind.table
    with snapshot(connection):
        count = int(connection.execute(f"SELECT count(*) FROM {table}").get)  # noqa: S608 - constants
        return Soundness(count=count, faults=faults(connection, kind))


def rows_of_kinds(connection: apsw.Connection) -> dict[str, int]:
    """How many rows each kind has, by what people call several of them."""
    tables: dict[str, str] = {}
    for kind in KINDS:
        if kind.table:
            tables.setdefault(kind.plural, kind.table)
    return {plural: int(connection.execute(f"SELECT count(*) FROM {table}").get) for plural, table in tables.items()}  # noqa: S608
