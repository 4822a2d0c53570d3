"""What the writer can be asked of topics."""

from typing import Literal, TypeAlias

import attrs

from klaw.actor.reply import Reply
from klaw.domain.names import ChatId, UserId
from klaw.domain.topic import Topic, TopicId
from klaw.store.sql.topic_vectors import TopicVector


@attrs.frozen(kw_only=True)
class TopicDraft:
    """A topic that is to be."""

    summary: str
    general: bool
    members: tuple[int, ...]
    """Row ids of its messages, ascending, never empty."""
    consolidated: bool = False
    facts: bool = False
    vector: bytes | None = None
    """Little-endian float32, if there is one already."""


@attrs.frozen(kw_only=True)
class StoreTopics:
    """Store topics with their messages: all or none. Answers them."""

    user: UserId
    chat: ChatId
    drafts: tuple[TopicDraft, ...]
    replaces: TopicId | None
    """A topic that they come in place of."""
    model_id: str | None
    """What made the vectors."""
    at: str
    reply: Reply[list[Topic]]


@attrs.frozen(kw_only=True)
class MergeTopics:
    """Let one topic take in another. Answers what it has become."""

    source: Topic
    """As it was when that was decided."""
    target: Topic
    summary: str
    vector: bytes | None
    model_id: str | None
    at: str
    reply: Reply[Topic]


@attrs.frozen(kw_only=True)
class MarkTopic:
    """Remember that a step of the archivist is done for a topic. Answers whether it is there."""

    user: UserId
    id: TopicId
    step: Literal["consolidated", "facts"]
    at: str
    reply: Reply[bool]


@attrs.frozen(kw_only=True)
class RemoveTopic:
    """Remove a topic; its messages have none then. Answers what it was."""

    user: UserId
    id: TopicId
    at: str
    reply: Reply[Topic]


@attrs.frozen(kw_only=True)
class StoreTopicVectors:
    """Store vectors of topics. Answers how many fitted what is there now."""

    model_id: str
    vectors: tuple[TopicVector, ...]
    reply: Reply[int]


OfTopics: TypeAlias = StoreTopics | MergeTopics | MarkTopic | RemoveTopic | StoreTopicVectors
