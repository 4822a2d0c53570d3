"""SQL of searching knowledge bases: the vectors of documents' passages, and the ranked lists of one question.

A vector has eight bits for a component, and all of a base's are read for one search. That changes a cosine by 0.0005,
where the distances of a search's best results differ by ten times as much, and takes a quarter of the room and of the
time. A vector holds for the text that it was made of: a passage whose text changes is another passage.
"""

import time
from collections.abc import Callable, Sequence

import apsw
import numpy as np

from klaw.store.engine import vector_model
from klaw.store.engine.connect import snapshot
from klaw.store.kinds.knowledge import passages
from klaw.store.kinds.knowledge.passages import KEYS, PASSAGE, ROWS, PassageScope
from klaw.store.search import fulltext
from klaw.store.search.ranked_lists import Lists, Steps
from klaw.store.search.vector_search import Neighbour

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


_PUT = f"""
INSERT OR REPLACE INTO vec_kb_passages (rowid, base_key, model, code)
SELECT rowid, base_key, vector_model, ?2 FROM {PASSAGE.table} WHERE rowid = ?1
"""  # noqa: S608 - a constant name


def put(connection: apsw.Connection, rowid: int, vector: bytes) -> None:
    """Store the vector (little-endian float32, of unit length) of a passage that says which model made it."""
    connection.execute(_PUT, (rowid, _code(vector)))


_NEAREST = """
SELECT v.rowid, vec_distance_l2(vec_int8(v.code), vec_int8(:code)) AS measured
FROM {rows} CROSS JOIN vec_kb_passages AS v ON v.{joined}
WHERE v.model = :model AND length(v.code) = length(:code)
ORDER BY measured, v.rowid LIMIT :limit
"""
_IN_BASES = _NEAREST.format(rows=f"({KEYS}) AS k", joined="base_key = k.base_key")
_IN_DOCUMENTS = _NEAREST.format(rows=f"({ROWS}) AS r", joined="rowid = r.rowid")


def nearest(connection: apsw.Connection, vector: bytes, scope: PassageScope, limit: int) -> Sequence[Neighbour]:
    """A scope's nearest passages, nearest first; nothing while no model is in use."""
    query = _IN_BASES if scope.documents is None else _IN_DOCUMENTS
    bound = {**scope.bindings, "code": _code(vector), "model": vector_model.current_id(connection), "limit": limit}
    # Of unit vectors |a - b|² = 2 (1 - cosine).
    unit = 2 * _scale(len(vector) // vector_model.FLOAT_BYTES) ** 2
    return [Neighbour(rowid, measured**2 / unit) for rowid, measured in connection.execute(query, bound)]


_END = 1 << 62


def search_passages(
    connection: apsw.Connection,
    vector: bytes | None,
    words: Sequence[str],
    scope: PassageScope,
    depth: int,
    seconds: float,
    now: Callable[[], float] = time.monotonic,
) -> Lists:
    """Search a scope by vector and by content words. Steps that would begin or end after ``seconds``, measured by
    ``now``, are named in ``cut``."""
    with snapshot(connection):
        steps = Steps(connection, now, now() + seconds)
        with steps.bounded():
            scores = steps.run("words", lambda: _matching(connection, words, scope, steps)) if words else None
            near = steps.run("vectors", lambda: nearest(connection, vector, scope, depth)) if vector is not None else ()
        return steps.lists(
            neighbours=near or (),
            hits=scores.best(depth) if scores else (),
            weights=dict(zip(words, scores.weights, strict=False)) if scores else {},
        )


def _matching(
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
        len(only) if only is not None else passages.count(connection, scope),
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
_TAKE = f"""
UPDATE {PASSAGE.table} AS p SET vector_model = :model WHERE document_id = :document AND ordinal = :ordinal
    AND (SELECT content FROM kb_passages_search AS s WHERE s.rowid = p.rowid) = :content
RETURNING rowid, base_key
"""  # noqa: S608 - a constant name
_COPY = "INSERT OR REPLACE INTO vec_kb_passages (rowid, base_key, model, code) VALUES (?, ?, ?, ?)"


def copy(live: apsw.Connection, built: apsw.Connection, after: int, limit: int) -> int | None:
    """Take over the next vectors of passages that are the same in both databases, of the model that both use. Returns
    up to which row that was; None when there are no more."""
    model = vector_model.current_id(live)
    page = list(live.execute(_PAGE, (model, after, limit))) if vector_model.current_id(built) == model else []
    with built:
        for _, code, document, ordinal, content in page:
            bound = {"model": model, "document": document, "ordinal": ordinal, "content": content}
            for rowid, base_key in built.execute(_TAKE, bound).fetchall():
                built.execute(_COPY, (rowid, base_key, model, code))
    return int(page[-1][0]) if page else None
