"""The part of a long message that a question is about, the matches of a search in it, and packing into a token budget.
Pure, and linear in the text: a message may be all sentences of one character, or one run without a space."""

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import TypeVar

import attrs

from klaw.domain import tokens
from klaw.domain.search import Candidate, Decision, JudgedCandidate, PassageCandidate
from klaw.domain.text import speaker_prefix
from klaw.memory.recall.token_overlap import TokenOverlap
from klaw.store.engine.tokenizer import READ_WHOLE_CHARACTERS, find_form, forms, forms_in, is_lone, stem, words

MAX_READ_CHARACTERS = 8_000
"""A longer text is read from a little before most of the matches on."""
_BEFORE_MATCH = 1_000
_MARKS = 4

_SENTENCE_END = re.compile(r"(?<![.!?…])[.!?…]++[\"'»”)\]]*+\s+|[。！？]+|\n+")
"""Begins at the first of several marks and never goes back: otherwise a line of dots takes the square of its length."""


WORDS_SHARE = 2.0
"""What having all wanted words counts, where meeting the question by meaning as well as the whole text counts 1."""


@attrs.frozen
class _Span:
    begin: int
    end: int


def excerpt(text: str, wanted: Collection[str], max_tokens: int, overlap: TokenOverlap | None = None) -> str:
    """The consecutive sentences of a text, at most ``max_tokens``, that meet a question best: by their meaning, if it
    is known, and with the most of the wanted words (index forms). A sentence that is longer itself is cut between
    words. What is left out is marked by ``…``; the speaker's name in front of the text stays."""
    if tokens.estimate(text) <= max_tokens:
        return text
    name = speaker_prefix(text)
    size = math.floor(len(text) * max_tokens / tokens.estimate(text)) - 2 * _MARKS
    begin = len(name) if len(name) < size // 2 else 0
    size = max(1, size - begin)
    part = _readable(text, begin, wanted)
    places = [(start + part.begin, form) for start, _, form in forms(text[part.begin : part.end]) if form in wanted]

    def best_of(spans: Sequence[_Span]) -> _Span:
        window, shares = _Window(places), [0.0] * len(spans)
        if overlap is not None:
            shares = overlap.shares(text, [(span.begin, span.end) for span in spans])
        values = [
            (share + WORDS_SHARE * window.count(span) / max(1, len(wanted)), min(size, span.end - span.begin))
            for span, share in zip(spans, shares, strict=True)
        ]
        return spans[values.index(max(values))]

    best = best_of(_runs(_sentences(text, part), size))
    shown = best if best.end - best.begin <= size else _cut(text, best, places, size, best_of)
    before = "… " if shown.begin > begin else ""
    after = " …" if shown.end < len(text.rstrip()) else ""
    return text[:begin] + before + text[shown.begin : shown.end].strip() + after


def _readable(text: str, begin: int, wanted: Collection[str]) -> _Span:
    if len(text) - begin <= MAX_READ_CHARACTERS:
        return _Span(begin, len(text))
    folded = text.casefold()
    found = [place for form in wanted if (place := find_form(folded, form, begin)) is not None] or [begin]
    first = max(sorted(found), key=lambda place: sum(place <= other < place + MAX_READ_CHARACTERS for other in found))
    start = max(begin, first - _BEFORE_MATCH)
    return _Span(start, min(len(text), start + MAX_READ_CHARACTERS))


def _sentences(text: str, part: _Span) -> list[_Span]:
    found = []
    begin = part.begin
    for match in _SENTENCE_END.finditer(text, part.begin, part.end):
        found.append(_Span(begin, match.end()))
        begin = match.end()
    return [*found, _Span(begin, part.end)] if begin < part.end else found


def _runs(sentences: Sequence[_Span], size: int) -> list[_Span]:
    runs, last = [], 0
    for at, first in enumerate(sentences):
        last = max(at, last)
        while last + 1 < len(sentences) and sentences[last + 1].end - first.begin <= size:
            last += 1
        runs.append(_Span(first.begin, sentences[last].end))
    return runs


class _Window:
    def __init__(self, places: Sequence[tuple[int, str]]) -> None:
        self._places = places
        self._begin = self._end = 0
        self._counts: Counter[str] = Counter()

    def count(self, span: _Span) -> int:
        while self._end < len(self._places) and self._places[self._end][0] < span.end:
            self._counts[self._places[self._end][1]] += 1
            self._end += 1
        while self._begin < self._end and self._places[self._begin][0] < span.begin:
            form = self._places[self._begin][1]
            self._counts[form] -= 1
            if not self._counts[form]:
                del self._counts[form]
            self._begin += 1
        return len(self._counts)


def _cut(
    text: str, span: _Span, places: Sequence[tuple[int, str]], size: int, best_of: Callable[[Sequence[_Span]], _Span]
) -> _Span:
    """``size`` characters of a span around what is best of it, between words where there are any."""
    starts = [max(span.begin, place - size // 4) for place, _ in places if span.begin <= place < span.end]
    strides = range(span.begin, span.end, max(1, size // 2))
    best = best_of([_Span(begin, begin + size) for begin in starts or strides])
    begin = max(span.begin, min(best.begin, span.end - size))
    end = min(span.end, begin + size)
    if begin > span.begin:
        space = text.find(" ", begin, begin + 40)
        begin = space + 1 if space >= 0 else begin
    if end < span.end:
        space = text.rfind(" ", max(begin, end - 40), end)
        end = space if space > begin else end
    return _Span(begin, end)


def speaker_stems(text: str) -> frozenset[str]:
    return _stems(speaker_prefix(text))


@lru_cache(maxsize=1024)
def _stems(prefix: str) -> frozenset[str]:
    return frozenset(stem(word) for word in words(prefix))


SNIPPET_TOKENS = 80


@attrs.frozen
class Snippet:
    """A piece of a message in one line, with first and end of each match in order."""

    text: str
    marks: tuple[tuple[int, int], ...]


def snippet(content: str, wanted: Collection[str], max_tokens: int = SNIPPET_TOKENS) -> Snippet:
    """The part of a message with the most of the wanted words (index forms)."""
    text = " ".join(excerpt(content, _all_forms(content, wanted), max_tokens).split())
    return Snippet(text, tuple(_merged(_matches(text, wanted))))


def forms_there(content: str, wanted: Collection[str]) -> set[str]:
    """Which wanted forms a text has; a character of a script without spaces also as the beginning of one."""
    there = forms_in(content, wanted)
    lone = {form for form in wanted if is_lone(form)} - there
    if lone:
        begins = {form[: len(each)] for _, _, form in forms(content[:READ_WHOLE_CHARACTERS]) for each in lone}
        there |= lone & begins
    return there


def _all_forms(content: str, wanted: Collection[str]) -> Collection[str]:
    """With the pairs that begin with a wanted character of a script without spaces: it matches as a prefix."""
    lone = tuple(form for form in wanted if is_lone(form))
    if not lone:
        return wanted
    pairs = {form for _, _, form in forms(content[:READ_WHOLE_CHARACTERS]) if form.startswith(lone)}
    return {*wanted, *pairs}


def _matches(text: str, wanted: Collection[str]) -> Iterator[tuple[int, int]]:
    lone = tuple(form for form in wanted if is_lone(form))
    tokens = [*forms(text), (len(text), len(text), "")]
    for (begin, end, form), (following, _, _) in pairwise(tokens):
        if form in wanted:
            yield begin, end
        elif lone and form.startswith(lone):
            yield begin, min(end, following)  # of a pair its first character, where the next pair begins after it


def _merged(marks: Iterator[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for begin, end in marks:
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((begin, end))
    return merged


MIN_SHARE_TOKENS = 32
"""A message may always take so many tokens: a sentence or two. None crowds out the others by its length."""
TOKENS_BY_SCORE = 40.0
"""So many tokens more has a message whose score is higher by one: scores are logarithms of probabilities, and of a long
message the first sentences that are shown bring the most."""
_SHORTEST_EXCERPT_TOKENS = 24
_HALVINGS = 16
LINE_TOKENS = 4
"""What ``[assistant] `` and the line break cost."""


C = TypeVar("C", Candidate, PassageCandidate)


def pack(
    candidates: Sequence[C],
    wanted: Collection[str],
    *,
    top_k: int,
    max_tokens: int,
    overlap_with: Callable[[C], TokenOverlap | None] = lambda _candidate: None,
) -> list[C]:
    """Decide which of the candidates that passed the gate go into the context, and how much of each. Each gets the
    least share of the budget, in their order; one that does not fit is skipped. What is left goes to the better ones,
    by their scores: a message longer than its share is cut to an excerpt around the wanted words (index forms). What
    the excerpts leave gives them more room, the best first. Returns all candidates in their order, with the final
    decision, text and tokens."""
    shares, left = _least_shares(candidates, top_k, max_tokens)
    packed = list(candidates)
    for at, candidate in enumerate(candidates):
        if candidate.passed and at not in shares:
            full = len(shares) == top_k and at > max(shares)
            decision, room = (Decision.OVER_TOP_K, None) if full else (Decision.OVER_BUDGET, left)
            # Its excerpt, whose making takes time, would have about so many tokens.
            needed = min(candidate.tokens, MIN_SHARE_TOKENS)
            packed[at] = attrs.evolve(candidate, tokens=needed, decision=decision, left_tokens=room)
    for at, share in _by_score(candidates, shares, max_tokens).items():
        packed[at] = _shown(candidates[at], wanted, share, overlap_with)
    unused = max_tokens - sum(packed[at].tokens for at in shares)
    return _lengthened(packed, wanted, unused, overlap_with)


def _least_shares(candidates: Sequence[JudgedCandidate], top_k: int, max_tokens: int) -> tuple[dict[int, int], int]:
    """The least share of each that gets one, by its place, and what is left of the budget."""
    least, left = max(MIN_SHARE_TOKENS, max_tokens // top_k // 2), max_tokens
    shares: dict[int, int] = {}
    for at, candidate in enumerate(candidates):
        if len(shares) == top_k:
            break
        room = left if left >= _SHORTEST_EXCERPT_TOKENS else least
        needed = min(candidate.tokens, least, room)
        if candidate.passed and needed <= left:
            shares[at], left = needed, left - needed
    return shares, left


def _by_score(candidates: Sequence[JudgedCandidate], shares: Mapping[int, int], max_tokens: int) -> dict[int, int]:
    """The shares made larger until they fill the budget: by the same level for all, from which each has
    ``TOKENS_BY_SCORE`` up to its score. None has a higher score than one before it: a reranker knows better."""
    scores = dict(zip(shares, accumulate((candidates[at].score for at in shares), min), strict=True))

    def above(level: float) -> dict[int, int]:
        more = {at: min(candidates[at].tokens, int(TOKENS_BY_SCORE * (scores[at] - level))) for at in shares}
        return {at: max(least, more[at]) for at, least in shares.items()}

    high = max(scores.values(), default=0.0)
    low = min(scores.values(), default=0.0) - max_tokens / TOKENS_BY_SCORE
    for _ in range(_HALVINGS):
        level = (low + high) / 2
        low, high = (level, high) if sum(above(level).values()) > max_tokens else (low, level)
    return above(high)


def line_tokens(text: str) -> int:
    return tokens.estimate(text) + LINE_TOKENS


def _lengthened(
    packed: list[C], wanted: Collection[str], left: int, overlap_with: Callable[[C], TokenOverlap | None]
) -> list[C]:
    for at, candidate in enumerate(packed):
        if left < LINE_TOKENS:
            break
        if candidate.passed and candidate.text != candidate.content:
            longer = _shown(candidate, wanted, candidate.tokens + left, overlap_with)
            if longer.tokens <= candidate.tokens + left:
                left -= longer.tokens - candidate.tokens
                packed[at] = longer
    return packed


def _shown(candidate: C, wanted: Collection[str], limit: int, overlap_with: Callable[[C], TokenOverlap | None]) -> C:
    content = candidate.content
    if limit < _SHORTEST_EXCERPT_TOKENS:
        return candidate
    overlap = overlap_with(candidate) if candidate.tokens > limit or candidate.text != content else None
    text = excerpt(content, wanted, limit - LINE_TOKENS, overlap)
    return attrs.evolve(candidate, text=text, tokens=line_tokens(text))
