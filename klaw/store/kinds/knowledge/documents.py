"""Documents of knowledge bases and their passages: made of the files, not of the logs. Reading them."""

from collections.abc import Sequence
from typing import Any

import apsw
import attrs

from klaw.domain.knowledge import BaseId, Document, DocumentId, DocumentState, Passage, Source, SourceId
from klaw.domain.names import UserId
from klaw.errors import NoSuchDocument
from klaw.store import rows
from klaw.store.engine import vector_model

_DOCUMENTS = rows.Rows(Document, "kb_documents", "d")
_SOURCES = rows.Rows(Source, "kb_sources", "s")
_MINE = "JOIN kb_members AS m ON m.base_id = d.base_id AND m.user_id = ?1 WHERE"


@attrs.frozen(kw_only=True)
class StoredPassage(Passage):
    """A passage with its place."""

    rowid: int
    document_id: str


_PASSAGES = rows.Rows(StoredPassage, "kb_passages", "p")
_MY_PASSAGES = "JOIN kb_documents AS d ON d.id = p.document_id " + _MINE


IDS = """
SELECT d.id AS id FROM kb_members AS m JOIN kb_documents AS d ON d.base_id = m.base_id WHERE m.user_id = ?1 AND d.id
"""
"""Query of the ids of documents that a user may see, up to the condition of the id."""


def of_base(
    connection: apsw.Connection,
    user: UserId,
    base: BaseId,
    *,
    source: SourceId | None = None,
    problems: bool = False,
    limit: int = 1_000,
    offset: int = 0,
) -> list[Document]:
    """The documents of a user's base or source, by their names; only those with ``problems`` of reading."""
    troubled = "AND d.problems <> '[]'" if problems else ""
    some = f"d.base_id = ?2 AND (?3 IS NULL OR d.source_id = ?3) {troubled}"
    rest = f"{_MINE} {some} ORDER BY d.name, d.id LIMIT ?4 OFFSET ?5"
    return _DOCUMENTS.all(connection, rest, user, base, source, limit, offset)


def get(connection: apsw.Connection, user: UserId, document: DocumentId) -> Document:
    """A document of a base of which a user is a member. Raises NoSuchDocument for any other."""
    found = _DOCUMENTS.one(connection, f"{_MINE} d.id = ?2", user, document)
    if found is None:
        raise NoSuchDocument
    return found


def passages(
    connection: apsw.Connection,
    user: UserId,
    document: DocumentId,
    *,
    first: int = 0,
    between: tuple[int, int] | None = None,
    page: int | None = None,
    limit: int = 1_000,
) -> list[StoredPassage]:
    """The passages of a document in a user's base, in order: from an ordinal on; only those that share characters with
    a range of its text, or are on a page."""
    rest = f"""{_MY_PASSAGES} d.id = ?2 AND p.ordinal >= ?3 AND (?4 IS NULL OR p.start < ?5 AND p.end > ?4)
        AND (?6 IS NULL OR ?6 BETWEEN p.first_page AND p.last_page) ORDER BY p.ordinal LIMIT ?7"""
    start, end = between or (None, None)
    return _PASSAGES.all(connection, rest, user, document, first, start, end, page, limit)


def beginning(connection: apsw.Connection, document: DocumentId, most: int) -> list[StoredPassage]:
    """The first passages of a document, whose tokens are estimated to be ``most`` at most."""
    found: list[StoredPassage] = []
    rest = "WHERE p.document_id = ? AND p.ordinal >= 0 ORDER BY p.ordinal LIMIT ?"
    for each in _PASSAGES.all(connection, rest, document, most):
        most -= each.tokens
        if most < 0:
            break
        found.append(each)
    return found


@attrs.frozen(kw_only=True)
class SourceCounts:
    """How many documents there are of a source."""

    base: BaseId
    source: SourceId
    documents: int
    waiting: int
    failed: int
    with_problems: int
    """Including those that failed."""
    passages: int
    bytes: int


_counts = rows.reader(SourceCounts)


def count(connection: apsw.Connection, user: UserId, base: BaseId | None = None) -> list[SourceCounts]:
    """How many documents the sources of a user's base, or of all, have; sources without any are left out."""
    query = """
    SELECT d.base_id, d.source_id, count(*), count(iif(d.state = 'waiting', 1, NULL)),
        count(iif(d.state = 'failed', 1, NULL)), count(iif(d.problems <> '[]', 1, NULL)), sum(d.passages), sum(d.size)
    FROM kb_members AS m JOIN kb_documents AS d ON d.base_id = m.base_id
    WHERE m.user_id = ?1 AND m.base_id = coalesce(?2, m.base_id) GROUP BY d.base_id, d.source_id
    """
    return [_counts(row) for row in connection.execute(query, (user, base))]


def count_unembedded(connection: apsw.Connection, user: UserId, base: BaseId) -> int:
    """How many passages of a user's base wait for a vector of the model in use."""
    query = """
    SELECT count(*) FROM kb_members AS m JOIN kb_bases AS b ON b.id = m.base_id
    JOIN kb_passages AS p ON p.base_key = b.rowid
    WHERE m.user_id = ?1 AND m.base_id = ?2 AND p.vector_model IS NOT ?3
    """
    model = vector_model.current_id(connection)
    return int(connection.execute(query, (user, base, model)).get) if model else 0


def of_source(connection: apsw.Connection, source: SourceId) -> list[Document]:
    """The documents of a source, without asking who is a member: for the indexer."""
    return _DOCUMENTS.all(connection, "WHERE d.source_id = ? ORDER BY d.name", source)


def waiting(connection: apsw.Connection, source: SourceId, limit: int) -> list[Document]:
    """Documents of a source that are to be read, the smallest first, for the indexer."""
    index = "INDEXED BY kb_documents_waiting WHERE d.source_id = ? AND d.state = 'waiting'"
    rest = f"{index} ORDER BY d.size, d.name LIMIT ?"
    return _DOCUMENTS.all(connection, rest, source, limit)


@attrs.frozen
class KnownDocument:
    """What a look at a source needs of a document."""

    id: DocumentId
    stamp: str
    sha256: str
    state: DocumentState


def known(connection: apsw.Connection, source: SourceId) -> dict[str, KnownDocument]:
    """The documents of a source by their names: for the indexer."""
    rows = connection.execute("SELECT name, id, stamp, sha256, state FROM kb_documents WHERE source_id = ?", (source,))
    return {
        name: KnownDocument(DocumentId(row), stamp, sha, DocumentState(state)) for name, row, stamp, sha, state in rows
    }


def behind(connection: apsw.Connection) -> list[Source]:
    """Sources whose bytes are kept, but not read: for the indexer."""
    query = """
    WHERE s.kind IN ('file', 'rdf', 'web') AND s.sha256 <> '' AND NOT EXISTS (SELECT 1 FROM kb_documents AS d
        WHERE d.source_id = s.id AND d.name = s.name AND (d.state = 'waiting' OR d.sha256 = s.sha256))
    ORDER BY s.created_at, s.id
    """
    return _SOURCES.all(connection, query)


def orphans(connection: apsw.Connection, limit: int) -> list[DocumentId]:
    """Documents whose source is gone."""
    query = """
    SELECT id FROM kb_documents AS d
    WHERE NOT EXISTS (SELECT 1 FROM kb_sources AS s WHERE s.id = d.source_id AND s.base_id = d.base_id) LIMIT ?
    """
    return [DocumentId(orphan) for (orphan,) in connection.execute(query, (limit,))]


def renamed(connection: apsw.Connection, limit: int) -> list[DocumentId]:
    """Documents whose source, a file or a page, is called otherwise now."""
    query = """
    SELECT d.id FROM kb_sources AS s JOIN kb_documents AS d ON d.source_id = s.id AND d.name <> s.name
    WHERE s.kind NOT IN ('folder', 'messages') LIMIT ?
    """
    return [DocumentId(document) for (document,) in connection.execute(query, (limit,))]


def counts(connection: apsw.Connection) -> dict[str, int]:
    """How many documents of all users there are, by state; ``unreadable``: failed, although the format is known."""
    unreadable = "state = 'failed' AND coalesce(problems ->> '$[0].code', '') <> 'unsupported'"
    rows = connection.execute(f"SELECT state, count(*), sum({unreadable}) FROM kb_documents GROUP BY state")  # noqa: S608
    found, failed = {state.value: 0 for state in DocumentState}, 0
    for state, count, unread in rows:
        found[str(state)] = count
        failed += unread
    return {**found, "unreadable": failed}


# -- checks -----------------------------------------------------------------------------------------------------------

MOST_FLAWED = 100
"""Documents that are listed one by one."""

_OF_BASE = "FROM kb_members AS m JOIN kb_documents AS d ON d.base_id = m.base_id"
_IN_BASE = "WHERE m.user_id = ?1 AND m.base_id = ?2"
_NOT_INDEXED = f"""
SELECT d.source_id, d.name, count(*) {_OF_BASE} JOIN kb_passages AS p ON p.document_id = d.id {_IN_BASE}
    AND p.rowid NOT IN (SELECT id FROM kb_passages_fts_docsize) GROUP BY d.id ORDER BY d.name LIMIT ?3
"""  # noqa: S608 - constants
_INCOMPLETE = f"""
SELECT d.source_id, d.name, d.passages, (SELECT count(*) FROM kb_passages AS p WHERE p.document_id = d.id) AS there
{_OF_BASE} {_IN_BASE} AND d.state = 'read' AND there <> d.passages ORDER BY d.name LIMIT ?3
"""  # noqa: S608 - likewise


def not_indexed(connection: apsw.Connection, user: UserId, base: BaseId) -> Sequence[Any]:
    """Source, name and passages of documents of a user's base that words do not find."""
    return connection.execute(_NOT_INDEXED, (user, base, MOST_FLAWED)).fetchall()


def incomplete(connection: apsw.Connection, user: UserId, base: BaseId) -> Sequence[Any]:
    """Source, name, wanted and present passages of documents of a user's base that were read and are not whole."""
    return connection.execute(_INCOMPLETE, (user, base, MOST_FLAWED)).fetchall()


def count_orphans(connection: apsw.Connection) -> Sequence[Any]:
    """How many documents, passages, entries of the full text and vectors of all users belong to nothing."""
    query = """
    SELECT (SELECT count(*) FROM kb_documents WHERE source_id NOT IN (SELECT id FROM kb_sources)),
        (SELECT count(*) FROM kb_passages WHERE document_id NOT IN (SELECT id FROM kb_documents)),
        (SELECT count(*) FROM kb_passages_fts_docsize WHERE id NOT IN (SELECT rowid FROM kb_passages)),
        (SELECT count(*) FROM vec_kb_passages WHERE rowid NOT IN (SELECT rowid FROM kb_passages))
    """
    (counts,) = connection.execute(query).fetchall()
    return counts
