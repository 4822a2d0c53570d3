"""Whether a new fact says anything that a kept one does not. Pure.

A near vector alone cannot tell: multilingual-e5 puts "Anna lives in Berlin" at cosine 0.91 to the same with Munich, and
«Аня живёт в Берлине» at 0.97. So a fact counts as told already when its vector is very close to that of a kept one,
every word of it that means something is in that one too, and both deny as much. What adds a word, a name or a number is
kept.
"""

from klaw.memory.recall.stopwords import content_words
from klaw.store.search.tokenizer import stem, words

NEAR_COSINE = 0.97
"""Rephrasings of one statement lie at 0.97 to 0.995."""
_MAX_WORDS = 400

_DENYING = frozenset(
    stem(word)
    for word in (
        *("no", "not", "never", "none", "nobody", "nothing", "without", "t"),
        *("нет", "не", "ни", "никогда", "никто", "ничего", "без", "нельзя"),
    )
)


def adds_nothing(new: str, kept: str) -> bool:
    """Whether every telling word of a text is in another one, and both deny as much."""
    telling = {stem(word) for word in content_words(new, _MAX_WORDS)}
    known = {stem(word) for word in content_words(kept, _MAX_WORDS)}
    return bool(telling) and telling <= known and _denials(new) == _denials(kept)


def _denials(text: str) -> int:
    return sum(stem(word) in _DENYING for word in words(text))
