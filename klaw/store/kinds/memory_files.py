"""Pieces of memory files, which people write. Every question names the user."""

from collections.abc import Sequence
from typing import Annotated

import apsw
import attrs

from klaw.convert import Wire
from klaw.domain.names import LOCAL_USER, UserId
from klaw.domain.notes import Quotes
from klaw.store import rows
from klaw.store.changes import Kind
from klaw.store.engine.tables import index_row, unindex_row
from klaw.store.engine.transaction import Transaction
from klaw.store.kinds import topics


@attrs.frozen(kw_only=True)
class FileChunk:
    line: int
    """Where it begins, from 1."""
    heading: Annotated[str, Quotes()]
    """The headings above it, outermost first, with `` > `` between them; may be empty."""
    text: Annotated[str, Quotes()]


@attrs.frozen(kw_only=True)
class StoredChunk(FileChunk):
    rowid: int
    user: Annotated[UserId, Wire("user_id")]
    path: str


@attrs.frozen(kw_only=True)
class MemoryFile:
    user: Annotated[UserId, Wire("user_id")]
    path: str
    """Relative to the user's workspace, with ``/``."""
    stamp: str
    """Changes with the file."""


CHUNK: Kind[StoredChunk] = Kind(
    what="memory_file",
    plural="memory files",
    cls=StoredChunk,
    table="chunks",
    id="rowid",
    changed="rowid",
    full_text=True,
    vectors="vec_chunks",
    vector_mark="vector_model",
    on_purpose=True,
)
by_rowids = CHUNK.by_rowids
_FILES = rows.Rows(MemoryFile, "memory_files")
_CHUNKS = rows.Rows(StoredChunk, "chunks")


def files(connection: apsw.Connection) -> list[MemoryFile]:
    """All files of all users, to see which have changed."""
    return _FILES.all(connection, "ORDER BY user_id, path")


def users(connection: apsw.Connection) -> list[UserId]:
    """Everybody who may have a workspace."""
    return sorted({LOCAL_USER, *topics.users(connection)})


def of_file(connection: apsw.Connection, user: UserId, path: str) -> list[StoredChunk]:
    """The pieces of a user's file in order."""
    return _CHUNKS.all(connection, "WHERE user_id = ? AND path = ? ORDER BY line, rowid", user, path)


def _replace(connection: apsw.Connection, file: MemoryFile, found: Sequence[FileChunk]) -> None:
    """Store a file's pieces in place of those before. A piece that is there already keeps its row and its vector."""
    query = "INSERT INTO chunks (user_id, path, line, heading, text) VALUES (?, ?, ?, ?, ?) RETURNING rowid"
    before: dict[tuple[str, str], list[StoredChunk]] = {}
    for each in of_file(connection, file.user, file.path):
        before.setdefault((each.heading, each.text), []).append(each)
    for chunk in found:
        same = before.get((chunk.heading, chunk.text))
        if same:
            connection.execute("UPDATE chunks SET line = ? WHERE rowid = ?", (chunk.line, same.pop(0).rowid))
            continue
        values = (file.user, file.path, chunk.line, chunk.heading, chunk.text)
        index_row(connection, "chunks", connection.execute(query, values).get)
    for old in (each for those in before.values() for each in those):
        unindex_row(connection, "chunks", old.rowid)
        connection.execute("DELETE FROM chunks WHERE rowid = ?", (old.rowid,))


def put(tx: Transaction, file: MemoryFile, pieces: Sequence[FileChunk]) -> None:
    """Store the pieces of a memory file in place of those before."""
    query = "INSERT OR REPLACE INTO memory_files (user_id, path, stamp) VALUES (?, ?, ?)"
    _replace(tx.connection, file, pieces)
    tx.connection.execute(query, (file.user, file.path, file.stamp))


def remove(tx: Transaction, file: MemoryFile) -> None:
    """Forget the pieces of a memory file that is gone."""
    _replace(tx.connection, file, ())
    tx.connection.execute("DELETE FROM memory_files WHERE user_id = ? AND path = ?", (file.user, file.path))
