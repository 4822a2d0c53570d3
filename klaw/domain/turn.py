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
