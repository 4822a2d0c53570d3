"""SQL of the key-value table ``meta``."""

import apsw


def get(connection: apsw.Connection, key: str) -> str | None:
    value = connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).get
    return str(value) if value is not None else None


def put(connection: apsw.Connection, key: str, value: str) -> None:
    query = "INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
    connection.execute(query, (key, value))


def remove(connection: apsw.Connection, key: str) -> None:
    connection.execute("DELETE FROM meta WHERE key = ?", (key,))


LAST_FORGETTING = "forget_last:"
"""The user's name is appended."""


LAST_REPLACING = "replace_last:"
"""Likewise: the entry by which another variant of some messages became the one that is shown."""


def last_forgetting(connection: apsw.Connection, user: str) -> int:
    """Number of the entry by which a user last forgot or replaced messages; 0 for none."""
    return max(int(get(connection, f"{key}{user}") or 0) for key in (LAST_FORGETTING, LAST_REPLACING))


COMMANDS_TO = "commands_to"
"""Up to this row id, old commands and their answers are forgotten."""
FORGET_COMPACT = "forget_compact"
"""The database's file is to be rebuilt, because something was forgotten at this time."""


def owes_compaction(connection: apsw.Connection) -> bool:
    return get(connection, FORGET_COMPACT) is not None


def forgotten_since(user: str, as_of: str) -> str:
    """SQL: a user has forgotten or replaced something since an entry of the memory journal. Never true of NULL."""
    return (
        f"EXISTS (SELECT 1 FROM meta WHERE key IN ('{LAST_FORGETTING}' || {user}, '{LAST_REPLACING}' || {user})"  # noqa: S608 - expressions of callers
        f" AND CAST(value AS INTEGER) > {as_of})"
    )


NO_TASK_HISTORY = "no_task_history"
"""Set by migration 023: the history of tasks is to be filled."""
MEMORY_ENTRY = "memory_entry"
"""A task that was removed leaves no row, so the number of the memory journal's last entry has to be kept here."""


def last_entry(connection: apsw.Connection) -> int:
    """Number of the last entry of the memory journal; 0 for none."""
    return int(get(connection, MEMORY_ENTRY) or 0)


MODELS = "models:"
"""What is known of a provider's models; its name is appended."""
SEARCHES = "web_searches:"
"""A day, and how often a user, whose name is appended, searched the web on it."""


def with_prefix(connection: apsw.Connection, prefix: str) -> dict[str, str]:
    """All values whose keys begin so, by the rest of the key."""
    rows = connection.execute("SELECT key, value FROM meta WHERE substr(key, 1, ?) = ?", (len(prefix), prefix))
    return {key[len(prefix) :]: value for key, value in rows}


def in_no_log(connection: apsw.Connection) -> dict[str, str]:
    """What a reindex takes over."""
    return {
        f"{each}{name}": value for each in (MODELS, SEARCHES) for name, value in with_prefix(connection, each).items()
    }
