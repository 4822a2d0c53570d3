"""SQL of ``klaw why``: where one message lives. For whoever runs the server; what answers users scopes by user."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import apsw
import attrs

from klaw.domain.coverage import IndexRow
from klaw.domain.message import Message
from klaw.domain.names import ChatId, UserId
from klaw.domain.summary import Summary
from klaw.domain.topic import Topic
from klaw.store.engine.connect import snapshot
from klaw.store.kinds import messages, summaries, topics
from klaw.store.kinds.pending import ChatRows, read_next
from klaw.store.search import coverage, fulltext, vectors

MANY = 1_000
"""How many messages of a chat hold a word is counted up to here."""


_USERS = "SELECT DISTINCT user_id FROM sessions ORDER BY user_id"


@attrs.frozen(kw_only=True)
class Target:
    """Which message is meant: by its id (of one user, or of any), or by its chat and number."""

    id: str | None = None
    seq: int | None = None
    chat: ChatId | None = None
    user: UserId | None = None


def find(connection: apsw.Connection, target: Target) -> list[Message]:
    """The messages that a target names: none, one, or several users' of the same id."""
    if target.id is None:
        if target.chat is None or target.seq is None:
            return []
        found = messages.after(connection, target.chat, target.seq - 1, 1)
        return [message for message in found if message.seq == target.seq]
    users = [target.user] if target.user else [UserId(row[0]) for row in connection.execute(_USERS)]
    known = (messages.find(connection, user, target.id) for user in users)
    return [message for message in known if message is not None and target.chat in (None, message.chat)]


@attrs.frozen(kw_only=True)
class Turn:
    """A turn and its receipt, as far as it concerns one message."""

    id: str
    chat: ChatId
    segment: int
    status: str
    last_seq: int
    ended_at: str
    receipt: dict[str, Any]


@attrs.frozen(kw_only=True)
class Whereabouts:
    """What the database knows of one message and its chat."""

    session: messages.Session
    row: IndexRow
    model: str | None
    """Id of the model whose vectors are stored."""
    ended_seq: int | None
    """Of the ``/new`` that ended the message's segment; None while it is the current one."""
    ended_at: str | None
    turns: Sequence[Turn]
    """The chat's newest turns from the message on, the newest first; then those of the user's other chats that showed
    it in a topic."""
    summary: Summary | None
    """The one that holds the message: live or evicted."""
    next_rows: ChatRows | None
    """What the chat's next turn would read now."""
    topic: Topic | None
    """The one that it belongs to."""
    frequencies: Mapping[str, int]
    """For each word that was asked for: how many messages of the chat hold it, up to ``MANY``."""


_HOLD = "SELECT count(*) FROM (SELECT 1 FROM messages_fts WHERE messages_fts MATCH ? LIMIT ?)"


def _count_holding(connection: apsw.Connection, word: str, chat_key: int) -> int:
    return int(connection.execute(_HOLD, (fulltext.match_any([word], chat_key), MANY)).get)


_ENDED = "SELECT seq, created_at FROM messages WHERE chat_id = ? AND type = 'session_break' AND segment = ? LIMIT 1"
_TURNS = """
SELECT turn_id, chat_id, segment, status, last_seq, ended_at, receipt FROM turns
WHERE chat_id = ? AND last_seq >= ? ORDER BY last_seq DESC, ended_at DESC LIMIT ?
"""
ELSEWHERE = 200
"""So many of a user's newest turns in other chats are looked through."""
_SHOWN_ELSEWHERE = """
SELECT turn_id, chat_id, segment, status, last_seq, ended_at, receipt
FROM (SELECT * FROM turns WHERE user_id = ?1 AND chat_id <> ?2 ORDER BY rowid DESC LIMIT ?4) AS t
WHERE EXISTS (SELECT 1 FROM json_each(t.receipt, '$.topics.candidates') AS c, json_each(c.value, '$.rowids') AS r
        WHERE r.value = ?3)
    OR EXISTS (SELECT 1 FROM json_each(t.receipt, '$.topics.candidates') AS c, json_each(c.value, '$.shortened') AS r
        WHERE r.value = ?3)
ORDER BY ended_at DESC LIMIT ?5
"""


def locate(
    connection: apsw.Connection,
    message: Message,
    words: Sequence[str],
    *,
    turns: int,
    window_rows: int,
    summarised: bool,
) -> Whereabouts | None:
    """Look up everything about a stored message. None when it is gone meanwhile.

    Args:
        connection: for reading.
        message: as it was found.
        words: of which the frequency in its chat is wanted.
        turns: how many of its chat's newest turns are looked at.
        window_rows: how many messages a turn reads.
        summarised: whether summaries stand in the place of messages.
    """
    with snapshot(connection):
        session = messages.session(connection, message.chat)
        rows = coverage.rows(connection, message.rowid - 1, message.rowid, 1)
        if session is None or not rows:
            return None
        stored = vectors.model(connection)
        ended = connection.execute(_ENDED, (message.chat, message.segment + 1)).fetchone()
        newest = list(connection.execute(_TURNS, (message.chat, message.seq, turns)))
        shown = (message.user, message.chat, message.rowid, ELSEWHERE, turns)
        newest += connection.execute(_SHOWN_ELSEWHERE, shown)
        topic = topics.topics_of(connection, message.user, [message.rowid]).get(message.rowid)
        return Whereabouts(
            session=session,
            row=rows[0],
            model=stored[0] if stored else None,
            ended_seq=int(ended[0]) if ended else None,
            ended_at=str(ended[1]) if ended else None,
            turns=[
                Turn(
                    id=id_,
                    chat=ChatId(chat),
                    segment=segment,
                    status=status,
                    last_seq=last,
                    ended_at=at,
                    receipt=json.loads(receipt),
                )
                for id_, chat, segment, status, last, at, receipt in newest
            ],
            topic=topics.get(connection, message.user, topic) if topic is not None else None,
            summary=summaries.holding(connection, message.chat, message.segment, message.seq),
            next_rows=read_next(connection, message.chat, window_rows, summarised=summarised),
            frequencies={word: _count_holding(connection, word, session.key) for word in words},
        )
