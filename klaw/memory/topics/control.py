"""What a person may do to topics: merge them, split one, rebuild them, and take any of that back. What is decided here
is checked again in the writer's transaction: of person and archivist one learns that something has changed."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import attrs
import trio

from klaw.config.memory import TopicsConfig
from klaw.domain.message import Message
from klaw.domain.names import ChatId, UserId
from klaw.domain.topic import MAX_SUMMARY_CHARS, Topic, TopicId
from klaw.errors import ConfigError, NoSuchChange, NoSuchTopic, TopicChanged, TopicRefused
from klaw.llm.errors import ProviderError
from klaw.memory.background_llm import Asker
from klaw.memory.topics.maker import MAX_MERGED_CHARS, TopicMaker
from klaw.memory.topics.splitter import DraftTopic, divide
from klaw.memory.topics.texts import part_summary, shorten
from klaw.store.engine import meta
from klaw.store.kinds import topic_edits, topics
from klaw.store.kinds.topic_edits import UndoneTopics

MOST = 1 << 62


@attrs.frozen(kw_only=True)
class TopicControl:
    """The asker is for the splitter's model; ``changed`` is called after each change."""

    config: TopicsConfig
    maker: TopicMaker
    asker: Asker
    changed: Callable[[], None]
    embed_s: float = 20.0
    """So long an undo waits for vectors; the archivist makes the others."""

    async def merge(self, user: UserId, ids: Sequence[int], summary: str | None = None) -> Topic:
        """Let the first of some topics, all of one chat, take in the others. Returns what it has become. Without a
        summary theirs stand one after the other. Raises TopicRefused, and like ``topic_edits.merge``."""
        if len(set(ids)) < len(ids):
            twice = next(each for each in ids if list(ids).count(each) > 1)
            raise TopicRefused(f"topic {twice} is named twice", field="topics")
        as_of = await self.maker.readers.run(meta.last_entry)
        found = [await self._topic(user, each, "topics") for each in ids]
        target, *sources = found
        strange = next((each for each in sources if each.chat != target.chat), None)
        if strange is not None:
            raise TopicRefused(
                f"topic {target.id} is of chat {target.chat} and topic {strange.id} of chat {strange.chat}:"
                " a topic never mixes chats",
                field="topics",
            )
        size = sum(each.chars for each in found)
        if size > MAX_MERGED_CHARS:
            raise TopicRefused(
                f"together they have {size} characters, and a topic has at most {MAX_MERGED_CHARS} by merging",
                field="topics",
            )
        text = _summary_of(summary) if summary is not None else joined(found)
        return await self._merge(target, sources, text, as_of)

    async def edit(self, user: UserId, topic_id: int, summary: str) -> Topic:
        as_of = await self.maker.readers.run(meta.last_entry)
        return await self._merge(await self._topic(user, topic_id, "topic"), [], _summary_of(summary), as_of)

    async def _merge(self, target: Topic, sources: Sequence[Topic], summary: str, as_of: int) -> Topic:
        try:
            merged = await self.maker.merge(target, sources, summary, as_of=as_of, by="person")
        except (TopicChanged, NoSuchTopic):
            raise _meanwhile() from None
        self.changed()
        return merged

    async def split(self, user: UserId, topic_id: int, at: Sequence[str] = ()) -> list[Topic]:
        """Put several topics in the place of one. Messages of ``at`` (ids, ``main#12``, or numbers in the topic's chat)
        begin a new topic; without any a model divides it. Raises TopicRefused, and like ``topic_edits.store``."""
        as_of = await self.maker.readers.run(meta.last_entry)
        topic = await self._topic(user, topic_id, "topic")
        own = await self.maker.readers.run(topics.read, user, topic.id)
        if len(own) < 2:
            raise TopicRefused(f"topic {topic.id} has one message only", field="topic")
        parts = _cut(topic, own, at) if at else await self._divided(topic, own)
        drawn = {message.rowid for message in own} if topic.facts else set[int]()
        try:
            made = await self.maker.store(user, topic.chat, parts, drawn=drawn, as_of=as_of, replaces=topic.id)
        except (TopicChanged, NoSuchTopic):
            raise _meanwhile() from None
        self.changed()
        return made

    async def _divided(self, topic: Topic, own: Sequence[Message]) -> list[DraftTopic]:
        left, parts = list(own), list[DraftTopic]()
        try:
            async with self.asker.charged("topics", topic.user, topic.chat) as asker:
                while left:
                    done = await divide(asker, left, speaks=True, threshold_chars=self.config.split_threshold_chars)
                    if done.refused:
                        raise TopicRefused(
                            f"the model gave no answer that divides topic {topic.id}: name messages with --at",
                            field="topic",
                        )
                    parts += done.drafts
                    left = left[done.handled :]
        except (ProviderError, ConfigError) as error:
            raise TopicRefused(
                f"no model can divide topic {topic.id} now ({error}): name messages with --at", code="no_model"
            ) from None
        if len(parts) < 2:
            raise TopicRefused(
                f"the model finds one topic only in topic {topic.id}: name messages with --at", field="topic"
            )
        return parts

    async def in_scope(self, user: UserId, chat: ChatId | None, since: str | None) -> list[Topic]:
        """The topics that ``rebuild`` would drop. Raises TopicRefused when there are none, or topics are off."""
        if not self.config.enabled:
            raise TopicRefused("topics are off, so none would be made: set topics.enabled", code="topics_off")
        known = await self.maker.readers.run(topics.of_user, user, chat=chat, limit=MOST)
        found = [topic for topic in known if since is None or topic.last_at >= since]
        if not found:
            raise TopicRefused("there are no topics in that scope yet", code="nothing_to_rebuild")
        return found

    async def rebuild(self, user: UserId, chat: ChatId | None, since: str | None) -> list[int]:
        """Drop a user's topics, of a chat, and last talked about not before a moment; the archivist makes them again.
        Facts stay. Returns the changes, one for each chat. Raises like ``in_scope`` and ``topic_edits.rebuild``."""
        await self.in_scope(user, chat, since)
        made = await self.maker.writer.run(topic_edits.rebuild, user, chat, since, self.maker.now())
        if not made:
            raise TopicRefused("there are no topics in that scope any more", code="nothing_to_rebuild")
        self.changed()
        return made

    async def undo(self, user: UserId, entry: int | None = None) -> UndoneTopics:
        """Take back a change of a user's topics; None: the newest that a person asked for. That is a change too. Raises
        TopicRefused, and like ``topic_edits.undo``."""
        try:
            done = await self.maker.writer.run(topic_edits.undo, user, entry, self.maker.now())
        except (NoSuchChange, TopicChanged) as error:
            raise TopicRefused(str(error), code="cannot_undo") from None
        self.changed()
        with trio.move_on_after(self.embed_s):
            for topic in done.topics:  # without the archivist nobody else does; what is not made now its start makes
                await self.maker.embed(topic.user, topic.id)
        return done

    async def _topic(self, user: UserId, number: int, field: str) -> Topic:
        topic = await self.maker.readers.run(topics.get, user, TopicId(number))
        if topic is None:
            into = await self.maker.readers.run(topics.resolve, user, TopicId(number))
            hint = f"; topic {into} took it in" if into is not None else ""
            raise TopicRefused(f"there is no topic {number}{hint}", field=field, code="unknown_topic")
        return topic


def joined(found: Sequence[Topic]) -> str:
    """The summaries of some topics, each once, without those of general conversation. Pure."""
    telling = [topic.summary for topic in found if not topic.general] or [topic.summary for topic in found]
    once = list(dict.fromkeys(" ".join(summary.split()) for summary in telling))
    return shorten(
        "; ".join(shorten(each, max(20, MAX_SUMMARY_CHARS // len(once) - 2)) for each in once), MAX_SUMMARY_CHARS
    )


def _summary_of(text: str) -> str:
    summary = text.strip()
    if not summary or len(summary) > MAX_SUMMARY_CHARS:
        raise TopicRefused(f"must have 1 to {MAX_SUMMARY_CHARS} characters", field="summary", code="bad_args")
    return summary


def _meanwhile() -> TopicRefused:
    return TopicRefused(
        "a topic, or what it was made of, has changed meanwhile: nothing was changed, ask again", code="topic_changed"
    )


def _cut(topic: Topic, own: Sequence[Message], at: Sequence[str]) -> list[DraftTopic]:
    places: dict[int, str] = {}
    for name in at:
        place = next((place for place, message in enumerate(own) if _is_named(message, name)), None)
        if place is None:
            raise TopicRefused(f"{name!r} names no message of topic {topic.id}", field="at")
        if place == 0:
            raise TopicRefused(
                f"message {name!r} is the first of topic {topic.id}: name where a part begins", field="at"
            )
        if place in places:
            raise TopicRefused(f"{name!r} is named twice", field="at")
        places[place] = name
    parts = list(pairwise([0, *sorted(places), len(own)]))
    return [
        DraftTopic(part_summary(topic.summary, number, len(parts), own), topic.general, tuple(own[begin:end]))
        for number, (begin, end) in enumerate(parts, 1)
    ]


def _is_named(message: Message, name: str) -> bool:
    """By its id, or by its number with or without its chat's name."""
    chat, mark, number = name.rpartition("#")
    if message.id == name:
        return True
    if not number.isdecimal() or len(number) > 18 or int(number) != message.seq:
        return False
    return not mark or chat in ("", message.chat, message.chat.partition(":")[2])
