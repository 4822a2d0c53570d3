"""Storing and removing whole documents of knowledge bases, which the indexer does in steps."""

from collections.abc import Iterable, Sequence

import attrs

from klaw.domain.knowledge import Document, DocumentId, Passage
from klaw.store.engine.transaction import Transaction
from klaw.store.kinds.knowledge.document_steps import Digest, begin, claimed, fill, finish, remove_some, same, trim


def digest(found: Iterable[Passage]) -> str:
    made = Digest()
    made.add(found)
    return made.hex()


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


def remove(tx: Transaction, document: DocumentId) -> int:
    """Remove a document with its passages, their full text and vectors, in one step. Returns how many it had."""
    count = int(tx.connection.execute("SELECT count(*) FROM kb_passages WHERE document_id = ?", (document,)).get)
    remove_some(tx, document, float("inf"))
    return count
