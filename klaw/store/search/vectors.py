"""Vectors of messages: a vec0 table with the chat as partition key, so that a KNN reads one chat only. ``seq`` is a
metadata column: segment and window are ranges of it, filtered inside the KNN (``vector_search``).
"""

import json
import math
import struct
from collections.abc import Iterator, Mapping, Sequence

import apsw
import attrs

from klaw.domain.message import SESSION_PAUSE_S
from klaw.errors import StorageError
from klaw.store.engine import meta, vector_model
from klaw.store.engine.tables import END, PAGE_ROWS
from klaw.store.engine.transaction import Transaction
from klaw.store.engine.writer import Writer
from klaw.store.kinds.messages import MESSAGE, SEARCHABLE, SESSION
from klaw.store.search import passages, token_codes, vector_codes
from klaw.store.search.passages import PassageVector
from klaw.store.search.vector_quantizer import VectorItem

CHUNK_SIZE = 32
"""Rows a chunk of vec0. With 256 a chat of ten messages takes 400 KB and a vector read alone walks through 96 pages;
with 32 it is 50 KB and 12 pages, and a KNN is no slower."""
_CLEARED_KEY = "embedding_cleared"
"""There while the old vectors are being dropped: the rowid up to which messages know that they have none."""
_REEMBEDDING_KEY = "reembedding"
"""There until all that had a vector of the old model has one of the new: how many those were."""

CLEAR_ROWS, CLEAR_CHUNKS = 4096, 16
"""Messages whose flag is taken back, and chunks that go, in one step: 15 ms, and 6 MiB or up to 20 ms here."""


@attrs.frozen
class UnembeddedMessage:
    rowid: int
    content: str
    previous: str | None
    """Content of the nearest earlier message of the session that is searched, if there is one."""


def has_table(connection: apsw.Connection) -> bool:
    """Whether the vector table is there; only damage takes it away."""
    return bool(connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'vec_messages_rowids'").get)


def reembedding(connection: apsw.Connection) -> int | None:
    """While vectors are being made again for another model: how many the old one had. None otherwise."""
    total = meta.get(connection, _REEMBEDDING_KEY)
    return int(total) if total is not None else None


def end_reembedding(tx: Transaction) -> None:
    meta.remove(tx.connection, _REEMBEDDING_KEY)


def table(dimension: int, chunk_size: int = CHUNK_SIZE) -> str:
    return (
        f"CREATE VIRTUAL TABLE vec_messages USING vec0 ("
        f"chat_key INTEGER PARTITION KEY, seq INTEGER, embedding float[{int(dimension)}] distance_metric=cosine,"
        f" chunk_size={int(chunk_size)})"
    )


async def prepare(writer: Writer, model_id: str, dimension: int, *, damaged: bool = False) -> bool:
    """``prepare_some`` until it is done; messages are stored between the steps. ``damaged``: drop the table, and let
    every message be embedded again. Raises VectorsDamaged if not even dropping works."""

    def step(tx: Transaction) -> bool | None:
        with tx.touching_vectors():
            if damaged:
                make_anew(tx.connection, model_id, dimension)
            return prepare_some(tx.connection, model_id, dimension)

    while (dropped := await writer.run(step)) is None:
        pass
    return dropped


def prepare_at_once(connection: apsw.Connection, model_id: str, dimension: int) -> bool:
    """The same for a database that nobody waits for."""
    if vector_model.current(connection) == (model_id, dimension):
        return False
    while (dropped := prepare_some(connection, model_id, dimension)) is None:
        pass
    return dropped


def prepare_some(connection: apsw.Connection, model_id: str, dimension: int) -> bool | None:
    """One bounded step towards a vector table that fits a model. Returns whether vectors of another model were dropped
    and are not all made again yet; None: call again. From the first step on no model is known, so nothing is searched
    or stored, and after a crash the next start goes on."""
    if vector_model.current(connection) != (model_id, dimension):
        if meta.get(connection, _CLEARED_KEY) is None:
            meta.put(connection, _CLEARED_KEY, "0")
            # Of a re-embedding that was under way, the messages that had a vector before it still count.
            had = max(count_embedded(connection), reembedding(connection) or 0)
            meta.put(connection, _REEMBEDDING_KEY, str(had))
            meta.remove(connection, vector_model.MODEL_KEY)
            meta.remove(connection, vector_model.DIMENSION_KEY)
        if not _clear_some(connection):
            return None
        _create(connection, model_id, dimension)
        meta.remove(connection, _CLEARED_KEY)
        if not reembedding(connection):
            meta.remove(connection, _REEMBEDDING_KEY)
    return reembedding(connection) is not None


_FORGET = f"UPDATE {MESSAGE.table} SET embedded = 0 WHERE rowid > ?1 AND rowid <= ?2 AND embedded <> 0"  # noqa: S608
_LAST = f"SELECT coalesce(max(rowid), 0) FROM {MESSAGE.table}"  # noqa: S608 - a constant name
_BLOB_TABLES = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name GLOB 'vec_messages_vector_chunks[0-9]*'"


def _clear_some(connection: apsw.Connection) -> bool:
    """Drop some of the old vectors; returns whether none is left. The blobs go first, from vec0's own tables: dropping
    the whole table frees every page of it in one transaction, and deleting rows through vec0 takes 0.1 ms each."""
    first = int(meta.get(connection, _CLEARED_KEY) or 0)
    last = int(connection.execute(_LAST).get)
    upto = min(first + CLEAR_ROWS, last)
    connection.execute(_FORGET, (first, upto))
    meta.put(connection, _CLEARED_KEY, str(upto))
    left = False
    for (table,) in connection.execute(_BLOB_TABLES).fetchall():
        some = f'SELECT rowid FROM "{table}" LIMIT {CLEAR_CHUNKS}'  # noqa: S608 - a name out of the schema
        connection.execute(f'DELETE FROM "{table}" WHERE rowid IN ({some})')  # noqa: S608 - likewise
        left = left or connection.changes() == CLEAR_CHUNKS
    return upto >= last and not left


_SHADOWS = tuple(f"vec_messages_{name}" for name in ("info", "chunks", "rowids", "vector_chunks00", "metadatachunks00"))
"""The tables that vec0 keeps the vectors in."""


def make_anew(connection: apsw.Connection, model_id: str, dimension: int) -> None:
    """Drop a damaged table with all its vectors, and let every message be embedded again."""
    _create(connection, model_id, dimension)
    connection.execute(_FORGET, (0, END))


def _create(connection: apsw.Connection, model_id: str, dimension: int) -> None:
    """Make the table for a model. The old one goes, also a damaged one, which vec0 drops only with all its tables."""
    for name in _SHADOWS:
        connection.execute(f"CREATE TABLE IF NOT EXISTS {name} (missing)")
    connection.execute("DROP TABLE IF EXISTS vec_messages")
    for name in _SHADOWS:
        connection.execute(f"DROP TABLE IF EXISTS {name}")
    vector_codes.clear(connection)
    connection.execute(table(dimension))
    meta.put(connection, vector_model.MODEL_KEY, model_id)
    meta.put(connection, vector_model.DIMENSION_KEY, str(dimension))


_TAKE = f"""
UPDATE {MESSAGE.table} SET embedded = 1 WHERE rowid = ?1 AND embedded = 0
    AND {SEARCHABLE} -- not one that was forgotten meanwhile
    AND NOT {meta.forgotten_since(f"{MESSAGE.table}.user_id", "?2")}
RETURNING (SELECT chat_key FROM {SESSION.table} AS s WHERE s.chat_id = {MESSAGE.table}.chat_id), user_id, seq,
    coalesce(unixepoch(created_at), 0), role
"""  # noqa: S608 - constant parts
_HAS_VECTOR = "SELECT 1 FROM vec_messages_rowids WHERE rowid = ?"
_INSERT = "INSERT INTO vec_messages (rowid, chat_key, seq, embedding) VALUES (?, ?, ?, ?)"


def store(
    tx: Transaction,
    model_id: str,
    made: Sequence[tuple[int, bytes]],
    as_of: int | None = None,
    codes: Mapping[int, bytes] | None = None,
) -> int:
    """``put`` vectors made by a model, unless that was replaced meanwhile. Of a user who has forgotten something since
    ``as_of``, an entry of the memory journal, none is stored: what was read may hold it. Raises VectorsDamaged: the
    table cannot take them; StorageError: one has another dimension than the model's; then none was stored."""
    model = vector_model.current(tx.connection)
    if model is None or model[0] != model_id:
        return 0
    if any(len(vector) != model[1] * vector_model.FLOAT_BYTES for _, vector in made):
        raise StorageError(f"a vector has another dimension than {model[1]}, the model's; none was stored")
    with tx.touching_vectors():
        count = put(tx.connection, made, as_of, codes)
        vector_codes.advance(tx.connection)
        return count


def store_of_passages(tx: Transaction, model_id: str, made: Sequence[PassageVector]) -> int:
    return passages.store(tx.connection, model_id, made)


def encode(tx: Transaction) -> bool:
    """Make codes for some vectors that have none; returns whether there may be more to do."""
    with tx.touching_vectors():
        return vector_model.current(tx.connection) is not None and vector_codes.advance(tx.connection)


async def prepare_codes(writer: Writer, coder: str) -> None:
    """Drop the codes of tokens that another coder made, in steps."""
    while not await writer.run(lambda tx: token_codes.prepare_some(tx.connection, coder)):
        pass


def put(
    connection: apsw.Connection,
    made: Sequence[tuple[int, bytes]],
    as_of: int | None = None,
    codes: Mapping[int, bytes] | None = None,
) -> int:
    """Store messages' vectors (rowid, little-endian float32) and codes of their tokens (by rowid), these also for one
    that has a vector. Returns how many vectors; a message that has one, is gone, or was forgotten about is left out."""
    stored: list[VectorItem] = []
    for rowid, vector in made:
        row = connection.execute(_TAKE, (rowid, as_of)).fetchone()
        if row is not None:
            key, user, seq, created_s, role = row
            if connection.execute(_HAS_VECTOR, (rowid,)).get:  # of a message that came back from the logs
                connection.execute("DELETE FROM vec_messages WHERE rowid = ?", (rowid,))
            connection.execute(_INSERT, (rowid, key, seq, vector))
            stored.append(VectorItem(rowid, seq, created_s, role, vector, chat_key=key, user=user))
    vector_codes.add(connection, stored)
    token_codes.put(connection, codes or {}, as_of)
    if any(each.rowid not in (codes or {}) for each in stored):
        token_codes.look_again(connection)
    return len(stored)


_READ = f"""
SELECT m.rowid, m.content, (
    SELECT iif(
        p.segment = m.segment AND unixepoch(m.created_at) - unixepoch(p.created_at) <= {SESSION_PAUSE_S},
        p.content, NULL)
    FROM {MESSAGE.table} p
    WHERE p.chat_id = m.chat_id AND p.seq < m.seq AND {SEARCHABLE}
    ORDER BY p.seq DESC LIMIT 1)
FROM ({{rows}}) w
JOIN {MESSAGE.table} m ON m.rowid = w.rowid
ORDER BY m.rowid DESC
"""  # noqa: S608 - constant parts
_WAITING = f"FROM {MESSAGE.table} WHERE embedded = 0 AND {SEARCHABLE} AND tokens >= ?"
_UNEMBEDDED = _READ.format(rows=f"SELECT rowid {_WAITING} ORDER BY +rowid DESC LIMIT ?")
_COUNT_UNEMBEDDED = f"SELECT count(*) {_WAITING}"
_OF_ROWS = _READ.format(rows="SELECT value AS rowid FROM json_each(?)")


def unembedded(connection: apsw.Connection, min_tokens: int, limit: int) -> list[UnembeddedMessage]:
    """Messages that should have a vector and have none, the newest first. Without ``+rowid`` SQLite walks back over the
    whole table. The previous message is the nearest one of the chat, whatever its segment, so that the look back stays
    short: behind another segment's message there is none of this one."""
    return [UnembeddedMessage(*row) for row in connection.execute(_UNEMBEDDED, (min_tokens, limit))]


def to_embed(connection: apsw.Connection, rowids: Sequence[int]) -> list[UnembeddedMessage]:
    """Some messages as ``unembedded`` gives them, whether they have a vector or not."""
    return [UnembeddedMessage(*row) for row in connection.execute(_OF_ROWS, (json.dumps(list(rowids)),))]


def count_unembedded(connection: apsw.Connection, min_tokens: int) -> int:
    return int(connection.execute(_COUNT_UNEMBEDDED, (min_tokens,)).get)


def count_embedded(connection: apsw.Connection) -> int:
    """How many messages have a vector. Reads the whole index of row ids: not for every message."""
    known = vector_model.current(connection) is not None
    return int(connection.execute("SELECT count(*) FROM vec_messages_rowids").get) if known else 0


def rowids(connection: apsw.Connection, after: int, end: int, limit: int) -> list[int]:
    """The next rows that have a vector, after < rowid <= end."""
    if vector_model.current(connection) is None:
        return []
    query = "SELECT rowid FROM vec_messages_rowids WHERE rowid > :after AND rowid <= :end ORDER BY rowid LIMIT :limit"
    return [rowid for (rowid,) in connection.execute(query, {"after": after, "end": end, "limit": limit})]


_PLACE = f"""
SELECT (SELECT chat_id FROM {SESSION.table} AS s WHERE s.chat_key = vec_messages.chat_key), seq
FROM vec_messages WHERE rowid = ?
"""  # noqa: S608 - a constant name


def places(connection: apsw.Connection) -> Iterator[tuple[int, str | None, int | None]]:
    """Row id, chat and seq of every vector, as the vector table has them; None where that is damaged."""
    after = -END
    while found := rowids(connection, after, END, PAGE_ROWS):
        for after in found:
            yield after, *_place(connection, after)


def _place(connection: apsw.Connection, rowid: int) -> tuple[str | None, int | None]:
    try:
        row = connection.execute(_PLACE, (rowid,)).fetchone()
    except apsw.SQLError:  # how vec0 reports a chunk that is gone
        row = None
    return (row[0], row[1]) if row else (None, None)


def read(connection: apsw.Connection, rowid: int) -> bytes | None:
    """A message's vector; None when there is none, or its bytes are no unit vector any more."""
    try:
        vector = connection.execute("SELECT embedding FROM vec_messages WHERE rowid = ?", (rowid,)).get
    except apsw.SQLError:
        return None
    return bytes(vector) if vector is not None and _is_unit(vector) else None


_NORM_TOLERANCE = 0.05


def _is_unit(vector: bytes) -> bool:
    if len(vector) % 4:
        return False
    norm = math.hypot(*struct.unpack(f"<{len(vector) // 4}f", vector))
    return abs(norm - 1) <= _NORM_TOLERANCE  # False for NaN and infinity too


def distance(connection: apsw.Connection, one: bytes, other: bytes) -> float:
    return float(connection.execute("SELECT vec_distance_cosine(?, ?)", (one, other)).get)
