"""Turns and their receipts."""

import json
from collections.abc import Collection, Sequence
from typing import Annotated, Any

import apsw
import attrs

from klaw.convert import JOURNAL, Wire
from klaw.domain import context_used
from klaw.domain.message import Message, TurnRecord
from klaw.domain.names import ChatId, UserId
from klaw.store import rows
from klaw.store.changes import Kind
from klaw.store.engine.tables import ContentTable, table

TURNS = "turns"


def path(turn: TurnRecord) -> str:
    """Log of a turn: one file a month."""
    return f"{TURNS}/{turn.ended_at[:7]}.jsonl"


def line(turn: TurnRecord) -> str:
    return rows.dumps(JOURNAL.write(turn))


def parse(record: dict[str, Any]) -> TurnRecord:
    """A turn of a log's line. Raises ValueError for one that Klaw cannot have written."""
    return JOURNAL.read(record, TurnRecord)


_USED_ROWS = """
SELECT turn_id, (
    SELECT json_group_array(json_array(document_id, base_id, chat_id, seq, cited))
    FROM (SELECT * FROM kb_used AS u WHERE u.turn_id = t.turn_id ORDER BY document_id))
FROM (SELECT DISTINCT turn_id FROM kb_used) AS t WHERE turn_id > :after ORDER BY turn_id LIMIT :limit
"""
_AFTER = "SELECT turn_id FROM turns WHERE rowid > ?"
TURN: Kind[TurnRecord] = Kind(
    what="turn",
    plural="receipts",
    cls=TurnRecord,
    table="turns",
    id="turn_id",
    changed="rowid",
    clear=("DELETE FROM kb_used",),
    tables=(
        table("turns", "turns", "turn_id", rows.columns(TurnRecord), first="", bound="turn", changed=_AFTER),
        ContentTable(name="uses of documents", statement=_USED_ROWS, first="", bound="turn", changed=_AFTER),
    ),
)
_TURNS = rows.Rows(TurnRecord, "turns")
get = TURN.get
NOW = "turn_id NOT IN (SELECT turn_id FROM replaced_turns)"
"""Condition of a turn whose answer is not replaced by a variant."""
_INSERT = rows.insert("turns", TurnRecord).replace("INSERT", "INSERT OR IGNORE", 1)


def insert(connection: apsw.Connection, turn: TurnRecord) -> bool:
    """Store a turn; its messages are there. Returns False when it is there already."""
    connection.execute(_INSERT, rows.values(turn))
    inserted = connection.changes() > 0
    if inserted and context_used.KEY in turn.receipt:
        _note_used(connection, turn)
    return inserted


def without_gone(connection: apsw.Connection, turn: TurnRecord) -> TurnRecord:
    """A turn that is over, without the texts of sources and documents that were removed, or are not shared with its
    user any more, while it was under way: what was forgotten before it is stored cannot be taken out of it later."""
    query = """
    SELECT s.id FROM kb_sources AS s JOIN kb_members AS m ON m.base_id = s.base_id AND m.user_id = ?1
    WHERE s.id IN (SELECT value FROM json_each(?2))
    UNION ALL SELECT id FROM kb_documents WHERE source_id <> '' AND id IN (SELECT value FROM json_each(?2))
    """
    used = context_used.read(turn.receipt)
    if used is None:
        return turn
    given = {one for each in used.places for one in (each.source, each.document)}
    given |= {each.source for each in used.sparql}
    here = {None, *(one for (one,) in connection.execute(query, (turn.user, json.dumps([*given]))))}
    receipt = context_used.blank(turn.receipt, lambda each: not {each["source"], each.get("document")} <= here)
    return attrs.evolve(turn, receipt=receipt)


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


def exists(connection: apsw.Connection, turn_id: str) -> bool:
    return bool(connection.execute("SELECT count(*) FROM turns WHERE turn_id = ?", (turn_id,)).get)


def over(connection: apsw.Connection, turn_ids: Collection[str]) -> set[str]:
    """Those of the turns that are done or were stopped; the others failed or were interrupted."""
    query = """
    SELECT turn_id FROM turns
    WHERE turn_id IN (SELECT value FROM json_each(?)) AND status IN ('done', 'stopped')
    """
    return {row[0] for row in connection.execute(query, (json.dumps(sorted(turn_ids)),))}


def receipts(connection: apsw.Connection, user: UserId, turn_ids: Collection[str]) -> dict[str, dict[str, Any]]:
    query = """
    SELECT turn_id, receipt FROM turns WHERE user_id = ? AND turn_id IN (SELECT value FROM json_each(?))
    """
    found = connection.execute(query, (user, json.dumps(list(turn_ids))))
    return {turn: json.loads(receipt) for turn, receipt in found}


def answering(connection: apsw.Connection, chat: ChatId, seq: int) -> TurnRecord | None:
    """The newest turn that was to answer the message with this seq."""
    which = "WHERE chat_id = ? AND first_seq <= ? AND last_seq >= ?"
    return _TURNS.one(connection, f"{which} AND {NOW} ORDER BY last_seq DESC, ended_at DESC LIMIT 1", chat, seq, seq)


def last(connection: apsw.Connection, chat: ChatId) -> TurnRecord | None:
    return _TURNS.one(connection, f"WHERE chat_id = ? AND {NOW} ORDER BY last_seq DESC, ended_at DESC LIMIT 1", chat)


def find(connection: apsw.Connection, turn: str | None, chat: ChatId | None, user: UserId | None) -> TurnRecord | None:
    """A turn of a user, or of any: by its id, else the newest of a chat, else the one that ended last."""
    if turn is None and chat is not None:
        return last(connection, chat)
    query = "SELECT turn_id FROM turns WHERE ?1 IS NULL OR user_id = ?1 ORDER BY ended_at DESC, turn_id DESC LIMIT 1"
    found = turn if turn is not None else connection.execute(query, (user,)).get
    owner = connection.execute("SELECT user_id FROM turns WHERE turn_id = ?", (found,)).get
    return get(connection, UserId(owner), found) if owner is not None and user in (None, owner) else None


def newest(connection: apsw.Connection, chat: ChatId | None, user: UserId | None, limit: int) -> list[str]:
    """Ids of the newest turns of a chat, of a user, or of all, oldest first."""
    query = """
    SELECT turn_id FROM turns WHERE (?1 IS NULL OR chat_id = ?1) AND (?2 IS NULL OR user_id = ?2)
    ORDER BY ended_at DESC, turn_id DESC LIMIT ?3
    """
    return [row[0] for row in connection.execute(query, (chat, user, limit))][::-1]


def with_tools(
    connection: apsw.Connection, chat: ChatId, turns: Sequence[str], first_seq: int, last_seq: int
) -> set[str]:
    """Which of a chat's turns called tools, between two messages."""
    query = """
    SELECT DISTINCT metadata ->> 'turn' FROM messages
    WHERE chat_id = ?1 AND seq BETWEEN ?3 AND ?4 AND type = 'tool_result'
        AND metadata ->> 'turn' IN (SELECT value FROM json_each(?2))
    """
    bound = (chat, json.dumps(list(turns)), first_seq, last_seq)
    return {row[0] for row in connection.execute(query, bound)}


@attrs.frozen(kw_only=True)
class TurnOfMessage:
    """A turn and its receipt, as far as it concerns one message."""

    id: Annotated[str, Wire("turn_id")]
    chat: Annotated[ChatId, Wire("chat_id")]
    segment: int
    status: str
    last_seq: int
    ended_at: str
    receipt: dict[str, Any]


_OF_MESSAGE = rows.Rows(TurnOfMessage, "turns")
_FROM = "WHERE chat_id = ? AND last_seq >= ? ORDER BY last_seq DESC, ended_at DESC LIMIT ?"
ELSEWHERE = 200
"""So many of a user's newest turns in other chats are looked through."""


def of_message(connection: apsw.Connection, message: Message, limit: int) -> list[TurnOfMessage]:
    """The newest turns of a message's chat from it on, then those of others that showed it in a topic."""
    query = f"""
    SELECT {_OF_MESSAGE.columns}
    FROM (SELECT * FROM turns WHERE user_id = ?1 AND chat_id <> ?2 ORDER BY rowid DESC LIMIT ?4) AS t
    WHERE EXISTS (
        SELECT 1 FROM json_each(t.receipt, '$.topics.candidates') AS c
        WHERE ?3 IN (SELECT value FROM json_each(c.value, '$.rowids'))
            OR ?3 IN (SELECT value FROM json_each(c.value, '$.shortened')))
    ORDER BY ended_at DESC LIMIT ?5
    """  # noqa: S608 - constant columns
    found = _OF_MESSAGE.all(connection, _FROM, message.chat, message.seq, limit)
    elsewhere = (message.user, message.chat, message.rowid, ELSEWHERE, limit)
    return [*found, *map(_OF_MESSAGE.read, connection.execute(query, elsewhere))]
