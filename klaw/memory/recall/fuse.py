"""Fusing ranked lists. Pure."""

from collections.abc import Sequence

RRF_K = 60
"""Constant of Reciprocal Rank Fusion (Cormack, Clarke and Büttcher, SIGIR 2009)."""


def reciprocal_rank_fusion(rankings: Sequence[tuple[float, Sequence[int]]]) -> dict[int, float]:
    """Score of each item over all rankings: the sum of weight / (RRF_K + rank), ranks from 1.

    Args:
        rankings: the weight of a list and its row ids, the best first.

    Returns:
        Row id to score, in no order that means anything.
    """
    scores: dict[int, float] = {}
    for weight, ranking in rankings:
        for rank, rowid in enumerate(ranking, 1):
            scores[rowid] = scores.get(rowid, 0.0) + weight / (RRF_K + rank)
    return scores
