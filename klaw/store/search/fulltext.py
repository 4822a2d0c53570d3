"""SQL of full-text search: the expressions of every search, ranking by words, and which words a search can afford."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import apsw
import attrs
import numpy as np
import numpy.typing as npt

from klaw.domain.names import UserId
from klaw.store.changes import Kind
from klaw.store.engine.tokenizer import is_lone
from klaw.store.kinds.messages import MESSAGE, user_word


@attrs.frozen
class TextHit:
    """A result of a full-text search: SQLite's bm25 (negative: good), how many of the words it has, and how many of
    those that a model added to the question."""

    rowid: int
    bm25: float
    shared: int = 0
    added: int = 0


_POSTINGS = "SELECT group_concat(rowid) FROM {table}_fts WHERE {table}_fts MATCH ? AND rowid >= ? AND rowid < ?"
"""One text instead of thousands of rows: handing over each row costs more than finding it."""

IDF_POWER = 0.8
"""Rare words count a little less than BM25 has it: one rare word of a question must not outweigh three others."""
_LEAST_IDF = 1e-6
"""The weight of a word that is in more than half of the messages, as SQLite's bm25 has it."""


def quote(word: str) -> str:
    """A word as an FTS5 string: whatever it holds is text, never syntax."""
    return '"' + word.replace('"', '""').replace("\0", "") + '"'


def phrase(word: str) -> str:
    """FTS5 expression of a word; one character of a script without spaces stands for all that begins with it."""
    return quote(word) + ("*" if is_lone(word) else "")


def match_in(words: Sequence[str], scope: str | Sequence[str] | None) -> str:
    """FTS5 expression: any of the words, in rows with one of the scope's words (None: in all)."""
    content = f"{{content}}: ({' OR '.join(map(phrase, words))})"
    # The rarer first: FTS5 takes each of its rows and looks whether the other has it.
    if scope is None:
        return content
    return f"{content} AND {{scope}}: ({' OR '.join(map(quote, [scope] if isinstance(scope, str) else scope))})"


@attrs.frozen(kw_only=True, eq=False)
class Scores:
    """All matches of a search, as columns: with frequent words there are thousands."""

    rowids: npt.NDArray[np.int64]
    """Ascending."""
    values: npt.NDArray[np.float64]
    """The more negative, the better."""
    shared: npt.NDArray[np.int64]
    """How many of the words each has."""
    weights: Sequence[float] = ()
    """Of each word: the rarer, the more; ``values`` are made of them."""
    complete: bool
    """Whether all words were looked for."""

    def best(self, limit: int) -> list[TextHit]:
        near = np.arange(len(self.values))
        if len(near) > limit:
            near = np.flatnonzero(self.values <= np.partition(self.values, limit - 1)[limit - 1])
        order = near[np.lexsort((-self.rowids[near], self.values[near]))][:limit]
        columns = (column[order].tolist() for column in (self.rowids, self.values, self.shared))
        return [TextHit(*row) for row in zip(*columns, strict=True)]

    def ranked(self) -> list[tuple[int, float, int]]:
        """What each hit is made of, the best first."""
        order = np.lexsort((-self.rowids, self.values))
        columns = (column[order].tolist() for column in (self.rowids, self.values, self.shared))
        return list(zip(*columns, strict=True))


def scores(
    connection: apsw.Connection,
    words: Sequence[str],
    scope: str | Sequence[str] | None,
    rowids: tuple[int, int],
    messages: int,
    is_late: Callable[[], bool] = lambda: False,
    *,
    kind: Kind[Any] = MESSAGE,
    only: npt.NDArray[np.int64] | None = None,
    weigh: Callable[[int, int], float] = lambda found, messages: idf(found, messages) ** IDF_POWER,
) -> Scores:
    """The rows of a kind, messages or passages of documents, with any of the words.

    The scores are those of BM25 (Robertson and others, TREC-3, 1994) with the chat or the user as the collection,
    without the frequency of a word in one message, which is nearly always one, and the length, which ranking takes into
    account later. SQLite's own bm25 takes all rows as the collection: a word that is rare elsewhere and in every
    message here would count as rare, and among a million messages counting takes four times as long.

    All rows of the collection (about so many ``messages``) have a word of ``scope`` in the scope column; None: the
    collection is all rows. They are searched from the first of ``rowids`` to before the second, and only those among
    ``only``. Words that are left when ``is_late`` are not looked for.
    """
    found: list[npt.NDArray[np.int64]] = []
    complete = True
    postings = _POSTINGS.format(table=kind.table)
    for word in words:
        try:
            if is_late():
                complete = False
                break
            having = connection.execute(postings, (match_in([word], scope), *rowids)).get
        except apsw.InterruptError:
            if not is_late():
                raise  # cancelled from outside
            complete = False
            break
        rows = np.fromstring(having or "", np.int64, sep=",")
        found.append(rows if only is None else rows[np.isin(rows, only)])
    if not found:
        none = np.empty(0, np.int64)
        return Scores(rowids=none, values=none.astype(np.float64), shared=none, complete=complete)
    counts = [len(rows) for rows in found]
    weights = [weigh(count, messages) for count in counts]
    rowids_found, places, shared = np.unique(np.concatenate(found), return_inverse=True, return_counts=True)
    values = np.asarray(-np.bincount(places, np.repeat(weights, counts), len(rowids_found)), np.float64)
    return Scores(rowids=rowids_found, values=values, shared=shared, weights=weights, complete=complete)


def idf(found: int, messages: int) -> float:
    """The weight of a word that so many of the collection's messages have."""
    return max(_LEAST_IDF, math.log((max(messages, found) - found + 0.5) / (found + 0.5)))


def soft_idf(found: int, rows: int) -> float:
    """The same, as Lucene has it: a word that most of the rows have still counts, as in a search of one document."""
    return math.log(1 + (max(rows, found) - found + 0.5) / (found + 0.5))


_SATURATION, _BREVITY = 1.2, 0.75
"""k1 and b, as SQLite has them."""


def ranked(
    connection: apsw.Connection, kind: Kind[Any], text: str, user: UserId, words: Sequence[str], limit: int
) -> list[TextHit]:
    """A user's rows with any of the words, the best first; of equals the newest. BM25 with the user's rows as the
    collection: by all rows the order would tell how often other users have a word. ``text``: SQL of a row's text."""
    table = kind.table
    long = f"length({text}) - length(replace({text}, ' ', '')) + 1"
    own = f"SELECT count(*), avg({long}) FROM {table} WHERE user_id = ?"  # noqa: S608 - constant names
    counted: Any = connection.execute(own, (user,)).fetchone()
    rows, average = counted
    having = (
        f"SELECT t.rowid, {long} FROM (SELECT rowid FROM {table}_fts WHERE {table}_fts MATCH ?2) AS m"  # noqa: S608
        f" CROSS JOIN {table} AS t ON t.rowid = m.rowid WHERE t.user_id = ?1"
    )
    values: dict[int, float] = {}
    for word in dict.fromkeys(words):
        found: list[Any] = connection.execute(having, (user, match_in([word], user_word(user)))).fetchall()
        weight = idf(len(found), rows) * (_SATURATION + 1)
        for rowid, length in found:
            share = 1 - _BREVITY + _BREVITY * length / max(average or 1, 1)
            values[rowid] = values.get(rowid, 0.0) - weight / (1 + _SATURATION * share)
    best = sorted(values.items(), key=lambda each: (each[1], -each[0]))[:limit]
    return [TextHit(rowid, value) for rowid, value in best]


MAX_RANKED = 50_000
"""Messages that one search ranks, about."""
_WINDOWS, _WINDOW_ROWS = 12, 1_000
"""The sample: so many runs of row ids, spread evenly."""


@attrs.frozen(kw_only=True)
class WordPlan:
    words: Sequence[str]
    left_out: Sequence[str] = ()
    """Words that are too frequent to be worth their time beside the others."""
    first_rowid: int = 0
    """Where to begin: above 0 when every word is so frequent that only the newest messages are ranked."""


def plan(connection: apsw.Connection, words: Sequence[str], rows: int, last_rowid: int) -> WordPlan:
    """Choose the words for a search among at most so many messages. Ranking reads every message that has one of the
    words, almost a microsecond each; in a million messages "like" alone is in a hundred thousand, and tells nothing
    beside a rarer word. How often a word occurs is estimated from a sample: counting would read as much as it saves."""
    if rows <= MAX_RANKED:
        return WordPlan(words=words)
    share = min(1.0, rows / max(1, last_rowid))
    expected = {word: share * _estimate(connection, word, last_rowid) for word in words}
    kept: list[str] = []
    ranked = 0.0
    for word in sorted(expected, key=lambda each: expected[each]):
        if kept and ranked + expected[word] > MAX_RANKED:
            break
        kept.append(word)
        ranked += expected[word]
    first = int(last_rowid * (1 - MAX_RANKED / ranked)) if ranked > MAX_RANKED else 0
    left_out = [word for word in words if word not in kept]
    return WordPlan(words=[word for word in words if word in kept], left_out=left_out, first_rowid=first)


def _estimate(connection: apsw.Connection, word: str, last_rowid: int) -> float:
    expression = match_in([word], None)
    size = min(_WINDOW_ROWS, last_rowid // _WINDOWS + 1)
    starts = [last_rowid * window // _WINDOWS for window in range(_WINDOWS)]
    query = "SELECT count(*) FROM messages_fts WHERE messages_fts MATCH ? AND rowid >= ? AND rowid < ?"
    found = sum(connection.execute(query, (expression, start, start + size)).get for start in starts)
    return float(found) * last_rowid / (_WINDOWS * size)
