"""SQL of facts, chunks of memory files, notes on tool calls and passages of documents: which have no vector, storing
it, and the searches of what a user keeps and of knowledge bases.

Vectors are in plain tables, read as a whole for a user or a base: there are thousands, not millions. A vector holds for
the text that it was made of; whoever changes a text drops it. One of a document's passage has eight bits for a
component: that changes a cosine by 0.0005, where the distances of a search's best results differ by ten times as much,
and takes a quarter of the room and of the time.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

import apsw
import attrs
import numpy as np

from klaw.domain.names import UserId
from klaw.store.changes import Kind
from klaw.store.engine import vector_model
from klaw.store.engine.connect import snapshot
from klaw.store.kinds.facts import FACT
from klaw.store.kinds.knowledge.passages import KEYS, PASSAGE, ROWS, PassageScope
from klaw.store.kinds.knowledge.passages import count as count_passages
from klaw.store.kinds.memory_files import CHUNK
from klaw.store.kinds.summaries import NOTE
from klaw.store.search import fulltext
from klaw.store.search.fulltext import TextHit, ranked
from klaw.store.search.ranked_lists import Lists, Steps
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
    """The text as the view has it; a document's passage begins with its lead."""
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
                connection.execute(_PUT_CODE, (each.rowid, _code(each.vector)))
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


# -- documents of knowledge bases --------------------------------------------------------------------------------------

_LARGEST = 127
_REACH = 5.0
"""The largest component that is told from larger ones, in units of a unit vector's root mean square."""


def _scale(dimension: int) -> float:
    return float(_LARGEST * np.sqrt(dimension) / _REACH)


def _code(vector: bytes) -> bytes:
    components = np.frombuffer(vector, "<f4")
    scaled = np.rint(np.nan_to_num(components) * _scale(len(components)))
    code: bytes = np.clip(scaled, -_LARGEST, _LARGEST).astype(np.int8).tobytes()
    return code


_PUT_CODE = f"""
INSERT OR REPLACE INTO vec_kb_passages (rowid, base_key, model, code)
SELECT rowid, base_key, vector_model, ?2 FROM {PASSAGE.table} WHERE rowid = ?1
"""  # noqa: S608 - a constant name
_NEAREST = """
SELECT v.rowid, vec_distance_l2(vec_int8(v.code), vec_int8(:code)) AS measured
FROM {rows} CROSS JOIN vec_kb_passages AS v ON v.{joined}
WHERE v.model = :model AND length(v.code) = length(:code)
ORDER BY measured, v.rowid LIMIT :limit
"""
_IN_BASES = _NEAREST.format(rows=f"({KEYS}) AS k", joined="base_key = k.base_key")
_IN_DOCUMENTS = _NEAREST.format(rows=f"({ROWS}) AS r", joined="rowid = r.rowid")


def nearest_passages(
    connection: apsw.Connection, vector: bytes, scope: PassageScope, limit: int
) -> Sequence[Neighbour]:
    """A scope's nearest passages, nearest first; nothing while no model is in use."""
    query = _IN_BASES if scope.documents is None else _IN_DOCUMENTS
    bound = {**scope.bindings, "code": _code(vector), "model": vector_model.current_id(connection), "limit": limit}
    # Of unit vectors |a - b|² = 2 (1 - cosine).
    unit = 2 * _scale(len(vector) // vector_model.FLOAT_BYTES) ** 2
    return [Neighbour(rowid, measured**2 / unit) for rowid, measured in connection.execute(query, bound)]


_END = 1 << 62


def search_documents(
    connection: apsw.Connection,
    vector: bytes | None,
    words: Sequence[str],
    scope: PassageScope,
    depth: int,
    seconds: float,
    now: Callable[[], float] = time.monotonic,
) -> Lists:
    """Search a scope by vector and by content words; ``cut`` names steps that would begin or end after ``seconds``."""
    with snapshot(connection):
        steps = Steps(connection, now, now() + seconds)
        with steps.bounded():
            scores = steps.run("words", lambda: _matching_documents(connection, words, scope, steps)) if words else None
            near = None
            if vector is not None:
                near = steps.run("vectors", lambda: nearest_passages(connection, vector, scope, depth))
        return steps.lists(
            neighbours=near or (),
            hits=scores.best(depth) if scores else (),
            weights=dict(zip(words, scores.weights, strict=False)) if scores else {},
        )


def _matching_documents(
    connection: apsw.Connection, words: Sequence[str], scope: PassageScope, steps: Steps
) -> fulltext.Scores | None:
    keys = [key for (key,) in connection.execute(KEYS, scope.bindings)]
    if not keys:
        return None
    only = None
    if scope.documents is not None:
        only = np.array([rowid for (rowid,) in connection.execute(ROWS, scope.bindings)], np.int64)
    found = fulltext.scores(
        connection,
        words,
        [f"b{key}" for key in keys],
        (0, _END),
        len(only) if only is not None else count_passages(connection, scope),
        steps.is_late,
        kind=PASSAGE,
        only=only,
        weigh=fulltext.soft_idf,
    )
    if not found.complete:
        steps.cut.append("words")
    return found


_PAGE = f"""
SELECT v.rowid, v.code, p.document_id, p.ordinal, s.content FROM vec_kb_passages AS v
JOIN {PASSAGE.table} AS p ON p.rowid = v.rowid JOIN kb_passages_search AS s ON s.rowid = v.rowid
WHERE v.model = ? AND v.rowid > ? ORDER BY v.rowid LIMIT ?
"""  # noqa: S608 - a constant name
_TAKE_CODE = f"""
UPDATE {PASSAGE.table} AS p SET vector_model = :model WHERE document_id = :document AND ordinal = :ordinal
    AND (SELECT content FROM kb_passages_search AS s WHERE s.rowid = p.rowid) = :content
RETURNING rowid, base_key
"""  # noqa: S608 - a constant name
_COPY = "INSERT OR REPLACE INTO vec_kb_passages (rowid, base_key, model, code) VALUES (?, ?, ?, ?)"


def copy_documents(live: apsw.Connection, built: apsw.Connection, after: int, limit: int) -> int | None:
    """Take over the next vectors of equal passages, of the model of both. Returns up to which row; None: no more."""
    model = vector_model.current_id(live)
    page = list(live.execute(_PAGE, (model, after, limit))) if vector_model.current_id(built) == model else []
    with built:
        for _, code, document, ordinal, content in page:
            bound = {"model": model, "document": document, "ordinal": ordinal, "content": content}
            for rowid, base_key in built.execute(_TAKE_CODE, bound).fetchall():
                built.execute(_COPY, (rowid, base_key, model, code))
    return int(page[-1][0]) if page else None
