"""SQL of work in the background: which days were drawn into facts, and what calls to models used."""

import json
from collections.abc import Sequence

import apsw
import attrs

from klaw.domain.names import ChatId, UserId
from klaw.store.background_records import DayEntry, SpentEntry
from klaw.store.records import dumps
from klaw.store.topic_records import ranges

_DONE = "SELECT DISTINCT day FROM day_entries WHERE user_id = ?1 AND done = 1 AND day >= ?2"


def done_days(connection: apsw.Connection, user: UserId, since: str) -> set[str]:
    """A user's days, from a date on, of which nothing is left to draw."""
    return {day for (day,) in connection.execute(_DONE, (user, since))}


_SAID = """
SELECT m.rowid, m.chat_id, m.role = 'user',
    d.rowid IS NULL AND CASE WHEN ?4 THEN m.topic_id IS NULL ELSE coalesce(t.facts, 0) = 0 END
FROM messages AS m INDEXED BY messages_said
    LEFT JOIN drawn_messages AS d ON d.rowid = m.rowid
    LEFT JOIN topics AS t ON t.id = m.topic_id
WHERE m.user_id = ?1 AND m.created_at >= ?2 AND m.created_at < ?3
    AND m.role IN ('user', 'assistant') AND m.type = 'text'
ORDER BY m.chat_id, m.seq
"""


@attrs.frozen
class Talk:
    """What was said in one chat in a span of time, and not drawn into facts yet."""

    chat: ChatId
    rowids: tuple[int, ...]
    """In their order."""
    asks: bool
    """Some of it are the user's own words."""


@attrs.frozen
class DaysTalk:
    """All of it."""

    chats: tuple[Talk, ...]
    spoke: bool
    """The user said something at all, drawn or not."""


def said(connection: apsw.Connection, user: UserId, since: str, until: str, *, topics: bool) -> DaysTalk:
    """What a user and the assistant said, and nothing was drawn of.

    Args:
        connection: a reader.
        user: whose.
        since, until: ISO-8601 UTC; ``until`` itself does not count.
        topics: topics are being made: what is in one is drawn with it, if it was not yet.
    """
    chats: dict[ChatId, list[tuple[int, bool]]] = {}
    spoke = False
    for rowid, chat, users, left in connection.execute(_SAID, (user, since, until, topics)):
        spoke = spoke or bool(users)
        if left:
            chats.setdefault(ChatId(chat), []).append((rowid, bool(users)))
    found = [
        Talk(chat, tuple(rowid for rowid, _ in rows), any(users for _, users in rows)) for chat, rows in chats.items()
    ]
    return DaysTalk(tuple(found), spoke)


_DRAWN = "SELECT rowid FROM drawn_messages WHERE +user_id = ?1 AND rowid IN (SELECT value FROM json_each(?2))"


def drawn_with_day(connection: apsw.Connection, user: UserId, rowids: Sequence[int]) -> set[int]:
    """Which of a user's messages were drawn with their day."""
    return {rowid for (rowid,) in connection.execute(_DRAWN, (user, json.dumps(list(rowids))))}


# -- writing -----------------------------------------------------------------------------------------------------------

_PUT_DAY = "INSERT INTO day_entries (entry, user_id, day, at, done, messages) VALUES (?, ?, ?, ?, ?, ?)"
_PUT_DRAWN = """
INSERT OR IGNORE INTO drawn_messages (rowid, user_id)
SELECT m.rowid, m.user_id FROM json_each(?2) AS r CROSS JOIN messages AS m ON m.rowid = r.value WHERE m.user_id = ?1
"""
_PUT_SPENT = "INSERT INTO background_charges (entry, at, source, user_id, chat_id, parts) VALUES (?, ?, ?, ?, ?, ?)"


def apply(connection: apsw.Connection, entry: DayEntry | SpentEntry) -> None:
    """Carry out an entry of the memory journal."""
    if isinstance(entry, SpentEntry):
        parts = dumps([dict(part) for part in entry.parts])
        connection.execute(_PUT_SPENT, (entry.entry, entry.time, entry.source, entry.user, entry.chat, parts))
        return
    drawn = dumps(ranges(entry.messages))
    connection.execute(_PUT_DAY, (entry.entry, entry.user, entry.day, entry.time, entry.done, drawn))
    connection.execute(_PUT_DRAWN, (entry.user, json.dumps(list(entry.messages))))


_CLEAR = ("DELETE FROM day_entries", "DELETE FROM drawn_messages", "DELETE FROM background_charges")


def clear(connection: apsw.Connection) -> None:
    """Remove all of it; for a database that is being made from the logs."""
    for statement in _CLEAR:
        connection.execute(statement)
