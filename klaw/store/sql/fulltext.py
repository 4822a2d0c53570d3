"""SQL of full-text search: inside one chat, and the expressions that every search is made of."""

import heapq
import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import apsw
import attrs

from klaw.store.tokenizer import is_lone


@attrs.frozen
class TextHit:
    """One result of a full-text search."""

    rowid: int
    bm25: float
    """As SQLite's bm25: the more negative, the better."""
    shared: int = 0
    """How many of the words it has."""


_POSTINGS = """
SELECT json_group_array(rowid) FROM messages_fts WHERE messages_fts MATCH ? AND rowid >= ? AND rowid < ?
"""
"""One array instead of thousands of rows: handing over each row costs more than finding it."""

IDF_POWER = 0.8
"""Rare words count a little less than BM25 has it: one rare word of a question must not outweigh three others."""
_LEAST_IDF = 1e-6
"""Of a word that is in more than half of the messages, as SQLite's bm25 has it."""


def quote(word: str) -> str:
    """A word as an FTS5 string: whatever it holds is text, never syntax."""
    return '"' + word.replace('"', '""').replace("\0", "") + '"'


def phrase(word: str) -> str:
    """FTS5 expression of a word; one character of a script without spaces stands for all that begins with it."""
    return quote(word) + ("*" if is_lone(word) else "")


def match_any(words: Sequence[str], chat_key: int) -> str:
    """FTS5 expression: any of the words, in one chat."""
    return match_in(words, f"c{int(chat_key)}")


def match_in(words: Sequence[str], scope: str | None) -> str:
    """FTS5 expression: any of the words, in the rows with a word of the scope column; None is everywhere."""
    content = f"{{content}}: ({' OR '.join(map(phrase, words))})"
    return content if scope is None else f"{{scope}}: {quote(scope)} AND {content}"


@attrs.frozen(kw_only=True)
class Hits:
    """Result of a search in one chat."""

    best: Sequence[TextHit]
    """The best first."""
    complete: bool
    """Whether there was time to look for every word."""


def search(
    connection: apsw.Connection,
    words: Sequence[str],
    chat_key: int,
    rowids: tuple[int, int],
    messages: int,
    limit: int,
    is_late: Callable[[], bool] = lambda: False,
) -> Hits:
    """Messages of a chat with any of the words, the best first.

    Args:
        connection: a reader.
        words: as written.
        chat_key: the chat.
        rowids: the first row and the end (not included) of what is searched.
        messages: about how many messages that are.
        limit: most results.
        is_late: looked at before each word; those that are left then are not looked for.
    """
    found = scores(connection, words, f"c{int(chat_key)}", rowids, messages, is_late)
    best = heapq.nsmallest(limit, found.by_rowid.items(), key=lambda item: (item[1], -item[0]))
    hits = [TextHit(rowid, score, found.shared[rowid]) for rowid, score in best]
    return Hits(best=hits, complete=found.complete)


@attrs.frozen(kw_only=True)
class Scores:
    """All matches of a search."""

    by_rowid: Mapping[int, float]
    """The more negative, the better."""
    shared: Mapping[int, int]
    """How many of the words each has."""
    complete: bool
    """Whether all words were looked for."""


def scores(
    connection: apsw.Connection,
    words: Sequence[str],
    scope: str | None,
    rowids: tuple[int, int],
    messages: int,
    is_late: Callable[[], bool] = lambda: False,
) -> Scores:
    """A collection's messages with any of the words.

    The scores are those of BM25 (Robertson and others, TREC-3, 1994) with the chat or the user as the collection,
    without the frequency of a word in one message, which is nearly always one, and without the length, which ranking
    takes into account later. SQLite's own bm25 takes all rows as the collection: a word that is rare elsewhere and in
    every message here would count as rare, and counting the rows of all chats takes four times as long among a million
    messages.

    Args:
        connection: a reader.
        words: as written.
        scope: the word of the scope column that all rows of the collection have; None when they are all rows.
        rowids: the first row and the end (not included) of what is searched.
        messages: about how many messages that are.
        is_late: looked at before each word; those that are left then are not looked for.
    """
    found: dict[int, float] = {}
    shared: Counter[int] = Counter()
    for word in words:
        try:
            if is_late():
                return Scores(by_rowid=found, shared=shared, complete=False)
            having = json.loads(connection.execute(_POSTINGS, (match_in([word], scope), *rowids)).get)
        except apsw.InterruptError:
            if not is_late():
                raise  # cancelled from outside
            return Scores(by_rowid=found, shared=shared, complete=False)
        shared.update(having)
        weight = -(_idf(len(having), messages) ** IDF_POWER)
        for rowid in having:
            found[rowid] = found.get(rowid, 0.0) + weight
    return Scores(by_rowid=found, shared=shared, complete=True)


def _idf(found: int, messages: int) -> float:
    return max(_LEAST_IDF, math.log((max(messages, found) - found + 0.5) / (found + 0.5)))
