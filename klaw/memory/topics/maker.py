"""Storing topics with their vectors, for the archivist and for a person alike."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

import attrs

from klaw.actor.clock import Clock, iso
from klaw.domain.message import Message
from klaw.domain.names import ChatId, UserId
from klaw.domain.topic import Topic, TopicId
from klaw.errors import EmbeddingUnavailable
from klaw.memory.embed.embedder import Embedder
from klaw.memory.topics.splitter import DraftTopic
from klaw.memory.topics.texts import embedding_text
from klaw.store.engine import meta, vector_model
from klaw.store.engine.database import Readers
from klaw.store.engine.writer import Writer
from klaw.store.kinds import topic_edits, topics
from klaw.store.kinds.topic_edits import TopicDraft
from klaw.store.kinds.topic_vectors import TopicVector
from klaw.store.kinds.topics import Author


@attrs.frozen
class TopicMaker:
    """Makes topics in one store. A vector that cannot be made now the archivist makes later. ``as_of``: the memory
    journal's last entry before what a topic is made of was read."""

    readers: Readers
    writer: Writer
    embedder: Embedder
    clock: Clock

    def now(self) -> str:
        """ISO-8601 UTC."""
        return iso(self.clock.now())

    async def store(
        self,
        user: UserId,
        chat: ChatId,
        parts: Sequence[DraftTopic],
        *,
        drawn: AbstractSet[int],
        as_of: int,
        replaces: TopicId | None = None,
    ) -> list[Topic]:
        """Store topics; those that take the place of another one are a person's. From the messages ``drawn`` (row ids)
        facts were drawn already. Raises like ``topic_edits.store``."""
        model = await self._model()
        drafts = [
            TopicDraft(
                summary=part.summary,
                general=part.general,
                members=(rowids := tuple(message.rowid for message in part.messages)),
                # Small talk goes on with nothing, and what a person took apart must not be put together again.
                consolidated=part.general or replaces is not None,
                facts=drawn >= set(rowids),
                vector=await self._vector(part.summary, part.messages),
            )
            for part in parts
        ]
        by: Author = "archivist" if replaces is None else "person"
        return await self.writer.run(
            topic_edits.store, user, chat, drafts, self.now(), replaces=replaces, model_id=model, as_of=as_of, by=by
        )

    async def merge(self, target: Topic, sources: Sequence[Topic], summary: str, *, as_of: int, by: Author) -> Topic:
        """Let a topic take in others, or only have another summary. Raises like ``topic_edits.merge``."""
        model = await self._model()
        own = [message for each in (target, *sources) for message in await self._read(each)]
        vector = await self._vector(summary, sorted(own, key=lambda message: message.rowid))
        return await self.writer.run(
            topic_edits.merge,
            sources[0] if sources else None,
            target,
            summary,
            self.now(),
            others=sources[1:],
            vector=vector,
            model_id=model,
            as_of=as_of,
            by=by,
        )

    async def embed(self, user: UserId, topic_id: TopicId) -> bool | None:
        """Give a topic its vector. Returns whether it has it, or has changed meanwhile; None: there can be none now."""
        as_of = await self.readers.run(meta.last_entry)
        topic, model = await self.readers.run(topics.get, user, topic_id), await self._model()
        if topic is None or model is None:
            return None
        vector = await self._vector(topic.summary, await self._read(topic))
        if vector is None:
            return None
        made = TopicVector(topic.id, topic.updated_at, vector)
        return await self.writer.run(topic_edits.store_vectors, model, [made], as_of=as_of) > 0

    async def _read(self, topic: Topic) -> list[Message]:
        return await self.readers.run(topics.read, topic.user, topic.id)

    async def _vector(self, summary: str, own: Sequence[Message]) -> bytes | None:
        try:
            return await self.embedder.passage_in_background(embedding_text(summary, own))
        except EmbeddingUnavailable:
            return None

    async def _model(self) -> str | None:
        model = await self.readers.run(vector_model.current)
        return model[0] if model is not None else None
