"""What stored turns recalled: what their receipts quote, and recalls that can be done again. For operators too, so not
every question names a user."""

from collections.abc import Sequence
from typing import Any

import apsw
import attrs

from klaw.domain.fact import FactId
from klaw.domain.names import ChatId, UserId
from klaw.domain.text import cut
from klaw.domain.turn import TurnRecord
from klaw.store.kinds import chats, facts, messages, topics, turns
from klaw.store.search.chat_search import ChatScope

MAX_QUOTED = 500
"""Characters of a message that is quoted."""


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
    scope: ChatScope | None
    """Where its recall looked, or would have; None when the window held all of the segment, or no context was made."""


def stored_recall(connection: apsw.Connection, turn: TurnRecord) -> StoredRecall:
    """What a turn's recall was asked, and where it looked."""
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
    return (
        ChatScope(chat=turn.chat, first_seq=first.seq, end_seq=end) if first is not None and first.seq < end else None
    )


def newest_recalls(
    connection: apsw.Connection, chat: ChatId | None, user: UserId | None, limit: int
) -> list[StoredRecall]:
    """The newest turns of a chat, of a user, or of all, oldest first."""
    return recalls_of(connection, turns.newest(connection, chat, user, limit))


def recalls_of(connection: apsw.Connection, ids: Sequence[str]) -> list[StoredRecall]:
    """Turns by their ids, in the given order; those that do not exist are left out."""
    found = (turns.find(connection, each, None, None) for each in ids)
    return [stored_recall(connection, turn) for turn in found if turn is not None]
