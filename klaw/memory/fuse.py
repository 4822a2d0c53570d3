"""Fusing ranked lists. Pure."""

from collections.abc import Sequence

RRF_K = 60
"""Constant of Reciprocal Rank Fusion (Cormack, Clarke and Büttcher, SIGIR 2009)."""


def reciprocal_rank_fusion(rankings: Sequence[Sequence[int]]) -> dict[int, float]:
    """Score of each item over all rankings: the sum of 1 / (RRF_K + rank), ranks from 1.

    Args:
        rankings: lists of row ids, the best first.

    Returns:
        Row id to score, the best first; ties go to the newer row.
    """
    scores: dict[int, float] = {}
    for ranking in rankings:
        for rank, rowid in enumerate(ranking, 1):
            scores[rowid] = scores.get(rowid, 0.0) + 1.0 / (RRF_K + rank)
    return dict(sorted(scores.items(), key=lambda item: (-item[1], -item[0])))
