"""Ranking what the searches found: shared scores, fusion, and what the question itself says of the message. Pure.

The steps and what each of them brought are in docs/benchmarks.md.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from itertools import zip_longest
from typing import TypeVar

import attrs

from klaw.domain.message import SESSION_PAUSE_S
from klaw.domain.search import Kind, Ranks
from klaw.memory.recall.dates import Period
from klaw.memory.recall.excerpt import speaker_stems
from klaw.store.search.candidates import Lists, Place

RRF_K = 60
"""Constant of Reciprocal Rank Fusion (Cormack, Clarke and Büttcher, SIGIR 2009)."""
VECTOR_WEIGHT = 1.0
TEXT_WEIGHT = 1.0
DATED_WEIGHT = 1.0

FROM_PREVIOUS = 0.5
"""Share of a message's full-text score that the next message gets: an answer seldom repeats the question's words."""
FROM_NEXT = 0.2
"""… and the message before it."""

K1, B, USUAL_TOKENS = 1.2, 0.2, 40
"""Of BM25; messages differ less in length than documents, and the longer ones say more."""

LENGTH_POWER = 0.1
"""A longer message says more: scores grow with this power of its tokens, between ``SHORT`` and ``LONG``."""
SHORT, LONG = 10, 80

_LEAST, _MOST = SHORT**LENGTH_POWER, LONG**LENGTH_POWER

SPEAKER_FACTOR = 1.2
"""For messages of a person whom the question names ("Anna: …" in a group or an imported chat)."""
IN_PERIOD_FACTOR = 1.6
"""For what was said in the days that the question names, or on the day after."""
AFTER_PERIOD_FACTOR = 1.2
"""For what was said in the week after them."""
DAY, WEEK = timedelta(days=1), timedelta(days=8)


T = TypeVar("T")


@attrs.frozen(kw_only=True)
class Entry(Ranks):
    """A message, a fact, a piece of a file or a note on a tool call that was found."""

    kind: Kind = "message"
    rowid: int
    boosts: tuple[str, ...] = ()
    """Why a message's score was raised: ``speaker``, ``date``."""

    @property
    def key(self) -> tuple[Kind, int]:
        return self.kind, self.rowid


@attrs.frozen(kw_only=True)
class Ranked(Entry):
    """One message of the fused ranking; its BM25 is None when it is in the list by its neighbours alone."""

    place: Place
    rowid: int = attrs.field(init=False)
    dated_rank: int | None
    """Rank by vector among what was said in the days that the question names."""
    shared_words: int
    """How many of the question's content words it has."""

    @rowid.default
    def _rowid(self) -> int:
        return self.place.rowid


@attrs.frozen(kw_only=True)
class Ranking:
    """What the searches found, ranked."""

    found: int
    """How many messages they found."""
    best: Sequence[Ranked]
    """The best first."""


def rank(lists: Lists, names: Iterable[str], periods: Sequence[Period], limit: int | None = None) -> Ranking:
    """Fuse the lists into one ranking; ties go to the newer message.

    Args:
        lists: what the searches found.
        names: stems of the question's words, among which may be names of speakers.
        periods: the days that the question names.
        limit: how many of the best are wanted, all if it is None.
    """
    places = {place.rowid: place for place in lists.places}
    text = _by_words(lists, places)
    fused = reciprocal_rank_fusion(
        [
            (VECTOR_WEIGHT, [near.rowid for near in lists.neighbours]),
            (TEXT_WEIGHT, text),
            (DATED_WEIGHT, [near.rowid for near in lists.dated]),
        ]
    )
    distances = {near.rowid: near.distance for near in (*lists.dated, *lists.neighbours)}
    vector_ranks = _ranks(near.rowid for near in lists.neighbours)
    text_ranks = _ranks(text)
    dated_ranks = _ranks(near.rowid for near in lists.dated)
    hits = {hit.rowid: hit for hit in lists.hits}
    wanted = frozenset(names)
    # What has no place is out of reach, or in an index only.
    placed = sorted(((score, rowid) for rowid, score in fused.items() if rowid in places), reverse=True)
    floor = placed[limit - 1][0] * _LEAST if limit and len(placed) >= limit else 0.0
    most = _MOST * SPEAKER_FACTOR * (IN_PERIOD_FACTOR if periods else 1.0)
    scored: list[tuple[float, int, tuple[str, ...]]] = []
    for score, rowid in placed:
        if score * most < floor:
            break
        factor, boosts = _factor(places[rowid], wanted, periods)
        scored.append((-score * factor, -rowid, boosts))
    scored.sort()
    best = [
        Ranked(
            place=places[-negated],
            score=-score,
            vector_rank=vector_ranks.get(-negated),
            distance=distances.get(-negated),
            text_rank=text_ranks.get(-negated),
            dated_rank=dated_ranks.get(-negated),
            bm25=hits[-negated].bm25 if -negated in hits else None,
            shared_words=hits[-negated].shared if -negated in hits else 0,
            boosts=boosts,
        )
        for score, negated, boosts in scored[:limit]
    ]
    return Ranking(found=len(fused), best=best)


def reach(limit: int) -> int:
    """The last rank by vector from which a row that is in no other list can be among the best ``limit``."""
    return int((RRF_K + limit) * _MOST * SPEAKER_FACTOR / _LEAST) - RRF_K


def _ranks(rowids: Iterable[int]) -> dict[int, int]:
    return {rowid: rank for rank, rowid in enumerate(rowids, 1)}


def _by_words(lists: Lists, places: Mapping[int, Place]) -> list[int]:
    """Row ids by full-text score, each message's neighbours in the same session sharing in it."""
    scores: dict[int, float] = {}
    for hit in lists.hits:
        place = places.get(hit.rowid)
        if place is None:
            continue
        own = max(0.0, -hit.bm25) * _brevity(place.tokens)
        scores[hit.rowid] = scores.get(hit.rowid, 0.0) + own
        for beside, share in ((place.next, FROM_PREVIOUS), (place.previous, FROM_NEXT)):
            if beside is not None and beside in places and _is_near(place, places[beside]):
                scores[beside] = scores.get(beside, 0.0) + share * own
    return sorted(scores, key=lambda rowid: (-scores[rowid], -rowid))


def _brevity(tokens: int) -> float:
    """BM25's factor for the length: a word means more in a short message."""
    return (K1 + 1) / (1 + K1 * (1 - B + B * tokens / USUAL_TOKENS))


def _is_near(one: Place, other: Place) -> bool:
    """Whether two neighbours belong to one session."""
    return abs(_when(one) - _when(other)) <= timedelta(seconds=SESSION_PAUSE_S)


def _when(place: Place) -> datetime:
    return datetime.fromisoformat(place.created_at)


def _factor(place: Place, names: frozenset[str], periods: Sequence[Period]) -> tuple[float, tuple[str, ...]]:
    """What a row's fused score is multiplied by, and the reasons that a person wants to see."""
    factor = float(min(max(place.tokens, SHORT), LONG)) ** LENGTH_POWER
    boosts = []
    if speaker_stems(place.head) & names:
        factor *= SPEAKER_FACTOR
        boosts.append("speaker")
    if periods and (in_period := _period_factor(date.fromisoformat(place.created_at[:10]), periods)) > 1.0:
        factor *= in_period
        boosts.append("date")
    return factor, tuple(boosts)


def _period_factor(day: date, periods: Sequence[Period]) -> float:
    if any(period.first <= day <= period.last + DAY for period in periods):
        return IN_PERIOD_FACTOR
    if any(period.last < day <= period.last + WEEK for period in periods):
        return AFTER_PERIOD_FACTOR
    return 1.0


def reciprocal_rank_fusion(rankings: Sequence[tuple[float, Sequence[T]]]) -> dict[T, float]:
    """Score of each item over all rankings: the sum of weight / (RRF_K + rank), ranks from 1.

    Args:
        rankings: the weight of a list and its items, the best first.

    Returns:
        Item to score, in no order that means anything.
    """
    scores: dict[T, float] = {}
    for weight, ranking in rankings:
        for rank, item in enumerate(ranking, 1):
            scores[item] = scores.get(item, 0.0) + weight / (RRF_K + rank)
    return scores


def mix(lists: Sequence[Sequence[T]]) -> list[T]:
    """One list out of several that have nothing in common: the first of each, then the second of each …

    Their scores cannot be compared: a vector's distance means something else for a fact than for a message in a
    dialogue. So this is Reciprocal Rank Fusion; each list keeps its own order.
    """
    return [each for row in zip_longest(*lists) for each in row if each is not None]
