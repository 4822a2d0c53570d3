"""SQL of the ``covered`` invariant: what the indexes have of each message, where the window begins, and repairs.

Reads the shadow tables of full text (one row a document, with its number of words) and of vec0 (one row a vector):
plain b-trees, so a range of messages costs a few look-ups each and no search.
"""

from collections.abc import Sequence
from typing import Any

import apsw
import attrs

from klaw.domain.coverage import Damage, IndexRow, damage_of
from klaw.domain.message import Kind, Role, is_searchable
from klaw.domain.names import ChatId
from klaw.store.engine import vector_model
from klaw.store.engine.connect import snapshot
from klaw.store.engine.tokenizer import words
from klaw.store.kinds import messages, summaries

LAST_ROWID = (1 << 63) - 1


@attrs.frozen(kw_only=True)
class Batch:
    """A range of messages as the indexes know them."""

    rows: Sequence[IndexRow]
    damage: Damage
    last_rowid: int
    """Of the range; the next one begins after it."""


def has_vector_table(connection: apsw.Connection) -> bool:
    """Whether vectors are stored at all; there are none until an embedding model was first loaded."""
    return bool(connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'vec_messages_rowids'").get)


_ROWS = """
SELECT m.rowid, m.chat_id, m.seq, m.role, m.type, m.embedded, d.sz, {vector},
    CASE WHEN (d.sz IS NULL OR substr(d.sz, 1, 1) = x'00') AND NOT {vector} THEN m.content END
FROM messages m LEFT JOIN messages_fts_docsize d ON d.id = m.rowid {join}
WHERE m.rowid > ? AND m.rowid <= ? ORDER BY m.rowid LIMIT ?
"""
_ROWS_WITH_VECTORS = _ROWS.format(
    vector="(v.rowid IS NOT NULL)", join="LEFT JOIN vec_messages_rowids v ON v.rowid = m.rowid"
)
_ROWS_WITHOUT_VECTORS = _ROWS.format(vector="0", join="")
_ORPHAN_VECTORS = """
SELECT v.rowid FROM vec_messages_rowids v LEFT JOIN messages m ON m.rowid = v.rowid
WHERE v.rowid > ? AND v.rowid <= ? AND m.rowid IS NULL
"""
_ORPHAN_TEXTS = """
SELECT d.id FROM messages_fts_docsize d LEFT JOIN messages m ON m.rowid = d.id
WHERE d.id > ? AND d.id <= ? AND m.rowid IS NULL
"""


def read(connection: apsw.Connection, after_rowid: int, last_rowid: int, limit: int) -> Batch:
    """The next ``limit`` messages after a rowid, and what in that range belongs to no message."""
    with snapshot(connection):
        found = rows(connection, after_rowid, last_rowid, limit)
        end = found[-1].rowid if len(found) == limit else last_rowid
        reach = (after_rowid, end)
        with_vectors = has_vector_table(connection)
        vectors_ = [row[0] for row in connection.execute(_ORPHAN_VECTORS, reach)] if with_vectors else []
        texts = [row[0] for row in connection.execute(_ORPHAN_TEXTS, reach)]
    orphans = Damage(orphan_vectors=tuple(vectors_), orphan_texts=tuple(texts))
    return Batch(rows=found, damage=damage_of(found) + orphans, last_rowid=end)


def rows(connection: apsw.Connection, after_rowid: int, last_rowid: int, limit: int) -> list[IndexRow]:
    """The next messages after a rowid, as the indexes know them."""
    statement = _ROWS_WITH_VECTORS if has_vector_table(connection) else _ROWS_WITHOUT_VECTORS
    return [_row(row) for row in connection.execute(statement, (after_rowid, last_rowid, limit)).fetchall()]


def _row(row: Sequence[Any]) -> IndexRow:
    rowid, chat, seq, role, kind, marked, sizes, vector, content = row
    searchable = is_searchable(Role(role), Kind(kind))
    return IndexRow(
        rowid=rowid,
        chat=ChatId(chat),
        seq=seq,
        searchable=searchable,
        words=None if sizes is None else word_count(sizes),
        vector=bool(vector),
        marked=bool(marked),
        silent=searchable and content is not None and next(iter(words(content)), None) is None,
    )


def word_count(sizes: bytes) -> int:
    """Words of a document's first column (the message's own text): the first number of FTS5's record of sizes.

    Args:
        sizes: ``sz`` of the docsize table: one SQLite varint for each column, seven bits a byte, the highest first.
    """
    count = 0
    for byte in sizes[:9]:
        count = count << 7 | byte & 0x7F
        if byte < 0x80:
            break
    return count


def newest_rowid(connection: apsw.Connection) -> int:
    """The rowid of the newest message; 0 when there is none."""
    return int(connection.execute("SELECT coalesce(max(rowid), 0) FROM messages").get)


_LAST_WINDOW = """
SELECT coalesce(receipt ->> '$.window.first_seq', first_seq), coalesce(receipt ->> '$.window.held', 0) FROM turns
WHERE chat_id = ?1 AND segment = ?2 AND receipt ->> '$.window' IS NOT NULL
ORDER BY last_seq DESC, ended_at DESC LIMIT 1
"""
_NEWEST_OF_SEGMENT = """
SELECT min(seq) FROM (
    SELECT seq FROM messages
    WHERE chat_id = ? AND seq >= ? AND role <> 'system' AND type IN ('text', 'scheduled')
    ORDER BY seq DESC LIMIT ?)
"""


def window_start(connection: apsw.Connection, chat: ChatId, sliding_window: int) -> int:
    """The number from which on the messages of a chat stand in the window: what the last turn of the segment showed and
    what came after it, but never more than ``sliding_window`` messages (tool messages do not count), unless that turn
    held more until they are summarised.

    Of a chat whose segment had no turn yet the newest ``sliding_window`` messages. After the last message's number when
    there is nothing in the window.
    """
    session = messages.session(connection, chat)
    if session is None:
        return 0
    newest = connection.execute(_NEWEST_OF_SEGMENT, (chat, session.segment_start, sliding_window)).get
    shown, held = connection.execute(_LAST_WINDOW, (chat, session.segment)).fetchone() or (0, 0)
    if held:
        return int(shown)
    return max(session.last_seq + 1 if newest is None else int(newest), int(shown))


def summarised(connection: apsw.Connection, chat: ChatId) -> list[tuple[int, int]]:
    """Ranges of messages of a chat's current segment for which a live summary stands."""
    session = messages.session(connection, chat)
    found = summaries.live(connection, chat, session.segment) if session is not None else []
    return [(summary.first_seq, summary.last_seq) for summary in found]


# -- repairs: in the writer's thread -----------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Repaired:
    """How many rows a repair put right."""

    texts: int = 0
    vectors: int = 0
    """Vectors that will be made again, and orphans that were removed."""


_HAS_VECTOR = "SELECT count(*) FROM vec_messages_rowids WHERE rowid = ?"


def repair(connection: apsw.Connection, damage: Damage) -> Repaired:
    """Put right what of a damage is still there.

    Missing rows of full text are made. What should have a vector and has none is unmarked, so that the embedder finds
    it; a vector without its mark, or without its message, is dropped.

    Raises:
        apsw.Error: an index is damaged itself.
    """
    missing = (rowid for rowid in damage.missing_texts if not has_text(connection, rowid))
    texts = sum(messages.index_again(connection, rowid) for rowid in missing)
    if not has_vector_table(connection):
        # Without the table there is nothing to be marked for; the embedder makes it with the model's first load.
        return Repaired(texts=texts)
    found = sum(_forget_lost(connection, rowid) for rowid in damage.lost_vectors)
    found += sum(_drop_stray(connection, rowid) for rowid in (*damage.unmarked_vectors, *damage.orphan_vectors))
    return Repaired(texts=texts, vectors=found)


def has_text(connection: apsw.Connection, rowid: int) -> bool:
    """Whether full text has a row for a message."""
    return bool(connection.execute("SELECT count(*) FROM messages_fts_docsize WHERE id = ?", (rowid,)).get)


def _forget_lost(connection: apsw.Connection, rowid: int) -> bool:
    if connection.execute(_HAS_VECTOR, (rowid,)).get:
        return False
    connection.execute("UPDATE messages SET embedded = 0 WHERE rowid = ? AND embedded = 1", (rowid,))
    return connection.changes() > 0


def _drop_stray(connection: apsw.Connection, rowid: int) -> bool:
    marked = connection.execute("SELECT embedded FROM messages WHERE rowid = ?", (rowid,)).get
    if marked == 1 or not connection.execute(_HAS_VECTOR, (rowid,)).get:
        return False
    connection.execute("DELETE FROM vec_messages WHERE rowid = ?", (rowid,))
    return True


# -- for `klaw doctor` -------------------------------------------------------------------------------------------------

_STRAY_TEXTS = """
SELECT count(*) FROM messages_fts f JOIN messages m ON m.rowid = f.rowid
WHERE messages_fts MATCH ? AND m.chat_id <> ?
"""
_STRAY_VECTORS = """
SELECT count(*) FROM vec_messages_rowids v
JOIN vec_messages_chunks c USING (chunk_id)
JOIN messages m ON m.rowid = v.rowid
JOIN sessions s ON s.chat_id = m.chat_id
WHERE c.partition00 <> s.chat_key
"""


def stray_texts(connection: apsw.Connection) -> int:
    """Rows of full text that stand under a chat that is not their message's. Reads one list of the index a chat."""
    chats = connection.execute("SELECT chat_key, chat_id FROM sessions ORDER BY chat_key").fetchall()
    return sum(connection.execute(_STRAY_TEXTS, (f'{{scope}}: "c{key}"', chat)).get for key, chat in chats)


def stray_vectors(connection: apsw.Connection) -> int:
    """Vectors that stand under a chat that is not their message's."""
    return int(connection.execute(_STRAY_VECTORS).get) if has_vector_table(connection) else 0


def vector_table_missing(connection: apsw.Connection) -> bool:
    """Whether a model is on record and its table is gone."""
    return vector_model.current(connection) is not None and not has_vector_table(connection)
