"""Topics' vectors and the search by vector, in a plain table. A change of a topic drops its vector."""

from collections.abc import Sequence

import apsw
import attrs

from klaw.domain.names import ChatId, UserId
from klaw.domain.topic import TopicId
from klaw.store.engine import meta, vector_model
from klaw.store.engine.transaction import Transaction


@attrs.frozen
class TopicVector:
    topic: TopicId
    updated_at: str
    vector: bytes
    """Little-endian float32, of unit length."""


def store(tx: Transaction, model: str, made: Sequence[TopicVector], as_of: int | None = None) -> int:
    """Store vectors of the model in use; not of topics that changed meanwhile, or whose user has forgotten something
    since ``as_of``. Returns how many."""
    query = f"""
    INSERT OR REPLACE INTO vec_topics (rowid, user_id, model, embedding)
    SELECT id, user_id, ?3, ?4 FROM topics
    WHERE id = ?1 AND updated_at = ?2 AND NOT {meta.forgotten_since("user_id", "?5")}
    """  # noqa: S608 - a constant condition
    stored = 0
    for each in vector_model.fitting(tx.connection, model, made):
        tx.connection.execute(query, (each.topic, each.updated_at, model, each.vector, as_of))
        stored += tx.connection.changes()
    return stored


_WAITING = "FROM topics AS t LEFT JOIN vec_topics AS v ON v.rowid = t.id AND v.model = ?1 WHERE v.rowid IS NULL"
_UNEMBEDDED = f"SELECT t.user_id, t.id {_WAITING} AND t.id > ?2 ORDER BY t.id LIMIT ?3"
_COUNT_UNEMBEDDED = f"SELECT count(*) {_WAITING}"


def unembedded(connection: apsw.Connection, after: int, limit: int) -> list[tuple[UserId, TopicId]]:
    """The next topics of all users without a vector of the model in use; none while no model is."""
    now = vector_model.current(connection)
    if now is None:
        return []
    rows = connection.execute(_UNEMBEDDED, (now[0], after, limit))
    return [(UserId(user), TopicId(topic)) for user, topic in rows]


def count_unembedded(connection: apsw.Connection) -> int:
    return int(connection.execute(_COUNT_UNEMBEDDED, (vector_model.current_id(connection),)).get)


def read(connection: apsw.Connection, user: UserId, topic: TopicId) -> bytes | None:
    """The vector of a user's topic, of the model in use."""
    query = "SELECT embedding FROM vec_topics WHERE rowid = ? AND user_id = ? AND model = ?"
    found = connection.execute(query, (topic, user, vector_model.current_id(connection))).get
    return bytes(found) if found is not None else None


@attrs.frozen
class Near:
    topic: TopicId
    cosine: float


def nearest(
    connection: apsw.Connection,
    user: UserId,
    vector: bytes,
    *,
    min_cosine: float,
    limit: int,
    chat: ChatId | None = None,
) -> list[Near]:
    """A user's nearest topics, nearest first; nothing while no model is in use."""
    query = """
    SELECT v.rowid, 1 - vec_distance_cosine(v.embedding, ?3) AS cosine
    FROM vec_topics AS v
    WHERE v.user_id = ?1 AND v.model = ?2 AND length(v.embedding) = length(?3) AND cosine >= ?4
        AND (?6 IS NULL OR v.rowid IN (SELECT id FROM topics WHERE user_id = ?1 AND chat_id = ?6))
    ORDER BY cosine DESC, v.rowid LIMIT ?5
    """
    bound = (user, vector_model.current_id(connection), vector, min_cosine, limit, chat)
    rows = connection.execute(query, bound)
    return [Near(TopicId(topic), cosine) for topic, cosine in rows]


_PAGE = "SELECT v.rowid, v.embedding FROM vec_topics AS v WHERE v.model = ? AND v.rowid > ? ORDER BY v.rowid LIMIT ?"
_WHOLE = """
SELECT t.*, (SELECT group_concat(rowid) FROM (SELECT rowid FROM messages WHERE topic_id = t.id ORDER BY rowid))
FROM topics AS t WHERE t.id = ?
"""


def copy(live: apsw.Connection, built: apsw.Connection, after: int, limit: int) -> int | None:
    """Copy the next vectors of topics that are the same in both. Returns the last one; None: there are no more."""
    model = vector_model.current_id(live)
    page = list(live.execute(_PAGE, (model, after, limit)))
    if not page:
        return None
    made = []
    for topic, vector in page:
        mine = built.execute(_WHOLE, (topic,)).fetchone()
        if mine is not None and mine == live.execute(_WHOLE, (topic,)).fetchone():
            made.append(TopicVector(TopicId(topic), mine[13], bytes(vector)))
    with built:
        store(Transaction(built), model, made)
    return int(page[-1][0])
