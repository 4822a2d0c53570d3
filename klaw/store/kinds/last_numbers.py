"""The highest number of each log's records that a database has."""

import apsw

from klaw.store.engine.tables import Bound

_LAST = """
SELECT coalesce((SELECT max(rowid) FROM messages), 0), coalesce((SELECT max(rowid) FROM turns), 0),
    coalesce((SELECT max(change) FROM runs), 0)
"""


def last_numbers(connection: apsw.Connection) -> dict[Bound, int]:
    """The highest number of each bound but the memory journal's entry; 0 where there is none."""
    rowid, turn, change = connection.execute(_LAST).get
    return {"rowid": rowid, "turn": turn, "change": change}
