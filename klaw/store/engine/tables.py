"""The content of tables for comparing two databases, read in pages after a key; without what is not made from the logs,
such as which rows have a vector. And full text: the view ``TABLE_search`` says what is found of a row in ``TABLE_fts``.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Literal, TypeAlias

import apsw
import attrs

Row: TypeAlias = Sequence[Any]
"""The first value is the row's key."""
Bound: TypeAlias = Literal["rowid", "turn", "change", "entry"]
"""What a row belongs to: the row id of a message or of a turn, a change of a run, an entry of the memory journal."""
END = (1 << 63) - 1
PAGE_ROWS = 200


@attrs.frozen(kw_only=True)
class ContentTable:
    name: str
    statement: str
    """Gives the next rows ``> :after`` in the order of their keys, ``LIMIT :limit``."""
    first: int | str = -END
    """A value that sorts before every key."""
    bound: Bound | None = None
    """By which number its newest rows are known; None: they are not."""
    changed: str | None = None
    """Query of the keys of rows that changed after number ``?``. None: rows are only added; their key is the number."""
    small: bool = False
    """Small enough to be compared whole while the writer waits."""

    def rows(self, connection: apsw.Connection, *, after: int | str | None = None) -> Iterator[Row]:
        key: int | str = self.first if after is None else after
        while found := connection.execute(self.statement, {"after": key, "limit": PAGE_ROWS}).fetchall():
            yield from found
            key = found[-1][0]  # type: ignore[assignment]

    def row(self, connection: apsw.Connection, key: int | str) -> Row | None:
        statement = self.statement.replace("> :after", "= :after", 1)
        return connection.execute(statement, {"after": key, "limit": 1}).fetchone()

    def changed_after(self, connection: apsw.Connection, number: int) -> set[Any]:
        assert self.changed is not None
        return {key for (key,) in connection.execute(self.changed, (number,))}


def table(name: str, source: str, key: str, columns: str, **more: Any) -> ContentTable:
    """A table by its source in SQL: its rows in the order of a key, which is the first of the columns."""
    statement = f"SELECT {columns} FROM {source} WHERE {key} > :after ORDER BY {key} LIMIT :limit"  # noqa: S608 - constants
    return ContentTable(name=name, statement=statement, **more)


def full_text(name: str, index: str, **more: Any) -> ContentTable:
    """How many words each column of each row has in a full-text index: FTS5 keeps that beside the index itself."""
    return table(name, f"{index}_docsize", "id", "id, hex(sz)", **more)


def entries(name: str, source: str, columns: str, **more: Any) -> ContentTable:
    """A table whose rows have the number of an entry of the memory journal as key."""
    return table(name, source, "entry", columns, bound="entry", **more)


def with_history(name: str, what: str, columns: str) -> tuple[ContentTable, ContentTable]:
    """The rows of a kind that has a history, and that: their keys are the user and the id."""
    changes, key = f"{what}_changes", f"user_id || '/' || {what}_id"
    changed = f"SELECT DISTINCT {key} FROM {changes} WHERE entry > ?"  # noqa: S608 - constants
    rows = f"user_id || '/' || id AS key, {columns}"
    now = table(name, name, "key", rows, first="", bound="entry", changed=changed)
    return now, entries(f"changes of {name}", changes, f"entry, user_id, {what}_id, at, value")


def index_row(connection: apsw.Connection, table: str, rowid: int) -> None:
    row = f"SELECT rowid, content, scope FROM {table}_search WHERE rowid = ?"  # noqa: S608 - constant names
    connection.execute(f"INSERT INTO {table}_fts (rowid, content, scope) {row}", (rowid,))


def unindex_row(connection: apsw.Connection, table: str, rowid: int) -> None:
    """Take the full text of a row out, before it is changed or removed."""
    row = f"SELECT 'delete', rowid, content, scope FROM {table}_search WHERE rowid = ?"  # noqa: S608 - constant names
    connection.execute(f"INSERT INTO {table}_fts ({table}_fts, rowid, content, scope) {row}", (rowid,))
