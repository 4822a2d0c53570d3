"""SQL that facts, chunks of memory files, notes on tool calls and passages of documents share: which have no vector,
and storing it; and the searches of what a user keeps (``knowledge_search`` has those of documents).

Vectors are in a plain table, read as a whole for a user: there are thousands, not millions. A vector holds for the text
that it was made of; whoever changes a text drops it.
"""

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import apsw
import attrs

from klaw.domain.names import UserId
from klaw.store.changes import Kind
from klaw.store.engine import vector_model
from klaw.store.kinds.facts import FACT
from klaw.store.kinds.knowledge.passages import PASSAGE
from klaw.store.kinds.memory_files import CHUNK
from klaw.store.kinds.summaries import NOTE
from klaw.store.search import knowledge_search
from klaw.store.search.fulltext import TextHit, ranked
from klaw.store.search.vector_search import Neighbour

PassageKind: TypeAlias = Literal["fact", "chunk", "note", "document"]
KINDS: tuple[PassageKind, ...] = ("fact", "chunk", "note")
"""What a user keeps. Passages of documents are many, and are embedded behind everything else."""
_OF: dict[PassageKind, Kind[Any]] = {"fact": FACT, "chunk": CHUNK, "note": NOTE, "document": PASSAGE}


@attrs.frozen
class UnembeddedPassage:
    kind: PassageKind
    rowid: int
    text: str
    lead: str = ""
    """What is read before the text, and of a document's passage is searched with it."""


_WAITS: dict[PassageKind, str] = {
    name: f"FROM {kind.table} WHERE vector_model IS NOT ?1 AND {kind.holds}"
    for name, kind in _OF.items()
    if name != "document"
}
_UNEMBEDDED: dict[PassageKind, str] = {
    name: f"""
    SELECT rowid, content, '' FROM {_OF[name].table}_search
    WHERE rowid IN (SELECT rowid {waits} ORDER BY rowid DESC LIMIT ?2) ORDER BY rowid DESC
    """  # noqa: S608 - constant names
    for name, waits in _WAITS.items()
}
# Three ranges of an index (``IS NOT`` would use none), and no order: there may be a hundred thousand.
_WAITS["document"] = f"FROM {PASSAGE.table} WHERE (vector_model IS NULL OR vector_model < ?1 OR vector_model > ?1)"
_UNEMBEDDED["document"] = f"""
SELECT rowid, text, lead FROM {PASSAGE.table}_search WHERE rowid IN (SELECT rowid {_WAITS["document"]} LIMIT ?2)
"""  # noqa: S608 - constant names


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
    return sum(int(connection.execute(f"SELECT count(*) {_WAITS[kind]}", (model,)).get) for kind in kinds)


@attrs.frozen
class PassageVector:
    """A vector, and what it was made of."""

    kind: PassageKind
    rowid: int
    text: str
    """As the view has it: of a document's passage with its lead."""
    vector: bytes
    """Little-endian float32, of unit length."""


_TAKE = {
    name: f"""
    UPDATE {kind.table} SET vector_model = ?2
    WHERE rowid = ?1 AND EXISTS (SELECT 1 FROM {kind.table}_search AS s WHERE s.rowid = ?1 AND s.content = ?3)
    """  # noqa: S608 - constant names
    for name, kind in _OF.items()
}


def store(connection: apsw.Connection, model: str, made: Sequence[PassageVector]) -> int:
    """Store vectors of the model in use. Returns how many: what has another text meanwhile, or is gone, is left out."""
    stored = 0
    for each in vector_model.fitting(connection, model, made):
        connection.execute(_TAKE[each.kind], (each.rowid, model, each.text))
        if connection.changes():
            if each.kind == "document":
                knowledge_search.put(connection, each.rowid, each.vector)
            else:
                put = f"INSERT OR REPLACE INTO {_OF[each.kind].vectors} (rowid, embedding) VALUES (?, ?)"  # noqa: S608
                connection.execute(put, (each.rowid, each.vector))
            stored += 1
    return stored


def nearest(
    connection: apsw.Connection, kind: PassageKind, user: UserId, vector: bytes, limit: int
) -> Sequence[Neighbour]:
    """A user's nearest facts, chunks or notes, nearest first; nothing while no model is in use."""
    of = _OF[kind]
    query = f"""
    SELECT t.rowid, vec_distance_cosine(v.embedding, ?3) AS measured
    FROM {of.table} AS t CROSS JOIN {of.vectors} AS v ON v.rowid = t.rowid
    WHERE t.user_id = ?1 AND t.vector_model = ?2 AND {of.holds} AND length(v.embedding) = length(?3)
        AND measured IS NOT NULL
    ORDER BY measured, t.rowid DESC LIMIT ?4
    """  # noqa: S608 - constant names
    rows = connection.execute(query, (user, vector_model.current_id(connection), vector, limit))
    return [Neighbour(rowid, distance) for rowid, distance in rows]


def matching(
    connection: apsw.Connection, kind: PassageKind, user: UserId, words: Sequence[str], limit: int
) -> list[TextHit]:
    """A user's facts, chunks or notes with any of the words, the best first."""
    text = "heading || text" if kind == "chunk" else "text"
    return ranked(connection, _OF[kind], text, user, words, limit) if words else []


_VECTORS = f"""
SELECT v.rowid, f.text, v.embedding FROM {FACT.vectors} AS v JOIN {FACT.table} AS f ON f.rowid = v.rowid
WHERE f.vector_model = ? AND v.rowid > ? ORDER BY v.rowid LIMIT ?
"""  # noqa: S608 - constant names


def fact_vectors(connection: apsw.Connection, after: int, limit: int) -> list[PassageVector]:
    """The next facts' vectors of the model in use. Those of chunks are not asked for: the files are read again."""
    rows = connection.execute(_VECTORS, (vector_model.current_id(connection), after, limit))
    return [PassageVector("fact", rowid, text, bytes(vector)) for rowid, text, vector in rows]
