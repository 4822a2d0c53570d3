"""Which topics go into a reply's prompt (``topics.inject`` = ``auto``): search, relevance gate, a model that chooses
(if ``routing.tasks.reranker`` names one), what was said in the chosen ones. A failure of a part is named in the result.
A reply waits at most ``topics.timeBudgetMs`` for it, and for the step of a thread (some 100 ms)."""

import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial

import attrs
import structlog
import trio

from klaw.actor.failure import error_class
from klaw.actor.threads import Threads
from klaw.domain.message import Message, is_searchable
from klaw.domain.names import UserId
from klaw.domain.search import PASSED
from klaw.domain.text import minute, one_line
from klaw.domain.topic import ChosenTopics, Fate, Topic, TopicCandidate, TopicId, TopicLookup
from klaw.errors import BadAnswer, ConfigError, StorageError
from klaw.llm.ask_json import Text, Whole, ask_json
from klaw.llm.client import Meter
from klaw.llm.errors import ProviderError
from klaw.llm.types import ChatMessage, JsonSchema, ToolCall, ToolDescription
from klaw.memory.background_llm import Asker, CallCharge, question
from klaw.memory.recall.gate import Evidence, Gate, calibrated
from klaw.memory.recall.pipeline import Account
from klaw.memory.recall.query import Query, read_query
from klaw.memory.topics.search import TopicMetrics, TopicSearch
from klaw.memory.topics.texts import fitting, render, shorten
from klaw.store.engine.database import Readers
from klaw.store.engine.tokenizer import forms_in
from klaw.store.kinds import chats, messages, topics
from klaw.store.search.history_search import HistoryFilters

# -- the model that chooses -------------------------------------------------------------------------------------------

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
log = structlog.get_logger("klaw.topics")
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
            choices = [TopicChoice(id=topic) for topic in made.loaded or by_id]
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


# -- the topics of a reply ---------------------------------------------------------------------------------------------

SEARCH_S = 3.0
"""The search may take this share of the time; it includes the question's vector where recall has made none."""
READ_S, READ_SHARE = 1.0, 0.2
"""So much of the time is kept for reading what was said in the chosen topics, but never more than this share of it."""
REMOTE_S, LOCAL_S = 6.0, 20.0
"""The time where ``topics.timeBudgetMs`` says none: with a service that chooses, or with the built-in model."""


@attrs.frozen(kw_only=True)
class TopicChooser:
    """``asker`` is for the model that chooses; None: none does."""

    search: TopicSearch
    asker: Asker | None
    threshold: float
    time_budget_s: float
    threads: Threads = attrs.Factory(lambda: Threads("topics", 1))

    async def choose(self, user: UserId, text: str, vector: bytes | None, meter: Meter) -> ChosenTopics:
        """Choose a user's topics for a question (with its vector, if known). The caller holds an LLM slot."""
        query = await self.threads.run(read_query, text, self.search.clock.now(), None)
        if not query.words:
            return ChosenTopics(asked=TopicLookup.NO_CONTENT)
        account = Account(self.time_budget_s)
        choose_by = account.deadline - min(READ_S, self.time_budget_s * READ_SHARE)
        with account.step("search"):
            found = await self._find(user, text, vector, choose_by, account)
        if found is None:
            return ChosenTopics(asked=TopicLookup.NO_TOPICS, timings_ms=account.timings_ms)
        begin = trio.current_time()
        judged = await self.threads.run(
            partial(judge, *found, query, threshold=self.threshold, random_cosine=self.search.embedder.random_cosine)
        )
        selection = await self._ask(user, text, [hit for hit, worth in judged if worth], choose_by, meter)
        if selection is not None:
            account.timings_ms["choose"] = (trio.current_time() - begin) * 1000
        picks = _picks([hit for hit, _ in judged], selection)
        read = await self._read(user, picks, query, account)
        return ChosenTopics(
            asked=TopicLookup.SEARCHED,
            candidates=_candidates(judged, selection, picks, read),
            reranked=selection is not None and selection.fallback is None,
            fallback=selection.fallback if selection is not None else None,
            loads=selection.loads if selection is not None else 0,
            degraded=tuple(account.degraded),
            timings_ms=account.timings_ms,
        )

    async def _find(
        self, user: UserId, text: str, vector: bytes | None, choose_by: float, account: Account
    ) -> tuple[tuple[TopicCandidate, ...], dict[int, str]] | None:
        """What the search finds, and the messages by which. None: the user has no topics."""
        with account.degrading("topics", "topics_not_searched"):
            with trio.fail_after(min(SEARCH_S, max(0.0, choose_by - trio.current_time()))):
                if not await self.search.readers.run(topics.count, user):
                    return None
                page = await self.search.search(text, HistoryFilters(user=user), vector=vector)
                for code in page.degraded:
                    if code != "embedding_off":  # as the user wants it
                        account.say(code)
                rowids = [rowid for hit in page.hits for rowid in hit.best]
                read = await self.search.readers.run(messages.by_rowids, rowids)
                return page.hits, {each.rowid: each.content for each in read if each.user == user}
        return (), {}

    async def _ask(
        self, user: UserId, text: str, shown: Sequence[TopicCandidate], choose_by: float, meter: Meter
    ) -> Selection | None:
        if self.asker is None or not shown:
            return None
        reranker = TopicReranker(
            attrs.evolve(self.asker, charge=CallCharge(meter)), self.search.readers, self.search.metrics
        )
        try:
            return await reranker.choose(user, text, shown, within_s=choose_by - trio.current_time())
        except trio.TooSlowError:
            return Selection(fallback="timeout")
        except StorageError as error:
            log.warning("topics_not_chosen", error=error_class(error))
            return Selection(fallback="storage")

    async def _read(
        self, user: UserId, picks: Iterable[TopicId], query: Query, account: Account
    ) -> dict[TopicId, tuple[list[Message], list[float]]]:
        read: dict[TopicId, tuple[list[Message], list[float]]] = {}
        begin = trio.current_time()
        with account.degrading("topics", "topics_not_read"), trio.fail_at(account.deadline):
            for topic in picks:
                own = await self.search.readers.run(topics.read, user, topic)
                searchable = [each for each in own if is_searchable(each.role, each.type)]
                if searchable:
                    unwanted = await self.search.readers.run(chats.unrecalled, own[0].chat)
                    said = [each for each in searchable if each.seq not in unwanted]
                    read[topic] = said, await self.threads.run(worths, said, query.content_stems)
        if picks:
            account.timings_ms["read"] = (trio.current_time() - begin) * 1000
        return read


def _picks(hits: Sequence[TopicCandidate], selection: Selection | None) -> dict[TopicId, str]:
    if selection is not None and (selection.fallback is None or selection.loaded):
        return {TopicId(each.id): each.excerpt for each in selection.topics}
    return dict.fromkeys([hit.topic.id for hit in hits if hit.fate is Fate.CHOSEN][:FALLBACK_TOPICS], "")


def _candidates(
    judged: Sequence[tuple[TopicCandidate, bool]],
    selection: Selection | None,
    picks: Mapping[TopicId, str],
    read: Mapping[TopicId, tuple[list[Message], list[float]]],
) -> tuple[TopicCandidate, ...]:
    places = {topic: place for place, topic in enumerate(picks, 1)}
    reranked = selection is not None and selection.fallback is None
    made = []
    for each, worth in judged:
        topic = each.topic.id
        if topic in places:
            said, of_each = read.get(topic, ([], []))
            fate = Fate.CHOSEN if said else Fate.UNWANTED if topic in read else Fate.GONE
            found = attrs.evolve(each, messages=tuple(said), worths=tuple(of_each))
            made.append(attrs.evolve(found, fate=fate, place=places[topic], excerpt=picks[topic]))
        elif reranked and worth:
            made.append(attrs.evolve(each, fate=Fate.NOT_CHOSEN))
        else:
            made.append(attrs.evolve(each, fate=Fate.OVER_COUNT) if each.fate is Fate.CHOSEN else each)
    return tuple(made)


def worths(said: Sequence[Message], wanted: Collection[str]) -> list[float]:
    """How much each of a topic's messages has to do with a question: wanted stems, the rarer the more. Pure."""
    found = [forms_in(message.content, wanted) for message in said]
    holding = Counter(form for forms in found for form in forms)
    return [math.fsum(math.log(1 + len(said) / holding[form]) for form in forms) for forms in found]


def judge(
    hits: Sequence[TopicCandidate], said: Mapping[int, str], query: Query, *, threshold: float, random_cosine: float
) -> list[tuple[TopicCandidate, bool]]:
    """Let the relevance gate of messages decide on topics: those that pass are ``CHOSEN``, the others ``TOO_FAR``; and
    whether a model that chooses is shown each: it passed, has a word of the question, or is nearer to it than chance.
    ``said`` are the messages that they were found by, by row id. Pure; reads a lot of text."""
    evidence = [_evidence(hit, said, query, random_cosine) for hit in hits]
    gate = Gate(threshold=threshold, content_words=len(query.content_stems), command=query.command)
    judged = []
    for hit, seen, decision in zip(hits, evidence, gate.decide(evidence), strict=True):
        passed = decision in PASSED
        fate = Fate.CHOSEN if passed else Fate.TOO_FAR
        worth = passed or (not query.command and seen.is_related)
        judged.append((attrs.evolve(hit, shared_words=seen.shared_words, fate=fate), worth))
    return judged


def _evidence(hit: TopicCandidate, said: Mapping[int, str], query: Query, random_cosine: float) -> Evidence:
    texts = [hit.topic.summary, *(said[rowid] for rowid in hit.best if rowid in said)]
    return Evidence(
        distance=calibrated(1.0 - hit.cosine if hit.cosine is not None else None, random_cosine),
        shared_words=max(len(forms_in(text, query.content_stems)) for text in texts),
    )
