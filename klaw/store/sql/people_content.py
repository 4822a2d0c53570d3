"""What a database holds of people, for comparing two databases; see ``content``."""

import apsw

from klaw.store.sql.content import END, Row, Table, by

# The columns of a person's row are those of its last change, which is compared as a whole: they are not told again.
_PEOPLE = """
SELECT user_id || '/' || id AS key, entry, rowid, aliases, merged_into,
    (SELECT group_concat(normal, char(10)) FROM (
        SELECT normal FROM person_names WHERE person = people.rowid ORDER BY normal))
FROM people WHERE key > :after AND entry <= :end ORDER BY key LIMIT :limit
"""
PEOPLE = Table(name="people", first="", page=by(_PEOPLE))

_CHANGES = """
SELECT entry, user_id, person_id, at, value FROM person_changes WHERE entry > :after AND entry <= :end
ORDER BY entry LIMIT :limit
"""
CHANGES = Table(name="changes of people", first=-END, page=by(_CHANGES))

_MENTIONS = """
SELECT entry, user_id, person_id, topic, message_id, at FROM person_mentions WHERE entry > :after AND entry <= :end
ORDER BY entry LIMIT :limit
"""
MENTIONS = Table(name="mentions of people", first=-END, page=by(_MENTIONS))

_LAST = "SELECT max(entry) FROM person_changes WHERE user_id || '/' || person_id = ?"


def last_change(connection: apsw.Connection, key: str) -> int:
    """The number of a person's last change, also of one that was removed; by its key in ``PEOPLE``."""
    return int(connection.execute(_LAST, (key,)).get or 0)


_CHANGED = "SELECT DISTINCT user_id || '/' || person_id AS key FROM person_changes WHERE entry > ? ORDER BY key"
_PERSON = f"{_PEOPLE.split('WHERE key', maxsplit=1)[0]} WHERE key = ?"


def same_after(live: apsw.Connection, built: apsw.Connection, entry: int) -> bool:
    """Whether two databases have the same of all people that changed after an entry of the memory journal."""
    for table in (CHANGES, MENTIONS):
        if list(table.rows(live, after=entry)) != list(table.rows(built, after=entry)):
            return False
    changed = [key for (key,) in live.execute(_CHANGED, (entry,))]
    return all(_row(live, key) == _row(built, key) for key in changed)


def _row(connection: apsw.Connection, key: str) -> Row | None:
    return connection.execute(_PERSON, (key,)).fetchone()
