"""Turns: what is kept of each, and the receipt that accounts for its context."""

import enum
from typing import Annotated, Any

import attrs

from klaw.convert import Wire
from klaw.domain.message import Instant
from klaw.domain.names import ChatId, UserId
from klaw.domain.notes import Quotes


class TurnStatus(enum.StrEnum):
    DONE = "done"
    STOPPED = "stopped"
    """The user stopped it; its messages count as dealt with."""
    FAILED = "failed"
    """Its messages stay pending."""


@attrs.frozen(kw_only=True)
class TurnRecord:
    id: Annotated[str, Wire("turn_id")]
    chat: Annotated[ChatId, Wire("chat_id")]
    user: Annotated[UserId, Wire("user_id")]
    segment: int
    status: TurnStatus
    model: str
    first_seq: int
    """First user message that the turn was to answer."""
    last_seq: int
    started_at: Instant
    ended_at: Instant
    error: str | None
    """Error code of a failed turn."""
    receipt: Annotated[dict[str, Any], Quotes()]
    """Of a failed turn also ``reason``: what went wrong, in words that quote nobody."""
    usage: dict[str, Any]
    timings: dict[str, Any]
    """Milliseconds by step."""


def kept_text(why: str) -> str:
    """What people are told of a message without an answer, and why there is none."""
    return f"{why}. Your message is kept: send another one or /retry to try again."
