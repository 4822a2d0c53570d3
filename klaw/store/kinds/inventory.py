"""Questions over several nouns and all users: how much there is, the highest numbers, and what of the logs the
database lacks."""

from collections.abc import Iterable, Mapping, Sequence

import apsw
import attrs

from klaw.domain.names import ChatId, UserId
from klaw.store import migrations
from klaw.store.engine.tables import Bound
from klaw.store.kinds.memory_journal import KINDS

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
    """How much there is, history left out, and the version of the schema. Reads whole indexes, so not for every
    message."""
    kept = {each.plural: f"SELECT count(*) FROM {each.table} WHERE {each.holds}" for each in KINDS if each.past}  # noqa: S608
    found = {name: int(connection.execute(query).get) for name, query in {**_COUNTS, **kept}.items()}
    return {"schema": migrations.current(connection), **found}


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
