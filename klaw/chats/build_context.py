"""What goes into a turn's first request: prompt files, facts, recall, topics, passages, the window."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import attrs

from klaw.actor.supervisor import Vitals
from klaw.agent.agent import Agent
from klaw.config.schema import EngineConfig
from klaw.context.assemble import Context, Guard, Plan, assemble, plan
from klaw.context.attachments import pictures
from klaw.context.explain import explain
from klaw.context.inputs import Budget, FileText, Settings, Snapshot
from klaw.context.pinned_facts import standing
from klaw.domain.context_used import KEY, ContextUsed
from klaw.domain.message import Message
from klaw.domain.search import NOTHING, RecallOutcome
from klaw.domain.topic import ChosenTopics
from klaw.errors import AttachmentRefused, StorageFull
from klaw.knowledge.citations import without_marks
from klaw.llm.client import Meter
from klaw.llm.types import Image
from klaw.prompts import prompt
from klaw.store.kinds import facts
from klaw.store.kinds.knowledge import message_files
from klaw.store.kinds.knowledge.message_files import FileOfChat
from klaw.store.kinds.pending import ChatRows
from klaw.store.search.chat_search import ChatScope
from klaw.toolbox import web_sources

_CITING = frozenset({KEY, web_sources.KEY})

WHOLE_SHARE = 0.3
"""Of the usable budget: short documents take no more as a whole, the others are searched."""


def plan_of(
    rows: ChatRows,
    system_prompt: str,
    core_memory: str,
    config: EngineConfig,
    budget: Budget,
    tools_tokens: int,
    pictures: Mapping[str, Image] | None = None,
    documents: Mapping[str, FileText] | None = None,
    *,
    searches_files: bool = False,
    came: int = 0,
) -> Plan:
    """What a turn's request is made from, before anything is recalled. ``pictures``: None if the model takes none;
    ``came``: messages that a program sent along."""
    return plan(
        Snapshot(
            system_prompt=system_prompt,
            core_memory=core_memory,
            summaries=rows.summaries,
            summarised_to=rows.summarised_to,
            history=tuple(map(_unmarked, rows.history)),
            has_older=rows.has_older,
            pending=rows.pending,
            unfinished=rows.unfinished,
            sees=pictures is not None,
            pictures=pictures or {},
            documents=documents or {},
            tools_tokens=tools_tokens,
            budget=budget,
            settings=Settings(
                sliding_window=max(config.context.sliding_window, came),
                names_gap=came > 0,
                recall_enabled=config.auto_rag.enabled,
                recall_max_tokens=config.auto_rag.max_tokens,
                hold_uncovered=config.holds_uncovered,
                topics_max_tokens=config.injected_tokens,
                knowledge_max_tokens=config.kb.max_tokens if rows.bound or searches_files else 0,
                pairs=config.kb.pairs if rows.bound else None,
            ),
        )
    )


def _unmarked(message: Message) -> Message:
    """An earlier answer without its citations: their numbers meant other passages, or pages of the web."""
    if _CITING.isdisjoint(message.metadata):
        return message
    return attrs.evolve(message, content=without_marks(message.content))


@attrs.define(kw_only=True)
class Gatherer:
    """Builds the context of one turn, and again when the prompt proves too long; topics are chosen, bases searched, and
    words added to the question, only once. ``meter`` counts what models cost that are asked meanwhile; ``sees``: the
    model takes pictures; ``instructions``: what the asking program adds behind the prompt files; ``came``: see
    ``Submit``."""

    agent: Agent
    vitals: Vitals
    rows: ChatRows
    meter: Meter
    sees: bool
    instructions: str = ""
    came: int = 0
    _pictures: Mapping[str, Image] | None = None
    _files: Sequence[FileOfChat] | None = None
    _documents: Mapping[str, FileText] = attrs.Factory(dict)
    _chosen: ChosenTopics | None = None
    _looked_up: ContextUsed | None = None
    _added: Sequence[str] | None = None
    """Words that a model added to the question; None: it was not asked yet."""

    async def gather(self, budget: Budget, tools_tokens: int) -> tuple[Context, dict[str, Any]]:
        """Read, search, and assemble the context of a request, with its receipt. The first time the caller holds an
        LLM slot."""
        agent, config, rows = self.agent, self.agent.core.config, self.rows
        self.vitals.doing("assembling the context")
        fixed = await agent.workspace.fetch(rows.session.user)
        core = standing("", ())  # a temporary chat knows nothing of the others
        if not rows.temporary:
            core = standing(fixed.core_memory, await agent.core.readers.run(facts.standing, rows.session.user))
        own = prompt("knowledge") if rows.bound is not None else ""
        system = "\n\n".join(filter(None, (fixed.system_prompt, own, self.instructions)))
        given = await self._read()
        await self._read_documents(int(budget.usable * WHOLE_SHARE))
        searches = bool(self._searched((*rows.history, *rows.pending)))
        made_from = (rows, system, core.text, config, budget, tools_tokens, given, self._documents)
        planned = plan_of(*made_from, searches_files=searches, came=self.came)
        recalled = await self._recall(planned)
        looked_up = await self._look_up(planned)
        context = assemble(planned, recalled, await self._topics(recalled), looked_up)
        receipt = {**explain(planned, context), **core.describe()}
        if fixed.problems:
            receipt["problems"] = list(fixed.problems)
        return context, receipt

    async def _read(self) -> Mapping[str, Image] | None:
        """The pictures for a model that takes them; one that cannot be read is left out, and its message says so."""
        if self.sees and self._pictures is None:
            self._pictures = found = {}
            user = self.rows.session.user
            for file in pictures((*self.rows.history, *self.rows.pending)):
                with suppress(AttachmentRefused, StorageFull):
                    data = await self.agent.core.attachments.read(user, file.sha256)
                    found[file.sha256] = Image(data=data, media_type=file.type)  # type: ignore[arg-type]  # one of them
        return self._pictures

    @property
    def shows_documents(self) -> bool:
        """Whether the request has texts of files."""
        return any(each.text for each in self._documents.values())

    async def _read_documents(self, most: int) -> None:
        """The documents among the files of the segment, and the text of those that may stand in the window."""
        if self._files is not None:
            return
        rows, session = self.rows, self.rows.session
        of_chat = partial(message_files.of_chat, first_seq=session.segment_start)
        self._files = await self.agent.core.readers.run(of_chat, session.user, session.chat)
        shown = {message.seq for message in (*rows.history, *rows.pending)}
        self._documents = await self.agent.files.texts([each for each in self._files if each.seq in shown], most)

    def _searched(self, shown: Sequence[Message]) -> list[FileOfChat]:
        """The documents that are searched: all but those that messages show as a whole."""
        seqs = {message.seq for message in shown}
        return [
            each
            for each in self._files or ()
            if each.document is not None
            and each.document.passages
            and not (each.seq in seqs and self._documents[each.file.sha256].whole)
        ]

    async def _recall(self, planned: Plan) -> RecallOutcome:
        if planned.guard is not Guard.SEARCH:
            return NOTHING
        session = self.rows.session
        scope = ChatScope(chat=session.chat, first_seq=session.segment_start, end_seq=planned.search_end_seq)
        recall, room = self.agent.memory.recall, planned.recall_tokens
        recalled = await recall.search(self._question, scope, room, self.meter, self._added)
        self._added = recalled.expansion
        shown = (
            each if _CITING.isdisjoint(each.message.metadata) else attrs.evolve(each, text=without_marks(each.text))
            for each in recalled.candidates
        )
        return attrs.evolve(recalled, candidates=tuple(shown))

    async def _look_up(self, planned: Plan) -> ContextUsed | None:
        """What bases and long files say; None: nothing is bound, and no file says anything."""
        bound, files = self.rows.bound, self._searched((*planned.window, *self.rows.pending))
        if self._looked_up is None and (bound is not None or files):
            self.vitals.doing("searching documents")
            self._looked_up = await self.agent.dialogue.look_up(
                self.rows.session.user,
                self._question,
                self.rows.history,
                bound,
                files,
                max_tokens=planned.passages_tokens,
                meter=self.meter,
            )
        found = self._looked_up
        return found if found is not None and (bound is not None or found.passages) else None

    async def _topics(self, recalled: RecallOutcome) -> ChosenTopics | None:
        if self.agent.memory.chooser is not None and self._chosen is None and not self.rows.temporary:
            self.vitals.doing("choosing topics")
            user = self.rows.session.user
            self._chosen = await self.agent.memory.chooser.choose(user, self._question, recalled.vector, self.meter)
        return self._chosen

    @property
    def _question(self) -> str:
        return "\n".join(message.content for message in self.rows.pending)
