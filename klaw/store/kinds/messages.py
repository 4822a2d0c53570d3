"""Messages, and the chats (sessions) that they make."""

import json
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import apsw
import attrs

from klaw.config.paths import encode_name
from klaw.convert import JOURNAL, Wire
from klaw.domain.branch import REPLACED
from klaw.domain.forget import FORGOTTEN
from klaw.domain.imported import ORIGIN
from klaw.domain.message import HEARD, Message, MessageKind, NewMessage, Role, ThinkingLevel, TurnRecord, is_searchable
from klaw.domain.names import ChatId, UserId, name_of
from klaw.domain.notes import Quotes
from klaw.errors import IdConflict
from klaw.store import changes, rows
from klaw.store.engine.tables import full_text, table
from klaw.store.engine.transaction import Transaction
from klaw.store.kinds import turns

CONVERSATIONS = "conversations"
MAX_TOKENS = 1 << 40
"""Limit of one message: sums have to fit into SQLite's integers."""


def chat_folder(chat: ChatId) -> str:
    """Folder of a chat's log, relative to the data folder."""
    return f"{CONVERSATIONS}/{encode_name(chat)}"


def day_path(chat: ChatId, day: str) -> str:
    """Log of what was said in a chat on a UTC day."""
    return f"{chat_folder(chat)}/{day}.jsonl"


def message_path(message: Message) -> str:
    """Log of a message: one file a chat and UTC day."""
    return day_path(message.chat, message.created_at[:10])


ORDER = (
    *("rowid", "id", "user_id", "channel", "chat_id", "seq", "role", "type", "content", "metadata", "tokens"),
    *("created_at", "segment"),
)
"""Order of a message's fields in its line."""


def message_line(message: NewMessage, **own: Any) -> str:
    """The line of a message; ``own`` are fields in place of its own."""
    fields = {**JOURNAL.write(message), **own}
    return rows.dumps({name: fields[name] for name in ORDER})


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


@attrs.frozen(kw_only=True)
class ChatRow:
    key: Annotated[int, Wire("chat_key")]
    chat: Annotated[ChatId, Wire("chat_id")]
    user: Annotated[UserId, Wire("user_id")]
    name: Annotated[str, Quotes(stays=True)]
    model: str | None
    last_seq: int
    segment: int
    segment_start: int
    created_at: str
    updated_at: str
    thinking: ThinkingLevel | None = None
    branched: int = 0
    """The memory journal's entry by which another variant of its messages was last shown; 0: there are no variants."""


NOW = f"metadata ->> '$.{REPLACED}' IS NULL"
"""Condition of a message that is not replaced by a variant."""
MESSAGE: changes.Kind[Message] = changes.Kind(
    what="message",
    plural="messages",
    cls=Message,
    table="messages",
    id="rowid",
    ids="SELECT id FROM messages WHERE user_id = ?1 AND id",
    changed="rowid",
    whole="messages_whole",
    full_text=True,
    vectors="vec_messages",
    tables=(
        table("messages", "messages", "rowid", ", ".join(ORDER), bound="rowid"),
        full_text("full text", "messages_fts", bound="rowid"),
        table("traits", "message_traits", "rowid", "rowid, traits", bound="rowid"),
    ),
)
_CONTENT = """
chat_id, chat_key, user_id, name, model, thinking, last_seq, segment, segment_start, created_at, updated_at, branched
"""
SESSION: changes.Kind[ChatRow] = changes.Kind(
    what="session",
    plural="chats",
    cls=ChatRow,
    table="sessions",
    id="chat_id",
    changed="",
    on_purpose=True,
    key_of=name_of,
    tables=(table("sessions", "sessions", "chat_id", _CONTENT, first="", small=True),),
)
MESSAGES = rows.Rows(Message, "messages")
WHOLE = rows.Rows(Message, "messages_whole")
SESSIONS = rows.Rows(ChatRow, "sessions")


SEARCHABLE = "role IN ('user', 'assistant') AND type IN ('text', 'scheduled')"
"""SQL of ``domain.message.is_searchable``; partial indexes have it in these words."""


def find(connection: apsw.Connection, user: UserId, message_id: str) -> Message | None:
    return MESSAGES.one(connection, "WHERE user_id = ? AND id = ?", user, message_id)


_ADD_SESSION = "INSERT INTO sessions (chat_id, user_id, name, created_at, updated_at) VALUES (?1, ?2, ?3, ?4, ?4)"
_NEXT_SEQ = """
UPDATE sessions SET
    last_seq = last_seq + 1,
    segment = segment + ?2,
    segment_start = CASE WHEN ?2 THEN last_seq + 1 ELSE segment_start END,
    updated_at = max(updated_at, ?3)
WHERE chat_id = ?1
RETURNING chat_key, last_seq, segment
"""
_NEW_FIELDS = tuple(attrs.fields_dict(NewMessage))
_INSERT = f"""
INSERT INTO messages (rowid, seq, segment, {rows.columns(NewMessage)}) VALUES (?, ?, ?{", ?" * len(_NEW_FIELDS)})
"""  # noqa: S608 - constant columns
_INSERT_FTS = "INSERT INTO messages_fts (rowid, content, scope) VALUES (?, ?, ?)"


def insert(connection: apsw.Connection, new: NewMessage) -> Message:
    """Store a new message at the end of its chat; the first message creates the chat."""
    arguments = (new.chat, int(new.type is MessageKind.SESSION_BREAK), new.created_at)
    place = connection.execute(_NEXT_SEQ, arguments).get
    if place is None:
        connection.execute(_ADD_SESSION, (new.chat, new.user, name_of(new.chat), new.created_at))
        place = connection.execute(_NEXT_SEQ, arguments).get
    key, seq, segment = place
    connection.execute(_INSERT, (None, seq, segment, *_row(new)))
    rowid = connection.last_insert_rowid()
    _index(connection, rowid, new, key)
    _choose(connection, new, seq)
    fields = {name: getattr(new, name) for name in _NEW_FIELDS}  # attrs.asdict takes four times as long
    return Message(**fields, rowid=rowid, seq=seq, segment=segment)


_SYNC_SESSION = """
UPDATE sessions SET
    last_seq = max(last_seq, ?2),
    segment_start = CASE WHEN ?3 > segment THEN ?2 ELSE segment_start END,
    segment = max(segment, ?3),
    updated_at = max(updated_at, ?4)
WHERE chat_id = ?1
RETURNING chat_key
"""


def restore(connection: apsw.Connection, message: Message) -> bool:
    """Insert a message of the logs. Returns True. Raises apsw.ConstraintError: another message has its row or place."""
    arguments = (message.chat, message.seq, message.segment, message.created_at)
    key = connection.execute(_SYNC_SESSION, arguments).get
    if key is None:
        connection.execute(_ADD_SESSION, (message.chat, message.user, name_of(message.chat), message.created_at))
        key = connection.execute(_SYNC_SESSION, arguments).get
    connection.execute(_INSERT, (message.rowid, message.seq, message.segment, *_row(message)))
    _index(connection, message.rowid, message, key)
    _choose(connection, message, message.seq)
    return True


CHOICES = ("model", "thinking")
"""In the metadata of the answers to ``/model`` and ``/think``, and columns of sessions: what the chat's turns use from
then on, null for what the configuration says."""


def _choose(connection: apsw.Connection, message: NewMessage, seq: int) -> None:
    """The logs bring messages in any order: the choice with the highest seq counts."""
    if message.role is not Role.SYSTEM or message.type is not MessageKind.COMMAND:
        return
    for choice in CHOICES:
        query = f"""
        UPDATE sessions SET {choice} = ?2 WHERE chat_id = ?1 AND NOT EXISTS (
            SELECT 1 FROM messages WHERE chat_id = ?1 AND seq > ?3 AND role = 'system' AND type = 'command'
                AND json_type(metadata, '$.{choice}') IN ('text', 'null'))
        """  # noqa: S608 - a constant
        chosen = message.metadata.get(choice, 0)
        if chosen is None or isinstance(chosen, str):
            connection.execute(query, (message.chat, chosen, seq))


def choose_again(connection: apsw.Connection, chat: ChatId) -> None:
    """What the chat's turns use by the choices that are left, after some were forgotten."""
    for choice in CHOICES:
        query = f"""
        UPDATE sessions SET {choice} = (
            SELECT metadata ->> '$.{choice}' FROM messages WHERE chat_id = ?1 AND role = 'system' AND type = 'command'
                AND json_type(metadata, '$.{choice}') IN ('text', 'null') ORDER BY seq DESC LIMIT 1)
        WHERE chat_id = ?1
        """  # noqa: S608 - a constant
        connection.execute(query, (chat,))


def _row(message: NewMessage) -> Iterator[Any]:
    for name in _NEW_FIELDS:
        value = getattr(message, name)
        yield rows.dumps(value) if isinstance(value, dict) else value


def scope(chat_key: int, user: UserId) -> str:
    """The words of the full-text scope column; the view ``messages_search`` makes the same."""
    return f"{chat_word(chat_key)} {user_word(user)}"


def chat_word(chat_key: int) -> str:
    return f"c{int(chat_key)}"


def user_word(user: UserId) -> str:
    return f"u{user.encode().hex()}"


def _index(connection: apsw.Connection, rowid: int, message: NewMessage, chat_key: int) -> None:
    if is_searchable(message.role, message.type):
        connection.execute(_INSERT_FTS, (rowid, message.content, scope(chat_key, message.user)))


def index_again(connection: apsw.Connection, rowid: int) -> bool:
    """Index a message that full text lacks. False: there is none, or it is not searched."""
    found = by_rowids(connection, [rowid])
    place = session(connection, found[0].chat) if found else None
    if place is None or not is_searchable(found[0].role, found[0].type):
        return False
    _index(connection, rowid, found[0], place.key)
    return True


def replaced_mark(branch: int) -> str:
    """The metadata of the row that keeps the place of a replaced message."""
    return rows.dumps({REPLACED: branch})


_VECTOR_BYTES = "SELECT length(embedding) FROM vec_messages WHERE rowid = ?"


def drop_vector(connection: apsw.Connection, rowid: int) -> None:
    """Overwrite a message's vector and remove it: vec0 leaves the bytes of a removed one."""
    size = connection.execute(_VECTOR_BYTES, (rowid,)).get
    if size is not None:
        connection.execute("UPDATE vec_messages SET embedding = ? WHERE rowid = ?", (bytes(size), rowid))
        connection.execute("DELETE FROM vec_messages WHERE rowid = ?", (rowid,))


def session(connection: apsw.Connection, chat: ChatId) -> ChatRow | None:
    return SESSIONS.one(connection, "WHERE chat_id = ?", chat)


def after(connection: apsw.Connection, chat: ChatId, seq: int, limit: int) -> list[Message]:
    """Messages of a chat after a seq, oldest first."""
    return MESSAGES.all(connection, "WHERE chat_id = ? AND seq > ? ORDER BY seq LIMIT ?", chat, seq, limit)


def kept_after(
    connection: apsw.Connection, chat: ChatId, seq: int, limit: int, *, variants: bool = False
) -> list[Message]:
    """Messages of a chat after a seq that are not forgotten, oldest first; ``variants``: also replaced ones."""
    query = f"WHERE chat_id = ? AND seq > ? AND metadata ->> '$.{FORGOTTEN}' IS NULL AND {NOW} ORDER BY seq LIMIT ?"
    return (WHOLE if variants else MESSAGES).all(connection, query, chat, seq, limit)


def kept_rowids(connection: apsw.Connection, chat: ChatId, seq: int) -> list[int]:
    """Row ids of a chat's messages up to a seq that are not forgotten; the beginning of a segment says nothing."""
    query = f"""
    SELECT rowid FROM messages_whole
    WHERE chat_id = ? AND seq <= ? AND type <> 'session_break' AND metadata ->> '$.{FORGOTTEN}' IS NULL ORDER BY rowid
    """  # noqa: S608 - a constant
    return [rowid for (rowid,) in connection.execute(query, (chat, seq))]


def before(connection: apsw.Connection, chat: ChatId, seq: int, limit: int) -> list[Message]:
    """The newest messages of a chat before a seq, oldest first."""
    return MESSAGES.all(connection, "WHERE chat_id = ? AND seq < ? ORDER BY seq DESC LIMIT ?", chat, seq, limit)[::-1]


def dialogue(connection: apsw.Connection, chat: ChatId, after_seq: int, end_seq: int, limit: int) -> list[Message]:
    """What was said and what tools did between two numbers, oldest first; at most the newest ``limit``."""
    query = """
    WHERE chat_id = ?1 AND seq > ?2 AND seq < ?3 AND role <> 'system' AND type NOT IN ('command', 'session_break')
    ORDER BY seq DESC LIMIT ?4
    """
    return MESSAGES.all(connection, query, chat, after_seq, end_seq, limit)[::-1]


def by_rowids(connection: apsw.Connection, rowids: Sequence[int]) -> list[Message]:
    """Messages by their rowids, in the given order; missing ones are left out."""
    return _by_rowids(connection, rowids, "messages")


def whole(connection: apsw.Connection, rowids: Sequence[int]) -> list[Message]:
    """The same, replaced ones as they were said."""
    return _by_rowids(connection, rowids, "messages_whole")


def _by_rowids(connection: apsw.Connection, rowids: Sequence[int], source: str) -> list[Message]:
    query = f"""
    SELECT m.* FROM json_each(?) wanted
    CROSS JOIN (SELECT {MESSAGES.columns} FROM {source}) m ON m.rowid = wanted.value ORDER BY wanted.key
    """  # noqa: S608 - constant columns
    return [MESSAGES.read(row) for row in connection.execute(query, (json.dumps(list(rowids)),))]


_IDS = "SELECT id FROM messages WHERE +user_id = ?1 AND rowid IN (SELECT value FROM json_each(?2))"


def ids_of(connection: apsw.Connection, user: UserId, rowids: Sequence[int]) -> list[str]:
    return [str(each) for (each,) in connection.execute(_IDS, (user, json.dumps(list(rowids))))]


HERE = f"channel NOT GLOB '{ORIGIN}*' AND channel NOT GLOB '{HEARD}*'"
"""Condition of a message that is to be answered: it was neither imported nor only heard."""
PENDING = f"""
WHERE chat_id = ?1 AND role = 'user' AND type = 'text' AND seq >= ?2 AND {HERE}
    AND seq > coalesce(
        (SELECT max(last_seq) FROM turns WHERE chat_id = ?1 AND status IN ('done', 'stopped') AND {turns.NOW}), 0)
"""  # noqa: S608 - a constant


def pending(connection: apsw.Connection, chat: ChatId, segment_start: int, limit: int) -> list[Message]:
    """User messages of the segment that no turn has dealt with, oldest first."""
    return MESSAGES.all(connection, f"{PENDING} ORDER BY seq DESC LIMIT ?3", chat, segment_start, limit)[::-1]


def texts(connection: apsw.Connection, chat: ChatId, seqs: Sequence[int]) -> list[str]:
    query = "SELECT content FROM messages WHERE chat_id = ? AND seq IN (SELECT value FROM json_each(?)) ORDER BY seq"
    return [str(text) for (text,) in connection.execute(query, (chat, json.dumps(list(seqs))))]


def first_of_segment(connection: apsw.Connection, chat: ChatId, segment: int) -> Message | None:
    """The first message of a chat's segment; of all but the first segment it is its ``/new``."""
    return MESSAGES.one(connection, f"WHERE chat_id = ? AND segment = ? AND {NOW} ORDER BY seq LIMIT 1", chat, segment)


def rowid_bounds(connection: apsw.Connection, chat: ChatId, first_seq: int, end_seq: int) -> tuple[int, int] | None:
    """Row ids of the first and the last message of a chat with first_seq <= seq < end_seq, if there are any."""
    query = """
    SELECT
        (SELECT rowid FROM messages WHERE chat_id = ?1 AND seq >= ?2 AND seq < ?3 ORDER BY seq LIMIT 1),
        (SELECT rowid FROM messages WHERE chat_id = ?1 AND seq >= ?2 AND seq < ?3 ORDER BY seq DESC LIMIT 1)
    """
    low, high = connection.execute(query, (chat, first_seq, end_seq)).get
    return (low, high) if low is not None and high is not None else None


@attrs.frozen
class AppendedMessage:
    message: Message
    repeated: bool
    """``message`` was there already, and nothing was written."""


def append(tx: Transaction, new: Sequence[NewMessage], turn: TurnRecord | None = None) -> tuple[AppendedMessage, ...]:
    """Store messages in order, and the turn that they end. Raises IdConflict, as ``append_one``."""
    appended = tuple(append_one(tx, each) for each in new)
    if turn is not None:
        turn = turns.without_gone(tx.connection, turn)
        if turns.insert(tx.connection, turn):
            tx.write(turns.path(turn), turns.line(turn))
    return appended


def append_one(tx: Transaction, new: NewMessage) -> AppendedMessage:
    """Store a message, unless it is there. Raises IdConflict: the user has the id in another chat."""
    known = find(tx.connection, new.user, new.id)
    if known is not None and known.chat != new.chat:
        raise IdConflict("this message id is already used in another chat")
    if known is not None:
        return AppendedMessage(known, repeated=True)
    message = insert(tx.connection, new)
    tx.write(message_path(message), message_line(message))
    tx.published.append(message)
    return AppendedMessage(message, repeated=False)
