"""What a database holds, table by table, in an order and a form that depend on the content only.

For comparing two databases. Every table is read in pages after a key, so that no page holds a lock for long. What is
not made from the logs is left out: which rows have a vector yet, and when the schema was changed.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, TypeAlias

import apsw
import attrs

from klaw.store.sql import vectors

Row: TypeAlias = Sequence[Any]
"""Its first value is its key."""
END = (1 << 63) - 1


@attrs.frozen(kw_only=True)
class Table:
    """One table's content.

    ``page(connection, after, end, limit)`` gives the next rows after a key, in the order of keys. ``end`` is the last
    row id that counts (of messages, or of turns in their own table, or the last change of a run), END for all.
    """

    name: str
    first: int | str
    """Before every key."""
    page: Callable[[apsw.Connection, Any, int, int], Sequence[Row]]

    def rows(self, connection: apsw.Connection, *, after: int | str | None = None, end: int = END) -> Iterator[Row]:
        """All rows after a key (default: all), page by page."""
        key: int | str = self.first if after is None else after
        while found := self.page(connection, key, end, PAGE_ROWS):
            yield from found
            key = found[-1][0]


PAGE_ROWS = 200


def by(statement: str) -> Callable[[apsw.Connection, Any, int, int], list[Row]]:
    """The pages that a statement gives."""

    def page(connection: apsw.Connection, after: int | str, end: int, limit: int) -> list[Row]:
        return list(connection.execute(statement, {"after": after, "end": end, "limit": limit}))

    return page


_MESSAGES = """
SELECT rowid, id, user_id, channel, chat_id, seq, role, type, content, metadata, tokens, created_at, segment
FROM messages WHERE rowid > :after AND rowid <= :end ORDER BY rowid LIMIT :limit
"""
MESSAGES = Table(name="messages", first=-END, page=by(_MESSAGES))

_SESSIONS = """
SELECT chat_id, chat_key, user_id, name, model, last_seq, segment, segment_start, created_at, updated_at
FROM sessions WHERE chat_id > :after ORDER BY chat_id LIMIT :limit
"""
SESSIONS = Table(name="sessions", first="", page=by(_SESSIONS))

_TURNS = """
SELECT turn_id, chat_id, user_id, segment, status, model, first_seq, last_seq, started_at, ended_at, error,
    receipt, usage, timings
FROM turns WHERE turn_id > :after AND rowid <= :end ORDER BY turn_id LIMIT :limit
"""
TURNS = Table(name="turns", first="", page=by(_TURNS))

_NEW_TURNS = "SELECT turn_id FROM turns WHERE rowid > ? ORDER BY turn_id"


def turns_after(connection: apsw.Connection, rowid: int) -> list[str]:
    """Ids of the turns that were inserted after a row id of their table."""
    return [turn for (turn,) in connection.execute(_NEW_TURNS, (rowid,))]


_TURN = f"{_TURNS.split('WHERE', maxsplit=1)[0]} WHERE turn_id = ?"


def turn(connection: apsw.Connection, turn_id: str) -> Row | None:
    return connection.execute(_TURN, (turn_id,)).fetchone()


_TASKS = """
SELECT user_id || '/' || name AS key, fires, expression, zone, every_s, at, message, model, inject_into, enabled,
    timeout_s, max_tokens, daily_tokens, created_at, updated_at, anchor_at
FROM tasks WHERE key > :after ORDER BY key LIMIT :limit
"""
TASKS = Table(name="tasks", first="", page=by(_TASKS))

_RUNS = """
SELECT id, change, user_id, task, kind, due, attempt, status, message, model, inject_into, started_at, ended_at,
    prompt_tokens, completion_tokens, error, note, result, delivered, parent, notify, depth, details
FROM runs WHERE id > :after AND change <= :end ORDER BY id LIMIT :limit
"""
RUNS = Table(name="runs", first="", page=by(_RUNS))

_CHANGED_RUNS = "SELECT id FROM runs WHERE change > ? ORDER BY id"


def runs_after(connection: apsw.Connection, change: int) -> list[str]:
    """Ids of the runs that have changed after a change."""
    return [run for (run,) in connection.execute(_CHANGED_RUNS, (change,))]


_RUN = f"{_RUNS.split('WHERE', maxsplit=1)[0]} WHERE id = ?"


def run(connection: apsw.Connection, run_id: str) -> Row | None:
    return connection.execute(_RUN, (run_id,)).fetchone()


# The columns of a fact's row are those of its last change, which is compared as a whole: they are not told again.
_FACTS = """
SELECT user_id || '/' || id AS key, entry, rowid, normal, superseded_by FROM facts
WHERE key > :after AND entry <= :end ORDER BY key LIMIT :limit
"""
FACTS = Table(name="facts", first="", page=by(_FACTS))

_FACT_CHANGES = """
SELECT entry, user_id, fact_id, at, value FROM fact_changes WHERE entry > :after AND entry <= :end
ORDER BY entry LIMIT :limit
"""
FACT_CHANGES = Table(name="changes of facts", first=-END, page=by(_FACT_CHANGES))

_DAYS = "SELECT * FROM day_entries WHERE entry > :after AND entry <= :end ORDER BY entry LIMIT :limit"
DAYS = Table(name="days drawn into facts", first=-END, page=by(_DAYS))

_SPENT = "SELECT * FROM background_charges WHERE entry > :after AND entry <= :end ORDER BY entry LIMIT :limit"
SPENT = Table(name="spending in the background", first=-END, page=by(_SPENT))

_LAST_OF_FACT = "SELECT max(entry) FROM fact_changes WHERE user_id || '/' || fact_id = ?"


def last_change_of_fact(connection: apsw.Connection, key: str) -> int:
    """The number of a fact's last change, also of one that was removed; by its key in ``FACTS``."""
    return int(connection.execute(_LAST_OF_FACT, (key,)).get or 0)


_CHANGED_FACTS = "SELECT DISTINCT user_id || '/' || fact_id AS key FROM fact_changes WHERE entry > ? ORDER BY key"


def facts_after(connection: apsw.Connection, entry: int) -> list[str]:
    """Keys of the facts that have changed after an entry of the memory journal."""
    return [key for (key,) in connection.execute(_CHANGED_FACTS, (entry,))]


_FACT = f"{_FACTS.split('WHERE', maxsplit=1)[0]} WHERE key = ?"


def fact(connection: apsw.Connection, key: str) -> Row | None:
    return connection.execute(_FACT, (key,)).fetchone()


_FACT_TEXT = "SELECT id, hex(sz) FROM facts_fts_docsize WHERE id > :after ORDER BY id LIMIT :limit"
FACT_TEXT = Table(name="full text of facts", first=-END, page=by(_FACT_TEXT))

_CORE = "SELECT user_id, document, updated_at FROM core_memory WHERE user_id > :after ORDER BY user_id LIMIT :limit"
CORE = Table(name="core memory", first="", page=by(_CORE))

# Also a change of state is a row of a newer entry. A summary whose state changed beyond the end is in the new database
# as it was, and is compared at the swap.
_SUMMARIES = """
SELECT chat_id || '#' || printf('%09d', number) AS key, rowid, user_id, segment, first_seq, last_seq, text, tokens,
    model, created_at, prompt_tokens, completion_tokens, state, changed,
    (SELECT json_group_array(json_array(n.rowid, n.seq, n.call_id, n.tool, n.text)) FROM tool_notes n
     WHERE n.chat_id = s.chat_id AND n.number = s.number)
FROM summaries s WHERE key > :after AND changed <= :end ORDER BY key LIMIT :limit
"""
SUMMARIES = Table(name="summaries", first="", page=by(_SUMMARIES))

_CHANGED_SUMMARIES = """
SELECT chat_id || '#' || printf('%09d', number) AS key FROM summaries WHERE changed > ? ORDER BY key
"""


def summaries_after(connection: apsw.Connection, entry: int) -> list[str]:
    """Keys of the summaries that were made, or changed their state, after an entry of the memory journal."""
    return [key for (key,) in connection.execute(_CHANGED_SUMMARIES, (entry,))]


_SUMMARY = f"{_SUMMARIES.split('WHERE key', maxsplit=1)[0]} WHERE key = ?"


def summary(connection: apsw.Connection, key: str) -> Row | None:
    return connection.execute(_SUMMARY, (key,)).fetchone()


_NOTE_TEXT = "SELECT id, hex(sz) FROM tool_notes_fts_docsize WHERE id > :after ORDER BY id LIMIT :limit"
NOTE_TEXT = Table(name="full text of tool notes", first=-END, page=by(_NOTE_TEXT))

# A topic with all its messages: that is where messages.topic_id is compared.
_TOPICS = """
SELECT t.*, (SELECT group_concat(rowid) FROM (SELECT rowid FROM messages WHERE topic_id = t.id ORDER BY rowid))
FROM topics AS t WHERE t.id > :after AND t.entry <= :end ORDER BY t.id LIMIT :limit
"""
TOPICS = Table(name="topics", first=-END, page=by(_TOPICS))

_TOPIC_ENDS = """
SELECT id, entry, user_id, into_id FROM topic_ends WHERE id > :after AND entry <= :end ORDER BY id LIMIT :limit
"""
TOPIC_ENDS = Table(name="ended topics", first=-END, page=by(_TOPIC_ENDS))

_TOPIC_TEXT = "SELECT id, hex(sz) FROM topics_fts_docsize WHERE id > :after ORDER BY id LIMIT :limit"
TOPIC_TEXT = Table(name="full text of topics", first=-END, page=by(_TOPIC_TEXT))

_TOPIC_CHANGES = """
SELECT entry, user_id, chat_id, at, op, by, first_rowid, last_rowid, before, after, undoes, undone_by, changed
FROM topic_changes WHERE entry > :after AND changed <= :end ORDER BY entry LIMIT :limit
"""
TOPIC_CHANGES = Table(name="changes of topics", first=-END, page=by(_TOPIC_CHANGES))

_NEWER_CHANGES = f"{_TOPIC_CHANGES.split('WHERE', maxsplit=1)[0]} WHERE changed > ? ORDER BY entry"


def topic_changes_after(connection: apsw.Connection, entry: int) -> list[Row]:
    """The changes of topics that were made, taken back or forgotten after an entry of the memory journal."""
    return list(connection.execute(_NEWER_CHANGES, (entry,)))


_LAST_OF_TOPIC = """
SELECT max(entry) FROM (
    SELECT entry FROM topics WHERE id = ?1 UNION ALL SELECT entry FROM topic_ends WHERE id = ?1)
"""


def last_change_of_topic(connection: apsw.Connection, topic: int) -> int:
    """The memory journal's last entry that changed a topic, also one that is gone."""
    return int(connection.execute(_LAST_OF_TOPIC, (topic,)).get or 0)


_CHANGED_TOPICS = """
SELECT id FROM topics WHERE entry > ?1 UNION SELECT id FROM topic_ends WHERE entry > ?1 ORDER BY id
"""


def topics_after(connection: apsw.Connection, entry: int) -> list[int]:
    """Ids of the topics that have changed, or are gone, after an entry of the memory journal."""
    return [topic for (topic,) in connection.execute(_CHANGED_TOPICS, (entry,))]


_TOPIC = f"{_TOPICS.split('WHERE t.id >', maxsplit=1)[0]} WHERE t.id = ?1"
_TOPIC_END = "SELECT id, entry, user_id, into_id FROM topic_ends WHERE id = ?"


def topic(connection: apsw.Connection, topic_id: int) -> tuple[Row | None, Row | None]:
    """A topic's row, and what is known of its end."""
    row = connection.execute(_TOPIC, (topic_id,)).fetchone()
    return row, connection.execute(_TOPIC_END, (topic_id,)).fetchone()


# How many words each column of each row has in the index: FTS5 keeps that beside the index itself.
_FULL_TEXT = """
SELECT id, hex(sz) FROM messages_fts_docsize WHERE id > :after AND id <= :end ORDER BY id LIMIT :limit
"""
FULL_TEXT = Table(name="full text", first=-END, page=by(_FULL_TEXT))

_MAKE_WORDS = "CREATE VIRTUAL TABLE IF NOT EXISTS temp.klaw_words USING fts5vocab (main, messages_fts, 'col')"
_WORDS = "SELECT term, col, doc, cnt FROM temp.klaw_words"


def words(connection: apsw.Connection) -> Iterator[Row]:
    """Every word of the index in order, with each column that has it, in how many messages, and how often.

    Reads the whole index in one go. The connection must be allowed to make temporary tables.
    """
    connection.execute(_MAKE_WORDS)
    for word, found in groupby(connection.execute(_WORDS), key=itemgetter(0)):
        yield word, [list(row[1:]) for row in found]


VECTORS = Table(name="vectors", first=-END, page=vectors.page)

_COUNT_MESSAGES = "SELECT count(*) FROM messages"


def count_messages(connection: apsw.Connection) -> int:
    return int(connection.execute(_COUNT_MESSAGES).get)


_LAST = "SELECT (SELECT max(rowid) FROM messages), (SELECT max(rowid) FROM turns), (SELECT max(change) FROM runs)"


def last_rowids(connection: apsw.Connection) -> tuple[int, int, int]:
    """The newest row ids of messages and of turns, and the newest change of a run; 0 where there is none."""
    last_message, last_turn, last_change = connection.execute(_LAST).get
    return last_message or 0, last_turn or 0, last_change or 0
