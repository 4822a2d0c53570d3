"""KINDS, the table of all kinds of things that Klaw keeps, and what can be done with things of any of them."""

from collections.abc import Mapping
from typing import Any

import apsw
import attrs

from klaw.domain.names import UserId
from klaw.store.changes import Change, Kind, earlier
from klaw.store.engine import meta
from klaw.store.engine.transaction import Transaction
from klaw.store.kinds import (
    channels,
    chats,
    core_memory,
    facts,
    memory_files,
    messages,
    people,
    runs,
    summaries,
    tasks,
    topic_changes,
    turns,
    usage,
)
from klaw.store.kinds.knowledge import bases, documents, sources
from klaw.store.kinds.variants import branches

KINDS: list[Kind[Any]] = [
    branches.BRANCH,
    messages.MESSAGE,
    messages.SESSION,
    turns.TURN,
    runs.RUN,
    facts.FACT,
    people.PERSON,
    people.MENTION,
    core_memory.CORE,
    tasks.TASK,
    tasks.SETTINGS,
    tasks.SUBSCRIPTION,
    channels.LINK,
    channels.POSITION,
    summaries.SUMMARY,
    summaries.NOTE,
    topic_changes.TOPIC,
    topic_changes.TOPIC_CHANGE,
    chats.CHAT,
    bases.BASE,
    sources.SOURCE,
    memory_files.CHUNK,
    usage.DAY,
    usage.SPENT,
]
"""``store.forget``, which stands above the nouns, adds the kind of its own lines."""
_STAYING = (messages.MESSAGE, messages.SESSION, memory_files.CHUNK)
"""A database that is made from the logs has no memory files, and its messages are compared with the logs."""


def kind_of(what: str) -> Kind[Any] | None:
    return next((kind for kind in KINDS if kind.what == what), None)


def read(record: Mapping[str, Any]) -> Change[Any]:
    """The change of a line. Raises KeyError, TypeError or ValueError for a malformed one."""
    kind = kind_of(record["what"])
    if kind is None or not kind.ops:
        raise KeyError("what")
    return kind.read(record)


def clear(connection: apsw.Connection) -> None:
    """Remove all but the messages; for a database that is being made from the logs."""
    for kind in KINDS:
        if kind not in _STAYING:
            kind.empty(connection)
    meta.remove(connection, meta.MEMORY_ENTRY)


def page(connection: apsw.Connection, kind: Kind[Any], user: UserId, limit: int, offset: int) -> list[Any]:
    """A user's ones, those changed last first."""
    return kind.rows.all(
        connection, f"WHERE user_id = ? ORDER BY {kind.changed or kind.id} DESC LIMIT ? OFFSET ?", user, limit, offset
    )


def count(connection: apsw.Connection, kind: Kind[Any], user: UserId | None = None) -> int:
    """How many a user has; None: how many there are."""
    query = f"SELECT count(*) FROM {kind.table} WHERE ?1 IS NULL OR user_id = ?1"  # noqa: S608 - constant names
    return int(connection.execute(query, (user,)).get)


def has_history(what: str) -> bool:
    """Whether a kind of this word keeps a history of things that have ids."""
    kind = kind_of(what)
    return kind is not None and bool(kind.past) and kind.id == "id"


def beginning_with(connection: apsw.Connection, what: str, user: UserId | None, text: str, limit: int) -> list[str]:
    """The ids of a kind, or ``kb_document``, that begin with a text, in their order, also of what was removed; the text
    alone where it is one itself. ``user`` None: of all users."""
    kind = kind_of(what)
    among = documents.IDS if kind is None else kind.ids
    if kind is not None and not among:
        table, name, _ = kind.source
        whose = "user_id = ?1" if user is not None else "?1 IS NULL"
        among = f"SELECT DISTINCT {name} AS id FROM {table} WHERE {whose} AND {name}"  # noqa: S608
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
    """Undo the newest change, or go back to an entry of the history. None: it is gone. Raises CannotUndo."""
    wanted = earlier(kind.history(tx.connection, user, key), to)
    if wanted is None or wanted.value is None:
        remove(tx, kind, user, key, at)
        return None
    return put(tx, kind, attrs.evolve(wanted.value, updated_at=at), at)
