"""SQL that facts and chunks of memory files share: their vectors, which are missing, and both searches.

Vectors are in a plain table beside them, read as a whole for a user: a user has thousands, not millions. A vector holds
for the text that it was made of; whoever changes a text drops it.
"""

from collections.abc import Sequence
from typing import Literal, TypeAlias

import apsw
import attrs

from klaw.domain.names import UserId
from klaw.store.sql import vectors
from klaw.store.sql.fulltext import TextHit, match_in
from klaw.store.sql.measuring import Neighbour
from klaw.store.sql.messages import user_word

PassageKind: TypeAlias = Literal["fact", "chunk"]
KINDS: tuple[PassageKind, ...] = ("fact", "chunk")

FLOAT_BYTES = 4


@attrs.frozen(kw_only=True)
class _Kind:
    """The names of a kind. Full text and vectors hang on ``search``, the view that has what may be found."""

    table: str
    search: str
    fts: str
    vec: str


_OF: dict[PassageKind, _Kind] = {
    "fact": _Kind(table="facts", search="facts_search", fts="facts_fts", vec="vec_facts"),
    "chunk": _Kind(table="chunks", search="chunks_search", fts="chunks_fts", vec="vec_chunks"),
}


@attrs.frozen
class Unembedded:
    """A fact or chunk that waits for its vector."""

    kind: PassageKind
    rowid: int
    text: str


def _missing(names: _Kind) -> str:
    return f"""
    FROM {names.search} AS s LEFT JOIN {names.vec} AS v ON v.rowid = s.rowid AND v.model = ?1 WHERE v.rowid IS NULL
    """  # noqa: S608 - constant names


_UNEMBEDDED = {
    kind: f"SELECT s.rowid, s.content {_missing(names)} ORDER BY s.rowid DESC LIMIT ?2"  # noqa: S608 - constant names
    for kind, names in _OF.items()
}
_COUNT = {kind: f"SELECT count(*) {_missing(names)}" for kind, names in _OF.items()}  # noqa: S608 - constant names


def unembedded(connection: apsw.Connection, model: str, limit: int) -> list[Unembedded]:
    """Facts and chunks of all users without a vector of a model, the newest first: for the embedder."""
    found: list[Unembedded] = []
    for kind in KINDS:
        rows = connection.execute(_UNEMBEDDED[kind], (model, limit - len(found)))
        found += [Unembedded(kind, rowid, text) for rowid, text in rows]
    return found


def count_unembedded(connection: apsw.Connection, model: str) -> int:
    """How many facts and chunks wait for a vector of a model."""
    return sum(int(connection.execute(_COUNT[kind], (model,)).get) for kind in KINDS)


_STORE = {
    kind: f"""
    INSERT OR REPLACE INTO {names.vec} (rowid, model, embedding)
    SELECT rowid, ?2, ?3 FROM {names.search} WHERE rowid = ?1 AND content = ?4
    """  # noqa: S608 - constant names
    for kind, names in _OF.items()
}


@attrs.frozen
class PassageVector:
    """A vector, and what it was made of."""

    kind: PassageKind
    rowid: int
    text: str
    vector: bytes
    """Little-endian float32, of unit length."""


def store(connection: apsw.Connection, model: str, made: Sequence[PassageVector]) -> int:
    """Store vectors of the model in use. Returns how many: what has another text meanwhile, or is gone, is left out."""
    now = vectors.model(connection)
    if now is None or now[0] != model:
        return 0  # made by a model that was replaced meanwhile
    stored = 0
    for each in made:
        if len(each.vector) == now[1] * FLOAT_BYTES:
            connection.execute(_STORE[each.kind], (each.rowid, model, each.vector, each.text))
            stored += connection.changes()
    return stored


_NEAREST = {
    kind: f"""
    SELECT s.rowid, vec_distance_cosine(v.embedding, ?3) AS measured
    FROM {names.table} AS t CROSS JOIN {names.vec} AS v ON v.rowid = t.rowid AND v.model = ?2
        CROSS JOIN {names.search} AS s ON s.rowid = t.rowid
    WHERE t.user_id = ?1 AND length(v.embedding) = length(?3) AND measured IS NOT NULL
    ORDER BY measured, s.rowid DESC LIMIT ?4
    """  # noqa: S608 - constant names
    for kind, names in _OF.items()
}


def nearest(
    connection: apsw.Connection, kind: PassageKind, user: UserId, vector: bytes, limit: int
) -> Sequence[Neighbour]:
    """A user's nearest facts or chunks, nearest first; nothing while no model is in use."""
    now = vectors.model(connection)
    if now is None:
        return ()
    rows = connection.execute(_NEAREST[kind], (user, now[0], vector, limit))
    return [Neighbour(rowid, distance) for rowid, distance in rows]


_MATCHING = {
    kind: f"""
    SELECT m.rowid, m.score
    FROM (SELECT rowid, bm25({names.fts}) AS score FROM {names.fts} WHERE {names.fts} MATCH ?2) AS m
        CROSS JOIN {names.table} AS t ON t.rowid = m.rowid
    WHERE t.user_id = ?1 ORDER BY m.score, m.rowid DESC LIMIT ?3
    """  # noqa: S608 - constant names
    for kind, names in _OF.items()
}


def matching(
    connection: apsw.Connection, kind: PassageKind, user: UserId, words: Sequence[str], limit: int
) -> list[TextHit]:
    """A user's facts or chunks with any of the words, the best first."""
    if not words:
        return []
    rows = connection.execute(_MATCHING[kind], (user, match_in(words, user_word(user)), limit))
    return [TextHit(rowid, score) for rowid, score in rows]


# -- for a reindex -----------------------------------------------------------------------------------------------------

_VECTORS = """
SELECT v.rowid, f.text, v.embedding FROM vec_facts AS v JOIN facts AS f ON f.rowid = v.rowid
WHERE v.model = ? AND v.rowid > ? ORDER BY v.rowid LIMIT ?
"""


def fact_vectors(connection: apsw.Connection, after: int, limit: int) -> list[PassageVector]:
    """The next facts' vectors of the model in use. Those of chunks are not asked for: the files are read again."""
    now = vectors.model(connection)
    rows = connection.execute(_VECTORS, (now[0] if now else "", after, limit))
    return [PassageVector("fact", rowid, text, bytes(vector)) for rowid, text, vector in rows]
