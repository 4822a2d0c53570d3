"""What a chat that is bound to knowledge bases is answered from, and whether its answer's marks hold. The question,
with the last pair if it refers to that, is searched in the passages and the graphs of the bases at the same time; what
both find is numbered in one list. Nothing here fails a turn: what could not be searched is named."""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import accumulate, zip_longest
from typing import Any

import attrs
import structlog
import trio

from klaw.actor.failure import error_class
from klaw.actor.metrics import Metrics
from klaw.config.tools import KnowledgeConfig
from klaw.domain import tokens
from klaw.domain.context_used import ContextUsed, Follows, read
from klaw.domain.knowledge import DocumentId, Place, Source, UsedPassage
from klaw.domain.message import Message, MessageKind, Role
from klaw.domain.names import UserId
from klaw.domain.search import FoundPassage, PassageOutcome
from klaw.errors import BadAnswer, ConfigError, KlawError, StorageError
from klaw.knowledge import citations
from klaw.knowledge.follow_up import MAX_QUERY, Pair, Rewritten, material, query_of, refers
from klaw.knowledge.graph.graphs import Graphs, GraphSearch
from klaw.knowledge.search import KnowledgeSearch
from klaw.llm.ask_json import ask_json
from klaw.llm.client import Meter
from klaw.llm.errors import ProviderError
from klaw.llm.types import ChatMessage, JsonSchema
from klaw.memory.background_llm import Asker, CallCharge, question
from klaw.store.engine.database import Readers
from klaw.store.kinds.chats import BoundBases
from klaw.store.kinds.knowledge import message_files, sources
from klaw.store.kinds.knowledge.message_files import FileOfChat

GRAPHS_SHARE = 0.4
"""The share of the room for passages that graphs may take while there are passages, too."""
MOST_OF_GRAPHS = 5
REWRITE_S = 20.0
"""A question that was not put into other words by then is searched by the rule."""

log = structlog.get_logger("klaw.knowledge")


class CitationMetrics:
    def __init__(self, metrics: Metrics) -> None:
        self.kept = metrics.counter("klaw_knowledge_citations_kept_total", "passages that answers refer to")
        self.removed = metrics.counter("klaw_knowledge_citations_removed_total", "invalid marks that were removed")
        self.uncited = metrics.counter("klaw_knowledge_uncited_answers_total", "answers that cite no passage given")


@attrs.frozen(kw_only=True)
class Dialogue:
    readers: Readers
    passages: KnowledgeSearch
    graphs: Graphs
    asker: Asker
    config: KnowledgeConfig
    metrics: CitationMetrics

    async def look_up(
        self,
        user: UserId,
        question: str,
        history: Sequence[Message],
        bound: BoundBases | None,
        files: Sequence[FileOfChat] = (),
        *,
        max_tokens: int,
        meter: Meter,
    ) -> ContextUsed:
        """Search the bases of a chat and ``files`` of its messages for a question, which may refer to ``history``. The
        caller holds an LLM slot."""
        bases = tuple(each.base.id for each in bound.bases) if bound is not None else ()
        found = ContextUsed(bases=bases, gone=bound.gone if bound is not None else ())
        if not (bases or files) or not max_tokens:
            return attrs.evolve(found, query=question[:MAX_QUERY], nothing="no_room" if bases else "no_bases")
        query, follows = await self._query(question, history, meter)
        found = attrs.evolve(found, query=query[:MAX_QUERY], follows=follows)
        said: list[GraphSearch] = []
        names = {each.document.id: each.file.name for each in files if each.document is not None}

        async def ask_graphs() -> None:
            language = next((each.base.language for each in bound.bases if each.base.language), "") if bound else ""
            text = question.strip() if follows == "pair" else query
            also = query.removesuffix(text).strip()  # what it refers to counts less
            try:
                said.append(await self.graphs.search(graphs, text, also=also, language=language, most=MOST_OF_GRAPHS))
            except KlawError as error:  # one that cannot be asked must not cost the passages
                log.warning("graphs_not_asked", error=error_class(error))

        try:
            graphs = await self.readers.run(sources.graphs, user, bases)
            async with trio.open_nursery() as nursery:
                if graphs:
                    nursery.start_soon(ask_graphs)
                search = partial(self.passages.search, query, user=user, max_tokens=max_tokens)
                passages = [await search(bases)] if bases else []
                if files:
                    passages.append(await search([message_files.base_of(user)], within=names))
        except StorageError as error:
            log.warning("knowledge_not_searched", error=error_class(error))
            return attrs.evolve(found, nothing="search_failed", degraded=("search_failed",))
        return _with(found, passages, names, said[0] if said else None, graphs, max_tokens)

    def check(self, answer: str, used: ContextUsed, more: Mapping[int, str]) -> tuple[str, ContextUsed]:
        """The answer without invalid marks, and what it refers to; ``more``: what else has numbers."""
        checked = citations.check(answer, {**used.texts, **more})
        passages = tuple(attrs.evolve(each, cited=each.number in checked.cited) for each in used.passages)
        cited = checked.cited - more.keys()
        uncited = bool(passages) and not cited
        self.metrics.kept.add(len(cited))
        self.metrics.removed.add(checked.removed)
        self.metrics.uncited.add(int(uncited))
        return checked.text, attrs.evolve(used, passages=passages, removed=checked.removed, uncited=uncited)

    async def _query(self, text: str, history: Sequence[Message], meter: Meter) -> tuple[str, Follows]:
        last = last_pair(history) if refers(text) else None
        if last is None:
            return text.strip(), ""
        if self.config.rewrite and (written := await self._rewrite(text, last, meter)):
            return written, "model"
        return query_of(text, last), "pair"

    async def _rewrite(self, text: str, last: Pair, meter: Meter) -> str | None:
        asker = attrs.evolve(self.asker, charge=CallCharge(meter))

        async def say(messages: tuple[ChatMessage, ...], schema: JsonSchema) -> str:
            # The caller holds a slot.
            return (await asker.call(asker.llm.router.route(), messages, schema=schema, priority=None)).text

        try:
            with trio.move_on_after(REWRITE_S):
                asked = question("kb_rewrite", material(text, last))
                return await ask_json(say, asked, "question", Rewritten, _rewritten)
        except (ProviderError, ConfigError) as error:
            log.info("question_not_rewritten", error=error_class(error))
        return None


def last_pair(history: Sequence[Message]) -> Pair | None:
    """The last question that was answered (if it referred to an earlier one, as it was searched), and its answer."""
    answer = next((at for at in range(len(history) - 1, -1, -1) if _says(history[at], Role.ASSISTANT)), None)
    if answer is None:
        return None
    asked = next((each for each in reversed(history[:answer]) if _says(each, Role.USER)), None)
    if asked is None:
        return None
    searched = read(history[answer].metadata)
    follows = searched is not None and searched.follows
    said = citations.without_marks(history[answer].content)
    return Pair(searched.query if searched and follows else asked.content, said)


def _says(message: Message, role: Role) -> bool:
    return message.role is role and message.type is MessageKind.TEXT and bool(message.content.strip())


def _rewritten(answer: Rewritten) -> str:
    if not 1 <= len(answer.question) <= MAX_QUERY:
        raise BadAnswer("question: must be a question")
    return answer.question


def _with(
    found: ContextUsed,
    searched: Sequence[PassageOutcome],
    names: Mapping[DocumentId, str],
    said: GraphSearch | None,
    graphs: Sequence[Source],
    max_tokens: int,
) -> ContextUsed:
    """What graphs say (None: they failed) between the passages, by rank. ``names``: what the chat calls its files."""
    failed = bool(graphs) and said is None
    said = said or GraphSearch()

    def named(passage: FoundPassage) -> dict[str, Any]:
        return {**attrs.asdict(passage.place), "name": names.get(passage.document, passage.name)}

    used = [
        UsedPassage(
            **named(each.passage),
            number=0,
            also=tuple(Place(**named(other)) for other in each.also),
            score=round(each.score, 4),
            text=each.text,
        )
        for each in sorted((each for one in searched for each in one.kept), key=lambda each: -each.score)
    ]
    room = int(max_tokens * GRAPHS_SHARE) if used else max_tokens
    costs = accumulate(tokens.estimate(each.text) for each in said.passages)
    of_graphs = [each for each, cost in zip(said.passages, costs, strict=True) if cost <= room]
    mixed = [each for pair in zip_longest(used, of_graphs) for each in pair if each is not None]
    degraded = [code for one in searched for code in one.degraded]
    degraded += [f"graph_{code}" for code in said.failed.values()]
    if failed:
        degraded.append("graph_failed")
    nothing = (searched[0].why_nothing if searched else "") or "too_far"
    if nothing == "no_passages":
        nothing = said.reason or nothing
    return attrs.evolve(
        found,
        passages=tuple(mixed),
        sparql=said.queries,
        nothing="" if mixed else nothing,
        weak=all(one.weak or not one.kept for one in searched) and not of_graphs,
        degraded=tuple(dict.fromkeys(degraded)),
    )
