"""Messages that say the same: the newer one is preferred, so that repetitions do not fill the budget. Pure."""

from collections.abc import Callable

import attrs

from klaw.domain.message import Message
from klaw.domain.recall import Candidate, Decision

SAME_SHARE = 0.9
"""Two messages say the same when they have at least so much of their stems in common."""
SIMILAR_LENGTH = 0.75
"""The shorter one has at least this share of the other's characters; with very short ones punctuation counts for much.
Comparing lengths first is what makes it cheap."""
_SHORT_CHARACTERS = 40
COMPARED = 20
"""So many of the best that passed are compared: more are hardly ever kept, and this runs on the event loop."""


def prefer_newer(candidates: list[Candidate], stems_of: Callable[[Message], frozenset[str]]) -> list[Candidate]:
    """Mark the older of the candidates that passed the gate and say the same as ``repeated``.

    The newest of them takes the place of the best of them: it must not be cut where the older one would have been kept.
    Only messages of one role repeat each other: an answer that quotes the user does not stand for what the user said.

    Args:
        candidates: the best first.
        stems_of: the different index forms (stems) of a message's words.

    Returns:
        All candidates, the best first.
    """
    newer = _find_newer(candidates, stems_of)
    if not newer:
        return candidates
    best: dict[int, int] = {}
    for older, newest in newer.items():
        best[newest] = min(older, best.get(newest, newest))
    order = sorted(range(len(candidates)), key=lambda at: (best.get(at, at), at not in best))
    return [_marked(candidates[at], candidates[newer[at]]) if at in newer else candidates[at] for at in order]


def _find_newer(candidates: list[Candidate], stems_of: Callable[[Message], frozenset[str]]) -> dict[int, int]:
    """Index of each repeated candidate to that of the newest that says the same."""
    known: dict[int, frozenset[str]] = {}

    def stems(at: int) -> frozenset[str]:
        if at not in known:
            known[at] = stems_of(candidates[at].message)
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


def _marked(candidate: Candidate, newer: Candidate) -> Candidate:
    return attrs.evolve(candidate, decision=Decision.REPEATED, repeated_by=newer.message.seq)
