"""SQL of a search by vector inside one chat.

Segment and window are ranges of seq, filtered inside the search: a filter after it would return nothing as soon as
other rows are nearer. Many vectors (a long chat, a user's whole history) are searched by their codes first
(``vector_codes``); the few that remain are measured exactly.
"""

import json
from collections.abc import Sequence

import apsw

from klaw.store.search import vector_codes
from klaw.store.search.vector_codes import Filters
from klaw.store.search.vector_distance import Neighbour, nearest_of

EXACT_UNTIL = 4_000
"""Vectors of a chat that a KNN reads one by one; with more, their codes come first."""
MAX_KNN = 4_096
"""The largest k that vec0 takes."""
ROUGH, FINE = 8_192, 1_024
"""Of a whole history, how many vectors the signs of their codes keep, and how many are then measured exactly."""
CHAT_ROUGH, CHAT_FINE = 1_024, 400
"""The same inside one chat."""
CERTAIN, CERTAINTY = 20, 2.0
"""Of a chat's nearest, those that are nearly surely the nearest; where the rest of a long list stands matters less.
With 3 standard deviations half as many vectors again are measured for 0.004 more of the recall@20."""

_KNN = """
SELECT rowid, distance FROM vec_messages
WHERE embedding MATCH ? AND k = ? AND chat_key = ? AND seq >= ? AND seq < ?
ORDER BY distance
"""


def nearest(
    connection: apsw.Connection, query: bytes, chat_key: int, first_seq: int, end_seq: int, limit: int
) -> Sequence[Neighbour]:
    """The nearest messages of a chat with first_seq <= seq < end_seq, nearest first. In a long chat the last ones of
    the list may miss a neighbour that is hardly nearer."""
    now = vector_codes.state(connection)
    if now is None or not now.complete or vector_codes.count(connection, chat_key) <= EXACT_UNTIL:
        return nearest_exact(connection, query, chat_key, first_seq, end_seq, limit)
    scope = Filters(chat_key=chat_key, first_seq=first_seq, end_seq=end_seq)
    fine = max(CHAT_FINE, 2 * limit)
    estimates = vector_codes.candidates(connection, now, query, scope, max(CHAT_ROUGH, 2 * fine), fine)

    def measure(rowids: list[int]) -> list[Neighbour]:
        rows = connection.execute(_MEASURE, (query, json.dumps(rowids)))
        return [Neighbour(rowid, distance) for rowid, distance in rows]

    return nearest_of(estimates, measure, limit, CERTAIN, CERTAINTY)


def nearest_exact(
    connection: apsw.Connection, query: bytes, chat_key: int, first_seq: int, end_seq: int, limit: int
) -> Sequence[Neighbour]:
    """The same by reading every vector of the chat."""
    rows = connection.execute(_KNN, (query, min(limit, MAX_KNN), chat_key, first_seq, end_seq))
    return [Neighbour(rowid, distance) for rowid, distance in rows if distance is not None]


# The scope is the codes': looking it up again here would cost as much as measuring.
_MEASURE = """
SELECT r.value, vec_distance_cosine(v.embedding, ?1) AS measured
FROM json_each(?2) AS r CROSS JOIN vec_messages AS v ON v.rowid = r.value
WHERE measured IS NOT NULL
"""
