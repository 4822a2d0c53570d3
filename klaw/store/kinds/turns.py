"""Turns and their receipts."""

import json
from collections.abc import Collection
from typing import Any

import apsw

from klaw.convert import JOURNAL
from klaw.domain.names import ChatId, UserId
from klaw.domain.turn import TurnRecord
from klaw.store import rows

TURNS = "turns"


def path(turn: TurnRecord) -> str:
    """Log of a turn: one file a month."""
    return f"{TURNS}/{turn.ended_at[:7]}.jsonl"


def line(turn: TurnRecord) -> str:
    return rows.dumps(JOURNAL.write(turn))


def parse(record: dict[str, Any]) -> TurnRecord:
    """A turn of a log's line. Raises ValueError for one that Klaw cannot have written."""
    return JOURNAL.read(record, TurnRecord)


_TURNS = rows.Rows(TurnRecord, "turns")
_INSERT = rows.insert("turns", TurnRecord).replace("INSERT", "INSERT OR IGNORE", 1)


def insert(connection: apsw.Connection, turn: TurnRecord) -> bool:
    """Store a turn. Returns False when it is there already."""
    connection.execute(_INSERT, rows.values(turn))
    return connection.changes() > 0


def exists(connection: apsw.Connection, turn_id: str) -> bool:
    return bool(connection.execute("SELECT count(*) FROM turns WHERE turn_id = ?", (turn_id,)).get)


_OVER = """
SELECT turn_id FROM turns
WHERE turn_id IN (SELECT value FROM json_each(?)) AND status IN ('done', 'stopped')
"""


def over(connection: apsw.Connection, turn_ids: Collection[str]) -> set[str]:
    """Those of the turns that are done or were stopped; the others failed or were interrupted."""
    return {row[0] for row in connection.execute(_OVER, (json.dumps(sorted(turn_ids)),))}


def get(connection: apsw.Connection, user: UserId, turn_id: str) -> TurnRecord | None:
    """A user's turn by its id."""
    return _TURNS.one(connection, "WHERE user_id = ? AND turn_id = ?", user, turn_id)


def answering(connection: apsw.Connection, chat: ChatId, seq: int) -> TurnRecord | None:
    """The newest turn that was to answer the message with this seq."""
    which = "WHERE chat_id = ? AND first_seq <= ? AND last_seq >= ? ORDER BY last_seq DESC, ended_at DESC LIMIT 1"
    return _TURNS.one(connection, which, chat, seq, seq)


def last(connection: apsw.Connection, chat: ChatId) -> TurnRecord | None:
    """The newest turn of a chat."""
    return _TURNS.one(connection, "WHERE chat_id = ? ORDER BY last_seq DESC, ended_at DESC LIMIT 1", chat)
