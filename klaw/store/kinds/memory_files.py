"""Pieces of memory files, which people write."""

from collections.abc import Sequence

from klaw.store.engine.transaction import Transaction
from klaw.store.sql import chunks
from klaw.store.sql.chunks import Chunk, MemoryFile


def put(tx: Transaction, file: MemoryFile, pieces: Sequence[Chunk]) -> None:
    """Store the pieces of a memory file in place of those before."""
    chunks.put_file(tx.connection, file, pieces, gone=False)


def remove(tx: Transaction, file: MemoryFile) -> None:
    """Forget the pieces of a memory file that is gone."""
    chunks.put_file(tx.connection, file, (), gone=True)
