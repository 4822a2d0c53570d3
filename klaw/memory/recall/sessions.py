"""What the scores of a first ranking say of the sessions in which its candidates were said: a question is mostly about
one of them, and its answer seldom stands alone. Pure."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import attrs
import numpy as np
import numpy.typing as npt

from klaw.actor.clock import from_iso
from klaw.domain.message import SESSION_PAUSE_S
from klaw.store.search.ranked_lists import MessagePlace

Ints: TypeAlias = npt.NDArray[np.int64]
Float64: TypeAlias = npt.NDArray[np.float64]

BEST = 3
"""So many of a session's candidates say how well it was found."""
BESIDE = 4
"""How many messages away another candidate speaks for one."""
FARTHEST = 30
"""Sessions; those farther from the best one, or of another chat, count as so far away: longer talk taught nothing."""


def session_numbers(chats: Ints, times: Float64) -> Ints:
    """The session of each moment (Unix seconds) of a chat, numbered from 0: a longer pause ends one. As only candidates
    are known, a session may be taken for two where nothing between was found."""
    order = np.lexsort((times, chats))
    numbers = np.zeros(len(times), np.int64)
    begins = (np.diff(times[order]) > SESSION_PAUSE_S) | (np.diff(chats[order]) > 0)
    numbers[order[1:]] = np.cumsum(begins)
    return numbers


@attrs.frozen(eq=False)
class Sessions:
    """How candidates stand to each other."""

    chats: Ints
    numbers: Ints
    """The session of each."""
    one: Ints
    """With ``other``: pairs of those of one session that are ``BESIDE`` messages apart or less."""
    other: Ints

    @classmethod
    def of(cls, places: Sequence[MessagePlace]) -> "Sessions":
        known = {place.chat: at for at, place in enumerate(places)}
        chats, seqs = np.array([(known[place.chat], place.seq) for place in places], np.int64).reshape(-1, 2).T
        numbers = session_numbers(chats, np.array([from_iso(place.created_at) for place in places]))
        order = np.lexsort((seqs, chats))
        pairs = []
        for off in range(1, BESIDE + 1):
            one, other = order[:-off], order[off:]
            near = (numbers[one] == numbers[other]) & (seqs[other] - seqs[one] <= BESIDE)
            pairs += [(one[near], other[near]), (other[near], one[near])]
        return cls(chats, numbers, *map(np.concatenate, zip(*pairs, strict=True)))

    def columns(self, scores: Float64) -> Mapping[str, Float64]:
        """The features of the second pass. Where fewer are there than wanted, the lowest score stands for them."""
        lowest, order, best = scores.min(), np.lexsort((-scores, self.numbers)), scores.argmax()
        ranked, session = scores[order], self.numbers[order]
        starts = np.flatnonzero(np.diff(session, prepend=-1))
        counted = np.arange(len(scores)) - starts[session] < BEST
        three = lowest + np.add.reduceat(np.where(counted, ranked - lowest, 0.0), starts) / BEST
        beside = np.full(len(scores), lowest)
        np.maximum.at(beside, self.one, scores[self.other])
        away = np.minimum(np.abs(self.numbers - self.numbers[best]), FARTHEST)
        return {
            "session_best": ranked[starts][self.numbers],
            "session_three": three[self.numbers],
            "session_away": np.log1p(np.where(self.chats == self.chats[best], away, FARTHEST)),
            "beside": beside,
        }
