"""SQL of searching knowledge bases: the vectors of documents' passages, the ranked lists of one question, and the
passages in them.

A vector has eight bits for a component, and all of a base's are read for one search. That changes a cosine by 0.0005,
where the distances of a search's best results differ by ten times as much, and takes a quarter of the room and of the
time. A vector holds for the text that it was made of: a passage whose text changes is another passage.

The scope (``PassageScope``) is a condition inside each statement, by the bases of which the user is a member.
"""

import json
import time
from collections.abc import Callable, Collection, Sequence

import apsw
import attrs
import numpy as np

from klaw.domain.knowledge import BaseId, DocumentId, Passage, SourceId
from klaw.domain.names import UserId
from klaw.domain.search import FoundPassage
from klaw.store import rows
from klaw.store.engine import vector_model
from klaw.store.engine.connect import snapshot
from klaw.store.search import fulltext
from klaw.store.search.ranked_lists import Lists, Steps
from klaw.store.search.vector_search import Neighbour

_LARGEST = 127
_REACH = 5.0
"""The largest component that is told from larger ones, in units of a unit vector's root mean square."""

MISSING = "(vector_model IS NULL OR vector_model < ?1 OR vector_model > ?1)"
"""SQL: a passage has no vector of a model; ``IS NOT`` would not use an index."""


@attrs.frozen(kw_only=True)
class PassageScope:
    """Where passages are searched: bases of which the user is a member, or only some documents of these."""

    user: UserId
    bases: Collection[BaseId]
    documents: Collection[DocumentId] | None = None

    @property
    def bindings(self) -> dict[str, str]:
        """For ``ROWS`` and ``KEYS``."""
        return {
            "user": self.user,
            "bases": json.dumps(list(self.bases)),
            "documents": json.dumps(list(self.documents or ())),
        }


KEYS = """
SELECT b.rowid AS base_key FROM kb_members AS m CROSS JOIN kb_bases AS b ON b.id = m.base_id
WHERE m.user_id = :user AND m.base_id IN (SELECT value FROM json_each(:bases))
"""
"""The keys of a scope's bases."""
ROWS = """
SELECT p.rowid FROM json_each(:documents) AS j CROSS JOIN kb_documents AS d ON d.id = j.value
CROSS JOIN kb_members AS m ON m.base_id = d.base_id AND m.user_id = :user
CROSS JOIN kb_passages AS p ON p.document_id = d.id
WHERE d.base_id IN (SELECT value FROM json_each(:bases))
"""
"""The row ids of a scope's documents' passages."""


def _scale(dimension: int) -> float:
    return float(_LARGEST * np.sqrt(dimension) / _REACH)


def _code(vector: bytes) -> bytes:
    components = np.frombuffer(vector, "<f4")
    scaled = np.rint(np.nan_to_num(components) * _scale(len(components)))
    code: bytes = np.clip(scaled, -_LARGEST, _LARGEST).astype(np.int8).tobytes()
    return code


_PUT = """
INSERT OR REPLACE INTO vec_kb_passages (rowid, base_key, model, code)
SELECT rowid, base_key, vector_model, ?2 FROM kb_passages WHERE rowid = ?1
"""


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


# -- the search --------------------------------------------------------------------------------------------------------

_END = 1 << 62
_COUNT = f"""
SELECT coalesce(sum(d.passages), 0) FROM ({KEYS}) AS k JOIN kb_bases AS b ON b.rowid = k.base_key
JOIN kb_documents AS d ON d.base_id = b.id
"""  # noqa: S608 - a constant


def search_passages(
    connection: apsw.Connection,
    vector: bytes | None,
    words: Sequence[str],
    scope: PassageScope,
    depth: int,
    seconds: float,
    now: Callable[[], float] = time.monotonic,
) -> Lists:
    """Search a scope by vector, if there is one, and by words.

    Args:
        vector: the question's, little-endian float32.
        words: its content words, as written.
        depth: most results of each list.
        seconds: time for all of it; steps that would begin later or take longer are left out and named in ``cut``.
        now: what they are measured by.
    """
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
    count = len(only) if only is not None else int(connection.execute(_COUNT, scope.bindings).get)
    found = fulltext.scores(
        connection,
        words,
        [f"b{key}" for key in keys],
        (0, _END),
        count,
        steps.is_late,
        table="kb_passages_fts",
        only=only,
        weigh=fulltext.soft_idf,
    )
    if not found.complete:
        steps.cut.append("words")
    return found


_READ = f"""
SELECT {rows.columns(Passage, "p")}, p.rowid, d.base_id, d.source_id, d.id, d.name, d.title
FROM json_each(:rowids) AS r CROSS JOIN kb_passages AS p ON p.rowid = r.value
CROSS JOIN kb_documents AS d ON d.id = p.document_id
CROSS JOIN kb_members AS m ON m.base_id = d.base_id AND m.user_id = :user
WHERE d.base_id IN (SELECT value FROM json_each(:bases))
    AND (:all OR d.id IN (SELECT value FROM json_each(:documents)))
ORDER BY r.key
"""  # noqa: S608 - constant columns


def read(connection: apsw.Connection, rowids: Sequence[int], scope: PassageScope) -> list[FoundPassage]:
    """Passages of a scope by their row ids, in the given order; what is gone is left out."""
    bound = {**scope.bindings, "rowids": json.dumps(list(rowids)), "all": scope.documents is None}
    names = [field.name for field in attrs.fields(Passage)]
    found = []
    for row in connection.execute(_READ, bound):
        *fields, rowid, base, source, document, name, title = row
        found.append(
            FoundPassage(
                **dict(zip(names, fields, strict=True)),
                rowid=rowid,
                base=BaseId(base),
                source=SourceId(source),
                document=DocumentId(document),
                name=name,
                title=title,
            )
        )
    return found


# -- for a reindex -----------------------------------------------------------------------------------------------------

_PAGE = """
SELECT v.rowid, v.code, p.document_id, p.ordinal, s.content FROM vec_kb_passages AS v
JOIN kb_passages AS p ON p.rowid = v.rowid JOIN kb_passages_search AS s ON s.rowid = v.rowid
WHERE v.model = ? AND v.rowid > ? ORDER BY v.rowid LIMIT ?
"""
_TAKE = """
UPDATE kb_passages SET vector_model = :model WHERE document_id = :document AND ordinal = :ordinal
    AND (SELECT content FROM kb_passages_search AS s WHERE s.rowid = kb_passages.rowid) = :content
RETURNING rowid, base_key
"""
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
