"""The reranker: a model that sees one line of each candidate, may load contents, and says which topics help."""

import json
import math
from collections.abc import Sequence

import attrs
import structlog
import trio

from klaw.domain.message import Message
from klaw.domain.names import UserId
from klaw.domain.topic import Topic, TopicId
from klaw.errors import ConfigError, ProviderError
from klaw.llm.slots import Priority
from klaw.llm.types import ChatMessage, Completion, JsonSchema, Request, ToolCall, ToolDescription
from klaw.memory.topics import reranking
from klaw.memory.topics.answers import CHOICES_SCHEMA, BadAnswer, Choice, read_choices
from klaw.memory.topics.asking import Asker
from klaw.memory.topics.metrics import TopicMetrics
from klaw.memory.topics.search import TopicHit
from klaw.prompts import prompt
from klaw.store.readers import Readers
from klaw.store.sql import topics

PROMPT = "topics_rerank"
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
_SCHEMA = JsonSchema(name="choices", schema=CHOICES_SCHEMA)

log = structlog.get_logger("klaw.reranker")


@attrs.frozen(kw_only=True)
class Chosen:
    """A topic that helps."""

    topic: Topic
    reason: str
    """Empty when no model chose it."""
    excerpt: str | None
    """Of a topic over 25,000 characters; None: use its messages."""
    quoted: bool = False
    """The excerpt is the model's; else it is the topic's beginning and end."""


@attrs.frozen(kw_only=True)
class Selection:
    """What was chosen, the most useful first; empty when nothing helps."""

    topics: tuple[Chosen, ...]
    fallback: str | None
    """Why no model chose: ``timeout``, ``bad_answer``, ``llm_…``; None when one did."""
    loaded: tuple[int, ...] = ()
    """Ids of the topics that it looked into."""
    loads: int = 0
    """How often it did."""


@attrs.define(kw_only=True)
class _State:
    """How far a choice is."""

    left: int
    """Tokens that contents may still take."""
    loaded: list[int] = attrs.Factory(list)
    loads: int = 0


class Reranker:
    """Chooses among topics that a search found.

    Args:
        asker: for the model of ``routing.tasks.reranker``.
        readers: of the store.
        metrics: where choices are counted.
        priority: of its calls: somebody waits for them. None: the caller holds a slot already.
    """

    def __init__(
        self, asker: Asker, readers: Readers, metrics: TopicMetrics, *, priority: Priority | None = Priority.INTERACTIVE
    ) -> None:
        self._asker = asker
        self._readers = readers
        self._metrics = metrics
        self._priority = priority

    async def choose(
        self,
        user: UserId,
        query: str,
        hits: Sequence[TopicHit],
        *,
        within_s: float = math.inf,
        excerpts: bool = True,
    ) -> Selection:
        """Choose the topics that help with a query; takes 60 s at most.

        Args:
            user: whose topics they are; those of others are left out.
            query: what they are to help with.
            hits: the candidates, the best first.
            within_s: seconds after which the model is given up and the fallback taken.
            excerpts: of a long topic of which the model gave no excerpt, read its beginning and its end.

        Raises:
            StorageError: the database cannot be read.

        Cancellation: the call is given up.
        """
        own = [hit for hit in hits if hit.topic.user == user]
        if not own:
            return Selection(topics=(), fallback=None)
        state = _State(left=0)
        choices: list[Choice] | None = None
        reason: str | None = "timeout"
        with self._metrics.reranker_s.timed(), trio.move_on_after(max(0.0, min(within_s, reranking.WHOLE_S))):
            try:
                async with self._asker.charged("reranker", user) as asker:
                    choices = await self._converse(asker, user, query, own, state)
                reason = None
            except BadAnswer:
                reason = "bad_answer"
            except ProviderError as error:
                reason = error.code
            except ConfigError:
                reason = "config"
        selection = await self._selection(user, own, choices, reason, state, excerpts=excerpts)
        self._metrics.reranker_loads.observe(state.loads)
        self._metrics.selected.observe(len(selection.topics))
        self._metrics.reranker_fallbacks.add(int(reason is not None))
        log.info("topics_reranked", count=len(selection.topics), total=len(own), code=reason)
        return selection

    async def _converse(
        self, asker: Asker, user: UserId, query: str, own: Sequence[TopicHit], state: _State
    ) -> list[Choice]:
        room = asker.room("reranker", PROMPT)
        lines = [reranking.line(hit.topic, hit.cosine) for hit in own]
        shown = reranking.fitting(lines, room // 2)
        state.left = room // 2
        candidates = {int(hit.topic.id) for hit in own[:shown]}
        material = "\n".join([f"Request: {' '.join(query.split())[:2000]}", "", *lines[:shown]])
        messages: tuple[ChatMessage, ...] = (
            ChatMessage(role="system", content=prompt(PROMPT)),
            ChatMessage(role="user", content=material),
        )
        answered_badly = False
        while True:
            with_tool = state.loads < reranking.MAX_LOADS
            said = await self._call(asker, messages, with_tool=with_tool)
            if said.tool_calls and with_tool:
                messages += (ChatMessage(role="assistant", content=said.text, tool_calls=said.tool_calls),)
                for call in said.tool_calls:
                    loaded = await self._load(user, call, candidates, own, state)
                    messages += (ChatMessage(role="tool", tool_call_id=call.id, content=loaded),)
                continue
            try:
                return read_choices(said.text, candidates, reranking.MAX_EXCERPT_CHARS)
            except BadAnswer as error:
                if answered_badly:
                    raise
                answered_badly = True
                messages += (
                    ChatMessage(role="assistant", content=said.text[:2000].strip() or "(nothing)"),
                    ChatMessage(role="user", content=f"This cannot be used: {error}. Answer with the JSON only."),
                )

    async def _call(self, asker: Asker, messages: tuple[ChatMessage, ...], *, with_tool: bool) -> Completion:
        route, meter = asker.llm.router.route(task="reranker"), asker.meter or asker.llm.meter()
        offers = with_tool and route.tools
        request = Request(
            model=route.model,
            messages=messages,
            tools=(TOOL,) if offers else (),
            temperature=asker.temperature,
            max_tokens=min(route.max_output_tokens, route.context_tokens // 3),
            json_schema=None if offers else _SCHEMA,
        )
        if self._priority is None:
            return await meter.stream(route, request, lambda _delta: None)
        async with asker.llm.slots.slot(self._priority):
            return await meter.stream(route, request, lambda _delta: None)

    async def _load(
        self, user: UserId, call: ToolCall, candidates: set[int], own: Sequence[TopicHit], state: _State
    ) -> str:
        if state.loads >= reranking.MAX_LOADS:
            return "No more contents: answer now."
        state.loads += 1
        ids = [each for each in _ids(call) if each in candidates]
        if call.name != TOOL.name or not ids:
            return "There are no such topics: ids are those of the list."
        by_id = {int(hit.topic.id): hit.topic for hit in own}
        parts = []
        with trio.move_on_after(reranking.LOAD_S) as scope:
            for place, topic in enumerate(ids):
                state.loaded.append(topic)
                read = await self._readers.run(topics.read, user, TopicId(topic))
                share = max(50, state.left // (2 * (len(ids) - place)))
                parts.append(reranking.content(by_id[topic], read, share) if read else f"Topic #{topic} is gone.")
                state.left = max(0, state.left - share)
        if scope.cancelled_caught:
            parts.append("The rest could not be loaded in time.")
        return "\n\n".join(parts)

    async def _selection(
        self,
        user: UserId,
        own: Sequence[TopicHit],
        choices: list[Choice] | None,
        reason: str | None,
        state: _State,
        *,
        excerpts: bool,
    ) -> Selection:
        by_id = {int(hit.topic.id): hit.topic for hit in own}
        if choices is None:
            ids = reranking.fallback(list(by_id), state.loaded)
            choices = [Choice(topic, "", "") for topic in ids]
        chosen = []
        for choice in choices[: reranking.FALLBACK_TOPICS]:
            topic = by_id[choice.id]
            excerpt = None
            quoted = bool(choice.excerpt)
            if topic.chars > reranking.LONG_CHARS:
                excerpt = choice.excerpt or None
                if excerpt is None and excerpts:
                    excerpt = reranking.excerpt(await self._messages(user, topic))
            chosen.append(Chosen(topic=topic, reason=choice.reason, excerpt=excerpt, quoted=quoted))
        return Selection(
            topics=tuple(chosen), fallback=reason, loaded=tuple(dict.fromkeys(state.loaded)), loads=state.loads
        )

    async def _messages(self, user: UserId, topic: Topic) -> list[Message]:
        return await self._readers.run(topics.read, user, topic.id)


def _ids(call: ToolCall) -> list[int]:
    """The ids of a call's arguments; whatever else stands there is left out."""
    try:
        found = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return []
    ids = found.get("ids") if isinstance(found, dict) else found
    if not isinstance(ids, list):
        return []
    whole = [each for each in ids if isinstance(each, int) and not isinstance(each, bool)]
    return list(dict.fromkeys(whole))[:20]
