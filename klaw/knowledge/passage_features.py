"""What is known of the passages that a search of knowledge bases found, as numbers for the ranking. Pure. There are few
questions to learn from, so what is learned stays near plain fusion; docs/benchmarks.md says what it brings."""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import pairwise

import attrs
import numpy as np

from klaw.domain.search import Decision, FoundPassage, PassageCandidate, RankDetails, Ranks, fields_of
from klaw.memory.recall.gate import Gate, judge
from klaw.memory.recall.query import MAX_NAMES_CHARACTERS
from klaw.memory.recall.ranker import RRF_K, FeatureSet, Pool, RankedEntry
from klaw.store.engine.tokenizer import stem, words
from klaw.store.search.ranked_lists import Lists

PASSAGES = FeatureSet(
    package="klaw.knowledge",
    parts={
        "meaning": ("distance",),
        "lists": ("fused",),
        "words": ("page_words",),
        "phrases": ("page_phrases",),
        "numbers": ("numbers", "year"),
        "page": ("page", "depth"),
    },
)
SATURATION = 1.2
"""Of BM25: how soon further places of a word on a page add nothing."""
_YEAR = re.compile(r"(?<!\d)(?:19|20)\d\d(?!\d)")
LOOKED_AT, NUMBERS_SHARE = 5, 0.4
"""Of ``lack``: so many of the best passages, and what a question's numbers count."""
LINE_TOKENS = 40
"""What a passage's number, document, page and headings cost in a prompt, about."""


def judge_passages(
    ranked: Sequence[RankedEntry[FoundPassage]], gate: Gate, random_cosine: float
) -> list[PassageCandidate]:
    return [
        PassageCandidate(
            **fields_of(each, RankDetails),
            passage=each.item,
            decision=decision,
            text=each.item.text,
            tokens=each.item.tokens + LINE_TOKENS,
        )
        for each, decision in judge(ranked, gate, random_cosine)
    ]


def once(candidates: Sequence[PassageCandidate]) -> list[PassageCandidate]:
    """Keep the best of the passages that passed with the same text; it knows the others."""
    same: dict[str, list[PassageCandidate]] = {}
    for each in candidates:
        if each.passed:
            same.setdefault(_plain(each), []).append(each)

    def kept(each: PassageCandidate) -> PassageCandidate:
        best, *others = same[_plain(each)] if each.passed else [each]
        if each is not best:
            return attrs.evolve(each, decision=Decision.REPEATED)
        return attrs.evolve(each, also=tuple(other.passage for other in others)) if others else each

    return list(map(kept, candidates))


def _plain(candidate: PassageCandidate) -> str:
    return " ".join(candidate.text.casefold().split())


def best_of(fused: Mapping[int, Ranks], size: int) -> list[int]:
    return sorted(fused, key=lambda rowid: (-fused[rowid].score, rowid))[:size]


def gather(
    lists: Lists, fused: Mapping[int, Ranks], read: Sequence[FoundPassage], text: str, random_cosine: float
) -> Pool[FoundPassage]:
    """The features of the passages that were ``read``: the best of the ``fused`` lists, the best first."""
    unknown = max((each.distance for each in lists.neighbours), default=0.0)  # farther than all that are known
    wanted = PassageQuestion.of(text, lists.weights)
    looks = [wanted.look(passage) for passage in read]
    pages: dict[tuple[str, int, int], list[Look]] = {}
    for passage, look in zip(read, looks, strict=True):
        pages.setdefault(_page_of(passage), []).append(look)
    of_pages = {page: wanted.look_at_page(those) for page, those in pages.items()}
    entries = []
    features = np.zeros((len(read), len(PASSAGES.names)))
    for at, (passage, look) in enumerate(zip(read, looks, strict=True)):
        ranks = fused[passage.rowid]
        entries.append(
            RankedEntry(rowid=passage.rowid, item=passage, **fields_of(ranks, Ranks), shared_words=look.shared)
        )
        column = {
            "distance": (unknown if ranks.distance is None else ranks.distance) / (1.0 - random_cosine),
            "fused": (RRF_K + 1) * ranks.score,
            **look.features,
            **of_pages[_page_of(passage)],
        }
        features[at] = [column[name] for name in PASSAGES.names]
    unpaged = sum(passage.first_page is None for passage in read)
    return Pool(
        found=len(fused),
        entries=entries,
        features=features,
        has_vector=bool(lists.neighbours),
        of=PASSAGES,
        other=2 * unpaged > len(read),
    )


def lack(pool: Pool[FoundPassage], ranked: Sequence[RankedEntry[FoundPassage]], *, numbers: bool) -> float | None:
    """How far the nearest passage is from a question, in parts of a random one's distance, and how much of its
    ``numbers``, if it has any, is in none of the best. None without vectors."""
    if not pool.has_vector or not ranked:
        return None
    best = {each.rowid for each in ranked[:LOOKED_AT]}
    columns = dict(zip(PASSAGES.names, pool.features.T, strict=True))
    there = [float(n) for each, n in zip(pool.entries, columns["numbers"], strict=True) if each.rowid in best]
    return float(columns["distance"].min()) + (NUMBERS_SHARE * (1 - max(there)) if numbers else 0.0)


def _page_of(passage: FoundPassage) -> tuple[str, int, int]:
    """What names the page of a passage; of a document without pages, the passage."""
    page = passage.first_page
    return (passage.document, page or 0, 0 if page else passage.ordinal)


@attrs.frozen(kw_only=True)
class Look:
    """What a question finds in a passage."""

    shared: int
    """Content words of it there."""
    counts: Counter[str]
    """How often its text has each of the question's."""
    phrases: float
    """The share of the question in pairs of words that stand together there, too."""
    features: Mapping[str, float]


@attrs.frozen(kw_only=True)
class PassageQuestion:
    weights: Mapping[str, float]
    total: float
    numbers: AbstractSet[str]
    years: AbstractSet[str]
    pairs: AbstractSet[tuple[str, str]]
    """Stems of content words that stand beside each other."""
    pages: AbstractSet[int]

    @classmethod
    def of(cls, text: str, weights: Mapping[str, float]) -> "PassageQuestion":
        text = text[:MAX_NAMES_CHARACTERS]
        weighted = {stem(word): weight for word, weight in weights.items()}
        asked = list(map(stem, words(text)))
        return cls(
            weights=weighted,
            total=sum(weighted.values()) or 1.0,
            numbers={each for each in asked if any(map(str.isdigit, each))},
            years=set(_YEAR.findall(text)),
            pairs={(one, other) for one, other in pairwise(asked) if one in weighted and other in weighted},
            pages=named_pages(text),
        )

    def look(self, passage: FoundPassage) -> Look:
        """Of the features: the share of the question's numbers that the passage has; whether the document's name or
        title has its year, or another; whether this is the page that it names; how deep in the document that is."""
        text = list(map(stem, words(passage.text)))
        there = {*text, *map(stem, words(passage.lead))}
        beside = self.pairs & set(pairwise(text)) if self.pairs else ()
        of_document = set(_YEAR.findall(f"{passage.name} {passage.title}")) if self.years else set()
        return Look(
            shared=len(there.intersection(self.weights)),
            counts=Counter(each for each in text if each in self.weights),
            phrases=sum(self.weights[one] + self.weights[other] for one, other in beside) / self.total,
            features={
                "numbers": len(there.intersection(self.numbers)) / len(self.numbers) if self.numbers else 0.0,
                "year": 0.0 if not of_document else 1.0 if of_document & self.years else -1.0,
                "page": float(passage.first_page in self.pages),
                "depth": math.log((passage.first_page or passage.ordinal + 1) + 1),
            },
        )

    def look_at_page(self, looks: Sequence[Look]) -> dict[str, float]:
        """What the passages that were found of a page say together: BM25 without a length, and the phrases."""
        counts = sum((each.counts for each in looks), Counter[str]())
        weighed = (self.weights[each] * count / (count + SATURATION) for each, count in counts.items())
        return {
            "page_words": (SATURATION + 1) * sum(weighed) / self.total,
            "page_phrases": max(each.phrases for each in looks),
        }


_ORDINALS = {"first": 1, "second": 2, "third": 3, "перв": 1, "втор": 2, "трет": 3}
_PAGE = re.compile(
    r"""\b(?:pages?|страниц\w*|стр\.?)\s*\(?(?P<after>\d{1,5})\b
      |\b(?P<before>\d{1,5})(?:st|nd|rd|th|-?[а-я]{1,2})?\s+(?:page|страниц)
      |\b(?P<ordinal>first|second|third|перв(?=\w)|втор(?=\w)|трет(?=\w))\w*\s+(?:page|страниц)""",
    re.VERBOSE | re.IGNORECASE,
)


def named_pages(text: str) -> set[int]:
    """The pages that a question names: "page 12", "the first page", «на 12-й странице»."""
    found = set()
    for match in _PAGE.finditer(text):
        number = match["after"] or match["before"]
        found.add(int(number) if number else _ORDINALS[match["ordinal"].lower()])
    return found
