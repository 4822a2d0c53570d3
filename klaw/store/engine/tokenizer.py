"""The full-text tokenizer ``klaw``, and with it the one answer to what "the words of a text" are.

Index, query, relevance gate and excerpts all use it. Words are found by Unicode's own rules (UAX #29) and simplified by
apsw's Unicode tables; the stemmer follows the word's script, so a mixed text gets the right one for each word.

Some scripts put no spaces between words (Chinese, Japanese, Thai, Lao, Khmer, Myanmar), and Korean glues particles to
them. A run of their characters is indexed as overlapping pairs, and its last character alone: so each character begins
one token, and one character is found as a prefix. An emoji is a word.

An apostrophe, of which people type a dozen, parts words (d'Anna, L'Aquila, Ankara'ya, O'Brien), and a part of one
letter is dropped; but not in English contractions (don't), before the s of an owner, and before a soft vowel of
Ukrainian and Belarusian (п'ять).
"""

import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any, cast

import apsw
import apsw.fts5
import apsw.unicode
import Stemmer

NAME = "klaw"
_MAX_WORD = 80
"""Longer ones (base64, hashes) are cut."""
INDEXED_CHARACTERS = 200_000
"""The rest of a longer text is not indexed: all users would wait until the writer has read it."""
READ_WHOLE_CHARACTERS = 8_000
"""Longer texts are not read as a whole on the event loop."""
_PLACES = 8

_words_with_offsets = cast(
    "Callable[[str], Iterable[tuple[int, int, str]]]",
    partial(apsw.unicode.word_iter_with_offsets, emoji=True, regional_indicator=True),
)
"""Beginning, end (in characters) and text of each word and emoji."""

_APOSTROPHES = "\u2019\u02bc\u02b9\u2018\u201b\u02bb\u02bd\u02c8\u2032\u00b4\u055a\ua78c\uff07"
"""What is typed for it, beside ' and `."""
_PLAIN = str.maketrans(dict.fromkeys(_APOSTROPHES + "`", "'"))
_ONE_WORD = re.compile(
    r"\w+'s|\w+n't|\w+'(?:re|ve|ll|d)|i'm|y'all|o'clock|[\u0400-\u04ff]+(?:'[єїюяёеі][\u0400-\u04ff]*)+", re.IGNORECASE
)

_PART = re.compile(r"[^']+")

_english = Stemmer.Stemmer("english")
_russian = Stemmer.Stemmer("russian")

_SOUTH_EAST_ASIAN = ((0x0E01, 0x0EDF), (0x1000, 0x109F), (0x1780, 0x17DD), (0xA9E0, 0xA9FE), (0xAA60, 0xAA7F))
"""Thai and Lao, Myanmar, Khmer, Myanmar's extensions: letters and marks, between punctuation and digits."""
_EAST_ASIAN = (
    "\u3005-\u3007\u3031-\u3035\u303b"  # iteration marks, the zero 〇
    "\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\uff66-\uff9d"  # kana, also of half width
    "\u3105-\u312f\u31a0-\u31bf"  # Bopomofo
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"  # Han
    "\u1100-\u115f\u3131-\u318e\ua960-\ua97c\uac00-\ud7a3\uffa1-\uffdc"  # Hangul
)
_EAST_ASIAN_MARKS = "\u3099\u309a\uff9e\uff9f\u1160-\u11ff\ud7b0-\ud7fb\u302a-\u302f\ufe00-\ufe0f\U000e0100-\U000e01ef"
"""What belongs to the character before: voicing marks, Hangul vowels and finals typed apart, variation selectors."""
_AM_VOWELS = "\u0e33\u0eb3"
"""Thai and Lao am: letters to Unicode, but part of the character before."""


def _of_category(first_letters: str) -> str:
    return "".join(
        character
        for begin, end in _SOUTH_EAST_ASIAN
        for character in map(chr, range(begin, end + 1))
        if unicodedata.category(character)[0] in first_letters and character not in _AM_VOWELS
    )


MARK = f"[{_of_category('M')}{_AM_VOWELS}{_EAST_ASIAN_MARKS}\u200c\u200d]"
"""Pattern of a character that belongs to the one before it, in a run."""
_LETTER = re.compile(f"[{_of_category('L')}{_EAST_ASIAN}]")
_CHARACTER = re.compile(f"{_LETTER.pattern}{MARK}*")
_RUN = re.compile(f"(?:{_CHARACTER.pattern})+")
_KATAKANA_TO_HIRAGANA = {code: code - 0x60 for code in (*range(0x30A1, 0x30F7), 0x30FD, 0x30FE)}


def stem(word: str) -> str:
    """The index form of a word: folded, accents stripped, stemmed; of a run's characters width and kana folded."""
    return _stem(word[:_MAX_WORD])


def plain_apostrophes(text: str) -> str:
    """A text, as long as before, in which ' stands for all that is typed for it."""
    return text.replace("`", "'") if text.isascii() else text.translate(_PLAIN)


@lru_cache(maxsize=8192)  # 2 MB; a word that is not there takes 6 µs
def _stem(word: str) -> str:
    if _LETTER.match(word):
        # Not stripped: voicing marks and vowel signs tell words apart.
        return unicodedata.normalize("NFKC", word).translate(_KATAKANA_TO_HIRAGANA)
    folded = apsw.unicode.casefold(plain_apostrophes(word)).replace("ı", "i")[:_MAX_WORD]
    if "\u0400" <= folded[:1] <= "\u04ff":
        return str(_russian.stemWord(_plain_cyrillic(folded.replace("'", ""))))
    stripped = apsw.unicode.casefold(str(apsw.unicode.strip(folded))) or folded
    return str(_english.stemWord(stripped)) if stripped.isascii() else stripped


def _plain_cyrillic(word: str) -> str:
    """Without stress marks, soft hyphens and the like; й stays, because stems depend on it."""
    composed = unicodedata.normalize("NFC", word).replace("ё", "е")
    if composed.isalnum():
        return composed
    return "".join(each for each in composed if unicodedata.category(each) not in ("Mn", "Cf"))


def segments(text: str) -> Iterator[tuple[str, bool]]:
    """Words and runs of characters of scripts without spaces, as written, in order; and whether each is a run."""
    return ((text[start:end], is_run) for start, end, is_run in _spans(text))


def pairs(run: str) -> list[str]:
    """What a query looks for in place of a run: its overlapping pairs; one character alone is itself."""
    return [run[start:end] for start, end in _pairs(run, 0, len(run))]


def is_lone(word: str) -> bool:
    """Whether a word of a query is one character of a run: it is searched as the prefix of tokens."""
    return _CHARACTER.fullmatch(word) is not None


def words(text: str) -> Iterator[str]:
    """What a text can be found by, in order: words, emoji, and of runs the pairs and single characters."""
    if text.isascii() or _LETTER.search(text) is None:
        for start, end in _words(text):
            yield text[start:end]
        return
    for start, end, is_run in _spans(text):
        if is_run:
            spans = [character.span() for character in _CHARACTER.finditer(text, start, end)]
            yield from (text[one[0] : other[1]] for one, other in pairwise(spans))
            yield from (text[begin:stop] for begin, stop in spans)
        else:
            yield text[start:end]


def forms(text: str) -> Iterable[tuple[int, int, str]]:
    """Beginning, end (in characters) and index form of each token of a text, in order."""
    return _tokenize(text, 0, None)


def forms_in(text: str, wanted: Collection[str]) -> set[str]:
    """Which of some index forms a text has. Of a very long text the head is read, and what is around the first places
    that look like a form, because this runs on the event loop; a form may then be missed."""
    head = text[:READ_WHOLE_CHARACTERS]
    found = {form for form in map(stem, words(head)) if form in wanted}
    if len(text) > len(head):
        rest = text[len(head) - _MAX_WORD :].casefold()
        found.update(form for form in wanted if form not in found and find_form(rest, form) is not None)
    return found


def find_form(text: str, form: str, start: int = 0) -> int | None:
    """About where a very long text has an index form: the first places that look like it are looked at."""
    beginning = form[:-1] or form  # stems may differ from the word in their last letter
    place = start - 1
    for _ in range(_PLACES):
        place = text.find(beginning, place + 1)
        if place < 0:
            return None
        near = text[max(0, place - _MAX_WORD) : place + _MAX_WORD]
        if form in map(stem, words(near)):
            return place
    return None


def _tokenize(text: str, reason: int, _locale: str | None) -> Iterable[tuple[int, int, str]]:
    text = text[:INDEXED_CHARACTERS]
    if text.isascii() or _LETTER.search(text) is None:  # nearly always; a list is quicker than a generator
        return [(start, end, stem(text[start:end])) for start, end in _words(text)]
    return _tokens_with_runs(text, is_query=bool(reason & apsw.FTS5_TOKENIZE_QUERY))


def _tokens_with_runs(text: str, *, is_query: bool) -> Iterator[tuple[int, int, str]]:
    for start, end, is_run in _spans(text):
        tokens = _pairs(text, start, end, with_last=not is_query) if is_run else [(start, end)]
        for begin, stop in tokens:
            yield begin, stop, stem(text[begin:stop])


def _spans(text: str) -> Iterator[tuple[int, int, bool]]:
    """Beginning, end (in characters) and whether it is a run, of each word or run."""
    done = 0
    for run in _RUN.finditer(text):
        if done < run.start():
            for start, end in _words(text[done : run.start()]):
                yield done + start, done + end, False
        yield run.start(), run.end(), True
        done = run.end()
    for start, end in _words(text[done:] if done else text):
        yield done + start, done + end, False


def _words(text: str) -> Iterator[tuple[int, int]]:
    for start, end, word in _words_with_offsets(plain_apostrophes(text)):
        if "'" not in word or _ONE_WORD.fullmatch(word):
            yield start, end
            continue
        parts = [(start + part.start(), start + part.end()) for part in _PART.finditer(word)]
        yield from [part for part in parts if part[1] - part[0] > 1] or parts


def _pairs(text: str, start: int, end: int, *, with_last: bool = False) -> list[tuple[int, int]]:
    """Offsets of the overlapping pairs of a run's characters, and of the last one alone if wanted or the only one."""
    spans = [character.span() for character in _CHARACTER.finditer(text, start, end)]
    paired = [(one[0], other[1]) for one, other in pairwise(spans)]
    return paired + spans[-1:] if with_last or not paired else paired


def _make(_connection: apsw.Connection, args: list[str]) -> Any:
    if args:
        raise ValueError("the klaw tokenizer takes no arguments")
    return _tokenize


_factory: Any = apsw.fts5.StringTokenizer(_make)
"""Translates FTS5's UTF-8 byte offsets to and from characters."""


def register(connection: apsw.Connection) -> None:
    """Make the tokenizer known to a connection; every connection that touches messages_fts needs it."""
    connection.register_fts5_tokenizer(NAME, _factory)
