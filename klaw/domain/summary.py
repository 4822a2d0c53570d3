"""Summaries: the condensed older part of a segment."""

import enum
from typing import Annotated

import attrs

from klaw.convert import Bounds, Wire
from klaw.domain.names import ChatId, UserId
from klaw.domain.notes import Quotes

MAX_TEXT = 20_000
"""Characters of one summary; ``summaries.maxTokens`` is far below that."""
MAX_NOTE = 1_000

_Number = Annotated[int, Bounds(0)]


class SummaryState(enum.StrEnum):
    LIVE = "live"
    """It stands in the context while its segment lasts."""
    SUPERSEDED = "superseded"
    EVICTED = "evicted"
    """It had to make room: its messages are found by search only."""


@attrs.frozen(kw_only=True)
class ToolNote:
    """What one tool call of the summarised part brought, in a sentence or two."""

    seq: int
    call: str
    tool: str
    text: Annotated[str, Quotes(), Bounds(1, MAX_NOTE, r"\s*\S[\s\S]*")]


@attrs.frozen(kw_only=True)
class NewSummary:
    """A summary before the writer gave it its number."""

    user: Annotated[UserId, Wire("user_id")]
    chat: Annotated[ChatId, Wire("chat_id")]
    segment: _Number
    first_seq: Annotated[int, Bounds(1)]
    last_seq: int
    text: Annotated[str, Quotes(), Bounds(1, MAX_TEXT)]
    tokens: _Number
    model: str
    created_at: str
    prompt_tokens: _Number = 0
    """All attempts together, like ``completion_tokens``."""
    completion_tokens: _Number = 0


@attrs.frozen(kw_only=True)
class Summary(NewSummary):
    number: int
    """1, 2, 3 … in its chat."""
    state: SummaryState = SummaryState.LIVE


def check(summary: NewSummary) -> None:
    """Raises ValueError: the fields do not go together."""
    if not summary.text.strip():
        raise ValueError("text: is empty")
    if summary.first_seq > summary.last_seq:
        raise ValueError("first_seq and last_seq: are no range of messages")
    if not summary.chat.startswith(f"{summary.user}:"):
        raise ValueError("chat: is not the user's")
