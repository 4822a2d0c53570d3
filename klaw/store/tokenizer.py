"""The full-text tokenizer ``klaw``: Unicode words, case and accents folded, Snowball stems for English and Russian.

Words are found by Unicode's own rules (UAX #29) and simplified by apsw's Unicode tables. The stemmer follows the
word's script, so a mixed text gets the right one for each word.
"""

import unicodedata
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, cast

import apsw
import apsw.fts5
import apsw.unicode
import Stemmer

NAME = "klaw"
_MAX_WORD = 80
"""Longer runs (base64, hashes) are cut: nobody searches for their tail, and they bloat the index."""

_english = Stemmer.Stemmer("english")
_russian = Stemmer.Stemmer("russian")


@lru_cache(maxsize=65536)
def stem(word: str) -> str:
    """The index form of one word: folded, accents stripped, stemmed."""
    folded = apsw.unicode.casefold(word)[:_MAX_WORD]
    if _is_cyrillic(folded):
        # Not stripped like other scripts: й is no accented и, and stems depend on it.
        plain = unicodedata.normalize("NFC", folded).replace("\u0301", "").replace("ё", "е")
        return str(_russian.stemWord(plain))
    stripped = str(apsw.unicode.strip(folded)) or folded
    return str(_english.stemWord(stripped)) if stripped.isascii() else stripped


def _is_cyrillic(word: str) -> bool:
    return "\u0400" <= word[:1] <= "\u04ff"


def words(text: str) -> Iterator[str]:
    """The words of a text as written, in order; found as they are asked for."""
    return iter(apsw.unicode.word_iter(text))


def forms(text: str) -> Iterable[tuple[int, int, str]]:
    """Beginning, end (in characters) and index form of each word of a text, in order."""
    return _tokenize(text, 0, None)


def _tokenize(text: str, _reason: int, _locale: str | None) -> Iterator[tuple[int, int, str]]:
    for start, end, word in _words_with_offsets(text):
        yield start, end, stem(word)


def _words_with_offsets(text: str) -> Iterable[tuple[int, int, str]]:
    # apsw's annotation says str; what it yields is (start, end, word) in characters.
    return cast("Iterable[tuple[int, int, str]]", apsw.unicode.word_iter_with_offsets(text))


def _make(_connection: apsw.Connection, args: list[str]) -> Any:
    if args:
        raise ValueError("the klaw tokenizer takes no arguments")
    return _tokenize


_factory: Any = apsw.fts5.StringTokenizer(_make)
"""Translates FTS5's UTF-8 byte offsets to and from characters."""


def register(connection: apsw.Connection) -> None:
    """Make the tokenizer known to a connection; every connection that touches messages_fts needs it."""
    connection.register_fts5_tokenizer(NAME, _factory)
