"""What happens in chats, for whoever watches them. Delivered in order; stored messages can be read again later. Among
it questions whether a tool may do what the model asked for.
"""

import enum
from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias

import attrs

from klaw.domain.message import Message
from klaw.domain.names import ChatId
from klaw.domain.turn import TurnStatus


@attrs.frozen(kw_only=True)
class Approval:
    """An open question to the user of a chat."""

    id: str
    chat: ChatId
    tool: str
    what: str
    """What would be done, whole and in printable characters only, for the user to judge."""
    until: str
    """ISO-8601 UTC; without an answer by then it counts as no."""
    turn: str | None = None
    """The turn that waits for it; None for a subagent's run."""


class Outcome(enum.StrEnum):
    """How a question ended."""

    ALLOWED = "allowed"
    DENIED = "denied"
    EXPIRED = "expired"
    """Nobody answered in time."""
    WITHDRAWN = "withdrawn"
    """What asked was stopped."""


@attrs.frozen(kw_only=True)
class MessageStored:
    """A message is durable. Emitted once for each message, in the order of ``seq``."""

    message: Message


@attrs.frozen(kw_only=True)
class TurnStarted:
    """A turn began to work on the messages up to ``last_seq``."""

    chat: ChatId
    turn: str
    last_seq: int


class Step(enum.StrEnum):
    """What is being done before an answer begins."""

    WAITING = "waiting"
    """For further messages, to answer them together; no turn has begun."""
    QUEUED = "queued"
    """For a free place among the calls to models."""
    RECALLING = "recalling"
    """What belongs into the context is looked up."""
    THINKING = "thinking"
    """The model was asked."""
    NOTHING = "nothing"
    """What waited for an answer was stopped."""


@attrs.frozen(kw_only=True)
class StepChanged:
    """A chat does something else now."""

    chat: ChatId
    turn: str | None
    """None before there is one."""
    step: Step


@attrs.frozen(kw_only=True)
class TextStreamed:
    """The next piece of the answer that is being made; not stored yet."""

    chat: ChatId
    turn: str
    offset: int
    """Characters of the answer before this piece."""
    text: str


@attrs.frozen(kw_only=True)
class ToolUsed:
    """A tool call of the running turn began or ended."""

    chat: ChatId
    turn: str
    call: str
    name: str
    state: str
    """``started``, ``done`` or ``failed``."""
    what: str = ""
    """Of one that started: its arguments in short, in one line of printable characters."""


@attrs.frozen(kw_only=True)
class ApprovalAsked:
    """A tool call waits for the user's word."""

    approval: Approval

    @property
    def chat(self) -> ChatId:
        return self.approval.chat


@attrs.frozen(kw_only=True)
class ApprovalEnded:
    """It waits no more."""

    chat: ChatId
    id: str
    outcome: Outcome


@attrs.frozen(kw_only=True)
class TurnEnded:
    """A turn is over. A finished answer was emitted as ``MessageStored`` before."""

    chat: ChatId
    turn: str
    status: TurnStatus
    code: str | None
    """Error code of a failed turn."""
    text: str | None
    """What to tell the user about a failed turn; may quote the provider."""
    citations_removed: int = 0
    """Marks that did not hold and were taken out of the answer."""


@attrs.frozen(kw_only=True)
class HealthChanged:
    """Something that all users should see: a part became degraded or well again."""

    code: str
    text: str
    details: Mapping[str, Any] = attrs.Factory(dict)


Event: TypeAlias = (
    MessageStored
    | TurnStarted
    | StepChanged
    | TextStreamed
    | ToolUsed
    | ApprovalAsked
    | ApprovalEnded
    | TurnEnded
    | HealthChanged
)


class EventSink(Protocol):
    """Takes events without waiting and without raising."""

    def emit(self, event: Event) -> None: ...
