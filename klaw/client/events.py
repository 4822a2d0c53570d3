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
    Tool,
    Welcome,
)


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


@attrs.frozen(kw_only=True)
class Loss:
    """Why a connection ended."""

    code: str
    text: str
    fatal: bool = False
    """Another attempt cannot help."""


Event: TypeAlias = (
    ChatMessage
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
