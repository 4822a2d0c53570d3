"""Chats: their messages and turns, and what a user keeps of one beside them. Pure."""

import datetime as dt
import enum
from typing import Annotated, Any, Literal, TypeAlias

import attrs

from klaw.convert import OMIT, Bounds, Check, Wire
from klaw.domain.knowledge import MAX_BASES, BaseId
from klaw.domain.names import ChatId, UserId
from klaw.domain.notes import Quotes
from klaw.domain.text import title


class Role(enum.StrEnum):
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"
    SYSTEM = "system"


class MessageKind(enum.StrEnum):
    TEXT = "text"
    TOOL_CALL = "tool_call"
    TOOL_RESULT = "tool_result"
    SESSION_BREAK = "session_break"
    COMMAND = "command"
    SCHEDULED = "scheduled"


def instant(text: str) -> str:
    """Check a time. Raises ValueError."""
    try:
        zoned = dt.datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        zoned = False
    if not zoned:
        raise ValueError("must be a time with its zone, such as 2026-11-21T10:00:00.000Z")
    return text


MOST_ON_PAGE = 200

ThinkingLevel: TypeAlias = Literal["off", "low", "medium", "high"]
"""How much a model thinks before it answers."""

Instant: TypeAlias = Annotated[str, Check(instant)]
"""ISO-8601, UTC with milliseconds where Klaw made it."""

ECHO = "echo"
"""Key in the metadata of calls: signatures that their provider wants back (``Echo``). Neither shown nor exported."""
CUT = "cut"
"""Key in the metadata of an answer that was cut off: why, a word of ``Completion.finish_reason``."""
CLIENT_CALLS = "client_calls"
"""Key in the metadata of calls: the ids of those that the program which asks carries out."""
OF_CLIENT = "client"
"""Origin of what such a call gave."""
SHOWN = "forgetting"
"""Key in the metadata of an answer that showed what would be forgotten: it goes with the next forgetting."""
TOLD = "told"
"""Key in an answer's metadata: the digest of the streamed words, where those are not the words stored."""
HEARD = "heard:"
"""What the channel of a message begins with that is kept as context, and never answered."""
SESSION_PAUSE_S = 3600
"""A longer pause in a chat ends a session; the default of ``topics.chunkIntervalSeconds``."""


@attrs.frozen(kw_only=True)
class NewMessage:
    """A message before the writer gave it its place."""

    id: str
    """Unique among the user's messages; chosen by the client or made by Klaw."""
    chat: Annotated[ChatId, Wire("chat_id")]
    user: Annotated[UserId, Wire("user_id")]
    channel: str
    role: Role
    type: MessageKind
    content: Annotated[str, Quotes()]
    tokens: int
    """Estimated (``domain.tokens``)."""
    created_at: Instant
    metadata: Annotated[dict[str, Any], Quotes()] = attrs.Factory(dict)


@attrs.frozen(kw_only=True)
class Message(NewMessage):
    rowid: int
    """Key in messages, vectors and full text; the same after a rebuild."""
    seq: int
    """1, 2, 3 … in its chat, without gaps."""
    segment: int
    """How many ``/new`` came before it in its chat."""


def is_searchable(role: Role, kind: MessageKind) -> bool:
    """Whether recall may return such a message: what the user and the assistant said to each other."""
    return role in (Role.USER, Role.ASSISTANT) and kind in (MessageKind.TEXT, MessageKind.SCHEDULED)


def is_embeddable(role: Role, kind: MessageKind, tokens: int, min_tokens: int) -> bool:
    """Whether a message gets a vector: searchable and long enough to mean something by itself."""
    return is_searchable(role, kind) and tokens >= min_tokens


class TurnStatus(enum.StrEnum):
    DONE = "done"
    STOPPED = "stopped"
    """The user stopped it; its messages count as dealt with."""
    FAILED = "failed"
    WAITING = "waiting"
    """The program that asked is to carry out its own tools; what it sends goes on with the same messages."""


@attrs.frozen(kw_only=True)
class TurnRecord:
    id: Annotated[str, Wire("turn_id")]
    chat: Annotated[ChatId, Wire("chat_id")]
    user: Annotated[UserId, Wire("user_id")]
    segment: int
    status: TurnStatus
    model: str
    first_seq: int
    last_seq: int
    started_at: Instant
    ended_at: Instant
    error: str | None = None
    receipt: Annotated[dict[str, Any], Quotes()] = attrs.Factory(dict)
    """Of a failed turn also ``reason``: what went wrong, in words that quote nobody."""
    usage: dict[str, Any] = attrs.Factory(dict)
    timings: dict[str, Any] = attrs.Factory(dict)
    """Milliseconds by step."""


def kept_text(why: str) -> str:
    """What people are told of a message without an answer, and why there is none."""
    return f"{why}. Your message is kept: send another one or /retry to try again."


TEMPORARY_S = 24 * 3600
"""So long after its last message a temporary chat is forgotten."""
MAX_TITLE = 100
MAX_FIRST_TITLE = 60
MAX_PREVIEW = 120
MAX_UNRECALLED = 20_000
"""Messages of one chat."""


def chat_title(text: str) -> str:
    """A title as it is kept: NFC, one line; empty for none. Raises InvalidValue."""
    return title(text, MAX_TITLE)


@attrs.frozen(kw_only=True)
class ChatMark:
    """What a user keeps of a chat beside its messages."""

    title: Annotated[str, OMIT, Quotes(), Bounds(0, MAX_TITLE)] = ""
    """Shown beside the chat's name, which is in paths and frames and never changes."""
    archived: Annotated[int, OMIT, Bounds(0)] = 0
    """The chat's last ``seq`` when it was archived; a later message brings it back. 0: it was not."""
    unrecalled: Annotated[tuple[int, ...], OMIT, Bounds(0, MAX_UNRECALLED)] = ()
    """Numbers of messages that recall never brings back by itself."""
    bases: Annotated[tuple[BaseId, ...], OMIT, Bounds(at_most=MAX_BASES)] = ()
    pinned: Annotated[bool, OMIT] = False
    temporary: Annotated[bool, OMIT] = False
    """It is searched only from inside, nothing is made of it, and it is forgotten ``TEMPORARY_S`` after its last
    message."""
    titled: Annotated[int, OMIT, Bounds(0)] = 0
    """A model was asked for a title of the messages up to this number, or the user wants none. 0: no model was asked,
    or ``title`` is the user's own."""
