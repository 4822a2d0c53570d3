"""SQL of message vectors: a vec0 table with the chat as partition key, so that a KNN reads one chat only.

``seq`` is a metadata column: segment and window are ranges of it, filtered inside the KNN. A filter after the KNN would
return nothing as soon as other rows are nearer.
"""

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


_SHADOWS = tuple(f"vec_messages_{name}" for name in ("info", "chunks", "rowids", "vector_chunks00", "metadatachunks00"))
"""The tables that vec0 keeps the vectors in."""


def _reset(connection: apsw.Connection) -> None:
    """Drop the vector table, also a damaged one: vec0 refuses to be dropped while one of its own tables is missing."""
    for name in _SHADOWS:
        connection.execute(f"CREATE TABLE IF NOT EXISTS {name} (missing)")
    connection.execute("DROP TABLE IF EXISTS vec_messages")
    for name in _SHADOWS:
        connection.execute(f"DROP TABLE IF EXISTS {name}")
    connection.execute("UPDATE messages SET embedded = 0 WHERE embedded <> 0")


def prepare(connection: apsw.Connection, model_id: str, dimension: int, *, anew: bool = False) -> bool:
    """Make the vector table fit a model. Returns whether old vectors of another model were dropped.

    Args:
        anew: drop the vectors that are there in any case, because the table is damaged.
    """
    stored = model(connection)
    if stored == (model_id, dimension) and not anew:
        return False
    _reset(connection)
    connection.execute(
        f"CREATE VIRTUAL TABLE vec_messages USING vec0 ("
        f"chat_key INTEGER PARTITION KEY, seq INTEGER, embedding float[{int(dimension)}] distance_metric=cosine,"
        f" chunk_size={CHUNK_SIZE})"
    )
    meta.put(connection, _MODEL_KEY, model_id)
    meta.put(connection, _DIMENSION_KEY, str(dimension))
    return stored is not None and stored != (model_id, dimension)


_TAKE = """
UPDATE messages SET embedded = 1 WHERE rowid = ?1 AND embedded = 0
RETURNING seq, (SELECT chat_key FROM sessions WHERE sessions.chat_id = messages.chat_id)
"""
_HAS_VECTOR = "SELECT 1 FROM vec_messages_rowids WHERE rowid = ?"
_DELETE = "DELETE FROM vec_messages WHERE rowid = ?"
_INSERT = "INSERT INTO vec_messages (rowid, chat_key, seq, embedding) VALUES (?, ?, ?, ?)"


def store(connection: apsw.Connection, rowid: int, vector: bytes) -> bool:
    """Store a message's vector (little-endian float32). False when it has one already, or is gone."""
    row = connection.execute(_TAKE, (rowid,)).fetchone()
    if row is None:
        return False
    seq, key = row
    if connection.execute(_HAS_VECTOR, (rowid,)).get:  # of a message that was deleted and came back from the logs
        connection.execute(_DELETE, (rowid,))
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
