"""Where one message lives, for ``klaw why``: its place in the indexes, in its chat, in turns, topics and summaries."""

from collections.abc import Mapping, Sequence

import apsw
import attrs

from klaw.domain.message import Message
from klaw.domain.names import ChatId, UserId
from klaw.domain.summary import Summary
from klaw.domain.topic import Topic
from klaw.store.engine import vector_model
from klaw.store.engine.connect import snapshot
from klaw.store.kinds import chats, messages, summaries, topics, turns
from klaw.store.kinds.pending import ChatRows, read_next
from klaw.store.kinds.turns import TurnOfMessage
from klaw.store.search import coverage, fulltext
from klaw.store.search.coverage import IndexRow

MANY = 1_000
"""How many messages of a chat hold a word is counted up to here."""


@attrs.frozen(kw_only=True)
class Target:
    """Which message is meant: by its id (of one user, or of any), or by its chat and number."""

    id: str | None = None
    seq: int | None = None
    chat: ChatId | None = None
    user: UserId | None = None


def find_message(connection: apsw.Connection, target: Target) -> list[Message]:
    """The messages that a target names: none, one, or several users' of the same id."""
    if target.id is None:
        if target.chat is None or target.seq is None:
            return []
        found = messages.after(connection, target.chat, target.seq - 1, 1)
        return [message for message in found if message.seq == target.seq]
    users = [target.user] if target.user else topics.users(connection)
    known = (messages.find(connection, user, target.id) for user in users)
    return [message for message in known if message is not None and target.chat in (None, message.chat)]


@attrs.frozen(kw_only=True)
class Whereabouts:
    """What the database knows of one message and its chat."""

    session: messages.ChatRow
    row: IndexRow
    model: str | None
    """Id of the model whose vectors are stored."""
    ended_seq: int | None
    """Seq of the ``/new`` that ended the message's segment; None while it is the current one."""
    ended_at: str | None
    turns: Sequence[TurnOfMessage]
    """The chat's newest turns from the message on, the newest first; then those of the user's other chats that showed
    it in a topic."""
    summary: Summary | None
    """The one that holds the message: live or evicted."""
    next_rows: ChatRows | None
    """What the chat's next turn would read now."""
    topic: Topic | None
    """The one that it belongs to."""
    unwanted: bool
    """The user never wants it to be recalled by itself."""
    frequencies: Mapping[str, int]
    """For each word that was asked for: how many messages of the chat hold it, up to ``MANY``."""


_HOLD = "SELECT count(*) FROM (SELECT 1 FROM messages_fts WHERE messages_fts MATCH ? LIMIT ?)"


def locate(
    connection: apsw.Connection,
    message: Message,
    words: Sequence[str],
    *,
    turns_each: int,
    window_rows: int,
    summarised: bool,
) -> Whereabouts | None:
    """Look up everything about a stored message; None when it is gone meanwhile. Of ``words`` the frequency in its chat
    is counted; ``turns_each`` of its chat's newest turns are looked at; ``window_rows`` messages are what a turn reads;
    ``summarised``: summaries stand in the place of messages."""
    with snapshot(connection):
        session = messages.session(connection, message.chat)
        found = coverage.rows(connection, message.rowid - 1, message.rowid, 1)
        if session is None or not found:
            return None
        stored = vector_model.current(connection)
        ended = messages.first_of_segment(connection, message.chat, message.segment + 1)
        chat_word = messages.chat_word(session.key)
        topic = topics.topics_of(connection, message.user, [message.rowid]).get(message.rowid)
        return Whereabouts(
            session=session,
            row=found[0],
            model=stored[0] if stored else None,
            ended_seq=ended.seq if ended else None,
            ended_at=ended.created_at if ended else None,
            turns=turns.of_message(connection, message, turns_each),
            topic=topics.get(connection, message.user, topic) if topic is not None else None,
            summary=summaries.holding(connection, message.chat, message.segment, message.seq),
            next_rows=read_next(connection, message.chat, window_rows, summarised=summarised),
            unwanted=message.seq in chats.unrecalled(connection, message.chat),
            frequencies={
                word: connection.execute(_HOLD, (fulltext.match_in([word], chat_word), MANY)).get for word in words
            },
        )
