"""Documents of knowledge bases and their passages: made of the files, not of the logs.

The full text holds a document's name and title with each passage, so a document's row is changed only while none of its
passages is indexed.
"""

import hashlib
import json
from collections.abc import Sequence

import apsw
import attrs

from klaw.convert import JOURNAL
from klaw.domain.knowledge import BaseId, Document, DocumentId, Passage, SourceId
from klaw.domain.names import UserId
from klaw.errors import NoSuchDocument
from klaw.store import rows
from klaw.store.engine.transaction import Transaction
from klaw.store.search.fulltext import index_row, unindex_row

_DOCUMENTS = rows.Rows(Document, "kb_documents", "d")
_MINE = "JOIN kb_members AS m ON m.base_id = d.base_id AND m.user_id = ?1 WHERE"


@attrs.frozen(kw_only=True)
class StoredPassage(Passage):
    """A passage with its place."""

    rowid: int
    document_id: str


_PASSAGES = rows.Rows(StoredPassage, "kb_passages", "p")
_MY_PASSAGES = "JOIN kb_documents AS d ON d.id = p.document_id " + _MINE


def of_base(
    connection: apsw.Connection,
    user: UserId,
    base: BaseId,
    *,
    source: SourceId | None = None,
    limit: int = 1_000,
    offset: int = 0,
) -> list[Document]:
    """The documents of a base of which a user is a member, or of one of its sources, by their names."""
    rest = f"{_MINE} d.base_id = ?2 AND (?3 IS NULL OR d.source_id = ?3) ORDER BY d.name, d.id LIMIT ?4 OFFSET ?5"
    return _DOCUMENTS.all(connection, rest, user, base, source, limit, offset)


def get(connection: apsw.Connection, user: UserId, document: DocumentId) -> Document:
    """A document of a base of which a user is a member. Raises NoSuchDocument for any other."""
    found = _DOCUMENTS.one(connection, f"{_MINE} d.id = ?2", user, document)
    if found is None:
        raise NoSuchDocument
    return found


def passages(
    connection: apsw.Connection, user: UserId, document: DocumentId, *, first: int = 0, limit: int = 1_000
) -> list[StoredPassage]:
    """The passages of a document of a base of which a user is a member, in order, from an ordinal on."""
    rest = f"{_MY_PASSAGES} d.id = ?2 AND p.ordinal >= ?3 ORDER BY p.ordinal LIMIT ?4"
    return _PASSAGES.all(connection, rest, user, document, first, limit)


def passages_between(
    connection: apsw.Connection, user: UserId, document: DocumentId, start: int, end: int
) -> list[StoredPassage]:
    """The passages of a document that share characters with a range of its text; see ``passages``."""
    rest = f"{_MY_PASSAGES} d.id = ?2 AND p.start < ?4 AND p.end > ?3 ORDER BY p.ordinal"
    return _PASSAGES.all(connection, rest, user, document, start, end)


_BY_ROWIDS = f"""
SELECT {_PASSAGES.columns} FROM json_each(?2) AS r CROSS JOIN kb_passages AS p ON p.rowid = r.value
    {_MY_PASSAGES} TRUE ORDER BY r.key
"""  # noqa: S608 - constant columns


def passages_by_rowids(connection: apsw.Connection, user: UserId, rowids: Sequence[int]) -> list[StoredPassage]:
    """Passages by their row ids, in that order; what is gone, or in no base of the user's, is left out."""
    return [_PASSAGES.read(row) for row in connection.execute(_BY_ROWIDS, (user, json.dumps(list(rowids))))]


def of_source(connection: apsw.Connection, source: SourceId) -> list[Document]:
    """The documents of a source, whoever asks: for the indexer."""
    return _DOCUMENTS.all(connection, "WHERE d.source_id = ? ORDER BY d.name", source)


def digest(found: Sequence[Passage]) -> str:
    """SHA-256 of passages, in order."""
    sha = hashlib.sha256()
    for each in found:
        sha.update(rows.dumps(JOURNAL.write(each)).encode("utf-8", "surrogatepass"))
    return sha.hexdigest()


# -- writing -----------------------------------------------------------------------------------------------------------

_PUT = rows.insert("kb_documents", Document).replace("INSERT", "INSERT OR REPLACE", 1)
_INSERT = f"""
INSERT INTO kb_passages (base_key, document_id, {rows.columns(Passage)})
SELECT b.rowid, d.id, {", ".join(f":{name}" for name in attrs.fields_dict(Passage))}
FROM kb_documents AS d JOIN kb_bases AS b ON b.id = d.base_id WHERE d.id = :document RETURNING rowid
"""  # noqa: S608 - constant columns
_MOVE = "UPDATE kb_passages SET ordinal = ?, first_page = ?, last_page = ?, start = ?, end = ? WHERE rowid = ?"


def put(tx: Transaction, document: Document, found: Sequence[Passage]) -> bool:
    """Store a document as it was read, with its passages in place of those before. A passage whose text and heading
    are there already keeps its row and its vector. False: its source is gone meanwhile, and nothing was stored."""
    connection = tx.connection
    there = "SELECT 1 FROM kb_sources WHERE id = ? AND base_id = ?"
    if not connection.execute(there, (document.source, document.base)).get:
        return False
    before = _PASSAGES.all(connection, "WHERE p.document_id = ? ORDER BY p.ordinal", document.id)
    for old in before:
        unindex_row(connection, "kb_passages", old.rowid)
    connection.execute(_PUT, rows.values(attrs.evolve(document, passages=len(found), digest=digest(found))))
    # Ordinals are unique in a document: those that stay step aside first.
    connection.execute("UPDATE kb_passages SET ordinal = -1 - ordinal WHERE document_id = ?", (document.id,))
    same: dict[tuple[str, str], list[int]] = {}
    for old in before:
        same.setdefault((old.heading, old.text), []).append(old.rowid)
    for each in found:
        rowids = same.get((each.heading, each.text))
        if rowids:
            rowid = rowids.pop(0)
            place = (each.ordinal, each.first_page, each.last_page, each.start, each.end)
            connection.execute(_MOVE, (*place, rowid))
        else:
            rowid = connection.execute(_INSERT, {**rows.values(each), "document": document.id}).get
        index_row(connection, "kb_passages", rowid)
    connection.execute("DELETE FROM kb_passages WHERE document_id = ? AND ordinal < 0", (document.id,))
    return True


def remove(tx: Transaction, document: DocumentId) -> int:
    """Remove a document with its passages, their full text and vectors. Returns how many passages it had."""
    connection = tx.connection
    gone = [row for (row,) in connection.execute("SELECT rowid FROM kb_passages WHERE document_id = ?", (document,))]
    for rowid in gone:
        unindex_row(connection, "kb_passages", rowid)
    connection.execute("DELETE FROM kb_passages WHERE document_id = ?", (document,))
    connection.execute("DELETE FROM kb_documents WHERE id = ?", (document,))
    return len(gone)
