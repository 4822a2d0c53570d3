"""SQL of message vectors: a vec0 table with the chat as partition key, so that a KNN reads one chat only.

``seq`` is a metadata column: segment and window are ranges of it, filtered inside the KNN. A filter after the KNN would
return nothing as soon as other rows are nearer. Many vectors (a long chat, a user's whole history) are searched by
their codes first (``vector_codes``); the few that remain are measured exactly.
"""

import json
from collections.abc import Sequence

import apsw
import attrs

from klaw.domain.names import UserId
from klaw.store.codes import Item
from klaw.store.sql import meta, vector_codes
from klaw.store.sql.measuring import Neighbour as Neighbour  # noqa: PLC0414 - known by this place
from klaw.store.sql.measuring import nearest_of
from klaw.store.sql.vector_codes import Coded, Filters

CHUNK_SIZE = 32
"""Rows a chunk of vec0. With 256 a chat of ten messages takes 400 KB and a vector read alone walks through 96 pages;
with 32 it is 50 KB and 12 pages, and a KNN is no slower (docs/benchmarks.md)."""
EXACT_UNTIL = 4_000
"""Vectors of a chat that a KNN reads one by one; with more, their codes come first."""
MAX_KNN = 4_096
"""The largest k that vec0 takes."""
ROUGH, FINE = 16_384, 1_024
"""Of a whole history, how many vectors the signs of their codes keep, and how many are then measured exactly."""
CHAT_ROUGH, CHAT_FINE = 8_192, 512
"""The same inside one chat; more are measured for a deep search."""

_MODEL_KEY = "embedding_model"
_DIMENSION_KEY = "embedding_dimension"


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


def table(dimension: int, chunk_size: int = CHUNK_SIZE) -> str:
    """The statement that makes the vector table."""
    return (
        f"CREATE VIRTUAL TABLE vec_messages USING vec0 ("
        f"chat_key INTEGER PARTITION KEY, seq INTEGER, embedding float[{int(dimension)}] distance_metric=cosine,"
        f" chunk_size={int(chunk_size)})"
    )


def prepare(connection: apsw.Connection, model_id: str, dimension: int) -> bool:
    """Make the vector table fit a model. Returns whether old vectors of another model were dropped."""
    vector_codes.create(connection)
    stored = model(connection)
    if stored == (model_id, dimension):
        return False
    connection.execute(_RESET)
    vector_codes.clear(connection)
    connection.execute(table(dimension))
    meta.put(connection, _MODEL_KEY, model_id)
    meta.put(connection, _DIMENSION_KEY, str(dimension))
    return stored is not None


_TAKE = """
UPDATE messages SET embedded = 1 WHERE rowid = ?1 AND embedded = 0
RETURNING (SELECT chat_key FROM sessions WHERE sessions.chat_id = messages.chat_id), user_id, seq,
    coalesce(unixepoch(created_at), 0), role
"""
_INSERT = "INSERT INTO vec_messages (rowid, chat_key, seq, embedding) VALUES (?, ?, ?, ?)"


def store(connection: apsw.Connection, made: Sequence[tuple[int, bytes]]) -> int:
    """Store messages' vectors (rowid, little-endian float32). Returns how many; a message that has one already, or is
    gone, is left out."""
    stored: list[Coded] = []
    for rowid, vector in made:
        row = connection.execute(_TAKE, (rowid,)).fetchone()
        if row is not None:
            key, user, seq, created_s, role = row
            connection.execute(_INSERT, (rowid, key, seq, vector))
            item = Item(rowid=rowid, seq=seq, created_s=created_s, role=role, vector=vector)
            stored.append(Coded(chat_key=key, user=UserId(user), item=item))
    vector_codes.add(connection, stored)
    return len(stored)


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
    """The nearest messages of a chat with first_seq <= seq < end_seq, nearest first. In a long chat the last ones of
    the list may miss a neighbour that is hardly nearer."""
    now = vector_codes.state(connection)
    if now is None or not now.complete or vector_codes.count(connection, chat_key) <= EXACT_UNTIL:
        return nearest_exact(connection, query, chat_key, first_seq, end_seq, limit)
    scope = Filters(chat_key=chat_key, first_seq=first_seq, end_seq=end_seq)
    fine = max(CHAT_FINE, 2 * limit)
    estimates = vector_codes.candidates(connection, now, query, scope, max(CHAT_ROUGH, 8 * fine), fine)

    def measure(rowids: list[int]) -> list[Neighbour]:
        rows = connection.execute(_MEASURE, (query, json.dumps(rowids), chat_key, first_seq, end_seq))
        return [Neighbour(rowid, distance) for rowid, distance in rows]

    return nearest_of(estimates, measure, limit)


def nearest_exact(
    connection: apsw.Connection, query: bytes, chat_key: int, first_seq: int, end_seq: int, limit: int
) -> Sequence[Neighbour]:
    """The same by reading every vector of the chat."""
    rows = connection.execute(_KNN, (query, min(limit, MAX_KNN), chat_key, first_seq, end_seq))
    return [Neighbour(rowid, distance) for rowid, distance in rows if distance is not None]


# "distance" is taken: a hidden column of vec0.
_MEASURE = """
SELECT v.rowid, vec_distance_cosine(v.embedding, ?1) AS measured
FROM json_each(?2) AS r CROSS JOIN vec_messages AS v ON v.rowid = r.value
WHERE v.chat_key = ?3 AND v.seq >= ?4 AND v.seq < ?5 AND measured IS NOT NULL
"""
