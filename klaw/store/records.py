"""Messages and turns as JSON objects of the logs, and which log each belongs to. Pure."""

import json
from typing import Any

from klaw.config.paths import encode_name
from klaw.domain.message import Kind, Message, Role
from klaw.domain.names import ChatId, UserId
from klaw.domain.turn import TurnRecord, TurnStatus
from klaw.store.fields import instant, json_object, optional_text, text, whole

CONVERSATIONS = "conversations"
TURNS = "turns"
MAX_TOKENS = 1 << 40
"""Of one message; their sums have to be numbers that SQLite can hold."""


def dumps(value: Any) -> str:
    """Compact JSON, text as is."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def chat_folder(chat: ChatId) -> str:
    """Folder of a chat's log, relative to the data folder."""
    return f"{CONVERSATIONS}/{encode_name(chat)}"


def message_path(message: Message) -> str:
    """Log of a message: one file a chat and UTC day."""
    return f"{chat_folder(message.chat)}/{message.created_at[:10]}.jsonl"


def turn_path(turn: TurnRecord) -> str:
    """Log of a turn: one file a month."""
    return f"{TURNS}/{turn.ended_at[:7]}.jsonl"


def message_line(message: Message) -> str:
    return dumps(
        {
            "rowid": message.rowid,
            "id": message.id,
            "user_id": message.user,
            "channel": message.channel,
            "chat_id": message.chat,
            "seq": message.seq,
            "role": message.role,
            "type": message.type,
            "content": message.content,
            "metadata": message.metadata,
            "tokens": message.tokens,
            "created_at": message.created_at,
            "segment": message.segment,
        }
    )


def parse_message(record: dict[str, Any]) -> Message:
    """A message of a log's line. Raises KeyError, TypeError or ValueError for one that Klaw cannot have written."""
    message = Message(
        rowid=whole(record["rowid"]),
        id=text(record["id"]),
        user=UserId(text(record["user_id"])),
        channel=text(record["channel"]),
        chat=ChatId(text(record["chat_id"])),
        seq=whole(record["seq"]),
        role=Role(record["role"]),
        type=Kind(record["type"]),
        content=text(record["content"]),
        metadata=json_object(record["metadata"]),
        tokens=whole(record["tokens"]),
        created_at=instant(record["created_at"]),
        segment=whole(record["segment"]),
    )
    if not message.chat.startswith(f"{message.user}:"):
        raise ValueError("chat_id is another user's, or malformed")
    # Every message has a row id of its own, and a segment begins with a message.
    if not 1 <= message.seq <= message.rowid or not 0 <= message.segment <= message.seq:
        raise ValueError("seq or segment is out of range")
    if not 0 <= message.tokens <= MAX_TOKENS:
        raise ValueError("tokens is out of range")
    return message


def turn_line(turn: TurnRecord) -> str:
    return dumps(
        {
            "turn_id": turn.id,
            "chat_id": turn.chat,
            "user_id": turn.user,
            "segment": turn.segment,
            "status": turn.status,
            "model": turn.model,
            "first_seq": turn.first_seq,
            "last_seq": turn.last_seq,
            "started_at": turn.started_at,
            "ended_at": turn.ended_at,
            "error": turn.error,
            "receipt": turn.receipt,
            "usage": turn.usage,
            "timings": turn.timings,
        }
    )


def parse_turn(record: dict[str, Any]) -> TurnRecord:
    """A turn of a log's line. Raises KeyError, TypeError or ValueError for one that Klaw cannot have written."""
    return TurnRecord(
        id=text(record["turn_id"]),
        chat=ChatId(text(record["chat_id"])),
        user=UserId(text(record["user_id"])),
        segment=whole(record["segment"]),
        status=TurnStatus(record["status"]),
        model=text(record["model"]),
        first_seq=whole(record["first_seq"]),
        last_seq=whole(record["last_seq"]),
        started_at=instant(record["started_at"]),
        ended_at=instant(record["ended_at"]),
        error=optional_text(record["error"]),
        receipt=json_object(record["receipt"]),
        usage=json_object(record["usage"]),
        timings=json_object(record["timings"]),
    )
