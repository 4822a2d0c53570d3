"""Summaries: the condensed older part of a segment."""

import enum
from typing import Annotated

import attrs

from klaw.convert import Wire
from klaw.domain.names import ChatId, UserId
from klaw.domain.notes import Quotes

MAX_TEXT = 20_000
"""Characters of one summary; ``summaries.maxTokens`` is far below that."""
MAX_NOTE = 1_000


class SummaryState(enum.StrEnum):
    LIVE = "live"
    """It stands in the context while its segment lasts."""
    SUPERSEDED = "superseded"
    """A newer one was made from it and holds its range."""
    EVICTED = "evicted"
    """It had to make room: its messages are found by search only."""


@attrs.frozen(kw_only=True)
class ToolNote:
    """What one tool call of the summarised part brought, in a sentence or two."""

    seq: int
    call: str
    tool: str
    text: Annotated[str, Quotes()]


@attrs.frozen(kw_only=True)
class NewSummary:
    """A summary before the writer gave it its number."""

    user: Annotated[UserId, Wire("user_id")]
    chat: Annotated[ChatId, Wire("chat_id")]
    segment: int
    first_seq: int
    last_seq: int
    text: Annotated[str, Quotes()]
    tokens: int
    model: str
    created_at: str
    prompt_tokens: int = 0
    """All attempts together, like ``completion_tokens``."""
    completion_tokens: int = 0


@attrs.frozen(kw_only=True)
class Summary(NewSummary):
    number: int
    """1, 2, 3 … in its chat."""
    state: SummaryState = SummaryState.LIVE

    def holds(self, seq: int) -> bool:
        return self.first_seq <= seq <= self.last_seq


def check(summary: NewSummary) -> None:
    """Raises ValueError when a value breaks its rule; names the field and never quotes the value."""
    if not summary.text.strip():
        raise ValueError("text: is empty")
    if len(summary.text) > MAX_TEXT:
        raise ValueError(f"text: has at most {MAX_TEXT} characters")
    if not 1 <= summary.first_seq <= summary.last_seq:
        raise ValueError("first_seq and last_seq: are no range of messages")
    if min(summary.segment, summary.tokens, summary.prompt_tokens, summary.completion_tokens) < 0:
        raise ValueError("segment, tokens, prompt_tokens and completion_tokens: are not negative")
    if not summary.chat.startswith(f"{summary.user}:"):
        raise ValueError("chat: is not the user's")
