"""Ranking by words among what one user keeps.

BM25 (Robertson and others, TREC-3, 1994) with the user's rows as the collection. SQLite's own bm25 takes all rows: then
the order of one user's results would tell how often another user's facts have a word.
"""

from collections.abc import Sequence
from typing import Any

import apsw

from klaw.domain.names import UserId
from klaw.store.search.fulltext import TextHit, idf, match_in
from klaw.store.sql.messages import user_word

_SATURATION, _BREVITY = 1.2, 0.75
"""k1 and b, as SQLite has them."""


def ranked(
    connection: apsw.Connection, fts: str, table: str, text: str, user: UserId, words: Sequence[str], limit: int
) -> list[TextHit]:
    """A user's rows with any of the words, the best first; of equals the newest.

    Args:
        connection: a reader.
        fts: the full-text table; its row ids are those of ``table``.
        table: has the rows, and the column ``user_id``.
        text: SQL of a row's text.
        user: whose.
        words: as written.
        limit: most hits.
    """
    long = f"length({text}) - length(replace({text}, ' ', '')) + 1"
    own = f"SELECT count(*), avg({long}) FROM {table} WHERE user_id = ?"  # noqa: S608 - constant names
    counted: Any = connection.execute(own, (user,)).fetchone()
    rows, average = counted
    having = (
        f"SELECT t.rowid, {long} FROM (SELECT rowid FROM {fts} WHERE {fts} MATCH ?2) AS m"  # noqa: S608
        f" CROSS JOIN {table} AS t ON t.rowid = m.rowid WHERE t.user_id = ?1"
    )
    values: dict[int, float] = {}
    for word in dict.fromkeys(words):
        found: list[Any] = connection.execute(having, (user, match_in([word], user_word(user)))).fetchall()
        weight = idf(len(found), rows) * (_SATURATION + 1)
        for rowid, length in found:
            share = 1 - _BREVITY + _BREVITY * length / max(average or 1, 1)
            values[rowid] = values.get(rowid, 0.0) - weight / (1 + _SATURATION * share)
    best = sorted(values.items(), key=lambda each: (each[1], -each[0]))[:limit]
    return [TextHit(rowid, value) for rowid, value in best]
