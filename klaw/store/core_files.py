"""The core memory files ``core_memory.json``: read for a change, and written after its commit. In the writer's thread.

A person may edit the file, so it counts; what Klaw wrote last is in the memory journal. A file that is still the one
which a change took the place of was not written yet (the process was killed in between) and is written now. A file that
is neither is the person's and is taken as it is. One that is missing is written again.
"""

import hashlib
from pathlib import Path

import apsw
import attrs
import structlog

from klaw.actor.failure import error_class
from klaw.config import guarded
from klaw.config.paths import below_of_user
from klaw.domain.core_memory import MAX_BYTES, Document, dump, parse
from klaw.domain.names import UserId
from klaw.errors import CoreUnreadable
from klaw.store.sql import core_memory
from klaw.store.sql.core_memory import CoreRow

FILE = "core_memory.json"

log = structlog.get_logger("klaw.store")


@attrs.frozen
class CoreFile:
    """A user's core memory now."""

    document: Document
    digest: str
    """SHA-256 of the file; empty when there is none."""


def current(connection: apsw.Connection, data_dir: Path, user: UserId) -> CoreFile:
    """A user's core memory as the next change finds it.

    Raises:
        CoreUnreadable: the file is none.
    """
    row = core_memory.get(connection, user)
    try:
        data = guarded.read(data_dir, _name(user), MAX_BYTES)
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
    """Write the files that are not written yet, each at once or not at all. Returns how many could not be.

    Outside of a transaction. A file that cannot be read is left alone.
    """
    failed = 0
    for row in core_memory.everybodys(connection):
        try:
            data = guarded.read(data_dir, _name(row.user), MAX_BYTES)
            if _is_stale(row, data):
                guarded.replace(data_dir, _name(row.user), dump(row.document))
            if row.pending:
                core_memory.written(connection, row.user)
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
