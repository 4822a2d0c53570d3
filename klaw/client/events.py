"""What a client tells its consumer. Frames of the server that need no bookkeeping are passed on as they are."""

from typing import TypeAlias

import attrs

from klaw.wire.frames import (
    Approval,
    ApprovalEnded,
    CaughtUp,
    ChatMessage,
    Delta,
    Error,
    Notice,
    Status,
    Stopped,
    StoredMessage,
    Tool,
    Welcome,
)


@attrs.frozen(kw_only=True)
class Entry:
    """A message of a watched chat: each ``seq`` once, in order, one's own messages included."""

    chat: str
    seq: int
    id: str
    role: str
    kind: str
    content: str
    created_at: str = ""
    """ISO-8601 UTC; empty for what this client sent itself and was told no more about than its ``seq``."""
    turn: str | None = None
    task: str | None = None
    replayed: bool = False
    """Stored before the watch began, or while the connection was down."""

    @property
    def is_answer(self) -> bool:
        """Whether it is what a turn had to say."""
        return self.role == "assistant" and self.kind == "text"


@attrs.frozen(kw_only=True)
class Connected:
    """The server welcomed the client; missed messages follow."""

    welcome: Welcome
    again: bool
    """It is not the first time."""


@attrs.frozen(kw_only=True)
class Disconnected:
    """The connection is gone; the client tries to get it back."""

    code: str


Event: TypeAlias = (
    Entry
    | Connected
    | Disconnected
    | CaughtUp
    | Delta
    | Tool
    | Approval
    | ApprovalEnded
    | Status
    | Stopped
    | Error
    | Notice
)


def entry_of(chat: str, message: ChatMessage | StoredMessage, *, replayed: bool) -> Entry:
    return Entry(
        chat=chat,
        seq=message.seq,
        id=message.id,
        role=message.role,
        kind=message.kind,
        content=message.content,
        created_at=message.created_at,
        turn=message.turn,
        task=message.task,
        replayed=replayed,
    )
