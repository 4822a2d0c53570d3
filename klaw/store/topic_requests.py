"""What the writer can be asked of topics."""

from typing import Literal, TypeAlias

import attrs

from klaw.actor.reply import Reply
from klaw.domain.names import ChatId, UserId
from klaw.domain.topic import Topic, TopicId
from klaw.store.sql.topic_vectors import TopicVector
from klaw.store.topic_records import Author


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
    as_of: int | None
    """The memory journal's last entry when the messages were read: refused when the user has forgotten something
    since."""
    by: Author
    at: str
    reply: Reply[list[Topic]]


@attrs.frozen(kw_only=True)
class MergeTopics:
    """Let one topic take in others. Answers what it has become."""

    sources: tuple[Topic, ...]
    """As they were when that was decided."""
    target: Topic
    summary: str
    vector: bytes | None
    model_id: str | None
    as_of: int | None
    """See ``StoreTopics``."""
    by: Author
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
    as_of: int | None
    """See ``StoreVectors``."""
    reply: Reply[int]


@attrs.frozen(kw_only=True)
class RebuildTopics:
    """Drop a user's topics, so that the archivist makes new ones of their messages. Answers the changes, one for each
    chat."""

    user: UserId
    chat: ChatId | None
    """Only of this one."""
    since: str | None
    """Only those whose last message is not older."""
    at: str
    reply: Reply[list[int]]


@attrs.frozen(kw_only=True)
class UndoneTopics:
    """What taking back a change did."""

    undone: int
    """The change that was taken back."""
    entry: int
    """The change that did it."""
    topics: tuple[Topic, ...]
    """That are as they were, as far as their messages are there."""
    ended: tuple[TopicId, ...]
    """That are gone by it."""


@attrs.frozen(kw_only=True)
class UndoTopics:
    """Take back a change of topics. Answers what holds again."""

    user: UserId
    entry: int | None
    """The change; None: the newest that a person asked for."""
    at: str
    reply: Reply[UndoneTopics]


OfTopics: TypeAlias = (
    StoreTopics | MergeTopics | MarkTopic | RemoveTopic | StoreTopicVectors | RebuildTopics | UndoTopics
)
