"""Measuring the most promising vectors until the nearest are certain enough. Knows no SQL: it is given a function.

A vector's estimated distance is wrong by a few hundredths, so several hundred have to be measured exactly to be sure of
the nearest twenty, but how many differs from query to query. They are measured in groups, the most promising first;
it ends when the estimates of the rest, even if they are as far off as the group before shows, cannot reach the list.
"""

import heapq
import statistics
from collections.abc import Callable, Sequence

import attrs

GROUP = 64
"""Vectors measured at once."""
CERTAINTY = 2.5
"""By how many standard deviations an estimate may be too pessimistic."""


@attrs.frozen
class Neighbour:
    """One result of a search by vector."""

    rowid: int
    distance: float
    """Cosine distance, 0 to 2."""


def nearest_of(
    estimates: Sequence[tuple[int, float]], measure: Callable[[list[int]], Sequence[Neighbour]], limit: int
) -> list[Neighbour]:
    """The nearest vectors, nearest first.

    Args:
        estimates: row ids with estimated distances (up to a constant), the nearest first.
        measure: gives the distances of some; those that must not be found are left out.
        limit: how many are wanted.
    """
    best: list[Neighbour] = []
    start, group = 0, max(GROUP, limit)
    while start < len(estimates):
        part = estimates[start : start + group]
        measured = measure([rowid for rowid, _ in part])
        best = heapq.nsmallest(limit, [*best, *measured], key=lambda each: (each.distance, each.rowid))
        start, group = start + group, GROUP
        if start < len(estimates) and len(best) == limit and len(measured) > 1:
            by_rowid = dict(part)
            errors = [each.distance - by_rowid[each.rowid] for each in measured]
            likely = estimates[start][1] + statistics.fmean(errors)
            if likely - CERTAINTY * statistics.stdev(errors) > best[-1].distance:
                break
    return best
