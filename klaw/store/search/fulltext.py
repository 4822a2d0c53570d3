"""SQL of full-text search: inside one chat, and the expressions that every search is made of."""

import math
from collections.abc import Callable, Sequence

import apsw
import attrs
import numpy as np
import numpy.typing as npt

from klaw.store.search.tokenizer import is_lone


@attrs.frozen
class TextHit:
    """One result of a full-text search."""

    rowid: int
    bm25: float
    """As SQLite's bm25: the more negative, the better."""
    shared: int = 0
    """How many of the words it has."""


_POSTINGS = """
SELECT group_concat(rowid) FROM messages_fts WHERE messages_fts MATCH ? AND rowid >= ? AND rowid < ?
"""
"""One text instead of thousands of rows: handing over each row costs more than finding it."""

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
    # The rarer first: FTS5 takes each of its rows and looks whether the other has it.
    return content if scope is None else f"{content} AND {{scope}}: {quote(scope)}"


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
    return Hits(best=found.best(limit), complete=found.complete)


@attrs.frozen(kw_only=True, eq=False)
class Scores:
    """All matches of a search, as columns: with frequent words there are thousands."""

    rowids: npt.NDArray[np.int64]
    """Ascending."""
    values: npt.NDArray[np.float64]
    """The more negative, the better."""
    shared: npt.NDArray[np.int64]
    """How many of the words each has."""
    complete: bool
    """Whether all words were looked for."""

    def best(self, limit: int) -> list[TextHit]:
        """The best first; of equals, the newest."""
        near = np.arange(len(self.values))
        if len(near) > limit:
            near = np.flatnonzero(self.values <= np.partition(self.values, limit - 1)[limit - 1])
        order = near[np.lexsort((-self.rowids[near], self.values[near]))][:limit]
        columns = (column[order].tolist() for column in (self.rowids, self.values, self.shared))
        return [TextHit(*row) for row in zip(*columns, strict=True)]

    def ranked(self) -> list[tuple[int, float]]:
        """All row ids with their scores, in the same order."""
        order = np.lexsort((-self.rowids, self.values))
        return list(zip(self.rowids[order].tolist(), self.values[order].tolist(), strict=True))


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
    postings: list[npt.NDArray[np.int64]] = []
    complete = True
    for word in words:
        try:
            if is_late():
                complete = False
                break
            having = connection.execute(_POSTINGS, (match_in([word], scope), *rowids)).get
        except apsw.InterruptError:
            if not is_late():
                raise  # cancelled from outside
            complete = False
            break
        postings.append(np.fromstring(having or "", np.int64, sep=","))
    if not postings:
        none = np.empty(0, np.int64)
        return Scores(rowids=none, values=none.astype(np.float64), shared=none, complete=complete)
    counts = [len(having) for having in postings]
    weights = np.repeat([-(idf(count, messages) ** IDF_POWER) for count in counts], counts)
    found, places, shared = np.unique(np.concatenate(postings), return_inverse=True, return_counts=True)
    values = np.asarray(np.bincount(places, weights, len(found)), np.float64)
    return Scores(rowids=found, values=values, shared=shared, complete=complete)


def idf(found: int, messages: int) -> float:
    """The weight of a word that so many of the collection's messages have."""
    return max(_LEAST_IDF, math.log((max(messages, found) - found + 0.5) / (found + 0.5)))
