"""One turn: pending messages -> recall and context -> model <-> tools -> stored answer. Runs in its chat's actor."""

from contextlib import AsyncExitStack
from typing import Any

import attrs
import structlog
import trio

from klaw.actor.clock import iso
from klaw.actor.failure import error_class, where
from klaw.actor.vitals import Vitals
from klaw.agent.agent import Agent
from klaw.agent.claims import Claims, resumed_trail
from klaw.chats.failures import describe_failure
from klaw.chats.gathering import Gatherer
from klaw.chats.rounds import Rounds
from klaw.context.inputs import Budget
from klaw.context.request import request_tokens
from klaw.domain.events import Progressed, Step, TextStreamed, TurnEnded, TurnStarted
from klaw.domain.message import Kind, Role
from klaw.domain.names import ChatId
from klaw.domain.text import clean
from klaw.domain.turn import TurnRecord, TurnStatus
from klaw.errors import ActorStopped, ContextTooLong, ProviderMalformed, StorageFull
from klaw.llm.client import Meter
from klaw.llm.provider import Route
from klaw.llm.slots import Priority
from klaw.llm.types import ChatMessage, Completion, Delta, Request, TextDelta, ToolDescription
from klaw.store.kinds import messages as stored_messages
from klaw.store.sql.pending import ChatRows, read_rows
from klaw.toolbox.loop import Outcome, Prompt, converse
from klaw.toolbox.registry import tools_tokens
from klaw.toolbox.spec import ToolContext

log = structlog.get_logger("klaw.turn")


@attrs.define(kw_only=True)
class Turn:
    """A running turn. ``run`` is called once; ``stop`` may come at any time."""

    id: str
    chat: ChatId
    agent: Agent
    vitals: Vitals
    scope: trio.CancelScope = attrs.Factory(trio.CancelScope)
    over: trio.Event = attrs.Factory(trio.Event)
    stopped: bool = False
    step: Step | None = None
    """What is being done before the answer begins."""
    _rows: ChatRows | None = None
    _route: Route | None = None
    _tools: tuple[ToolDescription, ...] = ()
    _gatherer: Gatherer | None = None
    _rounds: Rounds | None = None
    _receipt: dict[str, Any] = attrs.Factory(dict)
    _timings: dict[str, float] = attrs.Factory(dict)
    _began: float = 0.0
    _pieces: list[str] = attrs.Factory(list)
    _length: int = 0
    _meter: Meter | None = None
    _answered_by: str = ""

    def stop(self, reason: str) -> None:
        """Cancel it on the user's wish: what was streamed is kept, its messages count as dealt with."""
        self.stopped = True
        self.scope.cancel(reason=reason)

    @property
    def began(self) -> bool:
        """Whether it knows which messages it answers; before that it waits for a slot."""
        return self._rows is not None

    @property
    def answering(self) -> bool:
        """Whether the first piece of the answer has arrived."""
        return bool(self._pieces)

    async def run(self) -> TurnStatus | None:
        """Work through the turn and store its outcome. None when there was nothing to answer.

        Expected failures (the LLM, a full disk) become a failed turn that the user is told of; its messages stay
        pending.

        Raises:
            ActorStopped: the store is gone.

        Cancellation: nothing is stored; the messages stay pending.
        """
        self._began = self.agent.core.clock.now()
        status: TurnStatus | None
        try:
            outcome = None
            with self.scope:
                outcome = await self._answer()
            # Storing is out of the stop's reach: a cancelled append may be committed, and the answer would be stored
            # twice.
            if outcome is not None:
                status = await self._store(outcome.text, TurnStatus.DONE)
            elif self.stopped and self._rows is not None:
                status = await self._store("".join(self._pieces), TurnStatus.STOPPED)
            else:
                status = None
        except ActorStopped:
            raise
        except Exception as error:  # noqa: BLE001 - whatever went wrong, the user is told and the chat goes on
            status = await self._fail(error)
        finally:
            self.over.set()
        return status

    # -- inside ----------------------------------------------------------------------------------------------------

    async def _answer(self) -> Outcome | None:
        """Ask the model. None when there is nothing to answer."""
        agent = self.agent
        async with AsyncExitStack() as slot:
            await self._take(slot)
            begin = trio.current_time()
            rows = await agent.core.readers.run(
                read_rows, self.chat, agent.core.config.window_rows, summarised=agent.core.config.summaries.enabled
            )
            if rows is None:
                return None
            self._rows = rows
            agent.core.events.emit(TurnStarted(chat=self.chat, turn=self.id, last_seq=rows.pending[-1].seq))
            self._meter = agent.llm.meter()
            self._route = route = agent.llm.router.route(rows.session.model, key="/model")
            about = ToolContext(
                user=rows.session.user,
                chat=self.chat,
                turn=self.id,
                model=route.name,
                before_seq=rows.pending[0].seq,
                trail=resumed_trail(rows.unfinished, agent.tools.executor.toolbox),
            )
            if route.tools and agent.core.config.processing.max_tool_call_rounds:
                await agent.workspace.refresh_skills()
                self._tools = agent.tools.executor.toolbox.describe(about)
            prompt = await self._prompt(rows, route)
            self._timings["context"] = (trio.current_time() - begin) * 1000
            return await self._converse(rows, route, prompt, about, slot)

    async def _take(self, slot: AsyncExitStack) -> None:
        """Wait for an LLM slot."""
        if self.agent.llm.slots.full:
            self._tell(Step.QUEUED)
        await slot.enter_async_context(self.agent.llm.slots.slot(Priority.INTERACTIVE, vitals=self.vitals))

    def _tell(self, step: Step) -> None:
        self.step = step
        self.agent.core.events.emit(Progressed(chat=self.chat, turn=self.id, step=step))

    async def _prompt(self, rows: ChatRows, route: Route) -> Prompt:
        self._tell(Step.RECALLING)
        if self._gatherer is None:
            assert self._meter is not None
            self._gatherer = Gatherer(agent=self.agent, vitals=self.vitals, rows=rows, meter=self._meter)
        gathered = await self._gatherer.gather(self._budget(route), tools_tokens(self._tools))
        context, self._receipt = gathered.context, gathered.receipt
        usable = self._receipt["budget"]["usable_tokens"]
        return Prompt(messages=context.messages, max_tokens=usable - tools_tokens(self._tools))

    def _budget(self, route: Route) -> Budget:
        return Budget(
            context_tokens=route.context_tokens,
            reply_reserve_tokens=self.agent.core.config.context.reply_reserve_tokens,
            correction=self.agent.llm.correction.of(route.name),
        )

    async def _converse(
        self, rows: ChatRows, route: Route, prompt: Prompt, about: ToolContext, slot: AsyncExitStack
    ) -> Outcome:
        """Ask the model and carry out its calls until it answers; when the prompt proves too long, shorten it once.

        Args:
            rows: what the turn answers.
            route: who is asked.
            prompt: the first messages.
            about: for whom tools are called.
            slot: holds the LLM slot of the first call; it is given back after each call and taken again for the next.
        """
        agent, config = self.agent, self.agent.core.config
        holding = True

        async def ask(messages: tuple[ChatMessage, ...], tools: tuple[ToolDescription, ...]) -> Completion:
            nonlocal holding
            if not holding:
                await self._take(slot)
            try:
                return await self._ask(route, messages, tools)
            finally:
                holding = False
                await slot.aclose()

        async def shorter(refused: tuple[ChatMessage, ...], error: ContextTooLong) -> Prompt:
            if error.context_tokens is not None and error.context_tokens < route.context_tokens:
                # A fallback with a shorter context.
                return await self._prompt(rows, attrs.evolve(route, context_tokens=error.context_tokens))
            agent.llm.correction.overflowed(
                route.name,
                refused=request_tokens(refused) + tools_tokens(self._tools),
                usable=self._budget(route).usable,  # not the receipt's: the rounds before taught a better correction
            )
            return await self._prompt(rows, route)

        earlier = sum(message.type is Kind.TOOL_CALL for message in rows.unfinished)
        self._rounds = Rounds(
            chat=self.chat,
            turn=self.id,
            writer=agent.core.writer,
            composer=agent.composer,
            events=agent.core.events,
            vitals=self.vitals,
            stored=self._begin_anew,
        )
        claims = Claims(about.trail)
        try:
            outcome = await converse(
                prompt,
                self._tools,
                ask,
                executor=agent.tools.executor,
                context=about,
                hooks=self._rounds,
                new_id=agent.core.new_id,
                max_rounds=config.processing.max_tool_call_rounds,
                rounds_done=earlier,
                shorter=shorter,
                correct=claims.object_to,
            )
            outcome = claims.settle(outcome)
        finally:
            if self._tools:
                self._receipt["tools"] = self._rounds.describe(len(self._tools), earlier)
            if claims.account is not None:
                self._receipt["save_claim"] = claims.account
        if not outcome.text.strip():
            raise ProviderMalformed("the model only called tools and gave no answer")
        return outcome

    async def _ask(
        self, route: Route, messages: tuple[ChatMessage, ...], tools: tuple[ToolDescription, ...]
    ) -> Completion:
        """One LLM call."""
        config = self.agent.core.config
        request = Request(
            model=route.model,
            messages=messages,
            tools=tools,
            stable_messages=len(messages) if tools else 0,  # the next round sends them again
            temperature=config.llm.temperature,
            max_tokens=min(route.max_output_tokens, config.context.reply_reserve_tokens),
        )
        self._begin_anew()
        self.vitals.doing("waiting for the model")
        self._tell(Step.THINKING)
        begin = trio.current_time()
        assert self._meter is not None
        completion = await self._meter.stream(route, request, self._on_delta)
        self._timings["llm"] = self._timings.get("llm", 0.0) + (trio.current_time() - begin) * 1000
        self._answered_by = completion.model or route.name
        if completion.usage is not None:
            self.agent.llm.correction.learn(
                self._answered_by,
                estimated=request_tokens(messages) + tools_tokens(tools),
                reported=completion.usage.prompt_tokens,
            )
        return completion

    def _begin_anew(self) -> None:
        """What was streamed so far is stored, or was never shown: the next piece has offset 0."""
        self._pieces.clear()
        self._length = 0

    def _on_delta(self, delta: Delta) -> None:
        if not isinstance(delta, TextDelta):
            return
        if not self._pieces:
            self.vitals.doing("streaming the answer")
        text = clean(delta.text)
        self.agent.core.events.emit(TextStreamed(chat=self.chat, turn=self.id, offset=self._length, text=text))
        self._pieces.append(text)
        self._length += len(text)

    async def _store(self, text: str, status: TurnStatus) -> TurnStatus:
        assert self._rows is not None
        self.vitals.doing("storing the answer")
        answer = clean(text)
        metadata: dict[str, Any] = {"turn": self.id}
        if status is TurnStatus.STOPPED:
            metadata["stopped"] = True
        message = self.agent.composer.own(self.chat, Role.ASSISTANT, Kind.TEXT, answer, metadata)
        record = self._record(self._rows, status, None)
        await self.agent.core.writer.run(stored_messages.append, [message] if answer.strip() else [], record)
        self.agent.memory.embedder.nudge()
        self._end(status, None, None)
        return status

    async def _fail(self, error: Exception) -> TurnStatus:
        """Record a failure and tell the user what to do; the messages stay pending."""
        code, text = describe_failure(error)
        log.warning("turn_failed", code=code, error=error_class(error), where=where(error))
        if self._rows is not None:
            try:
                await self.agent.core.writer.run(
                    stored_messages.append, [], self._record(self._rows, TurnStatus.FAILED, code)
                )
            except StorageFull:
                log.error("turn_not_recorded", code="storage_full")
        self._end(TurnStatus.FAILED, code, text)
        return TurnStatus.FAILED

    def _record(self, rows: ChatRows, status: TurnStatus, error: str | None) -> TurnRecord:
        now = self.agent.core.clock.now()
        return TurnRecord(
            id=self.id,
            chat=self.chat,
            user=rows.session.user,
            segment=rows.session.segment,
            status=status,
            model=self._answered_by or (self._route.name if self._route else ""),
            first_seq=rows.pending[0].seq,
            last_seq=rows.pending[-1].seq,
            started_at=iso(self._began),
            ended_at=iso(now),
            error=error,
            receipt=self._receipt,
            usage=self._meter.record() if self._meter is not None else {},
            timings={name: round(spent, 2) for name, spent in self._timings.items()},
        )

    def _end(self, status: TurnStatus, code: str | None, text: str | None) -> None:
        self.agent.core.events.emit(TurnEnded(chat=self.chat, turn=self.id, status=status, code=code, text=text))
        self.agent.memory.summarizer.turn_ended(self.chat)
        log.info("turn_ended", status=status.value, code=code)
