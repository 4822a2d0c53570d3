"""SQL that compares documents, passages and their indexes."""

from collections.abc import Sequence
from typing import Any

import apsw

from klaw.domain.knowledge import BaseId
from klaw.domain.names import UserId

MOST = 100
"""Documents that are told one by one."""

_OF_BASE = "FROM kb_members AS m JOIN kb_documents AS d ON d.base_id = m.base_id"
_MINE = "WHERE m.user_id = ?1 AND m.base_id = ?2"
_NOT_INDEXED = f"""
SELECT d.source_id, d.name, count(*) {_OF_BASE} JOIN kb_passages AS p ON p.document_id = d.id {_MINE}
    AND p.rowid NOT IN (SELECT id FROM kb_passages_fts_docsize) GROUP BY d.id ORDER BY d.name LIMIT ?3
"""  # noqa: S608 - constants
_INCOMPLETE = f"""
SELECT d.source_id, d.name, d.passages, (SELECT count(*) FROM kb_passages AS p WHERE p.document_id = d.id) AS there
{_OF_BASE} {_MINE} AND d.state = 'read' AND there <> d.passages ORDER BY d.name LIMIT ?3
"""  # noqa: S608 - likewise


def not_indexed(connection: apsw.Connection, user: UserId, base: BaseId) -> Sequence[Any]:
    """Source, name and passages of documents of a user's base that words do not find."""
    return connection.execute(_NOT_INDEXED, (user, base, MOST)).fetchall()


def incomplete(connection: apsw.Connection, user: UserId, base: BaseId) -> Sequence[Any]:
    """Source, name, wanted and present passages of documents of a user's base that were read and are not whole."""
    return connection.execute(_INCOMPLETE, (user, base, MOST)).fetchall()


_ORPHANS = """
SELECT (SELECT count(*) FROM kb_documents WHERE source_id NOT IN (SELECT id FROM kb_sources)),
    (SELECT count(*) FROM kb_passages WHERE document_id NOT IN (SELECT id FROM kb_documents)),
    (SELECT count(*) FROM kb_passages_fts_docsize WHERE id NOT IN (SELECT rowid FROM kb_passages)),
    (SELECT count(*) FROM vec_kb_passages WHERE rowid NOT IN (SELECT rowid FROM kb_passages))
"""


def orphans(connection: apsw.Connection) -> Sequence[Any]:
    """How many documents, passages, entries of the full text and vectors of all users belong to nothing."""
    (counts,) = connection.execute(_ORPHANS).fetchall()
    return counts
