"""Questions over several nouns and all users: how much there is, the highest numbers, ids that begin with a text, and
what of the logs the database lacks."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeAlias

import apsw
import attrs

from klaw.domain.names import ChatId, UserId
from klaw.store import migrations
from klaw.store.engine.tables import Bound


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
    """Of knowledge bases."""
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
    """The highest number of each bound but the memory journal's entry; 0 where there is none."""
    rowid, turn, change = connection.execute(_LAST).get
    return {"rowid": rowid, "turn": turn, "change": change}


def last_seqs(connection: apsw.Connection) -> dict[ChatId, int]:
    """The number of each chat's newest message."""
    return {ChatId(chat): seq for chat, seq in connection.execute("SELECT chat_id, last_seq FROM sessions")}


def newest_time(connection: apsw.Connection) -> str | None:
    """When the newest message was stored; None when there is none."""
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
"""Of a user; turns also of all. What was removed has a history."""


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
