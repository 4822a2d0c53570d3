"""The relevance gate: small talk recalls nothing, a real question is not starved. Pure.

Similarity alone cannot tell: multilingual-e5 puts "thanks" as near to some old message as a real question to its
answer. So a query without content words recalls nothing, and one that only tells the model to do something ("write a
haiku about the sea") needs stronger evidence. Then some candidate must show that the conversation has something on it:
by a near vector, or enough of the query's words. If one does, the others pass by their rank, unless they are as far
away as chance. Of those that passed and say the same, the newest counts, so that repetitions do not fill the budget.
"""

import math
import re
from collections.abc import Collection, Sequence
from typing import TypeVar

import attrs

from klaw.domain.message import Message
from klaw.domain.search import Candidate, Decision, RankDetails, fields_of
from klaw.memory.recall.excerpt import LINE_TOKENS
from klaw.memory.recall.ranker import RankedEntry
from klaw.store.engine.tokenizer import stem
from klaw.store.search.ranked_lists import MessagePlace

T = TypeVar("T")

ENOUGH_OVERLAP, ENOUGH_OF_SEVERAL = 1 / 3, 1 / 4
"""Share of the query's content words in one message that shows relevance alone; and if they are two or more."""
COMMAND_THRESHOLD = 0.3
"""A command to the model must have a vector within this share of the threshold, or ``COMMAND_OVERLAP``."""
COMMAND_OVERLAP = 0.75
"""Share of a command's content words, at least two, that one message must have."""
AS_FAR_AS_CHANCE = 1.0
"""Calibrated distance of random pairs: what is no nearer, and shares no word, is not recalled whatever its rank."""


def calibrated(cosine_distance: float | None, random_cosine: float) -> float | None:
    """Cosine distance on the model's own scale: 0 = identical, 1 = as far as random pairs of this model, whose mean
    cosine its manifest has. Cubed, because embeddings of related texts fill the far half of the linear scale: there,
    the best hits of real questions lie between 0.5 and 0.8 and random pairs at 1. Cubed, 0.5 is where relevance ends.
    """
    if cosine_distance is None:
        return None
    linear = max(0.0, cosine_distance) / (1.0 - random_cosine)
    return linear**3


def enough_overlap(shared_words: int, *, command: bool) -> float:
    """Which share of the query's content words a message must have to be relevant by them, if it has so many."""
    if command:
        return COMMAND_OVERLAP if shared_words > 1 else math.inf
    return ENOUGH_OF_SEVERAL if shared_words > 1 else ENOUGH_OVERLAP


@attrs.frozen(kw_only=True)
class Evidence:
    """What speaks for a candidate: its calibrated distance, if it is among the nearest, and its content words; those
    that a model added to the query never do so alone."""

    distance: float | None
    shared_words: int
    added_words: int = 0

    @property
    def is_related(self) -> bool:
        """Nearer to the query than chance."""
        return self.shared_words + self.added_words > 0 or (
            self.distance is not None and self.distance < AS_FAR_AS_CHANCE
        )


@attrs.frozen(kw_only=True)
class Gate:
    """Decides on one query's candidates. ``threshold`` is ``autoRag.relevanceThreshold``."""

    threshold: float
    content_words: int
    command: bool = False

    def decide(self, candidates: Sequence[Evidence]) -> list[Decision]:
        if self.content_words == 0:
            return [Decision.NO_CONTENT] * len(candidates)
        alone = [self._alone(candidate) for candidate in candidates]
        if not any(alone):
            return [Decision.TOO_FAR] * len(candidates)
        return [
            decision or (Decision.RANKED if not self.command and candidate.is_related else Decision.TOO_FAR)
            for decision, candidate in zip(alone, candidates, strict=True)
        ]

    def _alone(self, candidate: Evidence) -> Decision | None:
        """Whether a candidate shows by itself that the conversation has something on the query."""
        near = self.threshold * (COMMAND_THRESHOLD if self.command else 1.0)
        if candidate.distance is not None and candidate.distance <= near:
            return Decision.NEAR
        overlap = candidate.shared_words / self.content_words
        return Decision.WORDS if overlap >= enough_overlap(candidate.shared_words, command=self.command) else None


COMPARED_CHARACTERS = 2_000
"""The beginning of a message whose words are compared."""
_WORD = re.compile(r"\w+")
"""Quicker than the tokenizer, and good enough to compare two messages with each other."""


def _stems(message: Message) -> frozenset[str]:
    return frozenset(map(stem, _WORD.findall(message.content[:COMPARED_CHARACTERS])))


def judge(entries: Sequence[RankedEntry[T]], gate: Gate, random_cosine: float) -> list[tuple[RankedEntry[T], Decision]]:
    """Let the gate decide on what was found, the best first. The distances become calibrated ones."""
    near = [attrs.evolve(each, distance=calibrated(each.distance, random_cosine)) for each in entries]
    evidence = [
        Evidence(distance=each.distance, shared_words=each.shared_words, added_words=each.added_words) for each in near
    ]
    return list(zip(near, gate.decide(evidence), strict=True))


def judge_messages(
    ranked: Sequence[RankedEntry[MessagePlace]], found: Sequence[Message], gate: Gate, random_cosine: float
) -> list[Candidate]:
    by_rowid = {message.rowid: message for message in found}
    read = [each for each in ranked if each.rowid in by_rowid]
    return [
        Candidate(
            **fields_of(each, RankDetails),
            message=(message := by_rowid[each.rowid]),
            decision=decision,
            text=message.content,
            tokens=message.tokens + LINE_TOKENS,
        )
        for each, decision in judge(read, gate, random_cosine)
    ]


def without(candidates: Sequence[Candidate], unwanted: Collection[int]) -> list[Candidate]:
    """Mark those that passed though the user never wants them again, by the numbers of their messages."""
    return [
        attrs.evolve(each, decision=Decision.UNWANTED) if each.passed and each.message.seq in unwanted else each
        for each in candidates
    ]


SAME_SHARE = 0.9
"""Two messages say the same when they have at least so much of their stems in common."""
SIMILAR_LENGTH = 0.75
"""The shorter one has at least this share of the other's characters, unless both are very short. Quick to compare."""
_SHORT_CHARACTERS = 40
COMPARED = 20
"""So many of the best that passed are compared; more are hardly ever kept."""


def prefer_newer(candidates: list[Candidate]) -> list[Candidate]:
    """All candidates, the best first; of those that passed the gate and say the same, the older are ``repeated``. The
    newest takes the place of the best: it must not be cut where the older one would have been kept. Only messages of
    one role repeat each other: an answer that quotes the user does not stand for what the user said."""
    newer = _find_newer(candidates)
    if not newer:
        return candidates
    best: dict[int, int] = {}
    for older, newest in newer.items():
        best[newest] = min(older, best.get(newest, newest))
    order = sorted(range(len(candidates)), key=lambda at: (best.get(at, at), at not in best))
    return [
        attrs.evolve(candidates[at], decision=Decision.REPEATED, repeated_by=candidates[newer[at]].message.seq)
        if at in newer
        else candidates[at]
        for at in order
    ]


def _find_newer(candidates: list[Candidate]) -> dict[int, int]:
    known: dict[int, frozenset[str]] = {}

    def stems(at: int) -> frozenset[str]:
        if at not in known:
            known[at] = _stems(candidates[at].message)
        return known[at]

    alone: list[int] = []
    newer: dict[int, int] = {}
    passed = [at for at, each in enumerate(candidates) if each.passed][:COMPARED]
    for at in sorted(passed, key=lambda at: -candidates[at].message.seq):
        message = candidates[at].message
        similar = (other for other in alone if _may_be_same(message, candidates[other].message))
        twin = next((other for other in similar if _is_same(stems(at), stems(other))), None)
        if twin is None:
            alone.append(at)
        else:
            newer[at] = twin
    return newer


def _may_be_same(one: Message, other: Message) -> bool:
    shorter, longer = sorted((len(one.content), len(other.content)))
    return one.role is other.role and (longer <= _SHORT_CHARACTERS or shorter >= SIMILAR_LENGTH * longer)


def _is_same(one: frozenset[str], other: frozenset[str]) -> bool:
    shorter, longer = sorted((len(one), len(other)))
    if not shorter or shorter < SAME_SHARE * longer:
        return False
    common = len(one & other)
    return common >= SAME_SHARE * (shorter + longer - common)
