"""SQL of work in the background: what calls to models used, and the days that older versions drew into facts."""

import json
from collections.abc import Sequence

import apsw

from klaw.domain.names import UserId
from klaw.store.background_records import DayEntry, SpentEntry
from klaw.store.records import dumps
from klaw.store.topic_records import ranges

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
