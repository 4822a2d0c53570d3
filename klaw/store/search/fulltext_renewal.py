"""Rebuilding the full text of messages without some of them, in bounded steps, each a function for the writer.

Taking a row out so that no page keeps its words costs milliseconds: each of its words is looked up and a page is
written again. A second index beside the first costs a fraction of that for each row that stays; it then takes the
first one's place, whose pages are overwritten. What a kill leaves is dropped when it is begun again.
"""

from collections.abc import Collection

import apsw

from klaw.store.engine.transaction import Transaction

INDEX, NEW, OLD = "messages_fts", "messages_fts_new", "messages_fts_old"
WORTH_IT = 4
"""A row that stays costs less than a row that goes, by this factor and more."""
ROWS, CHARS, DROPPED = 40, 10_000, 100
"""Rows and characters that one step indexes; rows of the index's tables, mostly 4 kB each, that one removes."""

_COUNT = "SELECT count(*) FROM messages_fts_docsize"
_SQL = "SELECT sql FROM sqlite_schema WHERE name = ?"
_NEXT = "SELECT rowid, content, scope FROM messages_search WHERE rowid > ? ORDER BY rowid LIMIT ?"


def is_worth_it(connection: apsw.Connection, going: int) -> bool:
    """Whether so many messages are taken out sooner by this."""
    return int(connection.execute(_COUNT).get) - going < WORTH_IT * going


def begin(tx: Transaction) -> None:
    statement = str(tx.connection.execute(_SQL, (INDEX,)).get).replace('"', "")
    tx.connection.execute(statement.replace(INDEX, NEW, 1))


def fill(tx: Transaction, after: int, going: Collection[int]) -> int | None:
    """Index the next messages after a row id, but those that go. Returns the last one; None: those were all, and the
    second index has taken the place of the first."""
    connection, room = tx.connection, CHARS
    rows: list[tuple[int, str, str]] = connection.execute(_NEXT, (after, ROWS)).fetchall()  # type: ignore[assignment]
    for after, content, scope in rows:
        if after not in going:
            values = (after, content, scope)
            connection.execute(f"INSERT INTO {NEW} (rowid, content, scope) VALUES (?, ?, ?)", values)  # noqa: S608
            room -= len(content)
        if room < 0:
            return after
    if connection.execute(_NEXT, (after, 1)).get is not None:
        return after
    connection.execute(f"ALTER TABLE {INDEX} RENAME TO {OLD}")
    connection.execute(f"ALTER TABLE {NEW} RENAME TO {INDEX}")
    return None


def drop_some(tx: Transaction, index: str) -> bool:
    """Remove a part of an index that is not in use. Returns whether nothing is left of it."""
    connection = tx.connection
    if connection.execute(_SQL, (index,)).get is None:
        return True
    # From FTS5's own tables: who drops one of some hundred megabytes keeps all others waiting for seconds.
    for table, key in (("data", "id"), ("docsize", "id"), ("idx", "segid, term")):
        some = f"SELECT {key} FROM {index}_{table} LIMIT {DROPPED}"  # noqa: S608 - constants
        connection.execute(f"DELETE FROM {index}_{table} WHERE ({key}) IN ({some})")  # noqa: S608 - likewise
        if connection.changes():
            return False
    connection.execute(f"DROP TABLE {index}")
    return True
