"""Documents of knowledge bases and their passages: made of the files, not of the logs.

The full text and the vectors hold a document's name and title with each passage, so a title is changed only while the
document has no passages.

A long document is stored in steps, each of them short, and a kill between two loses and doubles nothing: ``begin``,
``fill`` again and again, ``trim``, ``finish``. From ``begin`` to ``finish`` it is ``waiting``, so that it is read again
after a kill; meanwhile what it had before and what it has already are found.
"""

import hashlib
import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import apsw
import attrs

from klaw.convert import JOURNAL
from klaw.domain.knowledge import BaseId, Document, DocumentId, DocumentState, Passage, Source, SourceId
from klaw.domain.names import UserId
from klaw.errors import NoSuchDocument
from klaw.store import rows
from klaw.store.engine.transaction import Transaction
from klaw.store.search import vectors
from klaw.store.search.fulltext import index_row, unindex_row

SLICE_S = 0.005
"""How long one step may take: so long those wait who store a message."""

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


_TROUBLED = "AND d.problems <> '[]'"


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
    """The documents of a base of which a user is a member, or of one of its sources, by their names; ``problems``: only
    those of which not all could be read."""
    some = f"d.base_id = ?2 AND (?3 IS NULL OR d.source_id = ?3) {_TROUBLED if problems else ''}"
    rest = f"{_MINE} {some} ORDER BY d.name, d.id LIMIT ?4 OFFSET ?5"
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
    connection: apsw.Connection, user: UserId, document: DocumentId, start: int, end: int, limit: int = 1_000
) -> list[StoredPassage]:
    """The passages of a document that share characters with a range of its text; see ``passages``."""
    rest = f"{_MY_PASSAGES} d.id = ?2 AND p.ordinal >= 0 AND p.start < ?4 AND p.end > ?3 ORDER BY p.ordinal LIMIT ?5"
    return _PASSAGES.all(connection, rest, user, document, start, end, limit)


def passages_of_page(
    connection: apsw.Connection, user: UserId, document: DocumentId, page: int, limit: int = 1_000
) -> list[StoredPassage]:
    """The passages of a document on a page; see ``passages``."""
    rest = f"{_MY_PASSAGES} d.id = ?2 AND p.ordinal >= 0 AND ?3 BETWEEN p.first_page AND p.last_page"
    return _PASSAGES.all(connection, f"{rest} ORDER BY p.ordinal LIMIT ?4", user, document, page, limit)


_BY_ROWIDS = f"""
SELECT {_PASSAGES.columns} FROM json_each(?2) AS r CROSS JOIN kb_passages AS p ON p.rowid = r.value
    {_MY_PASSAGES} TRUE ORDER BY r.key
"""  # noqa: S608 - constant columns


def passages_by_rowids(connection: apsw.Connection, user: UserId, rowids: Sequence[int]) -> list[StoredPassage]:
    """Passages by their row ids, in that order; what is gone, or in no base of the user's, is left out."""
    return [_PASSAGES.read(row) for row in connection.execute(_BY_ROWIDS, (user, json.dumps(list(rowids))))]


@attrs.frozen(kw_only=True)
class Counted:
    """How many documents there are of a source."""

    base: BaseId
    source: SourceId
    documents: int
    waiting: int
    failed: int
    with_problems: int
    """Those that failed, too."""
    passages: int
    bytes: int


_COUNT = """
SELECT d.base_id, d.source_id, count(*), count(iif(d.state = 'waiting', 1, NULL)),
    count(iif(d.state = 'failed', 1, NULL)), count(iif(d.problems <> '[]', 1, NULL)), sum(d.passages), sum(d.size)
FROM kb_members AS m JOIN kb_documents AS d ON d.base_id = m.base_id
WHERE m.user_id = ?1 AND m.base_id = coalesce(?2, m.base_id) GROUP BY d.base_id, d.source_id
"""
_UNEMBEDDED = """
SELECT count(*) FROM kb_members AS m JOIN kb_bases AS b ON b.id = m.base_id
JOIN kb_passages AS p ON p.base_key = b.rowid
WHERE m.user_id = ?1 AND m.base_id = ?2 AND p.vector_model IS NOT ?3
"""


def count(connection: apsw.Connection, user: UserId, base: BaseId | None = None) -> list[Counted]:
    """How many documents each source has that has some, of a base of which a user is a member, or of all of them."""
    names = [field.name for field in attrs.fields(Counted)]
    return [Counted(**dict(zip(names, row, strict=True))) for row in connection.execute(_COUNT, (user, base))]


def count_unembedded(connection: apsw.Connection, user: UserId, base: BaseId) -> int:
    """How many passages of a base of which a user is a member wait for a vector of the model in use."""
    model = vectors.model_id(connection)
    return int(connection.execute(_UNEMBEDDED, (user, base, model)).get) if model else 0


def of_source(connection: apsw.Connection, source: SourceId) -> list[Document]:
    """The documents of a source, whoever asks: for the indexer."""
    return _DOCUMENTS.all(connection, "WHERE d.source_id = ? ORDER BY d.name", source)


def waiting(connection: apsw.Connection, source: SourceId, limit: int) -> list[Document]:
    """Documents of a source that are to be read, by their names: for the indexer."""
    rest = "INDEXED BY kb_documents_waiting WHERE d.source_id = ? AND d.state = 'waiting' ORDER BY d.name LIMIT ?"
    return _DOCUMENTS.all(connection, rest, source, limit)


@attrs.frozen
class Known:
    """What a look at a source needs of a document."""

    id: DocumentId
    stamp: str
    sha256: str
    state: DocumentState


def known(connection: apsw.Connection, source: SourceId) -> dict[str, Known]:
    """The documents of a source by their names: for the indexer."""
    rows = connection.execute("SELECT name, id, stamp, sha256, state FROM kb_documents WHERE source_id = ?", (source,))
    return {name: Known(DocumentId(row), stamp, sha, DocumentState(state)) for name, row, stamp, sha, state in rows}


_BEHIND = """
WHERE s.kind IN ('file', 'rdf', 'web') AND s.sha256 <> '' AND NOT EXISTS (SELECT 1 FROM kb_documents AS d
    WHERE d.source_id = s.id AND d.name = s.name AND (d.state = 'waiting' OR d.sha256 = s.sha256))
ORDER BY s.created_at, s.id
"""
_ORPHANS = """
SELECT id FROM kb_documents AS d
WHERE NOT EXISTS (SELECT 1 FROM kb_sources AS s WHERE s.id = d.source_id AND s.base_id = d.base_id) LIMIT ?
"""
_RENAMED = """
SELECT d.id FROM kb_sources AS s JOIN kb_documents AS d ON d.source_id = s.id AND d.name <> s.name
WHERE s.kind <> 'folder' LIMIT ?
"""


def behind(connection: apsw.Connection) -> list[Source]:
    """Sources whose bytes are kept, but not read: for the indexer."""
    return _SOURCES.all(connection, _BEHIND)


def orphans(connection: apsw.Connection, limit: int) -> list[DocumentId]:
    """Documents whose source is gone."""
    return [DocumentId(orphan) for (orphan,) in connection.execute(_ORPHANS, (limit,))]


def renamed(connection: apsw.Connection, limit: int) -> list[DocumentId]:
    """Documents whose source, a file or a page, is called otherwise now."""
    return [DocumentId(document) for (document,) in connection.execute(_RENAMED, (limit,))]


def counts(connection: apsw.Connection) -> dict[str, int]:
    """How many documents of all users there are, by their state; ``unreadable`` are those that failed although
    their format is known."""
    unreadable = "state = 'failed' AND coalesce(problems ->> '$[0].code', '') <> 'unsupported'"
    rows = connection.execute(f"SELECT state, count(*), sum({unreadable}) FROM kb_documents GROUP BY state")  # noqa: S608
    found, failed = {state.value: 0 for state in DocumentState}, 0
    for state, count, unread in rows:
        found[str(state)] = count
        failed += unread
    return {**found, "unreadable": failed}


Same: TypeAlias = dict[bytes, list[int]]
"""Row ids of passages by a hash of heading and text."""


def same_key(heading: str, text: str) -> bytes:
    """What two passages have in common of which one can take over the other's row and vector."""
    return hashlib.blake2b(f"{heading}\0{text}".encode("utf-8", "surrogatepass"), digest_size=16).digest()


_TEXTS = "SELECT rowid, heading, text FROM kb_passages WHERE document_id = ? AND rowid > ? ORDER BY rowid LIMIT ?"


def same(connection: apsw.Connection, document: DocumentId, *, after: int = 0, limit: int = 2_000) -> tuple[Same, int]:
    """The passages that a document has after a row id, and the last of them; 0: there are no more."""
    found: Same = {}
    last = 0
    for last, heading, text in connection.execute(_TEXTS, (document, after, limit)):
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


def digest(found: Iterable[Passage]) -> str:
    """SHA-256 of passages, in order."""
    made = Digest()
    made.add(found)
    return made.hex()


# -- writing -----------------------------------------------------------------------------------------------------------

_PUT = rows.upsert("kb_documents", Document, "id")
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
_SOURCE = "SELECT 1 FROM kb_sources WHERE id = ? AND base_id = ?"
_INDEXED_TITLE = """
SELECT title FROM kb_documents WHERE id = ?1 AND EXISTS (SELECT 1 FROM kb_passages WHERE document_id = ?1)
"""
_WAIT = _PUT.partition(" ON CONFLICT ")[0] + " ON CONFLICT (id) DO UPDATE SET state = 'waiting'"


def put(tx: Transaction, document: Document, found: Sequence[Passage]) -> bool:
    """Store a document as it was read, with its passages in place of those before; in one step, so not for long ones.
    A passage whose text and heading are there already keeps its row and its vector, unless the title has changed.
    False: its source is gone meanwhile, and nothing was stored."""
    while (now := begin(tx, document)) != document.title:
        if now is None:
            return False
        trim(tx, document.id, 0)
    had, _ = same(tx.connection, document.id, limit=-1)
    fill(tx, document.id, list(claimed(had, found)))
    trim(tx, document.id, len(found))
    return finish(tx, attrs.evolve(document, passages=len(found), digest=digest(found)))


def wait(tx: Transaction, found: Sequence[Document]) -> int:
    """These are to be read, or read again. Returns how many were stored: not those whose source is gone."""
    stored = 0
    for each in found:
        if tx.connection.execute(_SOURCE, (each.source, each.base)).get:
            tx.connection.execute(_WAIT, rows.values(attrs.evolve(each, state=DocumentState.WAITING)))
            stored += 1
    return stored


def wait_again(tx: Transaction, source: SourceId) -> int:
    """What could not be read of a source is to be read again; so are graphs, of which only the row may be left. Returns
    how many documents that are."""
    again = "UPDATE kb_documents SET state = 'waiting' WHERE source_id = ? AND (state = 'failed' OR format = 'rdf')"
    tx.connection.execute(again, (source,))
    return tx.connection.changes()


def begin(tx: Transaction, document: Document) -> str | None:
    """Begin to store a document that was read. Returns the title that it has now: while there are passages with
    another one, that; they have to be removed (``trim``), and this called again. None: its source is gone meanwhile,
    and nothing was stored."""
    connection = tx.connection
    if not connection.execute(_SOURCE, (document.source, document.base)).get:
        return None
    indexed = connection.execute(_INDEXED_TITLE, (document.id,)).get
    title = document.title if indexed is None else str(indexed)
    # Without its digest nobody takes it for complete.
    connection.execute(_PUT, rows.values(attrs.evolve(document, state=DocumentState.WAITING, digest="", title=title)))
    return title


def claimed(had: Same, found: Iterable[Passage]) -> Iterator[tuple[Passage, int | None]]:
    """Passages with the row that each takes over of those that the document had, which is taken out of them."""
    for each in found:
        rowids = had.get(same_key(each.heading, each.text))
        yield each, rowids.pop(0) if rowids else None


def fill(
    tx: Transaction, document: DocumentId, found: Sequence[tuple[Passage, int | None]], seconds: float = float("inf")
) -> int:
    """Store the next passages of a document, each in a row that it has already or in a new one, for so long at most.
    Returns how many were stored: at least one, but 0 when the document is gone meanwhile."""
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
    tx.connection.execute(_PUT, rows.values(document))
    return True


def note(tx: Transaction, document: DocumentId, fields: Mapping[str, Any]) -> bool:
    """Change fields of a document that its passages do not hold (not its name, nor its title). False: it is gone."""
    now = _DOCUMENTS.one(tx.connection, "WHERE d.id = ?", document)
    if now is not None:
        tx.connection.execute(_PUT, rows.values(attrs.evolve(now, **fields)))
    return now is not None


def remove_some(tx: Transaction, document: DocumentId, seconds: float = SLICE_S) -> bool:
    """Remove passages of a document for so long at most, and in the end it itself. Returns whether there is more."""
    if trim(tx, document, 0, seconds):
        return True
    tx.connection.execute("DELETE FROM kb_documents WHERE id = ?", (document,))
    return False


def remove(tx: Transaction, document: DocumentId) -> int:
    """Remove a document with its passages, their full text and vectors, in one step. Returns how many it had."""
    count = int(tx.connection.execute("SELECT count(*) FROM kb_passages WHERE document_id = ?", (document,)).get)
    remove_some(tx, document, float("inf"))
    return count
