"""Messages and turns as JSON objects of the logs, and which log each belongs to. Pure."""

import json
from typing import Any

from klaw.config.paths import encode_name
from klaw.convert import JOURNAL
from klaw.domain.message import Message, NewMessage
from klaw.domain.names import ChatId
from klaw.domain.turn import TurnRecord

CONVERSATIONS = "conversations"
TURNS = "turns"
MAX_TOKENS = 1 << 40
"""Of one message; their sums have to be numbers that SQLite can hold."""


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def dumps(value: Any) -> str:
    """Compact JSON, text as is."""
    return _ENCODER.encode(value)


def chat_folder(chat: ChatId) -> str:
    """Folder of a chat's log, relative to the data folder."""
    return f"{CONVERSATIONS}/{encode_name(chat)}"


def message_path(message: Message) -> str:
    """Log of a message: one file a chat and UTC day."""
    return f"{chat_folder(message.chat)}/{message.created_at[:10]}.jsonl"


def turn_path(turn: TurnRecord) -> str:
    """Log of a turn: one file a month."""
    return f"{TURNS}/{turn.ended_at[:7]}.jsonl"


_ORDER = (
    *("rowid", "id", "user_id", "channel", "chat_id", "seq", "role", "type", "content", "metadata", "tokens"),
    *("created_at", "segment"),
)
"""Of a message's fields in its line."""


def message_line(message: NewMessage, **own: Any) -> str:
    """The line of a message; ``own`` are fields in place of its own."""
    fields = {**JOURNAL.write(message), **own}
    return dumps({name: fields[name] for name in _ORDER})


def parse_message(record: dict[str, Any]) -> Message:
    """A message of a log's line. Raises ValueError for one that Klaw cannot have written."""
    message = JOURNAL.read(record, Message)
    if not message.chat.startswith(f"{message.user}:"):
        raise ValueError("chat_id is another user's, or malformed")
    # Every message has a row id of its own, and a segment begins with a message.
    if not 1 <= message.seq <= message.rowid or not 0 <= message.segment <= message.seq:
        raise ValueError("seq or segment is out of range")
    if not 0 <= message.tokens <= MAX_TOKENS:
        raise ValueError("tokens is out of range")
    return message


def turn_line(turn: TurnRecord) -> str:
    return dumps(JOURNAL.write(turn))


def parse_turn(record: dict[str, Any]) -> TurnRecord:
    """A turn of a log's line. Raises ValueError for one that Klaw cannot have written."""
    return JOURNAL.read(record, TurnRecord)
