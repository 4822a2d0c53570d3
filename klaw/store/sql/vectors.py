"""SQL of message vectors: a vec0 table with the chat as partition key, so that a KNN reads one chat only.

``seq`` is a metadata column: segment and window are ranges of it, filtered inside the KNN. A filter after the KNN would
return nothing as soon as other rows are nearer.
"""

import math
import struct
from collections.abc import Sequence

import apsw
import attrs

from klaw.store.sql import meta

CHUNK_SIZE = 256
"""Rows a chunk of vec0: with many small chats the default of 1024 wastes disk (76 MiB against 19 MiB for 50 chats)."""

_MODEL_KEY = "embedding_model"
_DIMENSION_KEY = "embedding_dimension"


@attrs.frozen
class Neighbour:
    """One result of a KNN."""

    rowid: int
    distance: float
    """Cosine distance, 0 to 2."""


@attrs.frozen
class Unembedded:
    """A message that waits for its vector."""

    rowid: int
    content: str


def model(connection: apsw.Connection) -> tuple[str, int] | None:
    """Id and dimension of the model whose vectors are stored."""
    name, dimension = meta.get(connection, _MODEL_KEY), meta.get(connection, _DIMENSION_KEY)
    return (name, int(dimension)) if name is not None and dimension is not None else None


_RESET = "DROP TABLE IF EXISTS vec_messages; UPDATE messages SET embedded = 0 WHERE embedded <> 0"


def prepare(connection: apsw.Connection, model_id: str, dimension: int) -> bool:
    """Make the vector table fit a model. Returns whether old vectors of another model were dropped."""
    stored = model(connection)
    if stored == (model_id, dimension):
        return False
    connection.execute(_RESET)
    connection.execute(
        f"CREATE VIRTUAL TABLE vec_messages USING vec0 ("
        f"chat_key INTEGER PARTITION KEY, seq INTEGER, embedding float[{int(dimension)}] distance_metric=cosine,"
        f" chunk_size={CHUNK_SIZE})"
    )
    meta.put(connection, _MODEL_KEY, model_id)
    meta.put(connection, _DIMENSION_KEY, str(dimension))
    return stored is not None


_TAKE = """
UPDATE messages SET embedded = 1 WHERE rowid = ?1 AND embedded = 0
RETURNING seq, (SELECT chat_key FROM sessions WHERE sessions.chat_id = messages.chat_id)
"""
_INSERT = "INSERT INTO vec_messages (rowid, chat_key, seq, embedding) VALUES (?, ?, ?, ?)"


def store(connection: apsw.Connection, rowid: int, vector: bytes) -> bool:
    """Store a message's vector (little-endian float32). False when it has one already, or is gone."""
    row = connection.execute(_TAKE, (rowid,)).fetchone()
    if row is None:
        return False
    seq, key = row
    connection.execute(_INSERT, (rowid, key, seq, vector))
    return True


_UNEMBEDDED = """
SELECT rowid, content FROM messages
WHERE embedded = 0 AND role IN ('user', 'assistant') AND type IN ('text', 'scheduled') AND tokens >= ?
ORDER BY tokens LIMIT ?
"""


def unembedded(connection: apsw.Connection, min_tokens: int, limit: int) -> list[Unembedded]:
    """Messages that should have a vector and have none, the shortest first."""
    return [Unembedded(*row) for row in connection.execute(_UNEMBEDDED, (min_tokens, limit))]


_COUNT_UNEMBEDDED = """
SELECT count(*) FROM messages
WHERE embedded = 0 AND role IN ('user', 'assistant') AND type IN ('text', 'scheduled') AND tokens >= ?
"""


def count_unembedded(connection: apsw.Connection, min_tokens: int) -> int:
    """How many messages wait for their vector."""
    return int(connection.execute(_COUNT_UNEMBEDDED, (min_tokens,)).get)


_COUNT_EMBEDDED = "SELECT count(*) FROM vec_messages_rowids"


def count_embedded(connection: apsw.Connection) -> int:
    """How many messages have a vector. Reads the whole index of row ids: not for every message."""
    return int(connection.execute(_COUNT_EMBEDDED).get) if model(connection) else 0


_KNN = """
SELECT rowid, distance FROM vec_messages
WHERE embedding MATCH ? AND k = ? AND chat_key = ? AND seq >= ? AND seq < ?
ORDER BY distance
"""


def nearest(
    connection: apsw.Connection, query: bytes, chat_key: int, first_seq: int, end_seq: int, limit: int
) -> Sequence[Neighbour]:
    """The nearest messages of a chat with first_seq <= seq < end_seq, nearest first."""
    rows = connection.execute(_KNN, (query, limit, chat_key, first_seq, end_seq))
    return [Neighbour(rowid, distance) for rowid, distance in rows if distance is not None]


# -- for a reindex -----------------------------------------------------------------------------------------------------

_ROWIDS = """
SELECT rowid FROM vec_messages_rowids WHERE rowid > :after AND rowid <= :end ORDER BY rowid LIMIT :limit
"""


def rowids(connection: apsw.Connection, after: int, end: int, limit: int) -> list[int]:
    """The next rows that have a vector, after < rowid <= end."""
    if model(connection) is None:
        return []
    return [rowid for (rowid,) in connection.execute(_ROWIDS, {"after": after, "end": end, "limit": limit})]


_PLACE = """
SELECT (SELECT chat_id FROM sessions WHERE sessions.chat_key = vec_messages.chat_key), seq
FROM vec_messages WHERE rowid = ?
"""


def page(connection: apsw.Connection, after: int, end: int, limit: int) -> list[tuple[int, str | None, int | None]]:
    """The next vectors' rows: row id, chat and seq as the vector table has them, None where that is damaged."""
    return [(rowid, *_place(connection, rowid)) for rowid in rowids(connection, after, end, limit)]


def _place(connection: apsw.Connection, rowid: int) -> tuple[str | None, int | None]:
    try:
        row = connection.execute(_PLACE, (rowid,)).fetchone()
    except apsw.SQLError:  # how vec0 reports a chunk that is gone
        row = None
    return (row[0], row[1]) if row else (None, None)


_READ = "SELECT embedding FROM vec_messages WHERE rowid = ?"


def read(connection: apsw.Connection, rowid: int) -> bytes | None:
    """A message's vector; None when there is none, or its bytes are no unit vector any more."""
    try:
        vector = connection.execute(_READ, (rowid,)).get
    except apsw.SQLError:
        return None
    return bytes(vector) if vector is not None and _is_unit(vector) else None


_NORM_TOLERANCE = 0.05


def _is_unit(vector: bytes) -> bool:
    if len(vector) % 4:
        return False
    norm = math.hypot(*struct.unpack(f"<{len(vector) // 4}f", vector))
    return abs(norm - 1) <= _NORM_TOLERANCE  # False for NaN and infinity too


_DISTANCE = "SELECT vec_distance_cosine(?, ?)"


def distance(connection: apsw.Connection, one: bytes, other: bytes) -> float:
    """Cosine distance of two vectors of the same length."""
    return float(connection.execute(_DISTANCE, (one, other)).get)
