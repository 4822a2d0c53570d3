"""What the lines of the memory journal may be about: every kind, and forgetting."""

from collections.abc import Mapping
from typing import Any

import apsw

from klaw.store.changes import Change, Kind
from klaw.store.engine import meta
from klaw.store.forget.applying import FORGET
from klaw.store.kinds.all_kinds import KINDS

JOURNALED: tuple[Kind[Any], ...] = (*KINDS, FORGET)
_OF_WORD = {kind.what: kind for kind in JOURNALED}


def read(record: Mapping[str, Any]) -> Change[Any]:
    """The change of a line. Raises KeyError, TypeError or ValueError for a malformed one."""
    return _OF_WORD[record["what"]].read(record)


def clear(connection: apsw.Connection) -> None:
    """Remove all that is made from the journal; for a database that is being made from the logs."""
    for kind in JOURNALED:
        for statement in kind.clear:
            connection.execute(statement)
    meta.remove(connection, meta.MEMORY_ENTRY)
