"""Questions whether a tool may do what the model asked for: what clients show, and how they end."""

import enum

import attrs

from klaw.domain.names import ChatId


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
