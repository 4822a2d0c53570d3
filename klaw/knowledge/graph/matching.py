"""Which things a question names, by their labels: decided here, by Klaw's stems, alike for all engines. Pure."""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile

import attrs

from klaw.knowledge.graph.sparql import Blank, Iri, Literal, Row, is_iri
from klaw.memory.recall.query import content_words, read_query
from klaw.store.engine.tokenizer import stem, words

MAX_WORDS, MAX_LABEL = 12, 300
"""Words of a question that are looked for; characters of a label that are read."""
MAX_PHRASE_WORDS = 4
MAX_PHRASES = 30
MIN_COVERAGE = 1 / 3
"""Share of a label's words that must be in the question."""
OF_THE_BEST = 0.5
"""What fits less than half as well as the best is left out."""
_ALSO = 0.5


@attrs.frozen(kw_only=True)
class QuestionTerms:
    weights: Mapping[str, float]
    needles: tuple[str, ...]
    """A piece of each word that is in all its forms."""
    phrases: tuple[str, ...]
    languages: tuple[str, ...]
    """The best first; empty stands for labels without one."""


@attrs.frozen(kw_only=True)
class Match:
    iri: str
    """Empty: it has only the label that it was found by."""
    label: str
    language: str
    score: float
    """0 to 1."""
    stems: frozenset[str]
    """Those of the question that are in the label."""


def read_question(question: str, also: str = "", language: str = "") -> QuestionTerms:
    """``language``: of the base. Words of the dialogue before (``also``) count half."""
    asked = read_query(question, 0.0, None).words[:MAX_WORDS]
    weights = {form(word): 1.0 for word in asked}
    needles = {form(word): needle(word) for word in asked}
    for word in content_words(also, MAX_WORDS):
        if len(weights) < MAX_WORDS and form(word) not in weights:
            weights[form(word)], needles[form(word)] = _ALSO, needle(word)
    return QuestionTerms(
        weights=weights,
        needles=tuple(dict.fromkeys(needles.values())),
        phrases=_phrases(question, weights),
        languages=languages(question, language),
    )


def form(word: str) -> str:
    """The stem of a word. Of surnames such as Чехов the stemmer takes more from the first case than from the others
    (чех, чехов-а): a second time it takes that, too."""
    base = stem(word)
    return stem(base) if "\u0400" <= base[:1] <= "\u04ff" else base


def languages(question: str, language: str) -> tuple[str, ...]:
    letters = [character for character in question if character.isalpha()]
    cyrillic = sum("\u0400" <= character <= "\u04ff" for character in letters)
    first = "ru" if 2 * cyrillic > len(letters) else "en"
    return tuple(dict.fromkeys((first, language, "", "en", "ru")))


def needle(word: str) -> str:
    """The beginning of a word that all its forms have: what word and stem share, without a last letter that changes
    (hope, hoping; city, cities)."""
    written, base = word.casefold().replace("ё", "е"), form(word)
    shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(written, base, strict=False)))
    piece = written[:shared] or written
    return piece[:-1] if len(piece) > 3 and piece[-1] in "eiy" and piece.isascii() else piece


def label_stems(label: str) -> frozenset[str]:
    """The stems of a label's words that say something; of all, where none does."""
    label = label[:MAX_LABEL]
    return frozenset(map(form, content_words(label, 64) or words(label)))


def matches(rows: Iterable[Row], asked: QuestionTerms, most: int) -> list[Match]:
    """The things that a question names, the best first, among ``rows`` of a thing ``e`` and a label ``l``."""
    found = (match for row in rows if (match := _match(row, asked)) is not None)
    best: dict[object, Match] = {}
    for match in sorted(found, key=lambda match: _rank(match, asked)):
        best.setdefault(match.iri or (match.label, match.language), match)
    ordered = list(best.values())
    return [match for match in ordered if match.score >= OF_THE_BEST * ordered[0].score][:most]


def _match(row: Row, asked: QuestionTerms) -> Match | None:
    thing, label = row.get("e"), row.get("l")
    if not isinstance(label, Literal) or not isinstance(thing, Iri | Blank):
        return None
    if isinstance(thing, Iri) and not is_iri(thing.value):
        return None
    stems = label_stems(label.value)
    found = stems & asked.weights.keys()
    if not found or len(found) < MIN_COVERAGE * len(stems):
        return None
    weight = sum(asked.weights[each] for each in found)
    return Match(
        iri=thing.value if isinstance(thing, Iri) else "",
        label=label.value,
        language=label.language,
        score=round(weight / len(stems) * math.sqrt(weight / sum(asked.weights.values())), 4),
        stems=found,
    )


def _rank(match: Match, asked: QuestionTerms) -> tuple[object, ...]:
    """The better one is less; equal ones are ordered by what all engines say alike."""
    known = match.language in asked.languages
    language = asked.languages.index(match.language) if known else len(asked.languages)
    return -match.score, language, match.language, len(match.label), match.label, match.iri


def _phrases(question: str, weights: Mapping[str, float]) -> tuple[str, ...]:
    """Words that stand together, the longest first; none begins or ends with a word that says nothing."""
    said = question[:2_000].split()
    content = [any(form(word) in weights for word in words(each)) for each in said]
    found: dict[str, None] = {}
    for length in range(min(MAX_PHRASE_WORDS, len(said)), 0, -1):
        for begin in range(len(said) - length + 1):
            if content[begin] and content[begin + length - 1]:
                phrase = " ".join(said[begin : begin + length]).strip(".,;:!?()[]«»\"'“”„…")
                found[phrase] = None
                found[phrase[:1].upper() + phrase[1:]] = None
    return tuple(found)[:MAX_PHRASES]


def relevance(text: str, wanted: Sequence[str] | frozenset[str]) -> int:
    return len(set(wanted) & set(map(form, words(text))))
