"""Rows of any kind that has a table with a column for each field of its class, and a history.

A kind whose rows need no more than that takes ``apply`` for its changes.
"""

from typing import Any

import apsw
import attrs

from klaw.domain.names import UserId
from klaw.store import rows
from klaw.store.changes import Change, Kind, earlier
from klaw.store.engine.transaction import Transaction
from klaw.store.kinds.knowledge import documents
from klaw.store.kinds.memory_journal import KINDS


def get(connection: apsw.Connection, kind: Kind[Any], user: UserId, key: Any) -> Any:
    """A user's one, or None."""
    return rows.Rows(kind.cls, kind.table).one(connection, f"WHERE user_id = ? AND {kind.id} = ?", user, key)


def page(connection: apsw.Connection, kind: Kind[Any], user: UserId, limit: int, offset: int) -> list[Any]:
    """A user's ones, those changed last first."""
    rest = f"WHERE user_id = ? ORDER BY {kind.changed} DESC LIMIT ? OFFSET ?"
    return rows.Rows(kind.cls, kind.table).all(connection, rest, user, limit, offset)


def count(connection: apsw.Connection, kind: Kind[Any], user: UserId | None = None) -> int:
    """How many a user has; None: how many there are."""
    query = f"SELECT count(*) FROM {kind.table} WHERE ?1 IS NULL OR user_id = ?1"  # noqa: S608 - constant names
    return int(connection.execute(query, (user,)).get)


def has_history(what: str) -> bool:
    """Whether this is the word of a kind that keeps a history, so that people know its things by their ids."""
    return any(each.what == what and each.past for each in KINDS)


def beginning_with(connection: apsw.Connection, what: str, user: UserId | None, text: str, limit: int) -> list[str]:
    """The ids of a kind, or ``kb_document``, that begin with a text, in their order; the text alone where it is one
    itself. What was removed has a history.

    Args:
        user: whose; None: all users'.
    """
    kind = next((each for each in KINDS if each.what == what), None)
    among = documents.IDS if kind is None else kind.ids
    if kind is not None and not among:
        name = f"{kind.what}_id" if kind.past else kind.id
        whose = "user_id = ?1" if user is not None else "?1 IS NULL"
        among = f"SELECT DISTINCT {name} AS id FROM {kind.past or kind.table} WHERE {whose} AND {name}"  # noqa: S608
    query = f"{among} BETWEEN ?2 AND ?3 ORDER BY id LIMIT ?4"
    found = [str(row[0]) for row in connection.execute(query, (user, text, text + "\U0010ffff", limit))]
    return found[:1] if found[:1] == [text] else found


def put(tx: Transaction, kind: Kind[Any], value: Any, at: str) -> Any:
    """Store a new one, or a changed one in place of what it was. Raises ValueError for one that breaks a rule."""
    kind.check(value)
    tx.journal(kind.put(value.user, value.id, value, at))
    return value


def remove(tx: Transaction, kind: Kind[Any], user: UserId, key: Any, at: str) -> None:
    """Remove one; its history stays."""
    tx.journal(kind.removed(user, key, at))


def undo(tx: Transaction, kind: Kind[Any], user: UserId, key: Any, to: int | None, at: str) -> Any:
    """Go back to the state before the newest change, or of an entry of the history. Returns it; None: it is gone again.

    Raises:
        CannotUndo: there is no such entry, or it is so already.
    """
    wanted = earlier(kind.history(tx.connection, user, key), to)
    if wanted is None or wanted.value is None:
        remove(tx, kind, user, key, at)
        return None
    return put(tx, kind, attrs.evolve(wanted.value, updated_at=at), at)


def apply(connection: apsw.Connection, change: Change[Any]) -> None:
    """Keep the history and the row."""
    kind = change.kind
    if kind.past:
        kind.note(connection, change)
    which = f"FROM {kind.table} WHERE user_id = ? AND {kind.id} = ?"
    rowid = connection.execute(f"SELECT rowid {which}", (change.user, change.key)).get or change.entry
    if change.value is None:
        connection.execute(f"DELETE {which}", (change.user, change.key))
        return
    own = {"rowid": rowid, "entry": change.entry}
    connection.execute(rows.upsert(kind.table, kind.cls, "rowid", "entry"), {**rows.values(change.value), **own})
