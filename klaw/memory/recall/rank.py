"""Ranking what the searches found. Pure.

The lists are fused (Reciprocal Rank Fusion), and the best of them, the pool, are ranked by a learned model over what is
known of each (``ranker``). What each feature brings is in docs/benchmarks.md.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import zip_longest
from typing import TypeVar

import attrs
import numpy as np

from klaw.actor.clock import from_iso
from klaw.domain.days import Period, local_day
from klaw.domain.message import SESSION_PAUSE_S
from klaw.domain.names import ChatId
from klaw.domain.search import Kind, Ranks
from klaw.memory.recall.excerpt import speaker_stems
from klaw.memory.recall.query import Query
from klaw.memory.recall.ranker import FEATURES, Float64, built_in, parts
from klaw.store.search.candidates import Lists, Place

RRF_K = 60
"""Constant of Reciprocal Rank Fusion (Cormack, Clarke and Büttcher, SIGIR 2009)."""
VECTOR_WEIGHT = 1.0
TEXT_WEIGHT = 1.0
DATED_WEIGHT = 1.0

FROM_PREVIOUS = 0.5
"""Share of a message's full-text score that the next message gets in the list by words: an answer seldom repeats the
question's words."""
FROM_NEXT = 0.2
"""… and the message before it."""

K1, B, USUAL_TOKENS = 1.2, 0.2, 40
"""Of BM25; messages differ less in length than documents, and the longer ones say more."""

SHORT, LONG = 5, 160
"""Tokens between which a message's length counts."""
BESIDE = (1, 2, 3)
"""How far away, in messages of the chat, other candidates speak for one."""
DAY, WEEK = timedelta(days=1), timedelta(days=8)
_TOKENS = FEATURES.index("tokens")
_LEAST_SPREAD = 0.01
"""Of token scores: smaller differences say little."""


T = TypeVar("T")


@attrs.frozen(kw_only=True)
class Entry(Ranks):
    """A message, a fact, a piece of a file or a note on a tool call that was found."""

    kind: Kind = "message"
    rowid: int
    boosts: tuple[str, ...] = ()
    """What the query says of a message: ``speaker``, ``date``."""

    @property
    def key(self) -> tuple[Kind, int]:
        return self.kind, self.rowid


@attrs.frozen(kw_only=True)
class Ranked(Entry):
    """One message of the ranking; its BM25 is None when it is in the list by its neighbours alone."""

    place: Place
    rowid: int = attrs.field(init=False)
    dated_rank: int | None
    """Rank by vector among what was said in the days that the question names."""
    shared_words: int
    """How many of the question's content words it has."""
    parts: Mapping[str, float] = attrs.field(factory=dict)
    """What its score is made of; see ``ranker.PARTS``."""
    token_score: float | None = None
    """How well its words meet the question's, one by one (``late.max_sim``); None without codes."""

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


@attrs.frozen(kw_only=True, eq=False)
class Pool:
    """The best of the fused lists and what is known of each."""

    found: int
    """How many messages the searches found."""
    entries: Sequence[Ranked]
    """The best of the fusion first; their score is the fused one."""
    features: Float64
    """A row for each entry, the columns of ``ranker.FEATURES``."""
    has_vector: bool

    def matrix(self, token_scores: Mapping[int, float]) -> Float64:
        """The features with what the tokens say: by how many standard deviations a score differs from the mean. An
        entry without one counts as the mean."""
        if not token_scores:
            return self.features
        features = self.features.copy()
        mean = sum(token_scores.values()) / len(token_scores)
        told = np.array([token_scores.get(each.rowid, mean) for each in self.entries])
        features[:, _TOKENS] = (told - mean) / (told.std() + _LEAST_SPREAD)
        return features

    def rank(self, token_scores: Mapping[int, float] | None = None, limit: int | None = None) -> Ranking:
        """The ranking by the learned model; ties go to the newer message.

        Args:
            token_scores: by row id (see ``late.max_sim``); None or empty if there are no codes.
            limit: how many of the best are wanted, all if it is None.
        """
        if not self.entries:
            return Ranking(found=self.found, best=())
        features = self.matrix(token_scores or {})
        added = built_in().contributions(features, vectors=self.has_vector, tokens=bool(token_scores))
        scores = added.sum(axis=1).tolist()
        order = sorted(range(len(scores)), key=lambda at: (-scores[at], -self.entries[at].rowid))
        best = [
            attrs.evolve(
                self.entries[at],
                score=scores[at],
                parts=parts(added[at].tolist()),
                token_score=(token_scores or {}).get(self.entries[at].rowid),
            )
            for at in order[:limit]
        ]
        return Ranking(found=self.found, best=best)


EMPTY = Pool(found=0, entries=(), features=np.empty((0, len(FEATURES))), has_vector=False)


def gather(lists: Lists, query: Query, *, random_cosine: float = 0.0, size: int | None = None) -> Pool:
    """Fuse the lists and look at the best of them.

    Args:
        lists: what the searches found.
        query: the question, read.
        random_cosine: of the embedding model.
        size: how many of the best are wanted, all if it is None.
    """
    places = {place.rowid: place for place in lists.places}
    own_scores, by_words = _by_words(lists, places)
    rankings = (lists.neighbours, lists.dated)
    near, dated = ([each.rowid for each in ranking] for ranking in rankings)
    fused = reciprocal_rank_fusion([(VECTOR_WEIGHT, near), (TEXT_WEIGHT, by_words), (DATED_WEIGHT, dated)])
    # What has no place is out of reach, or in an index only.
    best = sorted((rowid for rowid in fused if rowid in places), key=lambda rowid: (-fused[rowid], -rowid))[:size]
    distances = {each.rowid: each.distance for ranking in rankings[::-1] for each in ranking}
    vector_ranks, text_ranks, dated_ranks = _ranks(near), _ranks(by_words), _ranks(dated)
    hits = {hit.rowid: hit for hit in lists.hits}
    density = _density([places[rowid] for rowid in best], fused)
    # Farther than all that are known.
    unknown = max(distances.values(), default=0.0)
    most = max(own_scores.values(), default=0.0) or 1.0
    entries = []
    columns: defaultdict[str, list[float]] = defaultdict(list)
    for rowid in best:
        place, shared = places[rowid], hits[rowid].shared if rowid in hits else 0
        speaker = not query.stems.isdisjoint(speaker_stems(place.head))
        in_period, after_period = _in_periods(place, query.periods)
        own, overlap = own_scores.get(rowid, 0.0) / most, min(1.0, shared / max(1, len(query.content_stems)))
        columns["distance"].append(distances.get(rowid, unknown) / (1.0 - random_cosine))
        columns["text_rank"].append((RRF_K + 1) / (RRF_K + text_ranks[rowid]) if rowid in text_ranks else 0.0)
        columns["own"].append(own)
        columns["own_squared"].append(own**2)
        columns["overlap"].append(overlap)
        columns["overlap_squared"].append(overlap**2)
        columns["density"].append(density[rowid])
        columns["speaker"].append(speaker)
        columns["in_period"].append(in_period)
        columns["after_period"].append(after_period)
        columns["length"].append(math.log(min(max(place.tokens, SHORT), LONG)))
        entries.append(
            Ranked(
                place=place,
                score=fused[rowid],
                vector_rank=vector_ranks.get(rowid),
                distance=distances.get(rowid),
                text_rank=text_ranks.get(rowid),
                dated_rank=dated_ranks.get(rowid),
                bm25=hits[rowid].bm25 if rowid in hits else None,
                shared_words=shared,
                boosts=("speaker",) * speaker + ("date",) * (in_period or after_period),
            )
        )
    features = np.zeros((len(entries), len(FEATURES)))
    for name, column in columns.items():
        features[:, FEATURES.index(name)] = column
    return Pool(found=len(fused), entries=entries, features=features, has_vector=bool(lists.neighbours))


def _ranks(rowids: Iterable[int]) -> dict[int, int]:
    return {rowid: rank for rank, rowid in enumerate(rowids, 1)}


def _by_words(lists: Lists, places: Mapping[int, Place]) -> tuple[dict[int, float], list[int]]:
    """Scores of the messages that have words of the query, and the ranking in which their neighbours share in these."""
    own: dict[int, float] = {}
    shared: defaultdict[int, float] = defaultdict(float)
    for hit in lists.hits:
        place = places.get(hit.rowid)
        if place is None:
            continue
        score = own[hit.rowid] = max(0.0, -hit.bm25) * _brevity(place.tokens)
        shared[hit.rowid] += score
        for beside, share in ((place.next, FROM_PREVIOUS), (place.previous, FROM_NEXT)):
            if beside is not None and beside in places and _is_near(place, places[beside]):
                shared[beside] += share * score
    return own, sorted(shared, key=lambda rowid: (-shared[rowid], -rowid))


def _brevity(tokens: int) -> float:
    """BM25's factor for the length: a word means more in a short message."""
    return (K1 + 1) / (1 + K1 * (1 - B + B * tokens / USUAL_TOKENS))


def _is_near(one: Place, other: Place) -> bool:
    """Whether two neighbours belong to one session."""
    return abs(_when(one) - _when(other)) <= timedelta(seconds=SESSION_PAUSE_S)


def _when(place: Place) -> datetime:
    return datetime.fromisoformat(place.created_at)


def _density(places: Sequence[Place], fused: Mapping[int, float]) -> dict[int, float]:
    """How well the candidates around each one were found: what a question asks about is often told in a few lines."""
    by_chat: defaultdict[ChatId, dict[int, float]] = defaultdict(dict)
    for place in places:
        by_chat[place.chat][place.seq] = (RRF_K + 1) * fused[place.rowid]
    found = {}
    for place in places:
        scores, seq = by_chat[place.chat], place.seq
        beside = ((scores.get(seq + off, 0.0) + scores.get(seq - off, 0.0)) / off for off in BESIDE)
        found[place.rowid] = sum(beside)
    return found


def _in_periods(place: Place, periods: Sequence[Period]) -> tuple[bool, bool]:
    """Whether a message was said in the days that the query names or on the day after; or else in the week after."""
    if not periods:
        return False, False
    day = local_day(from_iso(place.created_at))
    if any(period.first <= day <= period.last + DAY for period in periods):
        return True, False
    return False, any(period.last < day <= period.last + WEEK for period in periods)


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
