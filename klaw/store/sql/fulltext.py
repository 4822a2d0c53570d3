"""SQL of full-text search: inside one chat, and the expressions that every search is made of."""

from collections.abc import Sequence

import apsw
import attrs

from klaw.store.tokenizer import is_lone


@attrs.frozen
class TextHit:
    """One result of a full-text search."""

    rowid: int
    bm25: float
    """SQLite's bm25: the more negative, the better."""


RANK = "bm25(messages_fts, 1.0, 0.0)"
"""The rank of a row by its content alone; the words of the scope column weigh nothing."""

_SEARCH = f"""
SELECT rowid, {RANK} AS score FROM messages_fts
WHERE messages_fts MATCH ? AND rowid >= ? AND rowid < ?
ORDER BY score LIMIT ?
"""  # noqa: S608 - a constant


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


def search(
    connection: apsw.Connection, words: Sequence[str], chat_key: int, first_rowid: int, end_rowid: int, limit: int
) -> list[TextHit]:
    """Messages of a chat with any of the words, the best by bm25 first; first_rowid <= rowid < end_rowid."""
    if not words:
        return []
    rows = connection.execute(_SEARCH, (match_any(words, chat_key), first_rowid, end_rowid, limit))
    return [TextHit(rowid, score) for rowid, score in rows]
