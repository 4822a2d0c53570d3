"""What is known of the passages that a search of knowledge bases found, as numbers for the ranking. Pure. There are few
questions to learn from, so there are few features; docs/benchmarks.md says what each brings."""

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
        "words": ("window",),
        "phrases": ("phrases",),
        "numbers": ("numbers",),
        "page": ("page", "front"),
    },
)
WINDOW = 15
"""Words of a passage in which the question's count as standing together."""
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
    entries = []
    features = np.zeros((len(read), len(PASSAGES.names)))
    for at, passage in enumerate(read):
        ranks = fused[passage.rowid]
        shared, *of_text = wanted.look(passage)
        entries.append(RankedEntry(rowid=passage.rowid, item=passage, **fields_of(ranks, Ranks), shared_words=shared))
        far = (unknown if ranks.distance is None else ranks.distance) / (1.0 - random_cosine)
        features[at] = (far, (RRF_K + 1) * ranks.score, *of_text)
    return Pool(found=len(fused), entries=entries, features=features, has_vector=bool(lists.neighbours), of=PASSAGES)


@attrs.frozen(kw_only=True)
class PassageQuestion:
    weights: Mapping[str, float]
    total: float
    numbers: AbstractSet[str]
    pairs: AbstractSet[tuple[str, str]]
    """Stems of content words that stand beside each other."""
    pages: AbstractSet[int]
    whole: bool
    """It asks about the document as a whole: who wrote it, when, for whom."""

    @classmethod
    def of(cls, text: str, weights: Mapping[str, float]) -> "PassageQuestion":
        text = text[:MAX_NAMES_CHARACTERS]
        weighted = {stem(word): weight for word, weight in weights.items()}
        asked = list(map(stem, words(text)))
        return cls(
            weights=weighted,
            total=sum(weighted.values()) or 1.0,
            numbers={each for each in asked if any(map(str.isdigit, each))},
            pairs={(one, other) for one, other in pairwise(asked) if one in weighted and other in weighted},
            pages=named_pages(text),
            whole=_WHOLE.search(text) is not None,
        )

    def look(self, passage: FoundPassage) -> tuple[int, float, float, float, float, float]:
        """The content words of a passage; shares of the question that stand together in it, and in pairs, and of its
        numbers; whether it names the page; how far in front that stands, if it is about the whole document."""
        text = list(map(stem, words(passage.text)))
        there = {*text, *map(stem, words(passage.lead))}
        beside = self.pairs & set(pairwise(text)) if self.pairs else ()
        in_pairs = sum(self.weights[one] + self.weights[other] for one, other in beside)
        numbers = len(there.intersection(self.numbers)) / len(self.numbers) if self.numbers else 0.0
        return (
            len(there.intersection(self.weights)),
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
