"""What happens in chats, for those who watch them, in order. Stored messages can be read again later."""

import enum
from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias

import attrs

from klaw.domain.message import Message, TurnStatus
from klaw.domain.names import ChatId


@attrs.frozen(kw_only=True)
class Approval:
    """An open question to the user of a chat: may a tool do what the model asked for?"""

    id: str
    chat: ChatId
    tool: str
    what: str
    """What would be done, complete and in printable characters only."""
    until: str
    """ISO-8601 UTC; no answer by then counts as no."""
    turn: str | None = None
    """The turn that waits for it; None for a subagent's run."""


class Outcome(enum.StrEnum):
    ALLOWED = "allowed"
    DENIED = "denied"
    EXPIRED = "expired"
    WITHDRAWN = "withdrawn"


@attrs.frozen(kw_only=True)
class MessageStored:
    """A message is durable. Emitted once for each message, in the order of ``seq``."""

    message: Message


@attrs.frozen(kw_only=True)
class TurnStarted:
    chat: ChatId
    turn: str
    last_seq: int


class Step(enum.StrEnum):
    WAITING = "waiting"
    """It waits for further messages, to answer them together."""
    QUEUED = "queued"
    """It waits for a free place among the calls to models."""
    READING = "reading"
    """Files of the messages that it answers are still read."""
    RECALLING = "recalling"
    THINKING = "thinking"
    NOTHING = "nothing"
    """What waited for an answer was stopped."""


@attrs.frozen(kw_only=True)
class StepChanged:
    chat: ChatId
    turn: str | None
    step: Step


@attrs.frozen(kw_only=True)
class TextStreamed:
    """The next piece of an answer that is not stored yet."""

    chat: ChatId
    turn: str
    offset: int
    """Characters of the answer before it."""
    text: str


@attrs.frozen(kw_only=True)
class ThoughtStreamed:
    """The next piece of what the model thinks before it answers or calls a tool. It is stored nowhere."""

    chat: ChatId
    turn: str
    offset: int
    """Characters of this call's thinking before it."""
    text: str


@attrs.frozen(kw_only=True)
class ToolUsed:
    chat: ChatId
    turn: str
    call: str
    name: str
    state: str
    """``started``, ``done`` or ``failed``."""
    what: str = ""
    """The arguments of a started call, shortened to one line of printable characters."""
    title: str | None = None
    about: str | None = None
    """A started call in words: see ``klaw.domain.tool_calls``."""


@attrs.frozen(kw_only=True)
class ApprovalAsked:
    approval: Approval

    @property
    def chat(self) -> ChatId:
        return self.approval.chat


@attrs.frozen(kw_only=True)
class ApprovalEnded:
    chat: ChatId
    id: str
    outcome: Outcome


@attrs.frozen(kw_only=True)
class TurnEnded:
    """A turn is over; a finished answer came before, as ``MessageStored``."""

    chat: ChatId
    turn: str
    status: TurnStatus
    code: str | None
    text: str | None
    """What to tell the user about a failed turn; may quote the provider."""
    citations_removed: int = 0


@attrs.frozen(kw_only=True)
class VariantShown:
    """Another variant of some messages of a chat is shown."""

    chat: ChatId


@attrs.frozen(kw_only=True)
class ChatChanged:
    """A chat has another title, or another place in lists."""

    chat: ChatId
    title: str


@attrs.frozen(kw_only=True)
class HealthChanged:
    """A part became degraded, or works again; for all users."""

    code: str
    text: str
    details: Mapping[str, Any] = attrs.Factory(dict)


ChatEvent: TypeAlias = (
    TurnStarted | StepChanged | TextStreamed | ThoughtStreamed | ToolUsed | ApprovalAsked | ApprovalEnded | TurnEnded
    | VariantShown | ChatChanged
)  # fmt: skip
Event: TypeAlias = MessageStored | ChatEvent | HealthChanged


class EventSink(Protocol):
    """Takes events without waiting and without raising."""

    def emit(self, event: Event) -> None: ...
