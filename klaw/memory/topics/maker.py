"""Storing topics with their vectors, for archivist and person; and whether a new one goes on with an older."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from functools import partial

import attrs

from klaw.actor.clock import Clock, iso
from klaw.domain.message import Message
from klaw.domain.names import ChatId, UserId
from klaw.domain.text import minute, one_line
from klaw.domain.topic import MAX_SUMMARY_CHARS, Topic, TopicCandidate, TopicId
from klaw.errors import BadAnswer, EmbeddingUnavailable
from klaw.llm.ask_json import Text, Whole
from klaw.memory.background_llm import Asker
from klaw.memory.embed.embedder import Embedder
from klaw.memory.topics.splitter import DraftTopic
from klaw.memory.topics.texts import embedding_text, has_words, shorten
from klaw.store.engine import meta, vector_model
from klaw.store.engine.database import Readers
from klaw.store.engine.writer import Writer
from klaw.store.kinds import topic_edits, topic_vectors, topics
from klaw.store.kinds.topic_edits import TopicDraft
from klaw.store.kinds.topic_vectors import TopicVector
from klaw.store.kinds.topics import Author


@attrs.frozen
class TopicMaker:
    """Makes topics in one store. ``as_of``: the memory journal's last entry before what a topic is made of was read."""

    readers: Readers
    writer: Writer
    embedder: Embedder
    clock: Clock

    def now(self) -> str:
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
        """Store topics; those that replace one are a person's. ``drawn``: row ids of messages whose facts are drawn
        already. Raises like ``topic_edits.store``."""
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
        return await self.writer.run(topic_vectors.store, model, [made], as_of=as_of) > 0

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


PROMPT = "topics_merge"
MIN_COSINE = 0.85
MAX_CANDIDATES = 10
MAX_MERGED_CHARS = 50_000
"""A topic that swallows everything finds nothing."""


@attrs.frozen(kw_only=True)
class MergeAnswer:
    """What the model answers; ``topic`` is the number of an older one, from 1."""

    should_merge: bool
    reason: Text = ""
    topic: Whole = 0
    merged_summary: Text = ""


@attrs.frozen
class Merge:
    """With which candidate, by its number from 1, a topic is merged, and under which summary."""

    place: int
    summary: str


def candidates(new: Topic, found: Sequence[TopicCandidate]) -> list[TopicCandidate]:
    """The topics that a new one may be merged with, the most alike first. ``found``: by vector, scored by cosine."""
    fitting = [
        like
        for like in found
        if like.topic.id != new.id
        and (like.topic.user, like.topic.chat) == (new.user, new.chat)
        and like.score >= MIN_COSINE
        and not like.topic.general
        and like.topic.chars + new.chars <= MAX_MERGED_CHARS
    ]
    return sorted(fitting, key=lambda like: (-like.score, like.topic.id))[:MAX_CANDIDATES]


async def decide(asker: Asker, new: Topic, candidates: Sequence[TopicCandidate]) -> Merge | None:
    """None: it is to be merged with none, or there was no usable answer."""
    read = partial(merge_of, candidates=len(candidates))
    return await asker.ask("topics", PROMPT, material(new, candidates), "merge", MergeAnswer, read)


def merge_of(answer: MergeAnswer, candidates: int) -> Merge | None:
    """Raises BadAnswer: a merge without a summary."""
    if not answer.should_merge or not 1 <= answer.topic <= candidates:
        return None
    if not has_words(answer.merged_summary):
        raise BadAnswer("merged_summary is empty")
    return Merge(answer.topic, shorten(answer.merged_summary, MAX_SUMMARY_CHARS))


def material(new: Topic, candidates: Sequence[TopicCandidate]) -> str:
    older = [f"{number}. {_line(like.topic)}" for number, like in enumerate(candidates, 1)]
    return "\n".join(["New topic:", _line(new), "", "Older topics:", *older])


def _line(topic: Topic) -> str:
    return f"[{minute(topic.first_at)} to {minute(topic.last_at)}] {one_line(topic.summary)}"
