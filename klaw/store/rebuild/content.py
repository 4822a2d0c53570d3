"""What a database holds beside the memory journal's kinds, for comparing two databases."""

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter

import apsw

from klaw.store.kinds.memory_journal import KINDS
from klaw.store.rebuild.tables import END, PAGE_ROWS, Row, Table
from klaw.store.search import vectors

_MESSAGES = """
SELECT rowid, id, user_id, channel, chat_id, seq, role, type, content, metadata, tokens, created_at, segment
FROM messages WHERE rowid > :after AND rowid <= :end ORDER BY rowid LIMIT :limit
"""
_SESSIONS = """
SELECT chat_id, chat_key, user_id, name, model, last_seq, segment, segment_start, created_at, updated_at
FROM sessions WHERE chat_id > :after ORDER BY chat_id LIMIT :limit
"""
_TURNS = """
SELECT turn_id, chat_id, user_id, segment, status, model, first_seq, last_seq, started_at, ended_at, error,
    receipt, usage, timings
FROM turns WHERE turn_id > :after AND rowid <= :end ORDER BY turn_id LIMIT :limit
"""
_RUNS = """
SELECT id, change, user_id, task, kind, due, attempt, status, message, model, inject_into, started_at, ended_at,
    prompt_tokens, completion_tokens, error, note, result, delivered, parent, notify, depth, details
FROM runs WHERE id > :after AND change <= :end ORDER BY id LIMIT :limit
"""
# How many words each column of each row has in the index: FTS5 keeps that beside the index itself.
_FULL_TEXT = """
SELECT id, hex(sz) FROM messages_fts_docsize WHERE id > :after AND id <= :end ORDER BY id LIMIT :limit
"""

TABLES: tuple[Table, ...] = (
    Table(name="messages", statement=_MESSAGES, bound="rowid"),
    Table(name="sessions", first="", statement=_SESSIONS, small=True),
    Table(
        name="turns",
        first="",
        statement=_TURNS,
        bound="turn",
        changed="SELECT turn_id FROM turns WHERE rowid > ?",
        last="SELECT rowid FROM turns WHERE turn_id = ?",
    ),
    Table(
        name="runs",
        first="",
        statement=_RUNS,
        bound="change",
        changed="SELECT id FROM runs WHERE change > ?",
        last="SELECT change FROM runs WHERE id = ?",
    ),
    Table(name="full text", statement=_FULL_TEXT, bound="rowid"),
    *(table for kind in KINDS for table in kind.tables),
)

_MAKE_WORDS = "CREATE VIRTUAL TABLE IF NOT EXISTS temp.klaw_words USING fts5vocab (main, messages_fts, 'col')"
_WORDS = "SELECT term, col, doc, cnt FROM temp.klaw_words"


def words(connection: apsw.Connection) -> Iterator[Row]:
    """Every word of the index in order, with each column that has it, in how many messages, and how often.

    Reads the whole index in one go. The connection must be allowed to make temporary tables.
    """
    connection.execute(_MAKE_WORDS)
    for word, found in groupby(connection.execute(_WORDS), key=itemgetter(0)):
        yield word, [list(row[1:]) for row in found]


def vector_rows(connection: apsw.Connection, *, end: int = END) -> Iterator[Row]:
    """Which message, chat and place each vector is of, by row id."""
    key = -END
    while found := vectors.page(connection, key, end, PAGE_ROWS):
        yield from found
        key = found[-1][0]


_COUNT_MESSAGES = "SELECT count(*) FROM messages"


def count_messages(connection: apsw.Connection) -> int:
    return int(connection.execute(_COUNT_MESSAGES).get)


_LAST = "SELECT (SELECT max(rowid) FROM messages), (SELECT max(rowid) FROM turns), (SELECT max(change) FROM runs)"


def last_rowids(connection: apsw.Connection) -> tuple[int, int, int]:
    """The newest row ids of messages and of turns, and the newest change of a run; 0 where there is none."""
    last_message, last_turn, last_change = connection.execute(_LAST).get
    return last_message or 0, last_turn or 0, last_change or 0
