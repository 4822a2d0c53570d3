"""Ranking what a search found, whatever it looks through. Pure.

The lists are fused (Reciprocal Rank Fusion), and the best of them, the pool, are ranked by a linear model over what is
known of each. Its weights (``ranker.json`` beside the features) are made by ``tools/train_ranker.py`` and
``tools/bench_kb.py``: listwise softmax over the candidates of a question (ListNet, Cao and others, ICML 2007), weighted
by evidence, with L2; one set for words alone, for words and vectors, and for these with the scores of single tokens.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from importlib import resources
from itertools import zip_longest
from typing import Any, Generic, TypeAlias, TypeVar

import attrs
import numpy as np
import numpy.typing as npt

from klaw.convert import JOURNAL
from klaw.domain.search import RankDetails, Ranks
from klaw.store.search.ranked_lists import Lists

Float64: TypeAlias = npt.NDArray[np.float64]
T = TypeVar("T")

RRF_K = 60
"""Constant of Reciprocal Rank Fusion (Cormack, Clarke and Büttcher, SIGIR 2009)."""
_LEAST_SPREAD = 0.01
"""Smaller differences of token scores say little."""
TOKENS = "tokens"


@attrs.frozen(kw_only=True)
class FeatureSet:
    """What is known of the candidates of a kind, as the columns of a matrix."""

    package: str
    """Where ``ranker.json`` has the weights."""
    parts: Mapping[str, tuple[str, ...]]
    """The features by what they say to a person."""

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(name for names in self.parts.values() for name in names)

    def by_part(self, contributions: Sequence[float]) -> dict[str, float]:
        """A candidate's contributions by what they say to a person; those that round to nothing are left out."""
        each = dict(zip(self.names, contributions, strict=True))
        sums = {part: round(sum(each[name] for name in names), 2) for part, names in self.parts.items()}
        return {part: value for part, value in sums.items() if value}


@attrs.frozen(kw_only=True)
class Ranker:
    made: Mapping[str, Any]
    words: Mapping[str, float]
    vectors: Mapping[str, float]
    tokens: Mapping[str, float] = attrs.Factory(dict)

    def contributions(self, features: Float64, names: Sequence[str], *, vectors: bool, tokens: bool = False) -> Float64:
        """What each feature (a column of ``names``) adds to each score, against the mean of the candidates."""
        weights = self.tokens if tokens else self.vectors if vectors else self.words
        columns = np.array([weights.get(name, 0.0) for name in names])
        centred: Float64 = (features - features.mean(axis=0)) * columns
        return centred


@lru_cache(maxsize=2)
def built_in(package: str) -> Ranker:
    text = resources.files(package).joinpath("ranker.json").read_text(encoding="utf-8")
    return JOURNAL.read(json.loads(text), Ranker)


@attrs.frozen(kw_only=True)
class RankedEntry(RankDetails, Generic[T]):
    rowid: int
    item: T


@attrs.frozen(kw_only=True, eq=False)
class Pool(Generic[T]):
    found: int = 0
    entries: Sequence[RankedEntry[T]] = ()
    """The best of the fusion first; their score is the fused one."""
    features: Float64 = attrs.Factory(lambda: np.empty((0, 0)))
    has_vector: bool = False
    of: FeatureSet

    def matrix(self, token_scores: Mapping[int, float]) -> Float64:
        """The features with token scores in standard deviations from their mean, which stands for what is unknown."""
        if not token_scores:
            return self.features
        features = self.features.copy()
        mean = sum(token_scores.values()) / len(token_scores)
        scores = np.array([token_scores.get(each.rowid, mean) for each in self.entries])
        features[:, self.of.names.index(TOKENS)] = (scores - mean) / (scores.std() + _LEAST_SPREAD)
        return features

    def rank(self, token_scores: Mapping[int, float] | None = None, limit: int | None = None) -> list[RankedEntry[T]]:
        """The best of the ranking by the learned model; of equals the newest first. Token scores are by row id."""
        if not self.entries:
            return []
        known = token_scores or {}
        added = built_in(self.of.package).contributions(
            self.matrix(known), self.of.names, vectors=self.has_vector, tokens=bool(known)
        )
        scores = added.sum(axis=1)
        order = np.lexsort(([-each.rowid for each in self.entries], -scores))
        return [
            attrs.evolve(
                self.entries[at],
                score=float(scores[at]),
                parts=self.of.by_part(added[at].tolist()),
                token_score=known.get(self.entries[at].rowid),
            )
            for at in order[:limit].tolist()
        ]


def ranks_of(rowids: Iterable[int]) -> dict[int, int]:
    return {rowid: rank for rank, rowid in enumerate(rowids, 1)}


def reciprocal_rank_fusion(rankings: Sequence[tuple[float, Sequence[T]]]) -> dict[T, float]:
    """Score of each item over all weighted rankings: the sum of weight / (RRF_K + rank), ranks from 1."""
    scores: dict[T, float] = {}
    for weight, ranking in rankings:
        for rank, item in enumerate(ranking, 1):
            scores[item] = scores.get(item, 0.0) + weight / (RRF_K + rank)
    return scores


def fuse(lists: Lists) -> dict[int, Ranks]:
    """What the lists by vector and by words say of each row id in one of them; the score is the fused one."""
    near = {each.rowid: (rank, each.distance) for rank, each in enumerate(lists.neighbours, 1)}
    hits = {hit.rowid: (rank, hit.bm25) for rank, hit in enumerate(lists.hits, 1)}
    made = {}
    for rowid, score in reciprocal_rank_fusion([(1.0, list(near)), (1.0, list(hits))]).items():
        vector_rank, distance = near.get(rowid, (None, None))
        text_rank, bm25 = hits.get(rowid, (None, None))
        made[rowid] = Ranks(score=score, vector_rank=vector_rank, distance=distance, text_rank=text_rank, bm25=bm25)
    return made


def mix(lists: Sequence[Sequence[T]]) -> list[T]:
    """One list out of several whose scores cannot be compared: the first of each, then the second of each …"""
    return [each for row in zip_longest(*lists) for each in row if each is not None]
