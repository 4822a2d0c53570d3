"""Ranking what a search found, whatever it looks through. Pure.

The lists are fused (Reciprocal Rank Fusion), and the best of them, the pool, are ranked by a linear model over what is
known of each; messages are then ranked once more, by what the first scores say of those around each. The weights
(``ranker.json`` beside the features) are made by ``tools/train_ranker.py`` and ``tools/bench_kb.py``: listwise softmax
over the candidates of a question (ListNet, Cao and others, ICML 2007), weighted by evidence, with L2; one set for words
alone, for words and vectors, and for these with the scores of single tokens.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
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

    @cached_property
    def _of_part(self) -> Float64:
        """Which features (rows) are of which part (columns)."""
        return np.array([[float(name in names) for names in self.parts.values()] for name in self.names])

    def by_part(self, contributions: Float64) -> list[dict[str, float]]:
        """Candidates' contributions by what they say to a person; those that round to nothing are left out."""
        sums = np.round(contributions @ self._of_part, 2).tolist()
        return [{part: value for part, value in zip(self.parts, row, strict=True) if value} for row in sums]


@attrs.frozen(kw_only=True)
class Ranker:
    made: Mapping[str, Any]
    words: Mapping[str, float]
    vectors: Mapping[str, float]
    tokens: Mapping[str, float] = attrs.Factory(dict)
    again: Mapping[str, Mapping[str, float]] = attrs.Factory(dict)
    """Weights of the second pass, by the names of these sets; without them there is none."""
    other: "Ranker | None" = None
    """The ranker for chats with long messages, or for documents without pages, if that is another."""

    def weights(self, state: str, names: Sequence[str], *, again: bool = False) -> Float64:
        found = self.again.get(state, {}) if again else getattr(self, state)
        return np.array([found.get(name, 0.0) for name in names])


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
    again: Callable[[Float64], Mapping[str, Float64]] | None = None
    """Gives the columns of a second pass, by the scores of the first."""
    other: bool = False
    """Ranked by ``Ranker.other``."""
    rest: Callable[[float], Sequence[RankedEntry[T]]] = lambda _score: ()
    """Gives what else was found, with one score for all, the best of the fusion first."""

    def matrix(self, token_scores: Mapping[int, float]) -> Float64:
        """The features with token scores in standard deviations from their mean, which stands for what is unknown."""
        if not token_scores:
            return self.features
        features = self.features.copy()
        mean = sum(token_scores.values()) / len(token_scores)
        scores = np.array([token_scores.get(each.rowid, mean) for each in self.entries])
        features[:, self.of.names.index(TOKENS)] = (scores - mean) / (scores.std() + _LEAST_SPREAD)
        return features

    def with_scores(self, features: Float64, scores: Float64) -> Float64:
        """The features for the second pass, with what the scores of the first say."""
        columns = self.again(scores) if self.again is not None else {}
        features = features.copy()
        for name, column in columns.items():
            features[:, self.of.names.index(name)] = column
        return features

    def contributions(self, token_scores: Mapping[int, float]) -> Float64:
        """What each feature adds to each score, against the mean of the candidates."""
        ranker, features = built_in(self.of.package), self.matrix(token_scores)
        ranker = (ranker.other if self.other else None) or ranker
        state = TOKENS if token_scores else "vectors" if self.has_vector else "words"
        added: Float64 = centred(features) * ranker.weights(state, self.of.names)
        if self.again is not None and ranker.again:
            again = self.with_scores(features, added.sum(axis=1))
            added = centred(again) * ranker.weights(state, self.of.names, again=True)
        return added

    def rank(self, token_scores: Mapping[int, float] | None = None, limit: int | None = None) -> list[RankedEntry[T]]:
        """The best of the ranking by the learned model; of equals the newest first. Token scores are by row id."""
        if not self.entries:
            return []
        known = token_scores or {}
        added = self.contributions(known)
        scores = added.sum(axis=1)
        best = np.lexsort(([-each.rowid for each in self.entries], -scores))[:limit]
        return [
            attrs.evolve(self.entries[at], score=score, parts=parts, token_score=known.get(self.entries[at].rowid))
            for at, score, parts in zip(best.tolist(), scores[best].tolist(), self.of.by_part(added[best]), strict=True)
        ]


def centred(features: Float64) -> Float64:
    found: Float64 = features - features.mean(axis=0)
    return found


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
