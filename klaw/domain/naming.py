"""Whether a text names somebody: whole words in any case, in the cases of Russian grammar too. Pure.

The forms of a Russian name are declined by rule and not found by its stem: a stem like «люб» would find every sentence
with «люблю». A few forms are other words as well («Люба», «любой»): who forgets somebody sees first what would go.
"""

import re
from collections.abc import Iterable, Sequence

import attrs

from klaw.domain.text import normalized

_VOWELS = frozenset("аеиоуыэюя")
_CYRILLIC = re.compile(r"[а-я]+")
_ADJECTIVE = {
    "ий": ("ого", "его", "ому", "ему", "ым", "им", "ом", "ем"),
    "ый": ("ого", "ому", "ым", "ом"),
    "ая": ("ой", "ую", "ою"),
    "яя": ("ей", "юю", "ею"),
}
_FLEETING = ("ел", "ек", "ок", "ец", "ен")
"""Ends that may lose their vowel: «Павел», «Павла»."""


def folded(text: str) -> str:
    """A text as names are looked for in it."""
    return normalized("NFKC", text).casefold().replace("ё", "е")


def word_forms(word: str) -> frozenset[str]:
    """A word of a name (folded) as it may stand in a sentence; of words that are not Russian the word alone."""
    if len(word) < 3 or not _CYRILLIC.fullmatch(word):
        return frozenset((word,))
    ends: dict[str, tuple[str, ...]] = {}
    stem, last = word[:-1], word[-1]
    if last == "а":
        ends[stem] = ("ы", "и", "е", "у", "ой", "ою", "ей", "ею")
    elif last == "я":
        ends[stem] = ("и", "е", "ю", "ей", "ею")
    elif last == "й":
        ends[stem] = ("я", "ю", "ем", "е", "и")
    elif last == "ь":
        ends[stem] = ("я", "ю", "ем", "е", "и", "ью")
    elif last not in _VOWELS:
        ends[word] = ("а", "у", "ом", "ем", "е", "ым")
        if word[-2:] in _FLEETING and len(word) > 3:
            ends[word[:-2] + last] = ("а", "у", "ом", "ем", "е")
    if word[-2:] in _ADJECTIVE and len(word) > 4:
        ends[word[:-2]] = _ADJECTIVE[word[-2:]]
    return frozenset((word, *(stem + end for stem, found in ends.items() for end in found)))


@attrs.frozen
class Finder:
    """Looks for names in texts.

    Args:
        names: each as a whole, its words in their order.
    """

    names: tuple[str, ...]
    _pattern: re.Pattern[str] = attrs.field(init=False, repr=False)

    @_pattern.default
    def _compiled(self) -> re.Pattern[str]:
        wanted = [pattern for name in self.names if (pattern := _pattern_of(name))]
        return re.compile(rf"(?<!\w)(?:{'|'.join(sorted(wanted))})(?!\w)" if wanted else r"(?!)")

    def finds(self, text: str) -> bool:
        """Whether a text names one of them."""
        return self._pattern.search(folded(text)) is not None

    def without(self, text: str, mark: str) -> str:
        """A text with a mark in place of each of them; one that names none as it is."""
        if not self.finds(text.replace("\\n", " ").replace("\\t", " ").replace("\\r", " ")):
            return text
        text = normalized("NFC", text)
        words = [(*found.span(1), folded(found[1])) for found in _WORDS.finditer(text) if found[1]]
        longest = sorted((_forms_of(name) for name in self.names), key=len, reverse=True)
        kept, end, place = [], 0, 0
        while place < len(words):
            size = next((len(forms) for forms in longest if _stands(forms, words, place)), 0)
            if size:
                kept += [text[end : words[place][0]], mark]
                end = words[place + size - 1][1]
            place += size or 1
        return "".join([*kept, text[end:]])


@attrs.frozen
class Words:
    """The words of a text, for telling who may be meant in it: looked up, so many people cost little."""

    said: frozenset[str]

    def name(self, names: Iterable[str]) -> bool:
        """Whether they have a single word of one of the names, in any form. Words of one letter do not count."""
        words = (word for name in names for word in _words(name) if len(word) > 1)
        return any(not self.said.isdisjoint(word_forms(word)) for word in words)


def words_of(text: str) -> Words:
    """The words of a text."""
    return Words(frozenset(_words(text)))


_WORDS = re.compile(r"\\[ntr]|(\w+)")
"""JSON inside a text has the ends of lines as letters, which belong to no word."""


def _forms_of(name: str) -> list[frozenset[str]]:
    return [word_forms(word) for word in _words(name)]


def _stands(forms: Sequence[frozenset[str]], words: Sequence[tuple[int, int, str]], place: int) -> bool:
    here = words[place : place + len(forms)]
    return (
        bool(forms) and len(here) == len(forms) and all(word[2] in form for word, form in zip(here, forms, strict=True))
    )


def _words(name: str) -> list[str]:
    return re.findall(r"\w+", folded(name))


def _pattern_of(name: str) -> str:
    return r"\W+".join(f"(?:{'|'.join(map(re.escape, sorted(word_forms(word))))})" for word in _words(name))
