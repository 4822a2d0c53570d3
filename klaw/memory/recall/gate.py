"""The relevance gate: small talk recalls nothing, a real question is not starved. Pure.

Similarity alone cannot tell: multilingual-e5 puts "thanks" as near to some old message as a real question to its
answer. So the gate looks at the query first: without content words it recalls nothing, and one that only tells the
model to do something ("write a haiku about the sea") needs stronger evidence. Then the best candidates must show that
the conversation has something on it: a near vector, or enough of the query's words. Where they do, the others pass by
their rank, unless they are as far away as chance; where they do not, nothing passes.
"""

import math
import re
from collections.abc import Sequence

import attrs

from klaw.domain.recall import Decision
from klaw.memory.recall.smalltalk import is_about_us

ENOUGH_OVERLAP = 1 / 3
"""Share of the query's content words in one message that shows relevance without a near vector …"""
ENOUGH_OF_SEVERAL = 1 / 4
"""… if they are two or more."""
COMMAND_THRESHOLD = 0.3
"""A command to the model must have a vector within this share of the threshold …"""
COMMAND_OVERLAP = 0.75
"""… or so many of their words, and at least two, in one message."""
AS_FAR_AS_CHANCE = 1.0
"""Calibrated distance of random pairs: what is no nearer, and shares no word, is not recalled whatever its rank."""

_COMMAND = re.compile(
    r"""\W*(?:please\s+|can\ you\s+|could\ you\s+|пожалуйста,?\s+)?
    (?:tell\ me\ an?\b|tell\ us\ an?\b|write\b|compose\b|translate\b|sing\b|generate\b|calculate\b|compute\b|convert\b
      |define\b|spell\b|count\b|rhyme\b|draw\b|explain\b|summari[sz]e\b
      |what\ time\ is\ it\b|what(?:'s|\ is)\ the\ (?:time|date)\b(?!\ of)|what\ day\ is\ (?:it|today)\b
      |расскажи\ (?:анекдот|шутку|сказку|что-нибудь)|напиши\b|сочини\b|переведи\b|спой\b|придумай\b|посчитай\b
      |вычисли\b|сгенерируй\b|нарисуй\b|объясни\b|который\ (?:сейчас\ )?час\b
      |сколько\ (?:сейчас\ )?времени\W*$|как(?:ое|ой)\ сегодня\ (?:число|день))""",
    re.VERBOSE | re.IGNORECASE,
)
_SUM = re.compile(r"\d\s*[+*×÷^]\s*\d|\d\s+[-−/]\s+\d|\d\s?%\s(?:of|от)\s\d")


def is_command(query: str) -> bool:
    """Whether a query tells the model to do something that needs nothing from the conversation, as far as words show.

    One that speaks of the user or of what was said ("write to my sister about …") is none.
    """
    if is_sum(query):
        return True
    match = _COMMAND.match(query)
    return match is not None and not is_about_us(query, match.end())


def is_sum(query: str) -> bool:
    """Whether a query has something to calculate: its numbers then say nothing about the conversation."""
    return _SUM.search(query) is not None


def calibrated(cosine_distance: float, random_cosine: float) -> float:
    """Cosine distance on the model's own scale: 0 = identical, 1 = as far as random pairs of this model.

    Cubed, because embeddings of related texts fill the far half of the linear scale: there, the best hits of real
    questions lie between 0.5 and 0.8 and random pairs at 1. Cubed, 0.5 is where relevance ends.

    Args:
        cosine_distance: 1 - cosine, 0 to 2.
        random_cosine: mean cosine of unrelated texts, from the model's manifest; below 1.
    """
    linear = max(0.0, cosine_distance) / (1.0 - random_cosine)
    return linear**3


def enough_overlap(shared_words: int, *, command: bool) -> float:
    """Which share of the query's content words a message must have to be relevant by them, if it has so many."""
    if command:
        return COMMAND_OVERLAP if shared_words > 1 else math.inf
    return ENOUGH_OF_SEVERAL if shared_words > 1 else ENOUGH_OVERLAP


@attrs.frozen(kw_only=True)
class Evidence:
    """What speaks for one candidate."""

    distance: float | None
    """Calibrated, or None when it was not among the nearest vectors."""
    shared_words: int
    """How many of the query's content words it has."""


@attrs.frozen(kw_only=True)
class Gate:
    """Decides on one query's candidates.

    Args:
        threshold: ``autoRag.relevanceThreshold``.
        content_words: how many content words the query has.
        command: ``is_command`` of the query.
    """

    threshold: float
    content_words: int
    command: bool = False

    def decide(self, candidates: Sequence[Evidence]) -> list[Decision]:
        """Decide on all candidates of a query, in their order."""
        if self.content_words == 0:
            return [Decision.NO_CONTENT] * len(candidates)
        alone = [self._alone(candidate) for candidate in candidates]
        if not any(alone):
            return [Decision.TOO_FAR] * len(candidates)
        return [
            decision or (Decision.RANKED if self._is_related(candidate) else Decision.TOO_FAR)
            for decision, candidate in zip(alone, candidates, strict=True)
        ]

    def _alone(self, candidate: Evidence) -> Decision | None:
        """Whether a candidate by itself shows that the conversation has something on the query."""
        near = self.threshold * (COMMAND_THRESHOLD if self.command else 1.0)
        if candidate.distance is not None and candidate.distance <= near:
            return Decision.NEAR
        overlap = candidate.shared_words / self.content_words
        return Decision.WORDS if overlap >= enough_overlap(candidate.shared_words, command=self.command) else None

    def _is_related(self, candidate: Evidence) -> bool:
        if self.command:
            return False
        near = candidate.distance is not None and candidate.distance < AS_FAR_AS_CHANCE
        return near or candidate.shared_words > 0
