"""Core memory, the values that each user's turns always have, and its files ``core_memory.json``, which are read for a
change and written after its commit.

A person may edit the file, so it counts; what Klaw wrote last is in the memory journal. A file that is still the one
before the last change (a kill came between) or is missing is written again; any other is the person's.
"""

import hashlib
from pathlib import Path
from typing import Annotated

import apsw
import attrs
import structlog

from klaw.actor.failure import error_class
from klaw.config import safe_open
from klaw.config.paths import below_of_user
from klaw.convert import Wire
from klaw.domain import core_memory as core
from klaw.domain.core_memory import MAX_BYTES, Document, dump, parse
from klaw.domain.names import UserId
from klaw.domain.notes import Quotes
from klaw.errors import CoreNotChanged, CoreUnreadable, InvalidValue, StorageError
from klaw.store import rows
from klaw.store.changes import Change, Kind
from klaw.store.engine.tables import table
from klaw.store.engine.transaction import Transaction


@attrs.frozen(kw_only=True)
class CoreRow:
    user: Annotated[UserId, Wire("user_id")]
    document: Document
    replaces: str
    """SHA-256 of the file that it takes the place of; empty when there was none."""
    pending: bool
    """The file may still be the old one."""


_ROWS = rows.Rows(CoreRow, "core_memory")


_PUT = "INSERT OR REPLACE INTO core_memory (user_id, document, replaces, updated_at, pending) VALUES (?, ?, ?, ?, 1)"


@attrs.frozen(kw_only=True)
class CorePut:
    """A user's core memory as it became."""

    document: Annotated[Document, Quotes()]
    replaces: str


def _apply(connection: apsw.Connection, change: Change[CorePut]) -> None:
    assert change.value is not None
    put = change.value
    connection.execute(_PUT, (change.user, rows.dumps(put.document), put.replaces, change.time))


_CONTENT = table("core memory", "core_memory", "user_id", "user_id, document, updated_at", first="", small=True)
CORE: Kind[CorePut] = Kind(
    what="core",
    plural="core memory",
    cls=CorePut,
    table="core_memory",
    id="user_id",
    changed="",
    on_purpose=True,
    key_of=lambda _user: "",
    counted="core",
    ops={"put": CorePut},
    apply=_apply,
    tables=(_CONTENT,),
)


def written(connection: apsw.Connection, user: UserId) -> None:
    """Remember that the file is the new one: what it becomes later is the person's wish."""
    connection.execute("UPDATE core_memory SET pending = 0 WHERE user_id = ?", (user,))


FILE = "core_memory.json"

log = structlog.get_logger("klaw.store")


@attrs.frozen
class CoreFile:
    document: Document
    digest: str


def current(connection: apsw.Connection, data_dir: Path, user: UserId) -> CoreFile:
    """A user's core memory as the next change finds it. Raises CoreUnreadable: the file is no core memory."""
    row = _ROWS.one(connection, "WHERE user_id = ?", user)
    try:
        data = safe_open.read(data_dir, _name(user), MAX_BYTES)
        if row is not None and _is_stale(row, data):
            return CoreFile(row.document, _digest(data))
        return CoreFile(parse(data) if data is not None else {}, _digest(data))
    except (OSError, ValueError) as error:
        raise CoreUnreadable(
            "core_memory.json cannot be read, so it was not changed: a person has to look at the file"
        ) from error


def read_core(connection: apsw.Connection, user: UserId) -> Document:
    """A user's core memory as it is now; for a reader. Raises CoreUnreadable."""
    return current(connection, Path(connection.filename).parent, user).document


def settle(connection: apsw.Connection, data_dir: Path) -> int:
    """Write the files that are not written yet, outside of a transaction. Returns how many could not be."""
    failed = 0
    for row in _ROWS.all(connection, "ORDER BY user_id"):
        try:
            data = safe_open.read(data_dir, _name(row.user), MAX_BYTES)
            if _is_stale(row, data):
                safe_open.replace(data_dir, _name(row.user), dump(row.document))
            if row.pending:
                written(connection, row.user)
        except (OSError, ValueError) as error:
            failed += 1
            log.warning("core_memory_not_written", file=FILE, error=error_class(error))
    return failed


def _name(user: UserId) -> str:
    return below_of_user(user, FILE)


def _is_stale(row: CoreRow, data: bytes | None) -> bool:
    return data is None or (row.pending and _digest(data) == row.replaces)


def _digest(data: bytes | None) -> str:
    return "" if data is None else hashlib.sha256(data).hexdigest()


def change(tx: Transaction, user: UserId, section: str, key: str | None, value: str | None, at: str) -> Document:
    """Set a value of a user's core memory (``domain.core_memory.updated``), or delete one (``value`` None) or a whole
    section (``key`` None). Returns what it has become. Raises CoreNotChanged: a name or the value breaks its rule, or
    there is no room; CoreUnreadable; StorageError: it is kept, but the next start has to write the file."""
    present = current(tx.connection, tx.data_dir, user)
    try:
        if value is None:
            document = core.removed(present.document, section, key)
        else:
            document = core.updated(present.document, section, key or "", value)
    except InvalidValue as error:
        raise CoreNotChanged(str(error)) from None
    tx.journal(CORE.put(user, "", CorePut(document=document, replaces=present.digest), at))

    def write() -> None:
        if settle(tx.connection, tx.data_dir):
            raise StorageError("the change is kept, but core_memory.json cannot be written; it is when it can")

    tx.after_commit.append(write)
    return document
