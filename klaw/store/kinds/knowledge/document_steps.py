"""Storing documents of knowledge bases and their passages.

Full text and vectors hold a document's name and title with each passage, so its title changes only while it has none.

A document is stored in short steps, between which a kill loses and doubles nothing: ``begin``, ``fill`` again and
again, ``trim``, ``finish``. From ``begin`` to ``finish`` it is ``waiting``, so that it is read again after a kill;
meanwhile what it had before and what it has already are found.
"""

import hashlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import apsw
import attrs

from klaw.convert import JOURNAL
from klaw.domain.knowledge import Document, DocumentId, DocumentState, Passage, SourceId
from klaw.store import rows
from klaw.store.engine.tables import index_row, unindex_row
from klaw.store.engine.transaction import Transaction

SLICE_S = 0.005
"""How long one step may take: so long those wait who store a message."""

DOCUMENTS = rows.Rows(Document, "kb_documents", "d")

Same: TypeAlias = dict[bytes, list[int]]
"""Row ids of passages by a hash of heading and text."""


def same_key(heading: str, text: str) -> bytes:
    """What two passages have in common of which one can take over the other's row and vector."""
    return hashlib.blake2b(f"{heading}\0{text}".encode("utf-8", "surrogatepass"), digest_size=16).digest()


def same(connection: apsw.Connection, document: DocumentId, *, after: int = 0, limit: int = 2_000) -> tuple[Same, int]:
    """The passages that a document has after a row id, and the last of them; 0: there are no more."""
    query = "SELECT rowid, heading, text FROM kb_passages WHERE document_id = ? AND rowid > ? ORDER BY rowid LIMIT ?"
    found: Same = {}
    last = 0
    for last, heading, text in connection.execute(query, (document, after, limit)):
        found.setdefault(same_key(heading, text), []).append(last)
    return found, last


class Digest:
    """SHA-256 of passages, in order."""

    def __init__(self) -> None:
        self._sha = hashlib.sha256()

    def add(self, found: Iterable[Passage]) -> None:
        for each in found:
            self._sha.update(rows.dumps(JOURNAL.write(each)).encode("utf-8", "surrogatepass"))

    def hex(self) -> str:
        return self._sha.hexdigest()


PUT = rows.upsert("kb_documents", Document, "id")
_INSERT = f"""
INSERT INTO kb_passages (base_key, document_id, {rows.columns(Passage)})
SELECT b.rowid, d.id, {", ".join(f":{name}" for name in attrs.fields_dict(Passage))}
FROM kb_documents AS d JOIN kb_bases AS b ON b.id = d.base_id WHERE d.id = :document RETURNING rowid
"""  # noqa: S608 - constant columns
_MOVE = """
UPDATE kb_passages SET ordinal = ?, first_page = ?, last_page = ?, start = ?, end = ? WHERE rowid = ? RETURNING rowid
"""
# Ordinals are unique in a document: one that is in the way steps aside, to where no other is.
_STEP_ASIDE = "UPDATE kb_passages SET ordinal = -rowid WHERE document_id = ? AND ordinal = ? AND rowid IS NOT ?"
_LEFT = "SELECT rowid FROM kb_passages WHERE document_id = ? AND (ordinal < 0 OR ordinal >= ?) LIMIT 1"
HAS_SOURCE = "SELECT 1 FROM kb_sources WHERE id = ? AND base_id = ?"
_INDEXED_TITLE = """
SELECT title FROM kb_documents WHERE id = ?1 AND EXISTS (SELECT 1 FROM kb_passages WHERE document_id = ?1)
"""
_WAIT = PUT.partition(" ON CONFLICT ")[0] + " ON CONFLICT (id) DO UPDATE SET state = 'waiting'"


def wait(tx: Transaction, found: Sequence[Document]) -> int:
    """These are to be read, or read again. Returns how many were stored: not those whose source is gone."""
    stored = 0
    for each in found:
        if tx.connection.execute(HAS_SOURCE, (each.source, each.base)).get:
            tx.connection.execute(_WAIT, rows.values(attrs.evolve(each, state=DocumentState.WAITING)))
            stored += 1
    return stored


def wait_again(tx: Transaction, source: SourceId) -> int:
    """What could not be read of a source, and graphs, are to be read again. Returns how many documents that are."""
    again = "UPDATE kb_documents SET state = 'waiting' WHERE source_id = ? AND (state = 'failed' OR format = 'rdf')"
    tx.connection.execute(again, (source,))
    return tx.connection.changes()


def begin(tx: Transaction, document: Document) -> str | None:
    """Begin to store a document. Returns the title that it has now: while there are passages with another one, that;
    then remove them (``trim``) and begin again. None: its source is gone, and nothing was stored."""
    connection = tx.connection
    if not connection.execute(HAS_SOURCE, (document.source, document.base)).get:
        return None
    indexed = connection.execute(_INDEXED_TITLE, (document.id,)).get
    title = document.title if indexed is None else str(indexed)
    # Without its digest nobody takes it for complete.
    connection.execute(PUT, rows.values(attrs.evolve(document, state=DocumentState.WAITING, digest="", title=title)))
    return title


def claimed(had: Same, found: Iterable[Passage]) -> Iterator[tuple[Passage, int | None]]:
    """Passages with the row of ``had`` that each takes over, which is taken out of it."""
    for each in found:
        rowids = had.get(same_key(each.heading, each.text))
        yield each, rowids.pop(0) if rowids else None


def fill(
    tx: Transaction, document: DocumentId, found: Sequence[tuple[Passage, int | None]], seconds: float = float("inf")
) -> int:
    """Store the next passages of a document, each in its old row or a new one, for so long at most. Returns how many
    were stored; 0: the document is gone."""
    connection = tx.connection
    until = time.monotonic() + seconds
    for done, (each, rowid) in enumerate(found):
        if done and time.monotonic() >= until:
            return done
        connection.execute(_STEP_ASIDE, (document, each.ordinal, rowid))
        place = (each.ordinal, each.first_page, each.last_page, each.start, each.end)
        if rowid is not None and connection.execute(_MOVE, (*place, rowid)).get:
            continue
        added = connection.execute(_INSERT, {**rows.values(each), "document": document}).get
        if added is None:
            return 0
        index_row(connection, "kb_passages", added)
    return len(found)


def trim(tx: Transaction, document: DocumentId, keep: int, seconds: float = float("inf")) -> bool:
    """Remove the passages of a document but the first ``keep``, for so long at most. Returns whether there are more."""
    connection = tx.connection
    until = time.monotonic() + seconds
    while (rowid := connection.execute(_LEFT, (document, keep)).get) is not None:
        unindex_row(connection, "kb_passages", rowid)
        connection.execute("DELETE FROM kb_passages WHERE rowid = ?", (rowid,))
        if time.monotonic() >= until:
            return True
    return False


def finish(tx: Transaction, document: Document) -> bool:
    """A document is stored as a whole, or could not be read: this is its row now. False: it is gone meanwhile."""
    if not tx.connection.execute("SELECT 1 FROM kb_documents WHERE id = ?", (document.id,)).get:
        return False
    tx.connection.execute(PUT, rows.values(document))
    return True


def note(tx: Transaction, document: DocumentId, fields: Mapping[str, Any]) -> bool:
    """Change fields of a document that its passages do not hold (not its name, nor its title). False: it is gone."""
    now = DOCUMENTS.one(tx.connection, "WHERE d.id = ?", document)
    if now is not None:
        tx.connection.execute(PUT, rows.values(attrs.evolve(now, **fields)))
    return now is not None


def remove_some(tx: Transaction, document: DocumentId, seconds: float = SLICE_S) -> bool:
    """Remove passages of a document for so long at most, and in the end it itself. Returns whether there is more."""
    if trim(tx, document, 0, seconds):
        return True
    tx.connection.execute("DELETE FROM kb_documents WHERE id = ?", (document,))
    return False
