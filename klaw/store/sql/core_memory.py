"""SQL of core memory: what Klaw last wrote into each user's file, so that a rebuild can write it again."""

import json
from typing import Any

import apsw
import attrs

from klaw.domain.core_memory import Document
from klaw.domain.names import UserId
from klaw.store.changes import Change, Kind
from klaw.store.rebuild.tables import Table
from klaw.store.records import dumps


@attrs.frozen(kw_only=True)
class CoreRow:
    """What is known of a user's file."""

    user: UserId
    document: Document
    replaces: str
    """SHA-256 of the file that it takes the place of; empty when there was none."""
    pending: bool
    """The file may still be the old one."""


_GET = "SELECT user_id, document, replaces, pending FROM core_memory WHERE user_id = ?"
_ALL = "SELECT user_id, document, replaces, pending FROM core_memory ORDER BY user_id"


def get(connection: apsw.Connection, user: UserId) -> CoreRow | None:
    """A user's row."""
    row = connection.execute(_GET, (user,)).fetchone()
    return _row(*row) if row else None


def everybodys(connection: apsw.Connection) -> list[CoreRow]:
    """All users' rows: for whoever writes the files."""
    return [_row(*row) for row in connection.execute(_ALL)]


def _row(user: str, document: str, replaces: str, pending: int) -> CoreRow:
    found: dict[str, Any] = json.loads(document)
    return CoreRow(user=UserId(user), document=found, replaces=replaces, pending=bool(pending))


_PUT = "INSERT OR REPLACE INTO core_memory (user_id, document, replaces, updated_at, pending) VALUES (?, ?, ?, ?, 1)"


@attrs.frozen(kw_only=True)
class CorePut:
    """A user's core memory as it became."""

    document: Document
    replaces: str
    """See ``CoreRow``."""


def _apply(connection: apsw.Connection, change: Change[CorePut]) -> None:
    assert change.value is not None
    put = change.value
    connection.execute(_PUT, (change.user, dumps(put.document), put.replaces, change.time))


_ROWS = "SELECT user_id, document, updated_at FROM core_memory WHERE user_id > :after ORDER BY user_id LIMIT :limit"
CORE: Kind[CorePut] = Kind(
    what="core",
    counted="core",
    ops={"put": CorePut},
    apply=_apply,
    clear=("DELETE FROM core_memory",),
    tables=(Table(name="core memory", first="", statement=_ROWS, small=True),),
)

_WRITTEN = "UPDATE core_memory SET pending = 0 WHERE user_id = ?"


def written(connection: apsw.Connection, user: UserId) -> None:
    """Remember that the file is the new one: what it becomes later is the person's wish."""
    connection.execute(_WRITTEN, (user,))
