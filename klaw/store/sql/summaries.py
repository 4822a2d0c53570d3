"""SQL of summaries. Every question names the chat, which is one user's."""

from collections.abc import Sequence
from typing import Any

import apsw
import attrs

from klaw.domain.message import Message
from klaw.domain.names import ChatId, UserId
from klaw.domain.summary import Summary, SummaryState
from klaw.store.memory_records import SummaryEntry
from klaw.store.sql import messages, meta, tool_notes
from klaw.store.sql.messages import Session
from klaw.store.sql.reading import snapshot

_COLUMNS = (
    "user_id, chat_id, number, segment, first_seq, last_seq, text, tokens, model, created_at, prompt_tokens,"
    " completion_tokens, state"
)


def _summary(row: Sequence[Any]) -> Summary:
    return Summary(
        user=UserId(row[0]),
        chat=ChatId(row[1]),
        number=row[2],
        segment=row[3],
        first_seq=row[4],
        last_seq=row[5],
        text=row[6],
        tokens=row[7],
        model=row[8],
        created_at=row[9],
        prompt_tokens=row[10],
        completion_tokens=row[11],
        state=SummaryState(row[12]),
    )


_LIVE = f"""
SELECT {_COLUMNS} FROM summaries WHERE chat_id = ? AND segment = ? AND state = 'live' ORDER BY first_seq
"""  # noqa: S608 - constant columns


def live(connection: apsw.Connection, chat: ChatId, segment: int) -> list[Summary]:
    """The summaries that stand for older parts of a segment, oldest first; their ranges do not overlap."""
    return [_summary(row) for row in connection.execute(_LIVE, (chat, segment))]


_COVERED = "SELECT coalesce(max(last_seq), 0) FROM summaries WHERE chat_id = ? AND segment = ?"


def covered_to(connection: apsw.Connection, chat: ChatId, segment: int) -> int:
    """The last message of a segment that was ever summarised; 0 for none. The window begins after it."""
    return int(connection.execute(_COVERED, (chat, segment)).get)


_OF_CHAT = f"SELECT {_COLUMNS} FROM summaries WHERE chat_id = ? ORDER BY number"  # noqa: S608 - constant columns


def of_chat(connection: apsw.Connection, chat: ChatId) -> list[Summary]:
    """All summaries of a chat, in whatever state, by their numbers."""
    return [_summary(row) for row in connection.execute(_OF_CHAT, (chat,))]


_HOLDING = f"""
SELECT {_COLUMNS} FROM summaries
WHERE chat_id = ?1 AND segment = ?2 AND first_seq <= ?3 AND last_seq >= ?3 AND state <> 'superseded'
ORDER BY number DESC LIMIT 1
"""  # noqa: S608 - constant columns


def holding(connection: apsw.Connection, chat: ChatId, segment: int, seq: int) -> Summary | None:
    """The summary that holds a message: a live one, or an evicted one."""
    row = connection.execute(_HOLDING, (chat, segment, seq)).fetchone()
    return _summary(row) if row else None


_PAGE = f"""
SELECT rowid, {_COLUMNS} FROM summaries WHERE rowid > ? ORDER BY rowid LIMIT ?
"""  # noqa: S608 - constant columns


def page(connection: apsw.Connection, after: int, limit: int) -> list[tuple[int, Summary]]:
    """All users' summaries in the order in which they were made: for whoever writes the copies."""
    return [(row[0], _summary(row[1:])) for row in connection.execute(_PAGE, (after, limit))]


_TOKENS = """
SELECT coalesce(sum(prompt_tokens + completion_tokens), 0) FROM charges
WHERE source = 'summary' AND user_id = ? AND ended_at >= ?
"""


def tokens_since(connection: apsw.Connection, user: UserId, since: str) -> int:
    """Tokens that a user's summaries used from a moment on; also attempts that failed, and summaries that are gone."""
    return int(connection.execute(_TOKENS, (user, since)).get)


# -- for the summarizer ------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Uncovered:
    """The part of a chat's segment that no summary holds."""

    session: Session
    live: tuple[Summary, ...]
    covered_to: int
    history: tuple[Message, ...]
    """What was said and what tools did, oldest first, before the first question that waits for its answer. Of very much
    the newest."""
    as_of: int
    """The memory journal's last entry then: what is forgotten later is in here still."""


_END = (1 << 62) - 1
MAX_WAITING = 1_000
"""Unanswered questions that are looked at to find the first."""


def uncovered(connection: apsw.Connection, chat: ChatId, limit: int) -> Uncovered | None:
    """Read what could be summarised. None for an unknown chat.

    Args:
        connection: for reading.
        chat: which one.
        limit: at most so many messages, the newest ones.
    """
    with snapshot(connection):
        session = messages.session(connection, chat)
        if session is None:
            return None
        done = max(covered_to(connection, chat, session.segment), session.segment_start - 1)
        waiting = messages.pending(connection, chat, session.segment_start, MAX_WAITING)
        end = waiting[0].seq if waiting else _END
        return Uncovered(
            session=session,
            live=tuple(live(connection, chat, session.segment)),
            covered_to=done,
            history=tuple(messages.dialogue(connection, chat, done, end, limit)),
            as_of=meta.last_entry(connection),
        )


_CANDIDATES = """
SELECT s.chat_id FROM sessions s
WHERE s.last_seq - s.segment_start >= ?1 AND s.last_seq - coalesce(
    (SELECT max(m.last_seq) FROM summaries m WHERE m.chat_id = s.chat_id AND m.segment = s.segment), 0) >= ?1
ORDER BY s.updated_at DESC LIMIT ?2
"""


def candidates(connection: apsw.Connection, messages_: int, limit: int) -> list[ChatId]:
    """Chats with so many messages after their last summary, the last used first. Whether they need one is not said."""
    return [ChatId(row[0]) for row in connection.execute(_CANDIDATES, (messages_, limit))]


@attrs.frozen(kw_only=True)
class Failure:
    """A chat whose last attempt failed."""

    chat: ChatId
    failures: int
    """In a row."""
    retry_at: str
    """Not before this moment."""
    code: str


_FAILURES = "SELECT chat_id, failures, retry_at, code FROM summary_failures ORDER BY retry_at LIMIT ?"


def failures(connection: apsw.Connection, limit: int) -> list[Failure]:
    """Chats that wait for another attempt, the earliest first."""
    rows = connection.execute(_FAILURES, (limit,))
    return [Failure(chat=ChatId(chat), failures=n, retry_at=at, code=code) for chat, n, at, code in rows]


# -- writing -----------------------------------------------------------------------------------------------------------

_NEXT = "SELECT coalesce(max(number), 0) + 1 FROM summaries WHERE chat_id = ?"


def next_number(connection: apsw.Connection, chat: ChatId) -> int:
    """The number of a chat's next summary."""
    return int(connection.execute(_NEXT, (chat,)).get)


_INSERT = f"""
INSERT INTO summaries (rowid, changed, {_COLUMNS}) VALUES (?, ?, {", ".join("?" * 13)})
"""  # noqa: S608 - constant columns
_SET_STATE = "UPDATE summaries SET state = ?3, changed = ?4 WHERE chat_id = ?1 AND number = ?2"
_REMOVE = "DELETE FROM summaries WHERE chat_id = ? AND number = ?"


def apply(connection: apsw.Connection, entry: SummaryEntry) -> None:
    """Carry out an entry of the memory journal, which is newer than all before.

    Raises:
        apsw.ConstraintError: its value is none for a summary.
    """
    put = entry.put
    if put is None:
        connection.execute(_REMOVE, (entry.chat, entry.number))
        tool_notes.remove(connection, entry.chat, entry.number)
        return
    made = put.summary
    row = (
        made.user,
        made.chat,
        made.number,
        made.segment,
        made.first_seq,
        made.last_seq,
        made.text,
        made.tokens,
        made.model,
        made.created_at,
        made.prompt_tokens,
        made.completion_tokens,
        made.state,
    )
    connection.execute(_INSERT, (entry.entry, entry.entry, *row))
    for state, numbers in ((SummaryState.SUPERSEDED, put.supersedes), (SummaryState.EVICTED, put.evicts)):
        for number in numbers:
            connection.execute(_SET_STATE, (made.chat, number, state, entry.entry))
    tool_notes.insert(connection, entry.entry, made, put.notes)


_PUT_FAILURE = "INSERT OR REPLACE INTO summary_failures (chat_id, failures, retry_at, code) VALUES (?, ?, ?, ?)"
_REMOVE_FAILURE = "DELETE FROM summary_failures WHERE chat_id = ?"


def put_failure(connection: apsw.Connection, failure: Failure) -> None:
    connection.execute(_PUT_FAILURE, (failure.chat, failure.failures, failure.retry_at, failure.code))


def remove_failure(connection: apsw.Connection, chat: ChatId) -> None:
    connection.execute(_REMOVE_FAILURE, (chat,))


_CLEAR = "DELETE FROM summaries"


def clear(connection: apsw.Connection) -> None:
    """Remove all; for a database that is being made from the logs."""
    connection.execute(_CLEAR)
    tool_notes.clear(connection)
