"""What is known of found messages, as numbers for the ranking (docs/benchmarks.md says what each brings). Pure."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import numpy as np

from klaw.actor.clock import from_iso
from klaw.domain.days import local_day
from klaw.domain.message import SESSION_PAUSE_S
from klaw.domain.names import ChatId
from klaw.memory.recall.excerpt import speaker_stems
from klaw.memory.recall.query import Query
from klaw.memory.recall.ranker import RRF_K, FeatureSet, Pool, RankedEntry, ranks_of, reciprocal_rank_fusion
from klaw.memory.recall.sessions import Sessions
from klaw.store.engine.traits import ASKS, FIRST_PERSON, NAME, NUMBER, SHORT, TIME
from klaw.store.search.ranked_lists import Lists, MessagePlace

MESSAGES = FeatureSet(
    package="klaw.memory.recall",
    parts={
        "meaning": ("distance", "tokens"),
        "words": ("text_rank", "own", "own_squared", "overlap", "overlap_squared"),
        "neighbours": ("density", "beside", "previous_asks", "previous_short"),
        "session": ("session_best", "session_three", "session_away"),
        "speaker": ("speaker",),
        "days": ("in_period", "after_period"),
        "answer": ("time", "number", "name"),
        "manner": ("first_person", "asks", "short"),
        "length": ("length",),
    },
)
"""Those of ``sessions`` are for the second pass, which knows the scores of the first."""

VECTOR_WEIGHT = TEXT_WEIGHT = DATED_WEIGHT = 1.0

FROM_PREVIOUS, FROM_NEXT = 0.5, 0.2
"""Shares of its neighbours' full-text scores: an answer seldom repeats the question's words."""

K1, B, USUAL_TOKENS = 1.2, 0.2, 40
"""BM25's constants; messages differ less in length than documents, and the longer ones say more."""

SHORTEST, LONGEST = 5, 160
"""Tokens; in between, length counts."""
LONG_SHARE = 0.2
"""With more candidates that are ``LONGEST``, such as the answers of models, another ranker serves."""
BESIDE = (1, 2, 3)
"""How many messages away other candidates speak for one."""
DAY, WEEK = timedelta(days=1), timedelta(days=8)


def gather(lists: Lists, query: Query, *, random_cosine: float = 0.0, size: int | None = None) -> Pool[MessagePlace]:
    """Fuse the lists and look at the best ``size`` of them, or all."""
    places = {place.rowid: place for place in lists.places}
    own_scores, by_words = _by_words(lists, places)
    rankings = (lists.neighbours, lists.dated)
    near, dated = ([each.rowid for each in ranking] for ranking in rankings)
    fused = reciprocal_rank_fusion([(VECTOR_WEIGHT, near), (TEXT_WEIGHT, by_words), (DATED_WEIGHT, dated)])
    # What has no place is out of reach, or in an index only.
    found = sorted((rowid for rowid in fused if rowid in places), key=lambda rowid: (-fused[rowid], -rowid))
    best, rest = found[:size], found[size:] if size is not None else []
    distances = {each.rowid: each.distance for ranking in rankings[::-1] for each in ranking}
    vector_ranks, text_ranks, dated_ranks = ranks_of(near), ranks_of(by_words), ranks_of(dated)
    hits = {hit.rowid: hit for hit in lists.hits}
    there = [places[rowid] for rowid in best]
    density = _density(there, fused)
    # Farther than all that are known.
    unknown = max(distances.values(), default=0.0)
    most = max(own_scores.values(), default=0.0) or 1.0
    asked_words = max(1, len(query.content_stems))
    traits, before = np.array([(place.traits, place.before) for place in there], int).reshape(-1, 2).T
    speaker = [_is_named(place, query) for place in there]
    in_days = [_in_periods(place, query) for place in there]
    own = np.array([own_scores.get(rowid, 0.0) for rowid in best]) / most
    shared = [hits[rowid].shared if rowid in hits else 0 for rowid in best]
    overlap = np.minimum(1.0, np.array(shared) / asked_words)
    columns = {
        "distance": np.array([distances.get(rowid, unknown) for rowid in best]) / (1.0 - random_cosine),
        "text_rank": [(RRF_K + 1) / (RRF_K + text_ranks[rowid]) if rowid in text_ranks else 0.0 for rowid in best],
        "own": own,
        "own_squared": own**2,
        "overlap": overlap,
        "overlap_squared": overlap**2,
        "density": [density[rowid] for rowid in best],
        "speaker": speaker,
        "in_period": [inside for inside, _ in in_days],
        "after_period": [after for _, after in in_days],
        "length": np.log(np.clip([place.tokens for place in there], SHORTEST, LONGEST)),
        "time": traits & query.asks_for & TIME > 0,
        "number": traits & query.asks_for & NUMBER > 0,
        "name": traits & query.asks_for & NAME > 0,
        "first_person": traits & FIRST_PERSON > 0,
        "asks": traits & ASKS > 0,
        "short": traits & SHORT > 0,
        "previous_asks": before & ASKS > 0,
        "previous_short": before & SHORT > 0,
    }
    features = np.zeros((len(best), len(MESSAGES.names)))
    for name, column in columns.items():
        features[:, MESSAGES.names.index(name)] = column

    def entry(rowid: int, score: float, named: bool, in_days: bool) -> RankedEntry[MessagePlace]:
        return RankedEntry(
            item=places[rowid],
            rowid=rowid,
            score=score,
            vector_rank=vector_ranks.get(rowid),
            distance=distances.get(rowid),
            text_rank=text_ranks.get(rowid),
            dated_rank=dated_ranks.get(rowid),
            bm25=hits[rowid].bm25 if rowid in hits else None,
            shared_words=hits[rowid].shared if rowid in hits else 0,
            added_words=hits[rowid].added if rowid in hits else 0,
            boosts=("speaker",) * named + ("date",) * in_days,
        )

    def others(score: float) -> list[RankedEntry[MessagePlace]]:
        of = ((rowid, places[rowid]) for rowid in rest)
        return [entry(at, score, _is_named(each, query), any(_in_periods(each, query))) for at, each in of]

    return Pool(
        found=len(fused),
        entries=[
            entry(*each)
            for each in zip(best, [fused[rowid] for rowid in best], speaker, map(any, in_days), strict=True)
        ],
        features=features,
        has_vector=bool(lists.neighbours),
        of=MESSAGES,
        again=Sessions.of(there).columns if there else None,
        other=sum(place.tokens >= LONGEST for place in there) > LONG_SHARE * len(there),
        rest=others,
    )


def _is_named(place: MessagePlace, query: Query) -> bool:
    """Whether the query has the name of the speaker in front of a message."""
    return not query.stems.isdisjoint(speaker_stems(place.head))


def _by_words(lists: Lists, places: Mapping[int, MessagePlace]) -> tuple[dict[int, float], list[int]]:
    """Scores of the messages that have words of the query, and the ranking in which their neighbours share in these."""
    own: dict[int, float] = {}
    shared: defaultdict[int, float] = defaultdict(float)
    pause = timedelta(seconds=SESSION_PAUSE_S)
    for hit in lists.hits:
        place = places.get(hit.rowid)
        if place is None:
            continue
        score = own[hit.rowid] = max(0.0, -hit.bm25) * _brevity(place.tokens)
        shared[hit.rowid] += score
        for beside, share in ((place.next, FROM_PREVIOUS), (place.previous, FROM_NEXT)):
            if beside is not None and beside in places and abs(_when(place) - _when(places[beside])) <= pause:
                shared[beside] += share * score
    return own, sorted(shared, key=lambda rowid: (-shared[rowid], -rowid))


def _brevity(tokens: int) -> float:
    return (K1 + 1) / (1 + K1 * (1 - B + B * tokens / USUAL_TOKENS))


def _when(place: MessagePlace) -> datetime:
    return datetime.fromisoformat(place.created_at)


def _density(places: Sequence[MessagePlace], fused: Mapping[int, float]) -> dict[int, float]:
    """How well the candidates around each one were found: an answer often stands in a few lines together."""
    by_chat: defaultdict[ChatId, dict[int, float]] = defaultdict(dict)
    for place in places:
        by_chat[place.chat][place.seq] = (RRF_K + 1) * fused[place.rowid]
    found = {}
    for place in places:
        scores, seq = by_chat[place.chat], place.seq
        beside = ((scores.get(seq + off, 0.0) + scores.get(seq - off, 0.0)) / off for off in BESIDE)
        found[place.rowid] = sum(beside)
    return found


def _in_periods(place: MessagePlace, query: Query) -> tuple[bool, bool]:
    """Whether a message was said in the days that the query names or a day later; or else in the week after."""
    periods = query.periods
    if not periods:
        return False, False
    day = local_day(from_iso(place.created_at), query.zone)
    if any(period.first <= day <= period.last + DAY for period in periods):
        return True, False
    return False, any(period.last < day <= period.last + WEEK for period in periods)
