"""Topics: a piece of a chat that is about one thing, with an LLM's summary of it. Pure."""

from typing import NewType

import attrs

from klaw.domain.names import ChatId, UserId

TopicId = NewType("TopicId", int)
"""Never used twice; the same after a rebuild."""

MAX_SUMMARY_CHARS = 2_000
"""Longer summaries are cut: a summary, not a copy."""


@attrs.frozen(kw_only=True)
class Topic:
    """One topic. Its messages are those with its id in ``messages.topic_id``, all of one chat of its user."""

    id: TopicId
    user: UserId
    chat: ChatId
    summary: str
    general: bool
    """What no topic of its chunk claimed: "General conversation"."""
    messages: int
    """How many there are."""
    chars: int
    """Of their contents."""
    first_rowid: int
    """Only a span: messages of other topics may lie within."""
    last_rowid: int
    first_at: str
    """When its first message was said, ISO-8601 UTC."""
    last_at: str
    created_at: str
    updated_at: str
    consolidated: bool
    """It was compared with the others that are like it; that is done once."""
    facts: bool
    """Facts were drawn from it; that is done once."""
