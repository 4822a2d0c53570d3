"""Ids that begin so: for whoever runs the server and does not want to type all of one."""

from typing import Literal, TypeAlias

import apsw

from klaw.domain.names import UserId

IdKind: TypeAlias = Literal["fact", "person", "run", "turn", "message"]

_AMONG: dict[IdKind, str] = {
    "fact": "SELECT DISTINCT fact_id AS id FROM fact_changes WHERE user_id = ?1 AND fact_id",
    "person": "SELECT DISTINCT person_id AS id FROM person_changes WHERE user_id = ?1 AND person_id",
    "run": "SELECT id FROM runs WHERE user_id = ?1 AND id",
    "turn": "SELECT turn_id AS id FROM turns WHERE ?1 IS NOT NULL AND turn_id",
    "message": "SELECT id FROM messages WHERE user_id = ?1 AND id",
}
"""Of a user; turns are found whosever they are, as ``klaw receipt`` finds them. What was removed has a history."""
_END = "\U0010ffff"


def beginning_with(connection: apsw.Connection, kind: IdKind, user: UserId, text: str, limit: int) -> list[str]:
    """The ids that begin with a text, in their order; the text alone where it is one itself."""
    query = f"{_AMONG[kind]} BETWEEN ?2 AND ?3 ORDER BY id LIMIT ?4"
    found = [str(row[0]) for row in connection.execute(query, (user, text, text + _END, limit))]
    return found[:1] if found[:1] == [text] else found
