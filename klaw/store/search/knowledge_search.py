"""SQL of searching knowledge bases: the ranked lists of one question, and the passages in them.

The scope (``PassageScope``) is a condition inside each statement, by the bases of which the user is a member.
"""

import json
import time
from collections.abc import Callable, Sequence

import apsw
import attrs
import numpy as np

from klaw.domain.knowledge import BaseId, DocumentId, Passage, SourceId
from klaw.domain.knowledge_search import FoundPassage
from klaw.store import rows
from klaw.store.engine.connect import snapshot
from klaw.store.search import fulltext, knowledge_vectors
from klaw.store.search.knowledge_vectors import KEYS, ROWS, PassageScope
from klaw.store.search.ranked_lists import Lists, Steps

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
            near = (
                steps.run("vectors", lambda: knowledge_vectors.nearest(connection, vector, scope, depth))
                if vector is not None
                else ()
            )
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
