"""One snapshot for several queries."""

from collections.abc import Iterator
from contextlib import contextmanager

import apsw


@contextmanager
def snapshot(connection: apsw.Connection) -> Iterator[None]:
    """A read transaction: all queries of the body see the same state of the database."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:  # an interrupted query ends it by itself
            connection.execute("ROLLBACK")
