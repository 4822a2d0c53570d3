"""Topics: a piece of a chat that is about one thing, with a model's summary of it; and which of them, found for a turn,
go into its prompt. Receipts hold ids and numbers only, so that a forgotten message leaves nothing in them. Pure."""

import enum
from typing import Annotated, NewType

import attrs

from klaw.convert import Wire
from klaw.domain.message import Message
from klaw.domain.names import ChatId, UserId
from klaw.domain.notes import Column, Edit, Quotes

TopicId = NewType("TopicId", int)
"""Never used twice; the same after a rebuild."""

MAX_SUMMARY_CHARS = 2_000
MAX_MERGED = 50


@attrs.frozen(kw_only=True)
class Topic:
    """One topic. Its messages are those with its id in ``messages.topic_id``, all of one chat of its user."""

    id: Annotated[TopicId, Column("topic", right=True)]
    user: Annotated[UserId, Wire("user_id")]
    chat: Annotated[ChatId, Wire("chat_id"), Column()]
    summary: Annotated[str, Quotes(), Edit("the new summary", title="Summary"), Column(wide=True)]
    general: bool
    """What no topic of its chunk claimed: "General conversation"."""
    messages: Annotated[int, Column(right=True)]
    chars: int
    first_rowid: int
    """Only a span: messages of other topics may lie within."""
    last_rowid: int
    first_at: Annotated[str, Column("from")]
    last_at: Annotated[str, Column("to")]
    created_at: str
    updated_at: str
    consolidated: bool
    """It was compared with the others that are like it; that is done once."""
    facts: bool
    """Facts were drawn from it; that is done once."""


class Fate(enum.StrEnum):
    CHOSEN = "chosen"
    NOT_CHOSEN = "not_chosen"
    TOO_FAR = "too_far"
    """Neither its vector nor its words show that it is about the question."""
    OVER_COUNT = "over_count"
    """Enough better ones were found."""
    OVER_BUDGET = "over_budget"
    """It does not fit into ``topics.maxTokens``."""
    IN_CONTEXT = "in_context"
    """All of its messages stand in the prompt anyway."""
    UNWANTED = "unwanted"
    """The user said that none of its messages is ever to be recalled."""
    GONE = "gone"
    """It was merged or forgotten meanwhile, or could not be read in time."""


class TopicLookup(enum.StrEnum):
    SEARCHED = "searched"
    NO_CONTENT = "no_content"
    NO_TOPICS = "no_topics"


@attrs.frozen(kw_only=True)
class TopicCandidate:
    topic: Topic
    score: float
    cosine: float | None = None
    """Between its vector and the question's; None when it was not found by it."""
    words_rank: int | None = None
    message_rank: int | None = None
    """The rank of its best message that was found."""
    best: tuple[int, ...] = ()
    """Row ids of the first of these messages."""
    shared_words: int = 0
    """How many of the question's content words its summary, or one of its messages, has."""
    fate: Fate = Fate.TOO_FAR
    place: int | None = None
    """1 for the most useful; chosen ones only."""
    messages: tuple[Message, ...] = ()
    """What the user and the assistant said, in order; chosen ones only."""
    worths: tuple[float, ...] = ()
    """How much each of these messages has to do with the question."""
    excerpt: str = ""
    """The reranker's, of a long topic; empty: the messages speak for themselves."""


@attrs.frozen(kw_only=True)
class ChosenTopics:
    asked: TopicLookup
    candidates: tuple[TopicCandidate, ...] = ()
    reranked: bool = False
    fallback: str | None = None
    """Why a model that was to choose did not: ``timeout``, ``bad_answer``, ``llm_…``."""
    loads: int = 0
    degraded: tuple[str, ...] = ()
    """Codes of what was missing: ``embedding_late``, ``topics_late`` …"""
    timings_ms: dict[str, float] = attrs.Factory(dict)

    @property
    def chosen(self) -> tuple[TopicCandidate, ...]:
        """Those that go into the prompt, the most useful first."""
        mine = [each for each in self.candidates if each.fate is Fate.CHOSEN]
        return tuple(sorted(mine, key=lambda each: each.place or 0))
