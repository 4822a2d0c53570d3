"""Measuring the most promising vectors until the nearest are certain enough. Knows no SQL: it is given a function.

A vector's estimated distance is wrong by about 0.005, so up to some hundred have to be measured to be sure of the
nearest twenty; how many differs from query to query. They are measured in groups, the most promising first. It ends
when the rest cannot reach the list, even if their estimates are as far off as those of the measured ones.
"""

from collections.abc import Callable, Sequence

import attrs
import numpy as np

GROUP = 32
"""Vectors measured at once."""
CERTAINTY = 3.0
"""By how many standard deviations an estimate may be too pessimistic, unless the caller is content with less."""


@attrs.frozen
class Neighbour:
    """One result of a search by vector."""

    rowid: int
    distance: float
    """Cosine distance, 0 to 2."""


def nearest_of(
    estimates: Sequence[tuple[int, float]],
    measure: Callable[[list[int]], Sequence[Neighbour]],
    limit: int,
    certain: int | None = None,
    certainty: float = CERTAINTY,
) -> list[Neighbour]:
    """The nearest vectors, nearest first.

    Args:
        estimates: row ids with estimated distances (up to a constant), the nearest first.
        measure: gives the distances of some; those that must not be found are left out.
        limit: how many are wanted.
        certain: how many of them have to be the nearest, all if it is None; the others are filled up by their estimates
            and may hold some that ``measure`` would leave out.
        certainty: by how many standard deviations an estimate may be too pessimistic.
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
