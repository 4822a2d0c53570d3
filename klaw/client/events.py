"""What a client tells its consumer: events of its own, and frames of the server as they are."""

from typing import TypeAlias

import attrs

from klaw.wire.frames import (
    ApprovalEndedFrame,
    ApprovalFrame,
    CaughtUp,
    Delta,
    Error,
    MessageFrame,
    Notice,
    Status,
    StoppedFrame,
    Tool,
    Welcome,
)


@attrs.frozen(kw_only=True)
class ConnectedEvent:
    """The server welcomed the client; missed messages follow."""

    welcome: Welcome
    again: bool


@attrs.frozen(kw_only=True)
class DisconnectedEvent:
    """The connection is gone; the client tries to get it back."""

    code: str


@attrs.frozen(kw_only=True)
class Loss:
    code: str
    text: str
    fatal: bool = False
    """Another attempt cannot help."""


Event: TypeAlias = (
    MessageFrame
    | ConnectedEvent
    | DisconnectedEvent
    | CaughtUp
    | Delta
    | Tool
    | ApprovalFrame
    | ApprovalEndedFrame
    | Status
    | StoppedFrame
    | Error
    | Notice
)
