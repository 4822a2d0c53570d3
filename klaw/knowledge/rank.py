"""Ranking the passages that the searches of knowledge bases found. Pure.

The lists are fused (Reciprocal Rank Fusion) and the best of them, the pool, ranked by a linear model over what is known
of each, as recall does with messages. There are few features, because there are few questions to learn from. What each
brings, and what brought nothing, is in docs/benchmarks.md.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import pairwise

import attrs
import numpy as np

from klaw.domain.knowledge_search import FoundPassage, PassageCandidate
from klaw.domain.search import Decision, Ranks
from klaw.memory.recall.gate import Evidence, Gate, calibrated
from klaw.memory.recall.query import MAX_NAMES_CHARACTERS
from klaw.memory.recall.rank import RRF_K, reciprocal_rank_fusion
from klaw.memory.recall.ranker import Float64, built_in, parts
from klaw.store.engine.tokenizer import stem, words
from klaw.store.search.knowledge_search import PassageLists

PARTS: Mapping[str, tuple[str, ...]] = {
    "meaning": ("distance",),
    "lists": ("fused",),
    "words": ("window",),
    "phrases": ("phrases",),
    "numbers": ("numbers",),
    "page": ("page", "front"),
}
"""The features by what they say to a person."""
FEATURES = tuple(name for names in PARTS.values() for name in names)
WINDOW = 15
"""Words of a passage in which the question's count as standing together."""
LINE_TOKENS = 40
"""What a passage's number, document, page and headings cost in a prompt, about."""


@attrs.frozen(kw_only=True, eq=False)
class Pool:
    """The best of the fused lists and what is known of each."""

    found: int
    """How many passages the searches found."""
    passages: Sequence[FoundPassage] = ()
    ranks: Sequence[Ranks] = ()
    """Of each; the score is the fused one."""
    shared: Sequence[int] = ()
    """How many of the question's content words each has."""
    features: Float64
    """A row for each, the columns of ``FEATURES``."""
    has_vector: bool = False

    def rank(self, gate: Gate, random_cosine: float, limit: int) -> list[PassageCandidate]:
        """The best by the learned model, with what the gate says of each; of equals the one found better first."""
        if not self.passages:
            return []
        ranker = built_in("klaw.knowledge")
        added = ranker.contributions(self.features, vectors=self.has_vector, names=FEATURES)
        scores = added.sum(axis=1)
        order = np.argsort(-scores, kind="stable")[:limit].tolist()
        evidence = [
            Evidence(distance=calibrated(self.ranks[at].distance, random_cosine), shared_words=self.shared[at])
            for at in order
        ]
        return [
            PassageCandidate(
                **{**self.ranks[at].ranks(), "score": float(scores[at]), "distance": seen.distance},
                passage=self.passages[at],
                parts=parts(added[at].tolist(), PARTS),
                shared_words=self.shared[at],
                decision=decision,
                text=self.passages[at].text,
                tokens=self.passages[at].tokens + LINE_TOKENS,
            )
            for at, seen, decision in zip(order, evidence, gate.decide(evidence), strict=True)
        ]


EMPTY = Pool(found=0, features=np.empty((0, len(FEATURES))))


def once(candidates: Sequence[PassageCandidate]) -> list[PassageCandidate]:
    """Of passages that passed the gate with the same text only the best is kept; it knows the others."""
    same: dict[str, list[PassageCandidate]] = {}
    for each in candidates:
        if each.passed:
            same.setdefault(_plain(each), []).append(each)

    def told(each: PassageCandidate) -> PassageCandidate:
        best, *others = same[_plain(each)] if each.passed else [each]
        if each is not best:
            return attrs.evolve(each, decision=Decision.REPEATED)
        return attrs.evolve(each, also=tuple(other.passage for other in others)) if others else each

    return list(map(told, candidates))


def _plain(candidate: PassageCandidate) -> str:
    return " ".join(candidate.text.casefold().split())


def fuse(lists: PassageLists, size: int) -> tuple[list[int], dict[int, float]]:
    """Row ids of the best of the lists, the best first, and the fused score of all that were found."""
    rankings = [[each.rowid for each in found] for found in (lists.neighbours, lists.hits)]
    fused = reciprocal_rank_fusion([(1.0, ranking) for ranking in rankings])
    return sorted(fused, key=lambda rowid: (-fused[rowid], rowid))[:size], fused


def gather(
    lists: PassageLists, fused: Mapping[int, float], read: Sequence[FoundPassage], text: str, random_cosine: float
) -> Pool:
    """Look at the best of the lists.

    Args:
        lists: what the searches found.
        fused: of ``fuse``.
        read: the best of them, the best first.
        text: the question.
        random_cosine: of the embedding model.
    """
    by_vector = {each.rowid: (rank, each.distance) for rank, each in enumerate(lists.neighbours, 1)}
    by_words = {hit.rowid: (rank, hit.bm25) for rank, hit in enumerate(lists.hits, 1)}
    unknown = max((each.distance for each in lists.neighbours), default=0.0)  # farther than all that are known
    wanted = _Wanted.of(text, lists.weights)
    ranks, shared = [], []
    features = np.zeros((len(read), len(FEATURES)))
    for at, passage in enumerate(read):
        vector_rank, distance = by_vector.get(passage.rowid, (None, None))
        text_rank, bm25 = by_words.get(passage.rowid, (None, None))
        score = fused[passage.rowid]
        ranks.append(Ranks(score=score, vector_rank=vector_rank, distance=distance, text_rank=text_rank, bm25=bm25))
        there, *told = wanted.look(passage)
        shared.append(there)
        far = (unknown if distance is None else distance) / (1.0 - random_cosine)
        features[at] = (far, (RRF_K + 1) * score, *told)
    return Pool(
        found=len(fused),
        passages=read,
        ranks=ranks,
        shared=shared,
        features=features,
        has_vector=bool(lists.neighbours),
    )


@attrs.frozen(kw_only=True)
class _Wanted:
    """What a question asks with."""

    weights: Mapping[str, float]
    """Of the stems of its content words."""
    total: float
    numbers: AbstractSet[str]
    pairs: AbstractSet[tuple[str, str]]
    """Its content words that stand beside each other."""
    pages: AbstractSet[int]
    """That it names."""
    whole: bool
    """It asks about the document as a whole: who wrote it, when, for whom."""

    @classmethod
    def of(cls, text: str, weights: Mapping[str, float]) -> "_Wanted":
        text = text[:MAX_NAMES_CHARACTERS]
        told = {stem(word): weight for word, weight in weights.items()}
        asked = list(map(stem, words(text)))
        return cls(
            weights=told,
            total=sum(told.values()) or 1.0,
            numbers={each for each in asked if any(map(str.isdigit, each))},
            pairs={(one, other) for one, other in pairwise(asked) if one in told and other in told},
            pages=named_pages(text),
            whole=_WHOLE.search(text) is not None,
        )

    def look(self, passage: FoundPassage) -> tuple[int, float, float, float, float, float]:
        """How many content words a passage has; which share of the question stands together in it, and which in pairs;
        which share of its numbers it has; whether the question names its page; and how far in front it stands, where
        the question is about the whole document."""
        text = list(map(stem, words(passage.text)))
        there = {*text, *map(stem, words(passage.lead))}
        beside = self.pairs & set(pairwise(text)) if self.pairs else ()
        in_pairs = sum(self.weights[one] + self.weights[other] for one, other in beside)
        numbers = len(there.intersection(self.numbers)) / len(self.numbers) if self.numbers else 0.0
        shared = len(there.intersection(self.weights))
        return (
            shared,
            self._together(text) / self.total,
            in_pairs / self.total,
            numbers,
            float(passage.first_page in self.pages),
            1 / (passage.first_page or passage.ordinal + 1) if self.whole else 0.0,
        )

    def _together(self, text: Sequence[str]) -> float:
        """The most that the different words of the question weigh in ``WINDOW`` words of a text."""
        places = [(place, each) for place, each in enumerate(text) if each in self.weights]
        inside: Counter[str] = Counter()
        first, most, now = 0, 0.0, 0.0
        for place, each in places:
            now += 0.0 if inside[each] else self.weights[each]
            inside[each] += 1
            while place - places[first][0] >= WINDOW:
                gone = places[first][1]
                inside[gone] -= 1
                now -= 0.0 if inside[gone] else self.weights[gone]
                first += 1
            most = max(most, now)
        return most


_ORDINALS = {"first": 1, "second": 2, "third": 3, "перв": 1, "втор": 2, "трет": 3}
_PAGE = re.compile(
    r"""\b(?:pages?|страниц\w*|стр\.?)\s*\(?(?P<after>\d{1,5})\b
      |\b(?P<before>\d{1,5})(?:st|nd|rd|th|-?[а-я]{1,2})?\s+(?:page|страниц)
      |\b(?P<ordinal>first|second|third|перв(?=\w)|втор(?=\w)|трет(?=\w))\w*\s+(?:page|страниц)""",
    re.VERBOSE | re.IGNORECASE,
)
_WHOLE = re.compile(
    r"""\b(?:this|the)\s+(?:\w+\s+)?(?:document|report|paper|article|case|book|manual|handbook|contract|complaint|program
        |presentation)\b|\b(?:title|authors?|cover|plaintiff|defendant|publish\w*)\b
      |\b(?:документ[аеу]?|отч[её]т[ае]?|стать[яеию]|книг[аеиу]|дел[ау]|инструкци[яи]|договор[ае]?|презентаци[яи])\b
      |\b(?:назван\w+|заголов\w+|автор\w*|обложк\w+|ист(?:ец|ца)|ответчик\w*|издат\w+|изда[нл]\w*)\b""",
    re.VERBOSE | re.IGNORECASE,
)


def named_pages(text: str) -> set[int]:
    """The pages that a question names: "page 12", "the first page", «на 12-й странице»."""
    found = set()
    for match in _PAGE.finditer(text):
        number = match["after"] or match["before"]
        found.add(int(number) if number else _ORDINALS[match["ordinal"].lower()])
    return found
