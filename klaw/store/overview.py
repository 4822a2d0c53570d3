"""For whoever runs the server: counts over all users, turns without the scope of a user, recalls that are done again,
ids that begin so.

For the admin socket and its commands only. What answers a user goes through ``messages`` and ``turns``, which scope.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias

import apsw
import attrs

from klaw.domain.names import ChatId, UserId
from klaw.domain.turn import TurnRecord
from klaw.store import migrations
from klaw.store.kinds import turns
from klaw.store.search.candidates import Scope


@attrs.frozen(kw_only=True)
class Counts:
    """How much there is."""

    schema: int
    """Version of the database's schema."""
    users: int
    chats: int
    messages: int
    turns: int
    topics: int
    facts: int
    """Those that hold; history does not count."""
    people: int


_COUNTS = """
SELECT
    (SELECT count(DISTINCT user_id) FROM sessions),
    (SELECT count(*) FROM sessions),
    (SELECT count(*) FROM messages),
    (SELECT count(*) FROM turns),
    (SELECT count(*) FROM topics),
    (SELECT count(*) FROM facts WHERE superseded_by IS NULL),
    (SELECT count(*) FROM people WHERE merged_into IS NULL)
"""


def counts(connection: apsw.Connection) -> Counts:
    """Count everything; reads whole indexes, so not for every message."""
    users, chats, messages, turns_, topics, facts, people = connection.execute(_COUNTS).get
    return Counts(
        schema=migrations.current(connection),
        users=users,
        chats=chats,
        messages=messages,
        turns=turns_,
        topics=topics,
        facts=facts,
        people=people,
    )


_COUNT_PENDING = """
SELECT count(*) FROM messages
WHERE chat_id = ?1 AND role = 'user' AND type = 'text'
    AND seq >= (SELECT segment_start FROM sessions WHERE chat_id = ?1)
    AND seq > coalesce(
        (SELECT max(last_seq) FROM turns WHERE chat_id = ?1 AND status IN ('done', 'stopped')), 0)
"""


def count_pending(connection: apsw.Connection, chat: ChatId) -> int:
    """How many user messages of the chat's segment no turn has dealt with."""
    return int(connection.execute(_COUNT_PENDING, (chat,)).get)


_OWNER = "SELECT user_id FROM turns WHERE turn_id = ?"
_NEWEST = "SELECT turn_id FROM turns WHERE ?1 IS NULL OR user_id = ?1 ORDER BY ended_at DESC, turn_id DESC LIMIT 1"


def find_turn(
    connection: apsw.Connection, turn: str | None, chat: ChatId | None, user: UserId | None
) -> TurnRecord | None:
    """A turn of any user: by its id, else the newest of a chat, else the one that ended last of a user or of all."""
    if turn is None and chat is not None:
        return turns.last(connection, chat)
    found = turn if turn is not None else connection.execute(_NEWEST, (user,)).get
    owner = connection.execute(_OWNER, (found,)).get
    return turns.get(connection, UserId(owner), found) if owner is not None else None


@attrs.frozen(kw_only=True)
class StoredRecall:
    """A turn, and what its recall was asked."""

    turn: TurnRecord
    question: str
    """The messages that it was to answer, joined; its own user's text."""
    scope: Scope | None
    """Where its recall looked, or would have; None when the window held all of the segment, or no context was made."""


_TEXTS = """
SELECT content FROM messages WHERE chat_id = ? AND seq IN (SELECT value FROM json_each(?)) ORDER BY seq
"""
_SEGMENT_START = "SELECT min(seq) FROM messages WHERE chat_id = ? AND segment = ?"


def stored_recall(connection: apsw.Connection, turn: TurnRecord) -> StoredRecall:
    """What a turn's recall was asked, and where it looked."""
    pending = turn.receipt.get("pending", [])
    texts = [row[0] for row in connection.execute(_TEXTS, (turn.chat, json.dumps(pending)))]
    return StoredRecall(turn=turn, question="\n".join(texts), scope=_scope(connection, turn) if texts else None)


def _scope(connection: apsw.Connection, turn: TurnRecord) -> Scope | None:
    window, recall = turn.receipt.get("window"), turn.receipt.get("recall")
    if window is None or recall is None:
        return None
    if "scope" in recall:
        return Scope(chat=turn.chat, first_seq=recall["scope"]["first_seq"], end_seq=recall["scope"]["end_seq"])
    if not window["older_in_segment"] and not window["left_out"]:
        return None
    # Of version 1, or recall was off: the window as it was in the end, which may begin a little earlier.
    first = connection.execute(_SEGMENT_START, (turn.chat, turn.segment)).get
    end = window["first_seq"] or turn.receipt["pending"][0]
    return Scope(chat=turn.chat, first_seq=first, end_seq=end) if first is not None and first < end else None


_IDS = """
SELECT turn_id FROM turns WHERE (?1 IS NULL OR chat_id = ?1) AND (?2 IS NULL OR user_id = ?2)
ORDER BY ended_at DESC, turn_id DESC LIMIT ?3
"""


def newest_recalls(
    connection: apsw.Connection, chat: ChatId | None, user: UserId | None, limit: int
) -> list[StoredRecall]:
    """The newest turns of a chat, of a user, or of all, oldest first."""
    ids = [row[0] for row in connection.execute(_IDS, (chat, user, limit))][::-1]
    return list(_recalls(connection, ids))


def recalls_of(connection: apsw.Connection, turns: Sequence[str]) -> list[StoredRecall]:
    """Turns by their ids, in the given order; those that do not exist are left out."""
    return list(_recalls(connection, turns))


def _recalls(connection: apsw.Connection, ids: Sequence[str]) -> Iterator[StoredRecall]:
    for each in ids:
        turn = find_turn(connection, each, None, None)
        if turn is not None:
            yield stored_recall(connection, turn)


IdKind: TypeAlias = Literal["fact", "person", "run", "turn", "message"]

_AMONG: dict[IdKind, str] = {
    "fact": "SELECT DISTINCT fact_id AS id FROM fact_changes WHERE user_id = ?1 AND fact_id",
    "person": "SELECT DISTINCT person_id AS id FROM person_changes WHERE user_id = ?1 AND person_id",
    "run": "SELECT id FROM runs WHERE user_id = ?1 AND id",
    "turn": "SELECT turn_id AS id FROM turns WHERE ?1 IS NOT NULL AND turn_id",
    "message": "SELECT id FROM messages WHERE user_id = ?1 AND id",
}
"""Of a user; turns are found whosever they are, as ``klaw receipt`` finds them. What was removed has a history."""
_END = "\U0010ffff"


def beginning_with(connection: apsw.Connection, kind: IdKind, user: UserId, text: str, limit: int) -> list[str]:
    """The ids that begin with a text, in their order; the text alone where it is one itself."""
    query = f"{_AMONG[kind]} BETWEEN ?2 AND ?3 ORDER BY id LIMIT ?4"
    found = [str(row[0]) for row in connection.execute(query, (user, text, text + _END, limit))]
    return found[:1] if found[:1] == [text] else found
