"""The relevance gate: small talk recalls nothing, a real question is not starved. Pure.

Similarity alone cannot tell: multilingual-e5 puts "thanks" as near to some old message as a real question to its
answer. So the gate first asks whether the query has content at all, then lets a candidate pass that is near enough by
vector or that shares enough of the query's content words.
"""

import attrs

from klaw.domain.recall import Decision

ENOUGH_OVERLAP = 0.5
"""Share of the query's content words that lets a candidate pass without a near vector."""


def calibrated(cosine_distance: float, random_cosine: float) -> float:
    """Cosine distance on the model's own scale: 0 = identical, 1 = as far as random pairs of this model.

    Squared, because embeddings of related texts fill the far half of the linear scale: on it, answers to real
    questions lie around 0.7 and random pairs at 1, squared around 0.5.

    Args:
        cosine_distance: 1 - cosine, 0 to 2.
        random_cosine: mean cosine of unrelated texts, from the model's manifest; below 1.
    """
    linear = max(0.0, cosine_distance) / (1.0 - random_cosine)
    return linear * linear


@attrs.frozen(kw_only=True)
class Gate:
    """Decides on one query's candidates.

    Args:
        threshold: ``autoRag.relevanceThreshold``.
        content_words: how many content words the query has.
    """

    threshold: float
    content_words: int

    def decide(self, distance: float | None, shared_words: int) -> Decision:
        """Decide on one candidate.

        Args:
            distance: calibrated distance, or None when it was not among the nearest vectors.
            shared_words: how many of the query's content words it has.
        """
        if self.content_words == 0:
            return Decision.NO_CONTENT
        if distance is not None and distance <= self.threshold:
            return Decision.NEAR
        if shared_words and shared_words / self.content_words >= ENOUGH_OVERLAP:
            return Decision.WORDS
        return Decision.TOO_FAR
