"""Messages and turns as JSON objects of the logs, and which log each belongs to. Pure."""

import json
from typing import Any

from klaw.config.paths import encode_name
from klaw.domain.message import Kind, Message, Role
from klaw.domain.names import ChatId, UserId
from klaw.domain.turn import TurnRecord, TurnStatus

CONVERSATIONS = "conversations"
TURNS = "turns"


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
    """A message of a log's line. Raises KeyError, TypeError or ValueError for a malformed one."""
    message = Message(
        rowid=int(record["rowid"]),
        id=str(record["id"]),
        user=UserId(record["user_id"]),
        channel=str(record["channel"]),
        chat=ChatId(record["chat_id"]),
        seq=int(record["seq"]),
        role=Role(record["role"]),
        type=Kind(record["type"]),
        content=_text(record["content"]),
        metadata=dict(record["metadata"]),
        tokens=int(record["tokens"]),
        created_at=str(record["created_at"]),
        segment=int(record["segment"]),
    )
    if ":" not in message.chat:
        raise ValueError("chat_id is malformed")
    return message


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("content is not text")
    return value


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
    """A turn of a log's line. Raises KeyError, TypeError or ValueError for a malformed one."""
    return TurnRecord(
        id=str(record["turn_id"]),
        chat=ChatId(record["chat_id"]),
        user=UserId(record["user_id"]),
        segment=int(record["segment"]),
        status=TurnStatus(record["status"]),
        model=str(record["model"]),
        first_seq=int(record["first_seq"]),
        last_seq=int(record["last_seq"]),
        started_at=str(record["started_at"]),
        ended_at=str(record["ended_at"]),
        error=record["error"],
        receipt=dict(record["receipt"]),
        usage=dict(record["usage"]),
        timings=dict(record["timings"]),
    )
