"""Documents of knowledge bases and their passages, which are made of files and not of the logs: taken over from the
database in use. What cannot be taken over the indexer reads again."""

import time
from collections.abc import Generator, Iterator
from typing import Any, TypeAlias

import apsw
import attrs
import structlog

from klaw.actor.failure import error_class
from klaw.domain.knowledge import Document, DocumentId, DocumentState, Passage
from klaw.store import rows
from klaw.store.engine.connect import DAMAGE
from klaw.store.engine.tables import index_row
from klaw.store.engine.transaction import Transaction
from klaw.store.kinds.knowledge import document_steps
from klaw.store.kinds.knowledge.document_steps import DOCUMENTS, HAS_SOURCE, PUT

log = structlog.get_logger("klaw.reindex")

Step: TypeAlias = tuple[int, int]
"""How many documents are done, and of how many."""
_PAGE = 50
_COUNT = "SELECT count(*) FROM kb_passages WHERE document_id = ?"
_PASSAGES = f"""
SELECT rowid, {rows.columns(Passage)} FROM kb_passages WHERE document_id = ? AND rowid > ? ORDER BY rowid LIMIT ?
"""  # noqa: S608 - constant columns
_INSERT = f"""
INSERT OR IGNORE INTO kb_passages (rowid, base_key, document_id, {rows.columns(Passage)})
SELECT ?, b.rowid, d.id, {", ".join("?" for _ in attrs.fields(Passage))}
FROM kb_documents AS d JOIN kb_bases AS b ON b.id = d.base_id WHERE d.id = ? RETURNING rowid
"""  # noqa: S608 - constant columns
_STATES = "SELECT id, source_id, base_id, title, state, sha256, digest, stamp FROM kb_documents"
_SEQUENCE = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'kb_passages'"


def take_over(built: apsw.Connection, live: apsw.Connection, *, slice_s: float) -> Generator[Step, None, int]:
    """Copy documents of the live database with their passages, whose row ids stay, and the full text to the new one,
    which may have some. What is just being read, changes meanwhile, or is damaged is left out. Returns how many were
    copied."""
    copied = done = total = 0
    try:
        total = int(live.execute("SELECT count(*) FROM kb_documents").get)
        begin = time.monotonic()
        for mine in _all(built):
            if mine != _get(live, mine.id) or built.execute(_COUNT, (mine.id,)).get != mine.passages:
                yield from _remove(built, mine.id, (0, total), slice_s)
            if time.monotonic() - begin >= slice_s:
                yield (0, total)
                begin = time.monotonic()
        for theirs in _all(live):
            done += 1
            has_source = built.execute(HAS_SOURCE, (theirs.source, theirs.base)).get
            is_whole = bool(theirs.digest) or theirs.state is DocumentState.FAILED
            if has_source and is_whole and _get(built, theirs.id) is None:
                copied += yield from _copy(built, live, theirs, (done, total), slice_s)
            if time.monotonic() - begin >= slice_s:
                yield (done, total)
                begin = time.monotonic()
        _keep_sequence(built, live)
    except DAMAGE as error:
        log.warning("documents_unreadable", error=error_class(error), count=done)
    if total:
        yield (total, total)
    return copied


def hand_over(built: apsw.Connection, live: apsw.Connection) -> None:
    """Bring the copies up to the live database, to which nothing is written any more."""
    theirs = {row[0]: row for row in live.execute(_STATES)}
    with built:
        for row in built.execute(_STATES).fetchall():
            if row[0] not in theirs:
                document_steps.remove_some(Transaction(built), DocumentId(str(row[0])), float("inf"))
            elif row != theirs[row[0]]:
                built.execute("UPDATE kb_documents SET state = 'waiting', digest = '' WHERE id = ?", (row[0],))
    _keep_sequence(built, live)


def _keep_sequence(built: apsw.Connection, live: apsw.Connection) -> None:
    """Go on with the live database's row ids: none is used twice."""
    last = int(live.execute(_SEQUENCE).get)
    if last > int(built.execute(_SEQUENCE).get):
        with built:
            built.execute("DELETE FROM sqlite_sequence WHERE name = 'kb_passages'")
            built.execute("INSERT INTO sqlite_sequence (name, seq) VALUES ('kb_passages', ?)", (last,))


def _all(connection: apsw.Connection) -> Iterator[Document]:
    after = ""
    while found := DOCUMENTS.all(connection, "WHERE d.id > ? ORDER BY d.id LIMIT ?", after, _PAGE):
        yield from found
        after = found[-1].id


def _get(connection: apsw.Connection, document: DocumentId) -> Document | None:
    return DOCUMENTS.one(connection, "WHERE d.id = ?", document)


def _remove(built: apsw.Connection, document: DocumentId, step: Step, slice_s: float) -> Generator[Step, None, None]:
    more = True
    while more:
        with built:
            more = document_steps.remove_some(Transaction(built), document, slice_s)
        yield step


def _copy(
    built: apsw.Connection, live: apsw.Connection, document: Document, step: Step, slice_s: float
) -> Generator[Step, None, bool]:
    """Returns whether it is there as a whole. Until it is, it waits to be read."""
    unfinished = attrs.evolve(document, state=DocumentState.WAITING, digest="")
    with built:
        built.execute(PUT, rows.values(unfinished))
    last, more = 0, True
    while more:
        begin = time.monotonic()
        with built:
            while more:
                found: list[Any] = live.execute(_PASSAGES, (document.id, last, _PAGE)).fetchall()
                for rowid, *passage in found:
                    if built.execute(_INSERT, (rowid, *passage, document.id)).get is not None:
                        index_row(built, "kb_passages", rowid)
                    last = rowid
                more = bool(found)
                if time.monotonic() - begin >= slice_s:
                    break
        yield step
    same = _get(live, document.id) == document and built.execute(_COUNT, (document.id,)).get == document.passages
    if same:
        with built:
            built.execute(PUT, rows.values(document))
    return same
