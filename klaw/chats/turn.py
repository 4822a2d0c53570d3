"""One turn: pending messages -> recall and context -> model <-> tools -> stored answer. Runs in its chat's actor."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import attrs
import structlog
import trio

from klaw.actor.clock import iso
from klaw.actor.failure import error_class, where
from klaw.actor.supervisor import Vitals
from klaw.agent.agent import Agent
from klaw.agent.claims import cut_because, resumed_trail, with_end
from klaw.agent.conversation import Conversation, Ending, ModelCall, describe_failure
from klaw.agent.linked_answer import link_sources
from klaw.chats.build_context import Gatherer
from klaw.chats.requests import FROM_MCP, Submit
from klaw.context.inputs import Budget
from klaw.domain.attachment import NamedFile
from klaw.domain.context_used import KEY, ContextUsed
from klaw.domain.events import Step, StepChanged, TextStreamed, ThoughtStreamed, ToolUsed, TurnEnded, TurnStarted
from klaw.domain.message import CLIENT_CALLS, CUT, TOLD, MessageKind, Role, TurnRecord, TurnStatus, kept_text
from klaw.domain.names import ChatId, user_of
from klaw.domain.text import clean, digest_of_words, one_line
from klaw.domain.tool_calls import in_words
from klaw.errors import ActorStopped, StorageFull
from klaw.knowledge import citations
from klaw.llm.client import Meter
from klaw.llm.errors import ProviderError, ProviderMalformed
from klaw.llm.slots import Priority
from klaw.llm.types import ChatMessage, Delta, ReasoningDelta, Route, TakenBack, TextDelta, ToolCall
from klaw.store.kinds import attachments, messages
from klaw.store.kinds.pending import ChatRows, read_rows
from klaw.toolbox.spec import ToolContext, Trail

MAX_THINKING_BYTES = 256 * 1024
"""Of the thinking of one turn that is passed on."""

CLIENT_TOOLS = "client_tools"
WAITING = "this waits for a program to send the results of its tools"

log = structlog.get_logger("klaw.turn")


@attrs.define(kw_only=True)
class Turn:
    """A running turn, the host of its conversation. ``run`` is called once; ``stop`` may come at any time."""

    id: str
    chat: ChatId
    agent: Agent
    vitals: Vitals
    wishes: Submit
    """Its instructions, model and options hold."""
    scope: trio.CancelScope = attrs.Factory(trio.CancelScope)
    over: trio.Event = attrs.Factory(trio.Event)
    stopped: bool = False
    step: Step | None = None
    _rows: ChatRows | None = None
    _gatherer: Gatherer | None = None
    _slot: AsyncExitStack = attrs.Factory(AsyncExitStack)
    _has_slot: bool = False
    _receipt: dict[str, Any] = attrs.Factory(dict)
    _used: ContextUsed | None = None
    """The passages that the model saw; None if the chat has no knowledge base and no file that says anything."""
    _removed: int = 0
    """Marks of the answer that name nothing; without those that ``_used`` counts."""
    _trail: Trail = attrs.Factory(Trail)
    _timings: dict[str, float] = attrs.Factory(dict)
    _began: float = 0.0
    _begin_context: float = 0.0
    _pieces: list[str] = attrs.Factory(list)
    _length: int = 0
    _told: list[str] = attrs.Factory(list)
    """All pieces that were streamed, also those of rounds before."""
    _thought_bytes: int = 0
    _thought_length: int = 0
    """Characters that were passed on of what the running call thinks."""
    _thinks_since: float | None = None
    _meter: Meter | None = None
    _answered_by: str = ""
    _conversation: Conversation | None = None
    """Once it has ended with an answer."""

    def stop(self, reason: str) -> None:
        """Cancel it on the user's wish: what was streamed is kept, its messages count as dealt with."""
        self.stopped = True
        self.scope.cancel(reason=reason)

    @property
    def began(self) -> bool:
        """Whether it knows which messages it answers; before that it waits for a slot."""
        return self._rows is not None

    def answers(self, seq: int) -> bool:
        """Whether the message with this seq is the last that it answers, or may be: it has not read them yet."""
        return self._rows is None or self._rows.pending[-1].seq == seq

    @property
    def answering(self) -> bool:
        return bool(self._pieces)

    async def run(self) -> TurnStatus | None:
        """Work through the turn and store its outcome; None when there was nothing to answer. Raises ActorStopped.

        Expected failures (the LLM, a full disk) become a failed turn, which is reported to the user; its messages stay
        pending. So they do on cancellation."""
        self._began = self.agent.core.clock.now()
        try:
            answer = None
            with self.scope:
                answer = await self._answer()
            # Storing is out of the stop's reach: a cancelled append may be committed, and the answer would be stored
            # twice.
            if answer is not None:
                waits = self._conversation is not None and self._conversation.ending is Ending.HANDED_OVER
                return await self._store(answer, TurnStatus.WAITING if waits else TurnStatus.DONE)
            if self.stopped and self._rows is not None:
                return await self._store("".join(self._pieces), TurnStatus.STOPPED)
        except ActorStopped:
            raise
        except Exception as error:  # noqa: BLE001 - whatever went wrong, the user is notified and the chat goes on
            return await self._fail(error)
        finally:
            self.over.set()
        return None

    async def _answer(self) -> str | None:
        agent, core = self.agent, self.agent.core
        await agent.files.wait_for(user_of(self.chat), self.chat, lambda: self._tell(Step.READING))
        async with self._slot:
            await self._take_slot()
            self._begin_context = trio.current_time()
            window_rows = max(core.config.window_rows, self.wishes.came)
            rows = await core.readers.run(read_rows, self.chat, window_rows, summarised=core.config.summarises)
            if rows is None:
                return None
            self._rows = rows
            core.events.emit(TurnStarted(chat=self.chat, turn=self.id, last_seq=rows.pending[-1].seq))
            self._meter = meter = agent.llm.meter()
            level = self.wishes.options.thinking or rows.session.thinking
            route = await agent.llm.route(self.wishes.model or rows.session.model, key="/model", thinking=level)
            self._answered_by = route.name
            self._trail = resumed_trail(rows.unfinished, agent.tools.executor.toolbox)
            self._trail.outside |= any(FROM_MCP in message.metadata for message in rows.pending)
            about = ToolContext(
                user=rows.session.user,
                chat=self.chat,
                turn=self.id,
                model=route.name,
                sees=route.images,
                before_seq=rows.pending[0].seq,
                trail=self._trail,
                temporary=rows.temporary,
            )
            if route.tools:
                await agent.workspace.refresh_skills()
            self._gatherer = Gatherer(
                agent=agent,
                vitals=self.vitals,
                rows=rows,
                meter=meter,
                sees=route.images,
                instructions=self.wishes.instructions,
                came=self.wishes.came,
            )
            return await self._converse(rows, route, meter, about)

    async def _converse(self, rows: ChatRows, route: Route, meter: Meter, about: ToolContext) -> str:
        rounds = (each for each in rows.unfinished if each.type is MessageKind.TOOL_CALL)
        conversation = Conversation(
            agent=self.agent,
            host=self,
            route=route,
            meter=meter,
            about=about,
            rounds_done=sum(CLIENT_CALLS not in each.metadata for each in rounds),
            options=self.wishes.options,
        )
        try:
            await conversation.run()
        finally:
            self._answered_by = conversation.answered_by or route.name
            if conversation.tools and self._receipt:
                self._receipt["tools"] = conversation.describe_tools()
            if conversation.claims.account is not None:
                self._receipt["save_claim"] = conversation.claims.account
            if (thought := conversation.thinking_tokens) or "thinking" in self._timings:
                seconds = round(self._timings.get("thinking", 0.0) / 1000, 1)
                self._receipt["thinking"] = {"seconds": seconds, "tokens": thought}
            if conversation.adapted:
                self._receipt["adapted"] = list(conversation.adapted)
        filtered = conversation.finish_reason == "content_filter"  # then a note says so
        hands_over = conversation.ending is Ending.HANDED_OVER
        if not (conversation.text.strip() or conversation.images or filtered or hands_over):
            raise ProviderMalformed("the model only called tools and gave no answer")
        if cut_because(conversation.finish_reason) is not None:
            self._receipt["finish_reason"] = conversation.finish_reason
        self._conversation = conversation
        return conversation.text

    # -- the host of the conversation ------------------------------------------------------------------------------

    async def context(self, budget: Budget, tools_tokens: int) -> tuple[ChatMessage, ...]:
        assert self._gatherer is not None
        self._tell(Step.RECALLING)
        if self._rows is not None and any(CLIENT_CALLS in each.metadata for each in self._rows.unfinished):
            tools_tokens = max(1, tools_tokens)  # the rounds are shown, even if no tools are offered any more
        context, self._receipt = await self._gatherer.gather(budget, tools_tokens)
        if (passages := context.passages) is not None:
            self._used = passages.used
            self._trail.outside |= bool(passages.used.passages)
            self._trail.sources.after = max([0, *passages.used.texts])
        # Somebody else's texts: what is written from now on is, perhaps, theirs.
        self._trail.outside |= self._gatherer.shows_documents
        self._timings.setdefault("context", (trio.current_time() - self._begin_context) * 1000)
        return context.messages

    @asynccontextmanager
    async def call(self, estimated: int, most: int) -> AsyncIterator[ModelCall]:
        """Use the slot with which the turn began for its first call; each later call takes its own."""
        del estimated
        if not self._has_slot:
            await self._take_slot()
        try:
            self._forget_streamed()
            self._thought_length = 0
            self.vitals.doing("waiting for the model")
            self._tell(Step.THINKING)
            begin = trio.current_time()
            yield ModelCall(answer_tokens=most)
            self._timings["llm"] = self._timings.get("llm", 0.0) + (trio.current_time() - begin) * 1000
        finally:
            self._stop_thinking()
            self._has_slot = False
            await self._slot.aclose()

    def heard(self, delta: Delta) -> None:
        if isinstance(delta, TextDelta):
            self._stop_thinking()
        else:
            self._think(delta.text)
        if isinstance(delta, ReasoningDelta):
            return
        if isinstance(delta, TakenBack):
            self._forget_streamed()
        if not self._pieces:
            self.vitals.doing("streaming the answer")
        text = clean(delta.text) if isinstance(delta, TextDelta) else ""
        self.agent.core.events.emit(TextStreamed(chat=self.chat, turn=self.id, offset=self._length, text=text))
        self._told += ([" "] if self._told and not self._length else []) + [text]
        self._pieces.append(text)
        self._length += len(text)

    def _think(self, text: str) -> None:
        self._thinks_since = trio.current_time() if self._thinks_since is None else self._thinks_since
        thought = clean(text).encode()[: MAX_THINKING_BYTES - self._thought_bytes]
        self._thought_bytes += len(thought)
        if piece := thought.decode(errors="ignore"):
            streamed = ThoughtStreamed(chat=self.chat, turn=self.id, offset=self._thought_length, text=piece)
            self.agent.core.events.emit(streamed)
            self._thought_length += len(piece)

    def _stop_thinking(self) -> None:
        if self._thinks_since is not None:
            spent = (trio.current_time() - self._thinks_since) * 1000
            self._timings["thinking"] = self._timings.get("thinking", 0.0) + spent
            self._thinks_since = None

    async def _take_slot(self) -> None:
        slots = self.agent.llm.slots
        if slots.full:
            self._tell(Step.QUEUED)
        await self._slot.enter_async_context(slots.slot(Priority.INTERACTIVE, vitals=self.vitals))
        self._has_slot = True

    def _tell(self, step: Step) -> None:
        self.step = step
        self.agent.core.events.emit(StepChanged(chat=self.chat, turn=self.id, step=step))

    def tool_used(self, call: ToolCall, state: str, what: str) -> None:
        title, about = in_words(call.name, call.arguments) if state == "started" else (None, None)
        used = ToolUsed(
            chat=self.chat, turn=self.id, call=call.id, name=call.name, state=state, what=what, title=title, about=about
        )
        self.agent.core.events.emit(used)

    async def keep(self, role: Role, kind: MessageKind, text: str, metadata: dict[str, Any]) -> None:
        calling = kind is MessageKind.TOOL_CALL
        if calling and self._used is not None:
            text = citations.check(text, {**self._used.texts, **self._trail.sources.texts}).text
        if calling:
            self.vitals.doing("storing tool calls")
        message = self.agent.composer.own(self.chat, role, kind, text, {"turn": self.id, **metadata})
        await self.agent.core.writer.run(messages.append, [message])
        if calling:
            self._forget_streamed()
            self.vitals.doing("running tools")

    def _forget_streamed(self) -> None:
        """What was streamed so far is stored, or was never shown: the next piece has offset 0."""
        self._pieces.clear()
        self._length = 0

    async def _store(self, text: str, status: TurnStatus) -> TurnStatus:
        assert self._rows is not None
        self.vitals.doing("storing the answer")
        answer = clean(text)
        metadata: dict[str, Any] = {"turn": self.id}
        has_form = self.wishes.options.form is not None  # then nothing is taken out of it, and nothing is added
        if self._used is not None:
            if not has_form:
                answer, self._used = self.agent.dialogue.check(answer, self._used, self._trail.sources.texts)
            self._receipt[KEY] = self._used.written()
            metadata[KEY] = self._used.without_texts().written()
        if status is TurnStatus.WAITING:
            self._receipt["reason"] = WAITING
            await self.agent.core.writer.run(messages.append, [], self._record(self._rows, status, CLIENT_TOOLS))
            self._end(status, None, None)
            return status
        if not has_form:
            linked = link_sources(answer, self._trail.sources, self._used.texts if self._used is not None else None)
            if linked.end:
                self.heard(TextDelta(linked.end))
            answer, self._removed, metadata = linked.whole, linked.removed, {**metadata, **linked.metadata}
        files: list[NamedFile] = []
        if status is TurnStatus.STOPPED:
            metadata["stopped"] = True
        elif (outcome := self._conversation) is not None:
            files, problems = await self.agent.keep_pictures(self._rows.session.user, outcome.images)
            if not has_form:
                answer = with_end("\n\n".join(filter(None, (answer, *problems))), outcome.finish_reason)
            if (why := cut_because(outcome.finish_reason)) is not None:
                metadata[CUT] = why
        if self._told and one_line(told := "".join(self._told)) != one_line(answer):
            metadata[TOLD] = digest_of_words(told)
        message = self.agent.composer.own(self.chat, Role.ASSISTANT, MessageKind.TEXT, answer, metadata)
        record = self._record(self._rows, status, None)
        core = self.agent.core
        if files:
            await core.writer.run(attachments.append, message, files, core.attachments.limits, turn=record)
        else:
            await core.writer.run(messages.append, [message] if answer.strip() else [], record)
        self.agent.memory.embedder.nudge()
        self._end(status, None, None)
        return status

    async def _fail(self, error: Exception) -> TurnStatus:
        code, why = describe_failure(error)
        told = error.told() if isinstance(error, ProviderError) else why
        log.warning("turn_failed", code=code, error=error_class(error), where=where(error))
        if self._rows is not None:
            self._receipt["reason"] = why
            try:
                await self.agent.core.writer.run(messages.append, [], self._record(self._rows, TurnStatus.FAILED, code))
            except StorageFull:
                log.error("turn_not_recorded", code="storage_full")
        self._end(TurnStatus.FAILED, code, kept_text(told))
        return TurnStatus.FAILED

    def _record(self, rows: ChatRows, status: TurnStatus, error: str | None) -> TurnRecord:
        now = self.agent.core.clock.now()
        return rows.record(
            id=self.id,
            status=status,
            model=self._answered_by,
            started_at=iso(self._began),
            ended_at=iso(now),
            error=error,
            receipt=self._receipt,
            usage=self._meter.record() if self._meter is not None else {},
            timings={name: round(spent, 2) for name, spent in self._timings.items()},
        )

    def _end(self, status: TurnStatus, code: str | None, text: str | None) -> None:
        removed = self._removed + (self._used.removed if self._used is not None else 0)
        self.agent.core.events.emit(
            TurnEnded(chat=self.chat, turn=self.id, status=status, code=code, text=text, citations_removed=removed)
        )
        self.agent.memory.summarizer.turn_ended(self.chat)
        self.agent.memory.titler.turn_ended(self.chat)
        log.info("turn_ended", status=status.value, code=code)


async def leave_unanswered(agent: Agent, chat: ChatId) -> None:
    """Record that the waiting messages are dealt with, so that no restart answers them."""
    rows = await agent.core.readers.run(read_rows, chat, 1)
    if rows is None:
        return
    id_, now = agent.core.new_id(), iso(agent.core.clock.now())
    record = rows.record(id=id_, status=TurnStatus.STOPPED, model="", started_at=now, ended_at=now)
    await agent.core.writer.run(messages.append, [], record)
