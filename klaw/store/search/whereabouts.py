"""Where one message lives, for ``klaw why``: its place in the indexes, in its chat, in turns, topics and summaries; and
what stored turns recalled. For operators too, so not every question names a user."""

from collections.abc import Mapping, Sequence
from typing import Any

import apsw
import attrs

from klaw.domain.fact import FactId
from klaw.domain.message import Message
from klaw.domain.names import ChatId, UserId
from klaw.domain.summary import Summary
from klaw.domain.text import cut
from klaw.domain.topic import Topic
from klaw.domain.turn import TurnRecord
from klaw.store.engine import vector_model
from klaw.store.engine.connect import snapshot
from klaw.store.kinds import chats, facts, messages, summaries, topics, turns
from klaw.store.kinds.pending import ChatRows, read_next
from klaw.store.kinds.turns import TurnOfMessage
from klaw.store.search import coverage, fulltext
from klaw.store.search.chat_search import ChatScope
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
    session: messages.ChatRow
    row: IndexRow
    model: str | None
    ended_seq: int | None
    """Seq of the ``/new`` that ended the message's segment; None while it is the current one."""
    ended_at: str | None
    turns: Sequence[TurnOfMessage]
    """The chat's newest turns from the message on, then those of other chats that showed it in a topic."""
    summary: Summary | None
    """The one that holds the message: live or evicted."""
    next_rows: ChatRows | None
    """What the chat's next turn would read now."""
    topic: Topic | None
    unwanted: bool
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
    """Look up everything about a stored message; None when it is gone. ``words``: whose frequency is counted."""
    with snapshot(connection):
        session = messages.session(connection, message.chat)
        found = coverage.rows(connection, message.rowid - 1, message.rowid, 1)
        if session is None or not found:
            return None
        ended = messages.first_of_segment(connection, message.chat, message.segment + 1)
        topic = topics.topics_of(connection, message.user, [message.rowid]).get(message.rowid)
        return Whereabouts(
            session=session,
            row=found[0],
            model=vector_model.current_id(connection) or None,
            ended_seq=ended.seq if ended else None,
            ended_at=ended.created_at if ended else None,
            turns=turns.of_message(connection, message, turns_each),
            topic=topics.get(connection, message.user, topic) if topic is not None else None,
            summary=summaries.holding(connection, message.chat, message.segment, message.seq),
            next_rows=read_next(connection, message.chat, window_rows, summarised=summarised),
            unwanted=message.seq in chats.unrecalled(connection, message.chat),
            frequencies={word: _count_holding(connection, word, session.key) for word in words},
        )


def _count_holding(connection: apsw.Connection, word: str, chat_key: int) -> int:
    return int(connection.execute(_HOLD, (fulltext.match_in([word], messages.chat_word(chat_key)), MANY)).get)


MAX_QUOTED = 500


def quoted(connection: apsw.Connection, turn: TurnRecord) -> dict[str, dict[str, Any]]:
    """What a turn's receipt quotes and is still there: messages by their numbers, facts and topics by their ids."""
    receipt = turn.receipt
    seqs = [each["seq"] for each in receipt.get("recall", {}).get("candidates", ())]
    found = (each for seq in seqs for each in messages.after(connection, turn.chat, seq - 1, 1) if each.seq == seq)
    shown = [FactId(each["id"]) for each in receipt.get("facts", {}).get("shown", ())]
    ids = [each["id"] for each in receipt.get("topics", {}).get("candidates", ())]
    known = (facts.get(connection, turn.user, each) for each in shown)
    unwanted = chats.unrecalled(connection, turn.chat)

    def quote(said: Message) -> dict[str, Any]:
        text = cut(said.content, MAX_QUOTED)
        return {"id": said.id, "text": text, "at": said.created_at, "unwanted": said.seq in unwanted}

    return {
        "messages": {str(each.seq): quote(each) for each in found if each.content},  # without what was forgotten
        "facts": {each.id: each for each in known if each is not None},
        "topics": {str(each): topic.summary for each, topic in topics.by_ids(connection, turn.user, ids).items()},
    }


@attrs.frozen(kw_only=True)
class StoredRecall:
    """A turn, and what its recall was asked."""

    turn: TurnRecord
    question: str
    """The messages that it was to answer, joined; its own user's text."""
    scope: ChatScope | None
    """Where its recall looked, or would have; None when the window held all of the segment, or no context was made."""


def stored_recall(connection: apsw.Connection, turn: TurnRecord) -> StoredRecall:
    pending = turn.receipt.get("pending", [])
    texts = messages.texts(connection, turn.chat, pending)
    return StoredRecall(turn=turn, question="\n".join(texts), scope=_scope(connection, turn) if texts else None)


def _scope(connection: apsw.Connection, turn: TurnRecord) -> ChatScope | None:
    window, recall = turn.receipt.get("window"), turn.receipt.get("recall")
    if window is None or recall is None:
        return None
    if "scope" in recall:
        return ChatScope(chat=turn.chat, first_seq=recall["scope"]["first_seq"], end_seq=recall["scope"]["end_seq"])
    if not window["older_in_segment"] and not window["left_out"]:
        return None
    # Of version 1, or recall was off: the window as it was in the end, which may begin a little earlier.
    first = messages.first_of_segment(connection, turn.chat, turn.segment)
    end = window["first_seq"] or turn.receipt["pending"][0]
    if first is None or first.seq >= end:
        return None
    return ChatScope(chat=turn.chat, first_seq=first.seq, end_seq=end)


def newest_recalls(
    connection: apsw.Connection, chat: ChatId | None, user: UserId | None, limit: int
) -> list[StoredRecall]:
    """The newest turns of a chat, of a user, or of all, oldest first."""
    return recalls_of(connection, turns.newest(connection, chat, user, limit))


def recalls_of(connection: apsw.Connection, ids: Sequence[str]) -> list[StoredRecall]:
    """Turns by their ids, in the given order; those that do not exist are left out."""
    found = (turns.find(connection, each, None, None) for each in ids)
    return [stored_recall(connection, turn) for turn in found if turn is not None]
