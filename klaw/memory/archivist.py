"""Actor ``memory.archivist``: finished sessions become topics, topics that go on with others are merged, facts follow.

The database says what is to be done, so a crash loses nothing. One chunk at a time, with background priority. What
fails backs off by itself, five minutes doubling to six hours, and the rest goes on; when several different chunks in a
row found no model that answers, all questions to models pause in the same way."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Literal, TypeAlias

import attrs
import structlog
import trio

from klaw.actor.backoff import Pauses
from klaw.actor.failure import error_class
from klaw.actor.mailbox import Nudge
from klaw.actor.supervisor import ActorSpec, TaskStarted, Vitals
from klaw.config.memory import TopicsConfig
from klaw.domain.message import Message
from klaw.domain.names import UserId
from klaw.domain.topic import Topic, TopicCandidate
from klaw.errors import ActorStopped, ConfigError, KlawError, StorageError, TopicChanged
from klaw.llm.errors import ProviderError
from klaw.memory.background_llm import Asker
from klaw.memory.topics.maker import MAX_CANDIDATES, MIN_COSINE, TopicMaker, candidates, decide
from klaw.memory.topics.search import TopicMetrics
from klaw.memory.topics.splitter import TopicChunk, cut, divide
from klaw.store.engine import meta
from klaw.store.kinds import messages, topic_changes, topic_edits, topic_vectors, topics

ACTOR_NAME = "memory.archivist"
SWEEP_S = 60.0
"""How often it looks for work; a nudge comes before that."""
PAGE_ROWS = 2_000
"""Messages without a topic that are looked at together."""
BATCH_TOPICS = 50
MODEL_FAILURES = 3
"""So many chunks in a row without an answer: then it is the model and not the chunk."""
Key: TypeAlias = tuple[str, object]
_MODEL: Key = ("model", None)
OnTopic: TypeAlias = Callable[[Topic, Sequence[Message]], Awaitable[None]]
"""Draws facts from a topic with its messages: called once for each, before it is compared with others, and again later
after a KlawError. What is stored carries the topic's id; ``topics.resolve`` follows merges."""

log = structlog.get_logger("klaw.archivist")


@attrs.define(kw_only=True)
class ArchivistStatus:
    unarchived: int = 0
    """Messages without a topic, the running sessions among them."""
    failing: int = 0
    """Chunks and topics that failed and wait."""
    error: str | None = None


@attrs.define(kw_only=True, eq=False, slots=False)
class Archivist(Nudge):
    """The actor and its handle. It keeps the pauses, so that a restart does not end them."""

    _config: TopicsConfig
    _maker: TopicMaker
    _asker: Asker
    _metrics: TopicMetrics
    _on_topic: Sequence[OnTopic] = ()
    backoff: Pauses[Key] = attrs.field(factory=Pauses, init=False)
    model_failures: int = attrs.field(default=0, init=False)
    status: ArchivistStatus = attrs.field(factory=ArchivistStatus, init=False)
    _last_user: UserId | None = attrs.field(default=None, init=False)
    """Whose chunk was the last one: users take turns."""
    _opened: float | None = attrs.field(default=None, init=False)
    """When the first open session may become stale, in Unix seconds."""

    def __attrs_post_init__(self) -> None:
        self._readers, self._clock = self._maker.readers, self._maker.clock

    def spec(self) -> ActorSpec:
        return ActorSpec(name=ACTOR_NAME, run=self.run, stop_budget_s=1)

    async def run(self, vitals: Vitals, task_status: TaskStarted) -> None:
        task_status.started()
        while True:
            try:
                # The next step that a stored topic waits for (its vector, its facts, its consolidation), else a chunk.
                while (
                    await self._embed_next(vitals)
                    or await self._finish_next(vitals)
                    or await self._archive_next(vitals)
                ):
                    pass
                self.status.unarchived = await self._readers.run(topics.count_unarchived)
                self.status.failing = self.backoff.count()
                pause = self._pause()
            except (StorageError, TopicChanged) as error:
                self.status.error = error_class(error)
                log.warning("archivist_failed", error=self.status.error)
                pause = SWEEP_S
            vitals.doing("idle")
            await self.wait_for_news(pause)

    def _pause(self) -> float:
        now = trio.current_time()
        ends = [SWEEP_S]
        retry = self.backoff.next(now)
        if retry is not None:
            ends.append(retry - now)
        if self._opened is not None:
            ends.append(self._opened + self._config.chunk_interval_s - self._clock.now())
        return max(1.0, min(ends))

    def _waits(self, key: Key) -> bool:
        return self.backoff.waits(key, trio.current_time())

    @contextmanager
    def _attempt(self, key: Key, *expected: type[KlawError]) -> Iterator[None]:
        """After one of the expected errors of the body, the key waits."""
        try:
            yield
        except ActorStopped:
            raise
        except expected as error:
            now = trio.current_time()
            pause = self.backoff.fail(key, now)
            self.status.error = error_class(error)
            log.warning("archivist_backs_off", kind=key[0], error=error_class(error), retry_s=round(pause))
            if key[0] == "chunk":
                self._metrics.failed.add()
            if isinstance(error, ProviderError):
                self.model_failures += 1
                if self.model_failures >= MODEL_FAILURES:
                    self.backoff.fail(_MODEL, now)

    def _succeeded(self, key: Key) -> None:
        self.backoff.succeed(key)
        self.status.error = None

    def _model_answers(self) -> None:
        self.model_failures = 0
        self.backoff.succeed(_MODEL)

    # -- chunks ----------------------------------------------------------------------------------------------------

    async def _archive_next(self, vitals: Vitals) -> bool:
        if self._waits(_MODEL):
            return False
        found = await self._next_chunk()
        if found is None:
            return False
        user, chunk = found
        self._last_user = user
        vitals.doing(f"dividing {len(chunk.rowids)} messages")
        with self._attempt(("chunk", chunk.key), ProviderError, ConfigError, TopicChanged):
            await self._archive(user, chunk)
            self._succeeded(("chunk", chunk.key))
        return True

    async def _next_chunk(self) -> tuple[UserId, TopicChunk] | None:
        users = await self._readers.run(topics.users)
        after = [user for user in users if self._last_user is not None and user > self._last_user]
        self._opened = None
        for user in [*after, *users[: len(users) - len(after)]]:
            chunk = await self._next_of(user)
            if chunk is not None:
                return user, chunk
        return None

    async def _next_of(self, user: UserId) -> TopicChunk | None:
        config, reached = self._config, 0
        page_rows = max(PAGE_ROWS, 2 * config.max_chunk_size)
        while True:
            page = await self._readers.run(topics.unarchived, user, reached, page_rows)
            more = len(page) == page_rows
            now = self._clock.now()
            found = cut(page, now, config.chunk_interval_s, config.max_chunk_size, more=more)
            for chunk in found.chunks:
                if not self._waits(("chunk", chunk.key)):
                    return chunk
            if not more:
                if found.open_since is not None:
                    self._opened = min(found.open_since, self._opened or found.open_since)
                return None
            done = max((rowid for chunk in found.chunks for rowid in chunk.rowids), default=reached)
            reached = done if done > reached else page[-1].rowid

    async def _archive(self, user: UserId, chunk: TopicChunk) -> None:
        metrics = self._metrics
        as_of = await self._readers.run(meta.last_entry)
        read = await self._readers.run(messages.by_rowids, chunk.rowids)
        own = [message for message in read if message.user == user and message.chat == chunk.chat]
        if not own:
            raise TopicChanged("the messages are gone")
        async with self._asker.charged("topics", user, chunk.chat) as asker:
            with metrics.splitter_s.timed():
                threshold = self._config.split_threshold_chars
                division = await divide(asker, own, speaks=chunk.speaks, threshold_chars=threshold)
        if chunk.speaks:
            self._model_answers()
        drawn = await self._readers.run(topic_changes.drawn, user, chunk.rowids)
        stored = await self._maker.store(user, chunk.chat, division.drafts, drawn=drawn, as_of=as_of)
        metrics.extracted.add(len(stored))
        metrics.gaps.add(division.uncovered)
        metrics.splitter_fallbacks.add(int(division.refused))
        for topic in stored:
            metrics.size_chars.observe(topic.chars)
        log.info("chunk_archived", messages=division.handled, count=len(stored), missing=division.uncovered)

    # -- topics ----------------------------------------------------------------------------------------------------

    async def _embed_next(self, vitals: Vitals) -> bool:
        readers, after = self._readers, 0
        while page := await readers.run(topic_vectors.unembedded, after, BATCH_TOPICS):
            for user, topic in page:
                if not self._waits(("vector", topic)):
                    vitals.doing("embedding a topic")
                    stored = await self._maker.embed(user, topic)
                    if stored is None:
                        return False  # the embedder is not ready; the next sweep asks again
                    if not stored:
                        self.backoff.fail(("vector", topic), trio.current_time())
                    return True
            after = page[-1][1]
        return False

    async def _finish_next(self, vitals: Vitals) -> bool:
        after = 0
        facts = bool(self._on_topic)
        while page := await self._readers.run(topics.unfinished, with_facts=facts, after=after, limit=BATCH_TOPICS):
            for topic in page:
                if not self._waits(("topic", topic.id)) and await self._finish(vitals, topic):
                    return True
            after = page[-1].id
        return False

    async def _finish(self, vitals: Vitals, topic: Topic) -> bool:
        """One step of a topic. Returns whether something was done or tried."""
        if self._waits(_MODEL):
            return False
        with self._attempt(("topic", topic.id), KlawError):
            if self._on_topic and not topic.facts:
                vitals.doing("drawing facts from a topic")
                own = await self._readers.run(topics.read, topic.user, topic.id)
                for hook in self._on_topic:
                    await hook(topic, own)
                await self._mark(topic, "facts")
            elif not await self._consolidate(vitals, topic):
                return False
            self._succeeded(("topic", topic.id))
        return True

    async def _consolidate(self, vitals: Vitals, topic: Topic) -> bool:
        """Compare a topic with those that are like it. False: it has no vector yet."""
        metrics = self._metrics
        like = await self._candidates(topic)
        if like is None:
            return False
        vitals.doing("comparing a topic")
        metrics.candidates.observe(len(like))
        as_of = await self._readers.run(meta.last_entry)
        if like:
            async with self._asker.charged("topics", topic.user, topic.chat) as asker:
                with metrics.merger_s.timed():
                    merge = await decide(asker, topic, like)
            self._model_answers()
            if merge is not None and await self._merge(topic, like[merge.place - 1].topic, merge.summary, as_of):
                return True
        await self._mark(topic, "consolidated")
        return True

    async def _mark(self, topic: Topic, step: Literal["consolidated", "facts"]) -> None:
        await self._maker.writer.run(topic_edits.mark, topic.user, topic.id, step, self._maker.now())

    async def _candidates(self, topic: Topic) -> list[TopicCandidate] | None:
        readers = self._readers
        vector = await readers.run(topic_vectors.read, topic.user, topic.id)
        if vector is None:
            return None
        nearest = partial(topic_vectors.nearest, min_cosine=MIN_COSINE, limit=5 * MAX_CANDIDATES, chat=topic.chat)
        near = await readers.run(nearest, topic.user, vector)
        known = await readers.run(topics.by_ids, topic.user, [each.topic for each in near])
        like = [TopicCandidate(topic=known[each.topic], score=each.cosine) for each in near if each.topic in known]
        return candidates(topic, like)

    async def _merge(self, source: Topic, target: Topic, summary: str, as_of: int) -> bool:
        try:
            merged = await self._maker.merge(target, [source], summary, as_of=as_of, by="archivist")
        except (StorageError, TopicChanged) as error:
            log.info("merge_refused", error=error_class(error))
            return False
        self._metrics.merged.add()
        log.info("topics_merged", messages=merged.messages, size=merged.chars)
        return True
