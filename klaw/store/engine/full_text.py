"""Full text of a table's rows: the view ``TABLE_search`` says what is found of a row, ``TABLE_fts`` is the index."""

import apsw


def index_row(connection: apsw.Connection, table: str, rowid: int) -> None:
    """Make the full text of a row."""
    row = f"SELECT rowid, content, scope FROM {table}_search WHERE rowid = ?"  # noqa: S608 - constant names
    connection.execute(f"INSERT INTO {table}_fts (rowid, content, scope) {row}", (rowid,))


def unindex_row(connection: apsw.Connection, table: str, rowid: int) -> None:
    """Take the full text of a row out, before it is changed or removed; one that has none is left alone."""
    row = f"SELECT 'delete', rowid, content, scope FROM {table}_search WHERE rowid = ?"  # noqa: S608 - constant names
    connection.execute(f"INSERT INTO {table}_fts ({table}_fts, rowid, content, scope) {row}", (rowid,))
