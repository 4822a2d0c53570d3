"""The learned ranker: a linear model over what is known of each message that a search found. Pure.

Its weights are data (``ranker.json``), made by ``tools/train_ranker.py``: listwise softmax over the candidates of a
question (ListNet, Cao and others, ICML 2007), weighted by evidence, with L2. There is a set of weights for each state
of recall: words alone, words and vectors, and these with the scores of single tokens.
"""

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib import resources
from typing import Any, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt

from klaw.convert import JOURNAL

Float64: TypeAlias = npt.NDArray[np.float64]

PARTS: Mapping[str, tuple[str, ...]] = {
    "meaning": ("distance", "tokens"),
    "words": ("text_rank", "own", "own_squared", "overlap", "overlap_squared"),
    "neighbours": ("density",),
    "speaker": ("speaker",),
    "days": ("in_period", "after_period"),
    "length": ("length",),
}
"""The features by what they say to a person."""
FEATURES = tuple(name for names in PARTS.values() for name in names)
"""The columns of a matrix of features, in their order."""


@attrs.frozen(kw_only=True)
class Ranker:
    """Weights of the features, by the state of recall they are for."""

    made: Mapping[str, Any]
    """By what, when and from what they were made."""
    words: Mapping[str, float]
    vectors: Mapping[str, float]
    tokens: Mapping[str, float] = attrs.Factory(dict)

    def contributions(
        self, features: Float64, *, vectors: bool, tokens: bool = False, names: Sequence[str] = FEATURES
    ) -> Float64:
        """What each feature adds to each score, against the mean of the candidates.

        Args:
            features: a row for each candidate of one question, the columns of ``names``.
            vectors: the question had a vector.
            tokens: … and the codes of its tokens.
            names: of the features.
        """
        weights = self.tokens if tokens else self.vectors if vectors else self.words
        columns = np.array([weights.get(name, 0.0) for name in names])
        centred: Float64 = (features - features.mean(axis=0)) * columns
        return centred


def parts(contributions: Sequence[float], of: Mapping[str, Sequence[str]] = PARTS) -> dict[str, float]:
    """A candidate's contributions by what they say to a person; those that round to nothing are left out."""
    each = dict(zip((name for names in of.values() for name in names), contributions, strict=True))
    sums = {part: round(sum(each[name] for name in names), 2) for part, names in of.items()}
    return {part: value for part, value in sums.items() if value}


@lru_cache(maxsize=2)
def built_in(package: str = "klaw.memory.recall") -> Ranker:
    """The ranker that Klaw comes with, for messages or for passages of documents (``klaw.knowledge``)."""
    text = resources.files(package).joinpath("ranker.json").read_text(encoding="utf-8")
    return JOURNAL.read(json.loads(text), Ranker)
