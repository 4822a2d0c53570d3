"""SQL of tool notes: what single tool calls brought, with their full text. ``passages`` searches them."""

import json
from collections.abc import Sequence

import apsw
import attrs

from klaw.domain.names import ChatId, UserId
from klaw.domain.summary import Summary, ToolNote
from klaw.store.changes import Kind
from klaw.store.engine.full_text import index_row, unindex_row

MANY = 1_000


def insert(connection: apsw.Connection, entry: int, summary: Summary, notes: Sequence[ToolNote]) -> None:
    """Store the notes of a summary that an entry of the memory journal made."""
    query = """
    INSERT INTO tool_notes (rowid, user_id, chat_id, number, seq, call_id, tool, text) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
    """
    for place, note in enumerate(notes[:MANY]):
        rowid = entry * MANY + place
        row = (rowid, summary.user, summary.chat, summary.number, note.seq, note.call, note.tool, note.text)
        connection.execute(query, row)
        index_row(connection, "tool_notes", rowid)


def remove(connection: apsw.Connection, chat: ChatId, number: int) -> None:
    """Remove the notes of a summary, with their full text and vectors."""
    query = "SELECT rowid FROM tool_notes WHERE chat_id = ? AND number = ?"
    for (rowid,) in list(connection.execute(query, (chat, number))):
        unindex_row(connection, "tool_notes", rowid)
        connection.execute("DELETE FROM tool_notes WHERE rowid = ?", (rowid,))  # its vector goes with it


@attrs.frozen(kw_only=True)
class StoredNote:
    chat: ChatId
    note: ToolNote
    created_at: str
    """When the tool was called, ISO-8601 UTC."""


def by_rowids(connection: apsw.Connection, user: UserId, rowids: Sequence[int]) -> dict[int, StoredNote]:
    """A user's notes by their row ids; what is gone, or another's, is left out."""
    query = """
    SELECT n.rowid, n.chat_id, n.seq, n.call_id, n.tool, n.text, m.created_at
    FROM tool_notes AS n JOIN messages AS m ON m.chat_id = n.chat_id AND m.seq = n.seq AND m.user_id = n.user_id
    WHERE n.user_id = ? AND n.rowid = ?
    """
    found = {}
    for rowid in rowids:
        row = connection.execute(query, (user, rowid)).fetchone()
        if row:
            note = ToolNote(seq=row[2], call=row[3], tool=row[4], text=row[5])
            found[row[0]] = StoredNote(chat=ChatId(row[1]), note=note, created_at=row[6])
    return found


def summaries_of(connection: apsw.Connection, user: UserId, rowids: Sequence[object]) -> set[tuple[ChatId, int]]:
    """Chat and number of the summaries that a user's notes belong to."""
    query = "SELECT chat_id, number FROM tool_notes WHERE user_id = ? AND rowid IN (SELECT value FROM json_each(?))"
    return {(ChatId(chat), int(number)) for chat, number in connection.execute(query, (user, json.dumps(list(rowids))))}


NOTE: Kind[ToolNote] = Kind(
    what="tool_note",
    plural="tool notes",
    cls=ToolNote,
    table="tool_notes",
    id="rowid",
    changed="rowid",
    full_text=True,
    vectors="vec_tool_notes",
    vector_mark="vector_model",
)
