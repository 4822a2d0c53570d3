"""Turns and their receipts."""

import json
from collections.abc import Collection, Sequence
from typing import Any

import apsw
import attrs

from klaw.convert import JOURNAL
from klaw.domain import context_used
from klaw.domain.names import ChatId, UserId
from klaw.domain.turn import TurnRecord
from klaw.store import rows
from klaw.store.changes import Kind
from klaw.store.engine.tables import Table

TURNS = "turns"


def path(turn: TurnRecord) -> str:
    """Log of a turn: one file a month."""
    return f"{TURNS}/{turn.ended_at[:7]}.jsonl"


def line(turn: TurnRecord) -> str:
    return rows.dumps(JOURNAL.write(turn))


def parse(record: dict[str, Any]) -> TurnRecord:
    """A turn of a log's line. Raises ValueError for one that Klaw cannot have written."""
    return JOURNAL.read(record, TurnRecord)


TURN: Kind[TurnRecord] = Kind(
    what="turn", plural="receipts", cls=TurnRecord, table="turns", id="turn_id", changed="rowid"
)
_TURNS = rows.Rows(TurnRecord, "turns")
_INSERT = rows.insert("turns", TurnRecord).replace("INSERT", "INSERT OR IGNORE", 1)


def insert(connection: apsw.Connection, turn: TurnRecord) -> bool:
    """Store a turn; its messages are there. Returns False when it is there already."""
    connection.execute(_INSERT, rows.values(turn))
    inserted = connection.changes() > 0
    if inserted and context_used.KEY in turn.receipt:
        _note_used(connection, turn)
    return inserted


_HERE = """
SELECT s.id FROM kb_sources AS s JOIN kb_members AS m ON m.base_id = s.base_id AND m.user_id = ?
WHERE s.id IN (SELECT value FROM json_each(?))
"""


def without_gone(connection: apsw.Connection, turn: TurnRecord) -> TurnRecord:
    """A turn that is over, without the texts of sources that were removed, or are not shared with its user any more,
    while it was under way: what was forgotten before it is stored cannot be taken out of it later."""
    used = context_used.read(turn.receipt)
    if used is None:
        return turn
    given = [*{each.source for each in used.places}, *{each.source for each in used.sparql}]
    here = {source for (source,) in connection.execute(_HERE, (turn.user, json.dumps(given)))}
    return attrs.evolve(turn, receipt=context_used.blank(turn.receipt, lambda each: each["source"] not in here))


_ANSWER = """
SELECT seq FROM messages WHERE chat_id = ? AND seq > ? AND role = 'assistant' AND type = 'text'
    AND metadata ->> '$.turn' = ? ORDER BY seq LIMIT 1
"""
_USED = """
INSERT OR REPLACE INTO kb_used (turn_id, document_id, base_id, chat_id, seq, cited) VALUES (?, ?, ?, ?, ?, ?)
"""


def _note_used(connection: apsw.Connection, turn: TurnRecord) -> None:
    """Note which documents its answer, if it is there, was given passages of."""
    used = context_used.read(turn.receipt)
    answer = connection.execute(_ANSWER, (turn.chat, turn.last_seq, turn.id)).get
    if used is None or answer is None:
        return
    cited = {place.document for each in used.passages if each.cited for place in (each, *each.also)}
    for document, base in {each.document: each.base for each in used.places if each.document}.items():
        connection.execute(_USED, (turn.id, document, base, turn.chat, answer, document in cited))


def forget_used(connection: apsw.Connection, answers: Sequence[tuple[ChatId, int]]) -> None:
    """Forgotten answers, by chat and number, were given nothing."""
    connection.executemany("DELETE FROM kb_used WHERE chat_id = ? AND seq = ?", answers)


_USED_ROWS = """
SELECT turn_id, (
    SELECT json_group_array(json_array(document_id, base_id, chat_id, seq, cited))
    FROM (SELECT * FROM kb_used AS u WHERE u.turn_id = t.turn_id ORDER BY document_id))
FROM (SELECT DISTINCT turn_id FROM kb_used) AS t WHERE turn_id > :after ORDER BY turn_id LIMIT :limit
"""
USED = Table(
    name="uses of documents",
    statement=_USED_ROWS,
    first="",
    bound="turn",
    changed="SELECT turn_id FROM turns WHERE rowid > ?",
)


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


_RECEIPTS = """
SELECT turn_id, receipt FROM turns WHERE user_id = ? AND turn_id IN (SELECT value FROM json_each(?))
"""


def receipts(connection: apsw.Connection, user: UserId, turn_ids: Collection[str]) -> dict[str, dict[str, Any]]:
    """The receipts of a user's turns."""
    found = connection.execute(_RECEIPTS, (user, json.dumps(list(turn_ids))))
    return {turn: json.loads(receipt) for turn, receipt in found}


def answering(connection: apsw.Connection, chat: ChatId, seq: int) -> TurnRecord | None:
    """The newest turn that was to answer the message with this seq."""
    which = "WHERE chat_id = ? AND first_seq <= ? AND last_seq >= ? ORDER BY last_seq DESC, ended_at DESC LIMIT 1"
    return _TURNS.one(connection, which, chat, seq, seq)


def last(connection: apsw.Connection, chat: ChatId) -> TurnRecord | None:
    """The newest turn of a chat."""
    return _TURNS.one(connection, "WHERE chat_id = ? ORDER BY last_seq DESC, ended_at DESC LIMIT 1", chat)
