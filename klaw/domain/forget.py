"""Forgetting: which pieces of a text give it away elsewhere, and taking them out of JSON values. Pure.

The work is linear in the texts: a row is looked through once for the words that the pieces are known by, however many
pieces there are.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import attrs

from klaw.domain.fact import FactId
from klaw.domain.text import clean_output

MARK = "[forgotten]"
"""Stands where a forgotten text stood inside something that stays."""
MIN_CHARS = 12
"""Shorter pieces are not looked for elsewhere: they stand in too much that has nothing to do with the forgotten."""
MAX_PIECES = 500
"""Limit for one forgetting, and as many again for each 10,000 messages; the texts as a whole first, then the longest
sentences."""
MAX_KNOWN_BY = 500
"""Characters of a piece, from its beginning, in which the word is that it is known by."""
MAX_OF_WORD = 8
"""Pieces that are known by one and the same word."""
MAX_WORDLESS = 32
"""Pieces in which no word can be set apart, as in Chinese; each is looked for by itself."""
FORGOTTEN = "forgotten"
"""In the metadata of the row that keeps a forgotten message's number: when it was forgotten."""

_SENTENCE = re.compile(r"(?<=[.!?…])\s+|\n+")
_WORD = re.compile(r"[0-9A-Za-z\u00c0-\u0dff]+")
"""A word, in scripts that put spaces between words."""
_STOCK_WORDS = """
a all am an and any are at be by can did do does done for from go got great hello help here hey hi how i is it its
just let like look me much my need no not now of ok okay on one or perfect please so sorry sounds sure thank thanks
that the then there this to too um very want was we welcome well what will with would yes you your good morning
afternoon evening night day fine nice cool glad lot again anything else else's feel free know understood right
course question happy problem worries more
а без благодарю большое будет бы в вам вас все всё вы где да давай для день добрый доброе его если есть ещё еще же
за и из или как ладно мне можно могу на не нет ничего но о ок окей он она от отлично очень по пожалуйста понял
поняла понятно помочь привет рад рада с сейчас спасибо спокойной так там то тоже тут ты тебе тебя у утро хорошо
чем что это этого я вечер ночи здравствуй здравствуйте конечно всего чего нибудь помощь вопрос вопросы
"""
"""Words of which stock phrases are made: "ok, thank you very much", «спасибо большое»."""
_STOCK = frozenset(_STOCK_WORDS.split())


def is_telling(piece: str) -> bool:
    """Whether a piece of a text points to it: it is long enough, and no stock phrase."""
    return len(piece) >= MIN_CHARS and piece != MARK and not _is_stock(piece)


def _is_stock(piece: str) -> bool:
    words = _WORD.findall(piece[:200].casefold())
    return bool(words) and len(piece) <= 200 and all(word in _STOCK or len(word) == 1 for word in words)


def most_pieces(messages: int) -> int:
    """How many pieces are looked for when so many messages are forgotten."""
    return MAX_PIECES * (1 + messages // 10_000)


def fragments(texts: Iterable[str], most: int = MAX_PIECES) -> tuple[str, ...]:
    """What is looked for of forgotten texts: each as a whole, as one line, and its sentences; the longest first."""
    whole: set[str] = set()
    sentences: set[str] = set()
    for text in texts:
        whole.update(piece for piece in (text.strip(), " ".join(text.split())) if is_telling(piece))
        sentences.update(piece for piece in map(str.strip, _SENTENCE.split(text)) if is_telling(piece))
    first = _longest(whole)[:most]
    kept = {*first, *_longest(sentences - whole)[: most - len(first)]}
    return tuple(_longest(kept))


def _longest(pieces: Iterable[str]) -> list[str]:
    return sorted(pieces, key=lambda piece: (-len(piece), piece))


@attrs.frozen
class PieceFinder:
    """Finds pieces in texts. Each is known by one of its words, the rarest inside it; only where that word stands it is
    looked for itself."""

    pieces: tuple[str, ...]
    """The longest first."""
    _of_word: Mapping[str, tuple[str, ...]]
    _wordless: tuple[str, ...]

    @classmethod
    def of(cls, pieces: Sequence[str]) -> Self:
        """A finder of pieces, which are given the longest first."""
        # The outer words may be parts of longer ones; those of a beginning are enough.
        inside = {piece: _WORD.findall(piece[:MAX_KNOWN_BY])[1:-1] for piece in pieces}
        often = Counter(word for words in inside.values() for word in set(words))
        known: dict[str, list[str]] = {}
        for piece, words in inside.items():
            if words:
                known.setdefault(min(words, key=lambda word: (often[word], -len(word), word)), []).append(piece)
        wordless = [piece for piece, words in inside.items() if not words]
        return cls(
            tuple(pieces),
            {word: tuple(found[:MAX_OF_WORD]) for word, found in known.items()},
            tuple(wordless[:MAX_WORDLESS]),
        )

    def __bool__(self) -> bool:
        return bool(self.pieces)

    def found_in(self, text: str) -> list[str]:
        """The pieces that stand in a text, the longest first."""
        if not self.pieces:
            return []
        words = self._of_word.keys() & set(_WORD.findall(text)) if self._of_word else ()
        maybe = [piece for word in words for piece in self._of_word[word]]
        return _longest(piece for piece in (*maybe, *self._wordless) if piece in text)

    def may_stand_in(self, document: str) -> bool:
        """Whether a JSON document is worth parsing: False only when no text of it has a piece."""
        if self._wordless:
            return True
        for end in ("\\n", "\\r", "\\t"):  # would be letters of the next word
            document = document.replace(end, "  ")
        return not self._of_word.keys().isdisjoint(_WORD.findall(document))

    def texts_with(self, value: Any) -> Iterator[str]:
        """The texts of a JSON value in which one of the pieces stands."""
        return (text for text in texts_of(value) if self.found_in(text))

    def taken_out(self, value: Any) -> Any:
        """A JSON value with MARK in place of each piece in its texts. Keys stay."""
        return each_text(value, self._without)

    def _without(self, text: str) -> str:
        inner = _document(text)
        if inner is not None and (cut := self.taken_out(inner)) != inner:
            text = json.dumps(cut, ensure_ascii=False)
        for piece in self.found_in(text):
            text = text.replace(piece, MARK)
        return text


def each_text(value: Any, change: Callable[[str], str]) -> Any:
    """A JSON value with each of its texts changed. Keys stay."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [each_text(each, change) for each in value]
    if isinstance(value, dict):
        return {key: each_text(each, change) for key, each in value.items()}
    return value


def texts_of(value: Any) -> Iterator[str]:
    """All texts of a JSON value but its keys; also those of a text that is JSON itself, as a call's arguments are."""
    if isinstance(value, str):
        yield value
        yield from texts_of(_document(value))
    elif isinstance(value, list):
        for each in value:
            yield from texts_of(each)
    elif isinstance(value, dict):
        for each in value.values():
            yield from texts_of(each)


def _document(text: str) -> Any:
    if text[:1] not in ("{", "["):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


MAX_SHOWN = 60
"""Characters of a thing as it is shown before it is forgotten."""


@attrs.frozen(kw_only=True)
class Thing:
    """One thing that a forgetting takes or leaves, in words."""

    kind: str
    """``message``, ``tool call``, ``fact``, ``core memory`` …"""
    name: str
    """Under which it is found: ``main#12``, an id, a path."""
    text: str = ""
    """The beginning of what it says."""
    goes: bool = True
    remedy: str = ""
    """What becomes of one that goes; what to do about one that stays, where ``with facts`` does not take it."""


def beginning(text: str) -> str:
    """A text as it is shown: the beginning, in one line."""
    line = " ".join(clean_output(text[: 8 * MAX_SHOWN]).split())
    return line if len(line) <= MAX_SHOWN and len(text) <= 8 * MAX_SHOWN else f"{line[: MAX_SHOWN - 1]}…"


def fact_ids(ids: Iterable[str]) -> tuple[FactId, ...]:
    return tuple(FactId(each) for each in sorted(set(ids)))
