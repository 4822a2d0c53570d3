"""The part of the writer's handle that changes topics: for the archivist, and for what a person asks for."""

from collections.abc import Sequence
from typing import Literal

from klaw.actor.mailbox import Mailbox
from klaw.actor.reply import Reply
from klaw.domain.names import ChatId, UserId
from klaw.domain.topic import Topic, TopicId
from klaw.store.requests import Request
from klaw.store.sql.topic_vectors import TopicVector
from klaw.store.topic_records import Author
from klaw.store.topic_requests import (
    MarkTopic,
    MergeTopics,
    RebuildTopics,
    RemoveTopic,
    StoreTopics,
    StoreTopicVectors,
    TopicDraft,
    UndoneTopics,
    UndoTopics,
)


class TopicWrites:
    """Each is durable when it returns, and all or nothing. Each may raise StorageFull and ActorStopped.

    Cancellation: what was asked for may be stored or not.
    """

    mailbox: Mailbox[Request]

    async def store_topics(
        self,
        user: UserId,
        chat: ChatId,
        drafts: Sequence[TopicDraft],
        at: str,
        *,
        replaces: TopicId | None = None,
        model_id: str | None = None,
        as_of: int | None = None,
        by: Author = "archivist",
    ) -> list[Topic]:
        """Store topics with their messages.

        Args:
            user: whose messages they are.
            chat: theirs, all of one.
            drafts: each message of them has no topic yet, or is one of the replaced topic's.
            at: the time now, ISO-8601 UTC with milliseconds.
            replaces: a topic that is split into these, all of it.
            model_id: what made the drafts' vectors.
            as_of: the memory journal's last entry before the messages were read for the drafts.
            by: who decided on it.

        Raises:
            TopicChanged: a message has a topic meanwhile, or is another user's or chat's, or the user has forgotten
                something since ``as_of``. Nothing was stored.
            NoSuchTopic: the replaced one is not there.
            StorageError: a draft has no messages or no summary, or two have the same message.
        """

        def request(reply: Reply[list[Topic]]) -> StoreTopics:
            return StoreTopics(
                user=user,
                chat=chat,
                drafts=tuple(drafts),
                replaces=replaces,
                model_id=model_id,
                as_of=as_of,
                by=by,
                at=at,
                reply=reply,
            )

        return await self.mailbox.ask(request)

    async def merge_topics(
        self,
        source: Topic,
        target: Topic,
        summary: str,
        at: str,
        *,
        others: Sequence[Topic] = (),
        vector: bytes | None = None,
        model_id: str | None = None,
        as_of: int | None = None,
        by: Author = "archivist",
    ) -> Topic:
        """Let ``target`` take in the messages of ``source``, which is gone then. Returns what it has become.

        Args:
            source, target: as they were when that was decided, of one user and one chat.
            summary: of all.
            at: the time now.
            others: more sources.
            vector: of what it becomes, if there is one already; else the archivist makes it.
            model_id: what made it.
            as_of, by: see ``store_topics``.

        Raises:
            NoSuchTopic, TopicChanged: one of them is not as it was, or something was forgotten; nothing was changed.
            StorageError: they are of different chats, or the summary is none.
        """

        def request(reply: Reply[Topic]) -> MergeTopics:
            return MergeTopics(
                sources=(source, *others),
                target=target,
                summary=summary,
                vector=vector,
                model_id=model_id,
                as_of=as_of,
                by=by,
                at=at,
                reply=reply,
            )

        return await self.mailbox.ask(request)

    async def mark_topic(self, user: UserId, topic: TopicId, step: Literal["consolidated", "facts"], at: str) -> bool:
        """Remember that a step is done for a topic, once and for all. Returns whether the topic is there."""

        def request(reply: Reply[bool]) -> MarkTopic:
            return MarkTopic(user=user, id=topic, step=step, at=at, reply=reply)

        return await self.mailbox.ask(request)

    async def remove_topic(self, user: UserId, topic: TopicId, at: str) -> Topic:
        """Remove a topic and return what it was. Its messages have none then, so that the archivist makes new ones.

        Raises:
            NoSuchTopic: the user has none of this id.
        """

        def request(reply: Reply[Topic]) -> RemoveTopic:
            return RemoveTopic(user=user, id=topic, at=at, reply=reply)

        return await self.mailbox.ask(request)

    async def rebuild_topics(self, user: UserId, chat: ChatId | None, since: str | None, at: str) -> list[int]:
        """Drop a user's topics, so that the archivist makes new ones of their messages; returns the changes, one for
        each chat, none when nothing is in scope.

        Args:
            user: whose.
            chat: only of this one.
            since: only topics whose last message is not older.
            at: the time now.
        """

        def request(reply: Reply[list[int]]) -> RebuildTopics:
            return RebuildTopics(user=user, chat=chat, since=since, at=at, reply=reply)

        return await self.mailbox.ask(request)

    async def undo_topics(self, user: UserId, entry: int | None, at: str) -> UndoneTopics:
        """Take back a change of a user's topics: a merge, a split, a rebuild, or the taking back of one.

        Args:
            user: whose.
            entry: the change; None for the newest that a person asked for.
            at: the time now.

        Raises:
            NoSuchChange: there is none.
            TopicChanged: a later one has to be taken back first; nothing was changed.
        """

        def request(reply: Reply[UndoneTopics]) -> UndoTopics:
            return UndoTopics(user=user, entry=entry, at=at, reply=reply)

        return await self.mailbox.ask(request)

    async def store_topic_vectors(
        self, model_id: str, vectors: Sequence[TopicVector], *, as_of: int | None = None
    ) -> int:
        """Store vectors of topics; returns how many. Of a topic that changed meanwhile, or whose user has forgotten
        something since ``as_of``, none is."""

        def request(reply: Reply[int]) -> StoreTopicVectors:
            return StoreTopicVectors(model_id=model_id, vectors=tuple(vectors), as_of=as_of, reply=reply)

        return await self.mailbox.ask(request)
