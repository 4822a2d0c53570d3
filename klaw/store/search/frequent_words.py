"""Which words of a query a search over a whole history can afford.

Ranking reads every message that has one of the words, at almost a microsecond each. In a million messages "like" alone
is in a hundred thousand, and tells nothing when a rarer word is there too. How often a word occurs is estimated from a
sample of the index, because counting would read as much as it saves.
"""

from collections.abc import Sequence

import apsw
import attrs

from klaw.store.search.fulltext import match_in

MAX_RANKED = 50_000
"""Messages that one search ranks, about."""
_WINDOWS, _WINDOW_ROWS = 12, 1_000
"""The sample: so many runs of row ids, spread evenly."""


@attrs.frozen(kw_only=True)
class Plan:
    """What to search for."""

    words: Sequence[str]
    left_out: Sequence[str] = ()
    """Words that are too frequent to be worth their time beside the others."""
    first_rowid: int = 0
    """Where to begin: above 0 when every word is so frequent that only the newest messages are ranked."""


_COUNT = "SELECT count(*) FROM messages_fts WHERE messages_fts MATCH ? AND rowid >= ? AND rowid < ?"


def plan(connection: apsw.Connection, words: Sequence[str], rows: int, last_rowid: int) -> Plan:
    """Choose the words for a search.

    Args:
        rows: how many messages the scope has, at most.
        last_rowid: the largest row id of all messages.
    """
    if rows <= MAX_RANKED:
        return Plan(words=words)
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
    return Plan(
        words=[word for word in words if word in kept],
        left_out=[word for word in words if word not in kept],
        first_rowid=first,
    )


def _estimate(connection: apsw.Connection, word: str, last_rowid: int) -> float:
    """About how many messages of all users have a word."""
    expression = match_in([word], None)
    size = min(_WINDOW_ROWS, last_rowid // _WINDOWS + 1)
    starts = [last_rowid * window // _WINDOWS for window in range(_WINDOWS)]
    found = sum(connection.execute(_COUNT, (expression, start, start + size)).get for start in starts)
    return float(found) * last_rowid / (_WINDOWS * size)
