"""The reranker: a model that sees one line of each candidate, may load contents, and says which topics help."""

import json
import math
from collections.abc import Collection, Mapping, Sequence

import attrs
import structlog
import trio

from klaw.domain.message import Message
from klaw.domain.names import UserId
from klaw.domain.text import minute, one_line
from klaw.domain.topic import Topic, TopicCandidate, TopicId
from klaw.errors import BadAnswer, ConfigError
from klaw.llm.ask_json import Text, Whole, ask_json
from klaw.llm.errors import ProviderError
from klaw.llm.types import ChatMessage, JsonSchema, ToolCall, ToolDescription
from klaw.memory.background_llm import Asker, question
from klaw.memory.topics.search import TopicMetrics
from klaw.memory.topics.texts import fitting, render, shorten
from klaw.store.engine.database import Readers
from klaw.store.kinds import topics

PROMPT = "topics_rerank"
MAX_LOADS = 3
LOAD_S = 30.0
WHOLE_S = 60.0
FALLBACK_TOPICS = 5
LONG_CHARS = 25_000
"""A longer topic is given as an excerpt."""
MAX_EXCERPT_CHARS = 4_000
MAX_REASON_CHARS = 300
MAX_LINE_CHARS = 600
TOOL = ToolDescription(
    name="get_topics_content",
    description="The messages of topics.",
    parameters={
        "type": "object",
        "properties": {"ids": {"type": "array", "items": {"type": "integer"}, "description": "Ids of the list."}},
        "required": ["ids"],
        "additionalProperties": False,
    },
)

log = structlog.get_logger("klaw.reranker")


@attrs.frozen(kw_only=True)
class TopicChoice:
    id: Whole
    reason: Text = ""
    excerpt: Text = ""
    """The part that helps, of a topic over 25,000 characters; empty: use its messages."""


@attrs.define(kw_only=True)
class Selection:
    """What was chosen, the most useful first; empty when nothing helps."""

    topics: tuple[TopicChoice, ...] = ()
    fallback: str | None = None
    """Why no model chose: ``timeout``, ``bad_answer``, ``llm_…``; None when one did."""
    loaded: dict[int, None] = attrs.Factory(dict)
    loads: int = 0
    room: int = 0
    """Tokens that contents may still take."""


@attrs.frozen
class TopicChoices:
    topics: tuple[TopicChoice, ...]


@attrs.frozen
class TopicReranker:
    """Chooses among found topics, with the model of ``routing.tasks.reranker``. The caller holds a slot."""

    asker: Asker
    readers: Readers
    metrics: TopicMetrics

    async def choose(
        self, user: UserId, query: str, hits: Sequence[TopicCandidate], *, within_s: float = math.inf
    ) -> Selection:
        """Choose those of a user's topics that help with a query. Raises StorageError."""
        own = [hit for hit in hits if hit.topic.user == user]
        if not own:
            return Selection()
        made = Selection(fallback="timeout")
        choices: list[TopicChoice] | None = None
        with self.metrics.reranker_s.timed(), trio.move_on_after(max(0.0, min(within_s, WHOLE_S))):
            try:
                async with self.asker.charged("reranker", user) as asker:
                    choices = await self._converse(asker, user, query, own, made)
                made.fallback = "bad_answer" if choices is None else None
            except ProviderError as error:
                made.fallback = error.code
            except ConfigError:
                made.fallback = "config"
        by_id = {int(hit.topic.id): hit.topic for hit in own}
        if choices is None:
            choices = [TopicChoice(id=topic) for topic in fallback(list(by_id), made.loaded)]
        made.topics = tuple(
            each if by_id[each.id].chars > LONG_CHARS else attrs.evolve(each, excerpt="")
            for each in choices[:FALLBACK_TOPICS]
        )
        self.metrics.reranker_loads.observe(made.loads)
        self.metrics.selected.observe(len(made.topics))
        self.metrics.reranker_fallbacks.add(int(made.fallback is not None))
        log.info("topics_reranked", count=len(made.topics), total=len(own), code=made.fallback)
        return made

    async def _converse(
        self, asker: Asker, user: UserId, query: str, own: Sequence[TopicCandidate], made: Selection
    ) -> list[TopicChoice] | None:
        room, route = asker.room("reranker", PROMPT), asker.llm.router.route(task="reranker")
        lines = [line(hit.topic, hit.cosine) for hit in own]
        shown = fitting(lines, room // 2)
        made.room = room // 2
        candidates = {int(hit.topic.id): hit.topic for hit in own[:shown]}
        asked = question(PROMPT, "\n".join([f"Request: {' '.join(query.split())[:2000]}", "", *lines[:shown]]))
        rounds: list[ChatMessage] = []

        async def say(messages: tuple[ChatMessage, ...], schema: JsonSchema) -> str:
            while True:
                may_load = made.loads < MAX_LOADS
                offers = may_load and route.tools
                said = await asker.call(
                    route,
                    (*asked, *rounds, *messages[len(asked) :]),
                    schema=None if offers else schema,
                    tools=(TOOL,) if offers else (),
                    priority=None,
                )
                if not (said.tool_calls and may_load):
                    return said.text
                rounds.append(ChatMessage(role="assistant", content=said.text, tool_calls=said.tool_calls))
                for call in said.tool_calls:
                    loaded = await self._load(user, call, candidates, made)
                    rounds.append(ChatMessage(role="tool", tool_call_id=call.id, content=loaded))

        return await ask_json(say, asked, "choices", TopicChoices, lambda answer: chosen_of(answer, candidates.keys()))

    async def _load(self, user: UserId, call: ToolCall, candidates: Mapping[int, Topic], made: Selection) -> str:
        if made.loads >= MAX_LOADS:
            return "No more contents: answer now."
        made.loads += 1
        ids = [each for each in _ids(call) if each in candidates]
        if call.name != TOOL.name or not ids:
            return "There are no such topics: ids are those of the list."
        parts = []
        with trio.move_on_after(LOAD_S) as scope:
            for place, topic in enumerate(ids):
                made.loaded[topic] = None
                read = await self.readers.run(topics.read, user, TopicId(topic))
                share = max(50, made.room // (2 * (len(ids) - place)))
                parts.append(content_of(candidates[topic], read, share) if read else f"Topic #{topic} is gone.")
                made.room = max(0, made.room - share)
        if scope.cancelled_caught:
            parts.append("The rest could not be loaded in time.")
        return "\n\n".join(parts)


def chosen_of(answer: TopicChoices, candidates: Collection[int]) -> list[TopicChoice]:
    """Candidates in the model's order. Raises BadAnswer if ids were given and none is a candidate's."""
    found = {each.id: each for each in reversed(answer.topics) if each.id in candidates}
    if answer.topics and not found:
        raise BadAnswer("none of the ids is one of the list")
    return [
        TopicChoice(
            id=each,
            reason=shorten(found[each].reason, MAX_REASON_CHARS),
            excerpt=shorten(found[each].excerpt, MAX_EXCERPT_CHARS),
        )
        for each in dict.fromkeys(each.id for each in answer.topics if each.id in found)
    ]


def _ids(call: ToolCall) -> list[int]:
    try:
        found = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return []
    ids = found.get("ids") if isinstance(found, dict) else found
    if not isinstance(ids, list):
        return []
    whole = [each for each in ids if isinstance(each, int) and not isinstance(each, bool)]
    return list(dict.fromkeys(whole))[:20]


def line(topic: Topic, cosine: float | None) -> str:
    near = "-" if cosine is None else f"{cosine:.2f}"
    size = f"{topic.messages} messages, {topic.chars} characters{', long' if topic.chars > LONG_CHARS else ''}"
    summary = shorten(one_line(topic.summary), MAX_LINE_CHARS)
    return f"#{topic.id} [{near}] {minute(topic.first_at)} to {minute(topic.last_at)}, {size}: {summary}"


def content_of(topic: Topic, messages: Sequence[Message], max_tokens: int) -> str:
    shown, count = render(messages, max_tokens)
    rest = f"\n[{len(messages) - count} more messages]" if count < len(messages) else ""
    return f"Topic #{topic.id}:\n{shown}{rest}"


def fallback(order: Sequence[int], loaded: Collection[int]) -> list[int]:
    known = set(order)
    chosen = [topic for topic in dict.fromkeys(loaded) if topic in known]
    return (chosen or list(order))[:FALLBACK_TOPICS]
