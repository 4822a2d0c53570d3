"""SQL of a search by vector inside one chat. Segment and window are ranges of seq, filtered inside the search. Many
vectors are searched by their codes first (``vector_codes``); the few that remain are measured exactly.
"""

import json
from collections.abc import Callable, Sequence

import apsw
import attrs
import numpy as np

from klaw.store.search import vector_codes
from klaw.store.search.vector_codes import Filters

EXACT_UNTIL = 4_000
"""Vectors of a chat that a KNN reads one by one; with more, their codes come first."""
MAX_KNN = 4_096
"""The largest k that vec0 takes."""
ROUGH, FINE = 8_192, 1_024
"""How many vectors of a whole history the signs of their codes keep, and how many are then measured exactly."""
CHAT_ROUGH, CHAT_FINE = 1_024, 400
"""The same inside one chat."""
CERTAIN, CERTAINTY = 20, 2.0
"""How many of a chat's nearest are nearly surely the nearest; where the rest of a long list stands matters less.
With 3 standard deviations half as many vectors again are measured for 0.004 more of the recall@20."""
GROUP, USUAL_CERTAINTY = 32, 3.0
"""Vectors measured at once; by how many standard deviations an estimate may be too pessimistic, usually."""


@attrs.frozen
class Neighbour:
    """One result of a search by vector: its row and its cosine distance, 0 to 2."""

    rowid: int
    distance: float


def nearest_of(
    estimates: Sequence[tuple[int, float]],
    measure: Callable[[list[int]], Sequence[Neighbour]],
    limit: int,
    certain: int | None = None,
    certainty: float = USUAL_CERTAINTY,
) -> list[Neighbour]:
    """Measure the most promising vectors until the nearest are certain enough; nearest first.

    An estimated distance is wrong by about 0.005, so up to some hundred have to be measured to be sure of the nearest
    twenty: in groups, until the rest cannot reach the list, even if their estimates are as far off as those so far.

    ``estimates`` are row ids with estimated distances (up to a constant), the nearest first. ``measure`` leaves out
    those that must not be found. ``certain`` of them have to be the nearest (None: all); the others are filled up by
    their estimates and may hold some that ``measure`` would leave out. ``certainty`` is in standard deviations.
    """
    wanted = limit if certain is None else min(limit, certain)
    measured: dict[int, Neighbour] = {}
    best: list[Neighbour] = []
    errors: list[float] = []
    start, group = 0, max(GROUP, wanted)
    while start < len(estimates):
        part = dict(estimates[start : start + group])
        found = measure(list(part))
        measured.update((each.rowid, each) for each in found)
        best = sorted([*best, *found], key=_order)[:wanted]
        errors += [each.distance - part[each.rowid] for each in found]
        start, group = start + group, GROUP
        if start < len(estimates) and len(best) == wanted and len(errors) >= GROUP:
            # The most promising estimates are too good rather than too bad, so this errs to the safe side only with
            # the mean over all that were measured, not over the last group.
            usual, spread = float(np.mean(errors)), float(np.std(errors, ddof=1))
            if estimates[start][1] + usual - certainty * spread > best[-1].distance:
                break
    if wanted == limit or not errors:
        return best
    usual = float(np.mean(errors))
    filling = (Neighbour(rowid, estimate + usual) for rowid, estimate in estimates[start : start + limit])
    return sorted([*measured.values(), *filling], key=_order)[:limit]


def _order(each: Neighbour) -> tuple[float, int]:
    return each.distance, each.rowid


_KNN = """
SELECT rowid, distance FROM vec_messages
WHERE embedding MATCH ? AND k = ? AND chat_key = ? AND seq >= ? AND seq < ?
ORDER BY distance
"""


def nearest(
    connection: apsw.Connection, query: bytes, chat_key: int, first_seq: int, end_seq: int, limit: int
) -> Sequence[Neighbour]:
    """A chat's nearest messages, nearest first. In a long chat the last ones may miss one that is hardly nearer."""
    now = vector_codes.state(connection)
    if now is None or not now.complete or vector_codes.count(connection, chat_key) <= EXACT_UNTIL:
        return nearest_exact(connection, query, chat_key, first_seq, end_seq, limit)
    scope = Filters(chat_key=chat_key, first_seq=first_seq, end_seq=end_seq)
    fine = max(CHAT_FINE, 2 * limit)
    estimates = vector_codes.candidates(connection, now, query, scope, max(CHAT_ROUGH, 2 * fine), fine)

    def measure(rowids: list[int]) -> list[Neighbour]:
        return [Neighbour(*row) for row in connection.execute(_MEASURE, (query, json.dumps(rowids)))]

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
