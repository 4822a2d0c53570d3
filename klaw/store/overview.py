"""For whoever runs the server: counts over all users, turns without the scope of a user, recalls that are done again,
ids that begin so, and where one message lives (``klaw why``).

For the admin socket and its commands only. What answers a user goes through ``messages`` and ``turns``, which scope.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias

import apsw
import attrs

from klaw.convert import Wire
from klaw.domain.coverage import IndexRow
from klaw.domain.fact import FactId
from klaw.domain.message import Message
from klaw.domain.names import ChatId, UserId
from klaw.domain.summary import Summary
from klaw.domain.text import cut
from klaw.domain.topic import Topic
from klaw.domain.turn import TurnRecord
from klaw.store import migrations, rows
from klaw.store.engine import vector_model
from klaw.store.engine.connect import snapshot
from klaw.store.kinds import chats, facts, messages, summaries, topics, turns
from klaw.store.kinds.pending import ChatRows, read_next
from klaw.store.search import coverage, fulltext
from klaw.store.search.candidates import Scope

MAX_QUOTED = 500
"""Characters of a message that is quoted."""


@attrs.frozen
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
    bases: int
    documents: int
    """Of knowledge bases."""
    documents_waiting: int
    documents_failed: int
    passages: int


_COUNTS = """
SELECT
    (SELECT count(DISTINCT user_id) FROM sessions),
    (SELECT count(*) FROM sessions),
    (SELECT count(*) FROM messages),
    (SELECT count(*) FROM turns),
    (SELECT count(*) FROM topics),
    (SELECT count(*) FROM facts WHERE superseded_by IS NULL),
    (SELECT count(*) FROM people WHERE merged_into IS NULL),
    (SELECT count(*) FROM kb_bases),
    (SELECT count(*) FROM kb_documents),
    (SELECT count(*) FROM kb_documents WHERE state = 'waiting'),
    (SELECT count(*) FROM kb_documents WHERE state = 'failed'),
    (SELECT count(*) FROM kb_passages)
"""


def counts(connection: apsw.Connection) -> Counts:
    """Count everything; reads whole indexes, so not for every message."""
    return Counts(migrations.current(connection), *connection.execute(_COUNTS).get)


def count_pending(connection: apsw.Connection, chat: ChatId) -> int:
    """How many user messages of the chat's segment no turn has dealt with."""
    session = messages.session(connection, chat)
    query = f"SELECT count(*) FROM messages {messages.PENDING}"  # noqa: S608 - a constant condition
    return int(connection.execute(query, (chat, session.segment_start)).get) if session is not None else 0


def find_turn(
    connection: apsw.Connection, turn: str | None, chat: ChatId | None, user: UserId | None
) -> TurnRecord | None:
    """A turn of a user, or of any: by its id, else the newest of a chat, else the one that ended last."""
    if turn is None and chat is not None:
        return turns.last(connection, chat)
    query = "SELECT turn_id FROM turns WHERE ?1 IS NULL OR user_id = ?1 ORDER BY ended_at DESC, turn_id DESC LIMIT 1"
    found = turn if turn is not None else connection.execute(query, (user,)).get
    owner = connection.execute("SELECT user_id FROM turns WHERE turn_id = ?", (found,)).get
    return turns.get(connection, UserId(owner), found) if owner is not None and user in (None, owner) else None


def quoted(connection: apsw.Connection, turn: TurnRecord) -> dict[str, dict[str, Any]]:
    """What the lines of a turn's receipt quote and is still there: messages by their numbers, facts and topics by their
    ids."""
    receipt = turn.receipt
    seqs = [each["seq"] for each in receipt.get("recall", {}).get("candidates", ())]
    found = (each for seq in seqs for each in messages.after(connection, turn.chat, seq - 1, 1) if each.seq == seq)
    shown = [FactId(each["id"]) for each in receipt.get("facts", {}).get("shown", ())]
    ids = [each["id"] for each in receipt.get("topics", {}).get("candidates", ())]
    known = (facts.get(connection, turn.user, each) for each in shown)
    unwanted = chats.unrecalled(connection, turn.chat)
    return {
        "messages": {
            str(each.seq): {
                "id": each.id,
                "text": cut(each.content, MAX_QUOTED),
                "at": each.created_at,
                "unwanted": each.seq in unwanted,
            }
            for each in found
            if each.content  # else it was forgotten
        },
        "facts": {each.id: each for each in known if each is not None},
        "topics": {str(each): topic.summary for each, topic in topics.by_ids(connection, turn.user, ids).items()},
    }


@attrs.frozen(kw_only=True)
class StoredRecall:
    """A turn, and what its recall was asked."""

    turn: TurnRecord
    question: str
    """The messages that it was to answer, joined; its own user's text."""
    scope: Scope | None
    """Where its recall looked, or would have; None when the window held all of the segment, or no context was made."""


_TEXTS = "SELECT content FROM messages WHERE chat_id = ? AND seq IN (SELECT value FROM json_each(?)) ORDER BY seq"
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
    return recalls_of(connection, [row[0] for row in connection.execute(_IDS, (chat, user, limit))][::-1])


def recalls_of(connection: apsw.Connection, turns: Sequence[str]) -> list[StoredRecall]:
    """Turns by their ids, in the given order; those that do not exist are left out."""
    found = (find_turn(connection, each, None, None) for each in turns)
    return [stored_recall(connection, turn) for turn in found if turn is not None]


IdKind: TypeAlias = Literal["fact", "person", "run", "turn", "message", "kb", "kb_source", "kb_document"]

_AMONG: dict[IdKind, str] = {
    "fact": "SELECT DISTINCT fact_id AS id FROM fact_changes WHERE user_id = ?1 AND fact_id",
    "person": "SELECT DISTINCT person_id AS id FROM person_changes WHERE user_id = ?1 AND person_id",
    "run": "SELECT id FROM runs WHERE user_id = ?1 AND id",
    "turn": "SELECT turn_id AS id FROM turns WHERE (?1 IS NULL OR user_id = ?1) AND turn_id",
    "message": "SELECT id FROM messages WHERE user_id = ?1 AND id",
    "kb": "SELECT base_id AS id FROM kb_members WHERE user_id = ?1 AND base_id",
    "kb_source": """
        SELECT s.id AS id FROM kb_members AS m JOIN kb_sources AS s ON s.base_id = m.base_id
        WHERE m.user_id = ?1 AND s.id""",
    "kb_document": """
        SELECT d.id AS id FROM kb_members AS m JOIN kb_documents AS d ON d.base_id = m.base_id
        WHERE m.user_id = ?1 AND d.id""",
}
"""Of a user; turns also of all. What was removed has a history."""


def beginning_with(connection: apsw.Connection, kind: IdKind, user: UserId | None, text: str, limit: int) -> list[str]:
    """The ids that begin with a text, in their order; the text alone where it is one itself."""
    query = f"{_AMONG[kind]} BETWEEN ?2 AND ?3 ORDER BY id LIMIT ?4"
    found = [str(row[0]) for row in connection.execute(query, (user, text, text + "\U0010ffff", limit))]
    return found[:1] if found[:1] == [text] else found


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
class Turn:
    """A turn and its receipt, as far as it concerns one message."""

    id: Annotated[str, Wire("turn_id")]
    chat: Annotated[ChatId, Wire("chat_id")]
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
    unwanted: bool
    """The user never wants it to be recalled by itself."""
    frequencies: Mapping[str, int]
    """For each word that was asked for: how many messages of the chat hold it, up to ``MANY``."""


_HOLD = "SELECT count(*) FROM (SELECT 1 FROM messages_fts WHERE messages_fts MATCH ? LIMIT ?)"


_ENDED = "SELECT seq, created_at FROM messages WHERE chat_id = ? AND type = 'session_break' AND segment = ? LIMIT 1"
_TURNS = rows.Rows(Turn, "turns")
_TURNS_FROM = "WHERE chat_id = ? AND last_seq >= ? ORDER BY last_seq DESC, ended_at DESC LIMIT ?"
ELSEWHERE = 200
"""So many of a user's newest turns in other chats are looked through."""
_SHOWN_ELSEWHERE = f"""
SELECT {_TURNS.columns}
FROM (SELECT * FROM turns WHERE user_id = ?1 AND chat_id <> ?2 ORDER BY rowid DESC LIMIT ?4) AS t
WHERE EXISTS (SELECT 1 FROM json_each(t.receipt, '$.topics.candidates') AS c, json_each(c.value, '$.rowids') AS r
        WHERE r.value = ?3)
    OR EXISTS (SELECT 1 FROM json_each(t.receipt, '$.topics.candidates') AS c, json_each(c.value, '$.shortened') AS r
        WHERE r.value = ?3)
ORDER BY ended_at DESC LIMIT ?5
"""  # noqa: S608 - constant columns


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
        message: as it was found.
        words: of which the frequency in its chat is wanted.
        turns: how many of its chat's newest turns are looked at.
        window_rows: how many messages a turn reads.
        summarised: whether summaries stand in the place of messages.
    """
    with snapshot(connection):
        session = messages.session(connection, message.chat)
        found = coverage.rows(connection, message.rowid - 1, message.rowid, 1)
        if session is None or not found:
            return None
        stored = vector_model.current(connection)
        ended = connection.execute(_ENDED, (message.chat, message.segment + 1)).fetchone()
        newest = _TURNS.all(connection, _TURNS_FROM, message.chat, message.seq, turns)
        shown = (message.user, message.chat, message.rowid, ELSEWHERE, turns)
        newest += map(_TURNS.read, connection.execute(_SHOWN_ELSEWHERE, shown))
        chat_word = messages.chat_word(session.key)
        topic = topics.topics_of(connection, message.user, [message.rowid]).get(message.rowid)
        return Whereabouts(
            session=session,
            row=found[0],
            model=stored[0] if stored else None,
            ended_seq=int(ended[0]) if ended else None,
            ended_at=str(ended[1]) if ended else None,
            turns=newest,
            topic=topics.get(connection, message.user, topic) if topic is not None else None,
            summary=summaries.holding(connection, message.chat, message.segment, message.seq),
            next_rows=read_next(connection, message.chat, window_rows, summarised=summarised),
            unwanted=message.seq in chats.unrecalled(connection, message.chat),
            frequencies={
                word: connection.execute(_HOLD, (fulltext.match_in([word], chat_word), MANY)).get for word in words
            },
        )
