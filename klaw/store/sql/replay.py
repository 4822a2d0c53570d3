"""SQL of stored turns whose recall is done again: for whoever runs the server; not scoped by user."""

import json
from collections.abc import Iterator, Sequence

import apsw
import attrs

from klaw.domain.names import ChatId, UserId
from klaw.domain.turn import TurnRecord
from klaw.store.search.candidates import Scope
from klaw.store.sql import overview


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


def newest(connection: apsw.Connection, chat: ChatId | None, user: UserId | None, limit: int) -> list[StoredRecall]:
    """The newest turns of a chat, of a user, or of all, oldest first."""
    ids = [row[0] for row in connection.execute(_IDS, (chat, user, limit))][::-1]
    return list(_recalls(connection, ids))


def named(connection: apsw.Connection, turns: Sequence[str]) -> list[StoredRecall]:
    """Turns by their ids, in the given order; those that do not exist are left out."""
    return list(_recalls(connection, turns))


def _recalls(connection: apsw.Connection, ids: Sequence[str]) -> Iterator[StoredRecall]:
    for each in ids:
        turn = overview.find_turn(connection, each, None, None)
        if turn is not None:
            yield stored_recall(connection, turn)
