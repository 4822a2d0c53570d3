"""Questions over several nouns and all users: how much there is, what the database lacks, whether all rows agree."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import apsw
import attrs

from klaw.domain.names import ChatId, UserId
from klaw.store import migrations
from klaw.store.changes import Kind
from klaw.store.engine import meta
from klaw.store.engine.connect import snapshot
from klaw.store.engine.tables import Bound
from klaw.store.kinds import messages
from klaw.store.kinds.records import KINDS
from klaw.store.rows import documents

_COUNTS = {
    "users": "SELECT count(DISTINCT user_id) FROM sessions",
    "chats": "SELECT count(*) FROM sessions",
    "messages": "SELECT count(*) FROM messages",
    "turns": "SELECT count(*) FROM turns",
    "topics": "SELECT count(*) FROM topics",
    "bases": "SELECT count(*) FROM kb_bases",
    "documents": "SELECT count(*) FROM kb_documents",
    "documents_waiting": "SELECT count(*) FROM kb_documents WHERE state = 'waiting'",
    "documents_failed": "SELECT count(*) FROM kb_documents WHERE state = 'failed'",
    "passages": "SELECT count(*) FROM kb_passages",
}


def counts(connection: apsw.Connection) -> dict[str, int]:
    """How much there is, without history, and the version of the schema. Reads whole indexes."""
    kept = {each.plural: f"SELECT count(*) FROM {each.table} WHERE {each.holds}" for each in KINDS if each.past}  # noqa: S608
    found = {name: int(connection.execute(query).get) for name, query in {**_COUNTS, **kept}.items()}
    return {"schema": migrations.current(connection), **found}


def count_messages(connection: apsw.Connection) -> int:
    return int(connection.execute("SELECT count(*) FROM messages").get)


def last_numbers(connection: apsw.Connection) -> dict[Bound, int]:
    """The highest number of each bound; 0 where there are no records."""
    query = """
    SELECT coalesce((SELECT max(rowid) FROM messages), 0), coalesce((SELECT max(rowid) FROM turns), 0),
        coalesce((SELECT max(change) FROM runs), 0)
    """
    rowid, turn, change = connection.execute(query).get
    return {"rowid": rowid, "turn": turn, "change": change, "entry": meta.last_entry(connection)}


def last_seqs(connection: apsw.Connection) -> dict[ChatId, int]:
    return {ChatId(chat): seq for chat, seq in connection.execute("SELECT chat_id, last_seq FROM sessions")}


def newest_time(connection: apsw.Connection) -> str | None:
    """When the newest message was stored; None before the first."""
    found = connection.execute("SELECT max(updated_at) FROM sessions").get
    return str(found) if found is not None else None


@attrs.frozen(kw_only=True)
class LoggedMessage:
    chat: ChatId
    user: UserId
    id: str
    seq: int
    rowid: int


def unknown_messages(connection: apsw.Connection, wanted: Iterable[LoggedMessage], farthest: int) -> dict[ChatId, int]:
    """How many messages with row ids up to ``farthest`` the database lacks and has a place for, by chat."""
    query = """
    SELECT
        EXISTS (SELECT 1 FROM messages WHERE user_id = ?1 AND id = ?2),
        EXISTS (SELECT 1 FROM messages WHERE (chat_id = ?3 AND seq = ?4) OR rowid = ?5)
    """
    lacking: dict[ChatId, int] = {}
    for each in wanted:
        there, taken = connection.execute(query, (each.user, each.id, each.chat, each.seq, each.rowid)).get
        if not there and not taken and each.rowid <= farthest:
            lacking[each.chat] = lacking.get(each.chat, 0) + 1
    return lacking


def messages_between(connection: apsw.Connection, gaps: Mapping[ChatId, Sequence[tuple[int, int]]]) -> int:
    """How many messages the database has with numbers in ranges, which may be gaps in the logs."""
    query = "SELECT count(*) FROM messages WHERE chat_id = ? AND seq BETWEEN ? AND ?"
    return sum(connection.execute(query, (chat, *gap)).get for chat, found in gaps.items() for gap in found)


def flaws(kind: Kind[Any]) -> dict[str, str]:
    """What must never be of a kind's rows, in words behind a number, with the statements that count it."""
    unlike = """
    SELECT count(*) FROM {kind.table} AS t LEFT JOIN {kind.past} AS c
        ON c.entry = t.{kind.changed} AND c.user_id = t.user_id AND c.{kind.what}_id = t.{kind.id}
    WHERE c.value IS NULL OR {differ}
    """
    missing = """
    SELECT count(*) FROM {kind.past} AS c
    WHERE c.value IS NOT NULL
        AND c.entry = (
            SELECT max(entry) FROM {kind.past} WHERE user_id = c.user_id AND {kind.what}_id = c.{kind.what}_id)
        AND NOT EXISTS (SELECT 1 FROM {kind.table} WHERE user_id = c.user_id AND {kind.id} = c.{kind.what}_id)
    """
    no_text = """
    SELECT count(*) FROM {kind.table}_search WHERE rowid NOT IN (SELECT id FROM {kind.table}_fts_docsize)
    """
    text_of_none = """
    SELECT count(*) FROM {kind.table}_fts_docsize WHERE id NOT IN (SELECT rowid FROM {kind.table}_search)
    """
    vector_of_none = "SELECT count(*) FROM {kind.vectors} WHERE rowid NOT IN (SELECT rowid FROM {kind.table})"
    found: dict[str, str] = {}
    if kind.past:
        texts = [name for name in kind.quotes if name not in documents(kind.cls)]
        differ = " OR ".join(f"c.value ->> '$.{name}' <> t.{name}" for name in texts)
        found[f"{kind.plural} do not say what their history says"] = unlike.format(kind=kind, differ=differ)
        found[f"{kind.plural} are only in their history"] = missing.format(kind=kind)
    if kind.full_text:
        found[f"{kind.plural} are not in full text"] = no_text.format(kind=kind)
        found[f"rows of full text are of no {kind.what}"] = text_of_none.format(kind=kind)
    if kind.vectors:
        found[f"vectors are of no {kind.what}"] = vector_of_none.format(kind=kind)
    return {**found, **kind.flaws}


def checked() -> list[Kind[Any]]:
    """The kinds with anything to check; of messages ``search.coverage`` looks at the indexes."""
    return [kind for kind in KINDS if kind is not messages.MESSAGE and flaws(kind)]


@attrs.frozen(kw_only=True)
class Soundness:
    count: int
    faults: Mapping[str, int]


def faults(connection: apsw.Connection, kind: Kind[Any]) -> dict[str, int]:
    """The flaws of a kind's rows; reads everything."""
    found = {flaw: int(connection.execute(statement).get) for flaw, statement in flaws(kind).items()}
    return {flaw: count for flaw, count in found.items() if count}


def check(connection: apsw.Connection, kind: Kind[Any]) -> Soundness:
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
