"""SQL of topics: their rows, whose messages are whose, their full text. Every question names the user."""

import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeAlias

import apsw
import attrs

from klaw.convert import OMIT, Wire
from klaw.domain.imported import ORIGIN, WITH_TOPICS
from klaw.domain.message import Message
from klaw.domain.names import ChatId, UserId
from klaw.domain.topic import Topic, TopicId
from klaw.store import rows
from klaw.store.changes import Change, RowIds
from klaw.store.engine.tables import index_row, unindex_row
from klaw.store.kinds import messages
from klaw.store.kinds.chats import TEMPORARY

TOPICS = rows.Rows(Topic, "topics")


def get(connection: apsw.Connection, user: UserId, topic: TopicId) -> Topic | None:
    return TOPICS.one(connection, "WHERE user_id = ? AND id = ?", user, topic)


_BY_IDS = "WHERE +user_id = ?1 AND id IN (SELECT value FROM json_each(?2))"


def by_ids(connection: apsw.Connection, user: UserId, ids: Sequence[int]) -> dict[TopicId, Topic]:
    """A user's topics by their ids; what is gone, or another's, is left out."""
    found = TOPICS.all(connection, _BY_IDS, user, json.dumps(list(ids)))
    return {topic.id: topic for topic in found}


def of_user(
    connection: apsw.Connection, user: UserId, *, chat: ChatId | None = None, before: int = 1 << 62, limit: int = 100
) -> list[Topic]:
    """A user's topics, the last talked about first; ``before``: only those whose last message has a smaller row id."""
    query = """
    WHERE user_id = ?1 AND (?2 IS NULL OR chat_id = ?2) AND last_rowid < ?3
    ORDER BY last_rowid DESC, id DESC LIMIT ?4
    """
    return TOPICS.all(connection, query, user, chat, before, limit)


def count(connection: apsw.Connection, user: UserId, chat: ChatId | None = None) -> int:
    query = "SELECT count(*) FROM topics WHERE user_id = ?1 AND (?2 IS NULL OR chat_id = ?2)"
    return int(connection.execute(query, (user, chat)).get)


def resolve(connection: apsw.Connection, user: UserId, topic: TopicId) -> TopicId | None:
    """The topic itself, or the one that took it in. None when it is gone."""
    seen: set[TopicId] = set()
    while topic not in seen:
        if get(connection, user, topic) is not None:
            return topic
        seen.add(topic)
        into = connection.execute("SELECT into_id FROM topic_ends WHERE user_id = ? AND id = ?", (user, topic)).get
        if into is None:
            return None
        topic = TopicId(into)
    return None


def members(connection: apsw.Connection, user: UserId, topic: TopicId) -> list[int]:
    query = "SELECT rowid FROM messages WHERE topic_id = ? AND user_id = ? ORDER BY rowid"
    return [rowid for (rowid,) in connection.execute(query, (topic, user))]


def read(connection: apsw.Connection, user: UserId, topic: TopicId) -> list[Message]:
    return messages.by_rowids(connection, members(connection, user, topic))


# ``+``, here and elsewhere: by the index of the user or the chat SQLite would read all of theirs to find a few.
_TOPICS_OF = """
SELECT rowid, topic_id FROM messages
WHERE +user_id = ?1 AND rowid IN (SELECT value FROM json_each(?2)) AND topic_id IS NOT NULL
"""


def topics_of(connection: apsw.Connection, user: UserId, rowids: Sequence[int]) -> dict[int, TopicId]:
    """The topics of a user's messages; those without one are left out."""
    return {row[0]: TopicId(row[1]) for row in connection.execute(_TOPICS_OF, (user, json.dumps(list(rowids))))}


# -- the archivist's work ----------------------------------------------------------------------------------------------

ARCHIVED = "role IN ('user', 'assistant', 'tool') AND type IN ('text', 'scheduled', 'tool_call', 'tool_result')"
"""Which messages belong to topics: all that was said, and the tools used meanwhile. Commands do not."""
_WAITS = (
    f"topic_id IS NULL AND {ARCHIVED} AND (channel NOT GLOB '{ORIGIN}*' OR metadata ->> '$.{WITH_TOPICS}')"
    f" AND chat_id NOT IN {TEMPORARY}"
)
"""What was imported waits for topics only where somebody asked for them, and nothing is made of temporary chats."""


@attrs.frozen
class UnarchivedMessage:
    rowid: int
    chat: ChatId
    created_s: float
    said: bool


def unarchived(connection: apsw.Connection, user: UserId, after: int, limit: int) -> list[UnarchivedMessage]:
    """The next messages of a user without a topic, after a row id."""
    query = f"""
    SELECT rowid, chat_id, coalesce(unixepoch(created_at, 'subsec'), 0), role IN ('user', 'assistant')
        AND type IN ('text', 'scheduled')
    FROM messages INDEXED BY messages_unarchived
    WHERE {_WAITS} AND user_id = ? AND rowid > ? ORDER BY rowid LIMIT ?
    """  # noqa: S608 - constant condition
    rows = connection.execute(query, (user, after, limit))
    return [UnarchivedMessage(rowid, ChatId(chat), float(at), bool(said)) for rowid, chat, at, said in rows]


def users(connection: apsw.Connection) -> list[UserId]:
    """All who ever said something."""
    return [UserId(user) for (user,) in connection.execute("SELECT DISTINCT user_id FROM sessions ORDER BY user_id")]


def count_unarchived(connection: apsw.Connection) -> int:
    query = f"""
    SELECT count(*) FROM messages INDEXED BY messages_unarchived WHERE {_WAITS}
    """  # noqa: S608 - constant condition
    return int(connection.execute(query).get)


def unfinished(connection: apsw.Connection, *, with_facts: bool, after: int, limit: int) -> list[Topic]:
    """Topics of all users that wait for consolidation, or (``with_facts``) for their facts; the oldest first."""
    query = """
    INDEXED BY topics_unfinished
    WHERE (consolidated = 0 OR facts = 0) AND (consolidated = 0 OR (?1 AND facts = 0)) AND id > ?2 ORDER BY id LIMIT ?3
    """
    return TOPICS.all(connection, query, with_facts, after, limit)


# -- writing -----------------------------------------------------------------------------------------------------------


_MINE = f"""
SELECT count(*) FROM messages
WHERE rowid IN (SELECT value FROM json_each(?1)) AND +user_id = ?2 AND +chat_id = ?3 AND {ARCHIVED}
    AND (topic_id IS NULL OR topic_id = ?4)
"""  # noqa: S608 - constant condition


def are_free(
    connection: apsw.Connection, user: UserId, chat: ChatId, rowids: Sequence[int], replaced: TopicId | None
) -> bool:
    """Whether all of these messages are the user's, of the chat, and in no topic but the one that is replaced."""
    found = connection.execute(_MINE, (json.dumps(list(rowids)), user, chat, replaced)).get
    return bool(found == len(set(rowids)))


_LOSERS = """
SELECT DISTINCT topic_id FROM messages
WHERE rowid IN (SELECT value FROM json_each(?1)) AND +user_id = ?2 AND +chat_id = ?3 AND topic_id IS NOT NULL
"""
_JOIN = """
UPDATE messages SET topic_id = ?4
WHERE rowid IN (SELECT value FROM json_each(?1)) AND +user_id = ?2 AND +chat_id = ?3
"""
_LEAVE = "UPDATE messages SET topic_id = NULL WHERE topic_id = ? AND user_id = ?"
_PUT = """
INSERT INTO topics (id, entry, user_id, chat_id, summary, general, messages, chars, first_rowid, last_rowid, first_at,
    last_at, created_at, updated_at, consolidated, facts)
VALUES (:id, :entry, :user, :chat, :summary, :general, 0, 0, 0, 0, '', '', :time, :time, :consolidated, :facts)
ON CONFLICT (id) DO UPDATE SET entry = excluded.entry, summary = excluded.summary, general = excluded.general,
    updated_at = excluded.updated_at, consolidated = excluded.consolidated, facts = excluded.facts
WHERE topics.user_id = excluded.user_id AND topics.chat_id = excluded.chat_id
"""
_MARK = """
UPDATE topics SET entry = ?3, consolidated = max(consolidated, ?4), facts = max(facts, ?5)
WHERE id = ?1 AND user_id = ?2
"""
_REMOVE = "DELETE FROM topics WHERE id = ? AND user_id = ?"
_END = "INSERT OR REPLACE INTO topic_ends (id, entry, user_id, into_id) VALUES (?, ?, ?, ?)"
_DROP_VECTOR = "DELETE FROM vec_topics WHERE rowid = ?"
_COUNT_MEMBERS = """
UPDATE topics SET entry = ?3, updated_at = ?4, (messages, chars, first_rowid, last_rowid, first_at, last_at) = (
    SELECT count(*), coalesce(sum(length(m.content)), 0), coalesce(min(m.rowid), 0), coalesce(max(m.rowid), 0),
        coalesce(min(m.created_at), ''), coalesce(max(m.created_at), '')
    FROM messages AS m WHERE m.topic_id = topics.id AND m.user_id = topics.user_id)
WHERE id = ?1 AND user_id = ?2 RETURNING messages
"""


Author: TypeAlias = Literal["archivist", "person"]
"""Who decided on a change."""


@attrs.frozen(kw_only=True)
class TopicVersion:
    id: TopicId
    summary: str
    general: bool
    members: RowIds
    """Row ids of messages that join those that it has."""
    consolidated: bool
    facts: bool


@attrs.frozen(kw_only=True)
class TopicsPut:
    """What topics of a chat become by one change, whose key is the first of them: ``put`` (new ones, or in place of
    others), ``merge``, ``rebuild`` (they are dropped) or ``undo``."""

    chat: Annotated[ChatId, Wire("chat_id")]
    topics: tuple[TopicVersion, ...] = ()
    ended: tuple[TopicId, ...] = ()
    by: Annotated[Author | None, OMIT] = None
    """None in lines from before there was a history."""
    undoes: Annotated[int | None, OMIT] = None
    """The entry of the change that is undone."""


@attrs.frozen(kw_only=True)
class TopicMark:
    """Which steps of the archivist are done."""

    consolidated: bool
    facts: bool


def apply(connection: apsw.Connection, change: Change[TopicsPut | TopicMark]) -> None:
    """Carry out a change. Outdated vectors and empty topics go. Raises apsw.ConstraintError."""
    value = change.value
    if value is None:
        end(connection, change, change.key, None)
    elif isinstance(value, TopicMark):
        connection.execute(_MARK, (change.key, change.user, change.entry, value.consolidated, value.facts))
    else:
        losers: set[int] = set()
        for state in value.topics:
            losers |= _put(connection, change, value.chat, state)
        for ended in value.ended:
            end(connection, change, ended, change.key if change.op == "merge" else None)
        for topic in sorted(losers | {state.id for state in value.topics}):
            count_again(connection, change.user, TopicId(topic), change.entry, change.time)


def _put(connection: apsw.Connection, entry: Change[Any], chat: ChatId, state: TopicVersion) -> set[int]:
    """Store a topic and let its messages join. Returns the topics that they were in."""
    unindex_row(connection, "topics", state.id)
    own = {"entry": entry.entry, "user": entry.user, "chat": chat, "time": entry.time}
    connection.execute(_PUT, {**rows.values(state), **own})
    if not connection.changes():
        raise apsw.ConstraintError("the topic is another user's or another chat's")
    index_row(connection, "topics", state.id)
    connection.execute("DELETE FROM topic_ends WHERE id = ? AND user_id = ?", (state.id, entry.user))
    joining = (json.dumps(list(state.members)), entry.user, chat)
    losers = {int(row[0]) for row in connection.execute(_LOSERS, joining)}
    connection.execute(_JOIN, (*joining, state.id))
    connection.execute(_DROP_VECTOR, (state.id,))
    return losers


def end(connection: apsw.Connection, entry: Change[Any], topic: TopicId, into: TopicId | None) -> None:
    """Remove a topic by an entry of the memory journal; its messages have none then."""
    if get(connection, entry.user, topic) is not None:
        unindex_row(connection, "topics", topic)
        connection.execute(_LEAVE, (topic, entry.user))
        connection.execute(_REMOVE, (topic, entry.user))  # its vector goes with it
        connection.execute(_END, (topic, entry.entry, entry.user, into))


def count_again(connection: apsw.Connection, user: UserId, topic: TopicId, entry: int, at: str) -> None:
    """Count a topic's messages again, after some joined or left it; without any it ends. Its vector goes."""
    left = connection.execute(_COUNT_MEMBERS, (topic, user, entry, at)).get
    if left is None:
        return
    connection.execute(_DROP_VECTOR, (topic,))
    if not left:
        unindex_row(connection, "topics", topic)
        connection.execute(_REMOVE, (topic, user))
        connection.execute(_END, (topic, entry, user, None))


CLEAR = (
    "UPDATE messages SET topic_id = NULL WHERE topic_id IS NOT NULL",
    "DELETE FROM topic_ends",
    "DELETE FROM sqlite_sequence WHERE name = 'topics'",
)
