"""SQL of emptying runs that were made of what is forgotten: what they cost is left, and how they ended."""

import apsw

from klaw.domain.forget import MARK
from klaw.store.forget.forgotten import ForgetEntry
from klaw.store.rows import dumps

_EMPTY = """
UPDATE runs SET message = ?3, result = '', note = NULL,
    details = json_object('usage', json(coalesce(details -> '$.usage', '{}')))
WHERE user_id = ?1 AND id IN (SELECT value FROM json_each(?2))
"""


def empty(connection: apsw.Connection, entry: ForgetEntry) -> None:
    """Take what they were asked, did and said out of the entry's runs. The logs follow: ``forget_names.lines``."""
    if entry.ran:
        connection.execute(_EMPTY, (entry.user, dumps(list(entry.ran)), MARK))
