"""SQL that facts, chunks of memory files and passages of documents share: which have no vector, and storing it; and
both searches of what a user keeps (``knowledge_search`` has those of documents).

Vectors are in a plain table beside them, read as a whole for a user: a user has thousands, not millions. A vector holds
for the text that it was made of; whoever changes a text drops it.
"""

from collections.abc import Sequence
from typing import Literal, TypeAlias

import apsw
import attrs

from klaw.domain.names import UserId
from klaw.store.engine import vector_model
from klaw.store.search import knowledge_search
from klaw.store.search.fulltext import TextHit, ranked
from klaw.store.search.vector_search import Neighbour

PassageKind: TypeAlias = Literal["fact", "chunk", "note", "document"]
KINDS: tuple[PassageKind, ...] = ("fact", "chunk", "note")
"""What a user keeps. Passages of documents are many, and are embedded behind everything else."""


@attrs.frozen(kw_only=True)
class _PassageTables:
    """The names of a kind. The view ``TABLE_search`` has what may be found: row id and the text that is searched."""

    table: str
    waits: str = "TRUE"
    """Which rows should have a vector; a partial index knows them."""
    text: str = "text"
    """SQL of a row's text."""
    parts: str = "content, ''"
    """SQL of what is embedded of the view's row, and of what is read before it."""
    missing: str = "vector_model IS NOT ?1"
    """SQL of rows without a vector of a model."""
    order: str = "ORDER BY rowid DESC"


_OF: dict[PassageKind, _PassageTables] = {
    "fact": _PassageTables(table="facts", waits="superseded_by IS NULL"),
    "chunk": _PassageTables(table="chunks", text="heading || text"),
    "note": _PassageTables(table="tool_notes"),
    # Three ranges of an index, and no order: there may be a hundred thousand.
    "document": _PassageTables(table="kb_passages", parts="text, lead", missing=knowledge_search.MISSING, order=""),
}


@attrs.frozen
class UnembeddedPassage:
    """A fact, a chunk or a passage that waits for its vector."""

    kind: PassageKind
    rowid: int
    text: str
    lead: str = ""
    """What is read before the text, and of a document's passage is searched with it."""


_UNEMBEDDED = {
    kind: f"""
    SELECT rowid, {names.parts} FROM {names.table}_search WHERE rowid IN (
        SELECT rowid FROM {names.table} WHERE {names.missing} AND {names.waits} {names.order} LIMIT ?2)
    {names.order}
    """  # noqa: S608 - constant names
    for kind, names in _OF.items()
}
_COUNT = {
    kind: f"SELECT count(*) FROM {names.table} WHERE {names.missing} AND {names.waits}"  # noqa: S608 - likewise
    for kind, names in _OF.items()
}


def unembedded(
    connection: apsw.Connection, model: str, limit: int, kinds: Sequence[PassageKind] = KINDS
) -> list[UnembeddedPassage]:
    """What of all users has no vector of a model, of what a user keeps the newest first: for the embedder."""
    found: list[UnembeddedPassage] = []
    for kind in kinds:
        rows = connection.execute(_UNEMBEDDED[kind], (model, limit - len(found)))
        found += [UnembeddedPassage(kind, *row) for row in rows]
    return found


def count_unembedded(connection: apsw.Connection, model: str, kinds: Sequence[PassageKind] = KINDS) -> int:
    """How much waits for a vector of a model."""
    return sum(int(connection.execute(_COUNT[kind], (model,)).get) for kind in kinds)


_TAKE = {
    kind: f"""
    UPDATE {names.table} SET vector_model = ?2
    WHERE rowid = ?1 AND EXISTS (SELECT 1 FROM {names.table}_search AS s WHERE s.rowid = ?1 AND s.content = ?3)
    """  # noqa: S608 - constant names
    for kind, names in _OF.items()
}
_STORE: dict[PassageKind, str] = {
    kind: f"INSERT OR REPLACE INTO vec_{names.table} (rowid, embedding) VALUES (?, ?)"  # noqa: S608 - constant names
    for kind, names in _OF.items()
    if kind != "document"
}


@attrs.frozen
class PassageVector:
    """A vector, and what it was made of."""

    kind: PassageKind
    rowid: int
    text: str
    """As the view has it: of a document's passage with its lead."""
    vector: bytes
    """Little-endian float32, of unit length."""


def store(connection: apsw.Connection, model: str, made: Sequence[PassageVector]) -> int:
    """Store vectors of the model in use. Returns how many: what has another text meanwhile, or is gone, is left out."""
    stored = 0
    for each in vector_model.fitting(connection, model, made):
        connection.execute(_TAKE[each.kind], (each.rowid, model, each.text))
        if connection.changes():
            if each.kind == "document":
                knowledge_search.put(connection, each.rowid, each.vector)
            else:
                connection.execute(_STORE[each.kind], (each.rowid, each.vector))
            stored += 1
    return stored


_NEAREST: dict[PassageKind, str] = {
    kind: f"""
    SELECT t.rowid, vec_distance_cosine(v.embedding, ?3) AS measured
    FROM {names.table} AS t CROSS JOIN vec_{names.table} AS v ON v.rowid = t.rowid
    WHERE t.user_id = ?1 AND t.vector_model = ?2 AND {names.waits} AND length(v.embedding) = length(?3)
        AND measured IS NOT NULL
    ORDER BY measured, t.rowid DESC LIMIT ?4
    """  # noqa: S608 - constant names
    for kind, names in _OF.items()
    if kind != "document"
}


def nearest(
    connection: apsw.Connection, kind: PassageKind, user: UserId, vector: bytes, limit: int
) -> Sequence[Neighbour]:
    """A user's nearest facts or chunks, nearest first; nothing while no model is in use."""
    rows = connection.execute(_NEAREST[kind], (user, vector_model.current_id(connection), vector, limit))
    return [Neighbour(rowid, distance) for rowid, distance in rows]


def matching(
    connection: apsw.Connection, kind: PassageKind, user: UserId, words: Sequence[str], limit: int
) -> list[TextHit]:
    """A user's facts or chunks with any of the words, the best first."""
    names = _OF[kind]
    return ranked(connection, names.table, names.text, user, words, limit) if words else []


# -- for a reindex -----------------------------------------------------------------------------------------------------

_VECTORS = """
SELECT v.rowid, f.text, v.embedding FROM vec_facts AS v JOIN facts AS f ON f.rowid = v.rowid
WHERE f.vector_model = ? AND v.rowid > ? ORDER BY v.rowid LIMIT ?
"""


def fact_vectors(connection: apsw.Connection, after: int, limit: int) -> list[PassageVector]:
    """The next facts' vectors of the model in use. Those of chunks are not asked for: the files are read again."""
    rows = connection.execute(_VECTORS, (vector_model.current_id(connection), after, limit))
    return [PassageVector("fact", rowid, text, bytes(vector)) for rowid, text, vector in rows]
