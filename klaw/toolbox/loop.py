"""The agent loop of interactive turns and of subagents' runs: ask the model, carry out its calls, ask again.

At most so many rounds; then one last call without tools. It holds no slot and stores nothing: the caller's ``ask``
takes an LLM slot for the call only, and its ``Hooks`` store each message as it comes to be.
"""

import enum
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias

import attrs

from klaw.context.request import make_room, message_tokens, request_tokens
from klaw.domain import tokens
from klaw.errors import ContextTooLong
from klaw.llm.types import ChatMessage, Completion, ToolDescription, Usage
from klaw.toolbox.calls import PreparedCall, prepare
from klaw.toolbox.executor import MAX_CALLS, CallResult, Executor
from klaw.toolbox.spec import EVERYTHING, Policy, ToolContext

LAST_ROUND = "[No more tools can be used now. Answer with what you have.]"
"""Stands behind the last result of the request that must be answered without tools. Not stored."""


NO_USAGE = Usage(prompt_tokens=0, completion_tokens=0)


@attrs.frozen(kw_only=True)
class Prompt:
    """What a conversation begins with.

    Args:
        messages: of the first request.
        max_tokens: estimated tokens that the messages of any request may take; results of tools are shortened to it.
    """

    messages: tuple[ChatMessage, ...]
    max_tokens: int


Ask: TypeAlias = Callable[[tuple[ChatMessage, ...], tuple[ToolDescription, ...]], Awaitable[Completion]]
"""Makes one LLM call: takes a slot, streams, passes deltas on, gives the slot back. Raises ProviderError."""
Shorter: TypeAlias = Callable[[tuple[ChatMessage, ...], ContextTooLong], Awaitable[Prompt]]
"""Makes another prompt when the provider found the messages too long; gets those it refused, and how it did."""


Correct: TypeAlias = Callable[[str], str | None]
"""Looks at an answer: None when it may stand, else what the model is told, once; it may then call tools."""


class Hooks(Protocol):
    """What the caller does as the conversation goes on. What they raise ends it."""

    async def called(self, text: str, calls: tuple[PreparedCall, ...]) -> None:
        """The model said ``text`` and wants ``calls``. Store the message: the tools run when this returns."""
        ...

    def started(self, call: PreparedCall) -> None:
        """A tool begins. Must not raise."""
        ...

    async def ended(self, result: CallResult) -> None:
        """A tool ended. Store its result. In the order in which they end; may run for several at once."""
        ...


class Ending(enum.StrEnum):
    """Why a conversation ended."""

    ANSWERED = "answered"
    ROUNDS = "rounds"
    """All rounds were used up; the text is the answer to the last call, which offered no tools."""
    BUDGET = "budget"
    """The budget of tokens was used up; the text is the answer to a last call without tools, or empty when there was
    not even enough for that."""


@attrs.frozen(kw_only=True)
class Outcome:
    """How a conversation ended.

    Args:
        text: the final answer; may be empty when the model only wanted tools that it could not have.
        ending: why it ended.
        rounds: rounds of tool calls.
        calls: names of the tools that were called, in order.
        llm_calls: how often the model was asked.
        usage: of all calls together; estimated where the provider does not count.
        usage_known: whether the provider counted every call.
        finish_reason: of the last call.
    """

    text: str
    ending: Ending
    rounds: int
    calls: tuple[str, ...]
    llm_calls: int
    usage: Usage
    usage_known: bool
    finish_reason: str


async def converse(
    prompt: Prompt,
    tools: tuple[ToolDescription, ...],
    ask: Ask,
    *,
    executor: Executor,
    context: ToolContext,
    hooks: Hooks,
    new_id: Callable[[], str],
    max_rounds: int,
    allowed: Policy = EVERYTHING,
    rounds_done: int = 0,
    max_tokens: int | None = None,
    reply_tokens: int = 0,
    shorter: Shorter | None = None,
    correct: Correct | None = None,
) -> Outcome:
    """Ask the model until it answers without calling tools.

    Args:
        prompt: the messages to begin with.
        tools: what the model is offered; none asks it once.
        ask: makes one LLM call.
        executor: carries out the calls.
        context: for whom.
        hooks: see ``Hooks``.
        new_id: for calls without a usable id.
        max_rounds: rounds of tool calls (``processing.maxToolCallRounds``); 0 offers no tools.
        allowed: the policy that ``tools`` was made with.
        rounds_done: rounds of an interrupted conversation that ``prompt`` goes on with; they count.
        max_tokens: prompts and answers of all calls together; None for no limit.
        reply_tokens: what an answer may take, for looking ahead at ``max_tokens``.
        shorter: called at most once, when the provider says that the messages are too long.
        correct: asked about an answer while tools can still be called, until it objects once.

    Raises:
        ProviderError: a call failed; what the hooks stored stays.

    Cancellation: running tools are cancelled; what the hooks stored stays.
    """
    state = _State(prompt=prompt, context=context, executor=executor, shorter=shorter)
    while True:
        last = _last_call(state, tools, rounds_done, max_rounds, max_tokens, reply_tokens)
        if last is Ending.BUDGET and not state.affords(max_tokens, reply_tokens, calls=1):
            return state.outcome("", Ending.BUDGET)
        completion = await state.ask(ask, () if last else tools, final=last is not None and bool(state.tail))
        if last is not None or not completion.tool_calls:
            hint = correct(completion.text) if correct is not None and last is None else None
            if hint is None:
                return state.outcome(completion.text, last or Ending.ANSWERED)
            correct = None
            state.object_to(completion.text, hint)
            continue
        await state.carry_out(completion, allowed, hooks, new_id)


@attrs.define(kw_only=True)
class _State:
    """A conversation under way."""

    prompt: Prompt
    context: ToolContext
    executor: Executor
    shorter: Shorter | None
    tail: list[ChatMessage] = attrs.Factory(list)
    """The rounds so far."""
    names: list[str] = attrs.Factory(list)
    ids: set[str] = attrs.Factory(set)
    rounds: int = 0
    llm_calls: int = 0
    usage: Usage = NO_USAGE
    usage_known: bool = True
    finish_reason: str = "stop"

    def __attrs_post_init__(self) -> None:
        self.ids |= {call.id for message in self.prompt.messages for call in message.tool_calls}

    def request(self, *, final: bool) -> tuple[ChatMessage, ...]:
        """The messages of the next call, within the prompt's limit."""
        messages = [*self.prompt.messages, *self.tail]
        first = len(self.prompt.messages)
        if final:
            messages[-1] = attrs.evolve(messages[-1], content=f"{messages[-1].content}\n\n{LAST_ROUND}")
        return make_room(messages, first, self.prompt.max_tokens)

    def affords(self, max_tokens: int | None, reply_tokens: int, *, calls: int) -> bool:
        """Whether the budget lasts for so many calls like the next one."""
        if max_tokens is None:
            return True
        spent = self.usage.prompt_tokens + self.usage.completion_tokens
        following = request_tokens(self.request(final=False)) + reply_tokens
        return spent + calls * following <= max_tokens

    async def ask(self, ask: Ask, tools: tuple[ToolDescription, ...], *, final: bool) -> Completion:
        messages = self.request(final=final)
        try:
            completion = await ask(messages, tools)
        except ContextTooLong as error:
            if self.shorter is None:
                raise
            shorter, self.shorter = self.shorter, None
            self.prompt = await shorter(messages, error)
            messages = self.request(final=final)
            completion = await ask(messages, tools)
        self.llm_calls += 1
        self.finish_reason = completion.finish_reason
        self._count(messages, completion)
        return completion

    async def carry_out(self, completion: Completion, allowed: Policy, hooks: Hooks, new_id: Callable[[], str]) -> None:
        """One round of tool calls."""
        calls = prepare(completion.tool_calls, taken=self.ids, new_id=new_id, most=MAX_CALLS)
        self.ids |= {prepared.call.id for prepared in calls}
        await hooks.called(completion.text, calls)
        by_id = {prepared.call.id: prepared for prepared in calls}
        results = await self.executor.run(
            calls,
            self.context,
            allowed,
            on_start=lambda call: hooks.started(by_id[call.id]),
            on_result=hooks.ended,
        )
        self.rounds += 1
        self.names += [prepared.call.name for prepared in calls]
        self.tail.append(
            ChatMessage(
                role="assistant", content=completion.text, tool_calls=tuple(prepared.call for prepared in calls)
            )
        )
        self.tail += [ChatMessage(role="tool", content=r.text, tool_call_id=r.call.id) for r in results]

    def object_to(self, answer: str, hint: str) -> None:
        """Have the model answer again. Neither its answer nor the hint is stored."""
        self.tail.append(ChatMessage(role="assistant", content=answer))
        self.tail.append(ChatMessage(role="user", content=hint))

    def outcome(self, text: str, ending: Ending) -> Outcome:
        return Outcome(
            text=text,
            ending=ending,
            rounds=self.rounds,
            calls=tuple(self.names),
            llm_calls=self.llm_calls,
            usage=self.usage,
            usage_known=self.usage_known,
            finish_reason=self.finish_reason,
        )

    def _count(self, messages: tuple[ChatMessage, ...], completion: Completion) -> None:
        used = completion.usage
        if used is None:
            self.usage_known = False
            answer = ChatMessage(role="assistant", content=completion.text, tool_calls=completion.tool_calls)
            used = Usage(
                prompt_tokens=request_tokens(messages),
                completion_tokens=message_tokens(answer) - tokens.PER_MESSAGE,
            )
        self.usage = Usage(
            prompt_tokens=self.usage.prompt_tokens + used.prompt_tokens,
            completion_tokens=self.usage.completion_tokens + used.completion_tokens,
            cached_tokens=_sum(self.usage.cached_tokens, used.cached_tokens),
            cache_write_tokens=_sum(self.usage.cache_write_tokens, used.cache_write_tokens),
        )


def _sum(so_far: int | None, more: int | None) -> int | None:
    """Of counts that a provider may not give."""
    return so_far if more is None else (so_far or 0) + more


def _last_call(
    state: _State,
    tools: tuple[ToolDescription, ...],
    rounds_done: int,
    max_rounds: int,
    max_tokens: int | None,
    reply_tokens: int,
) -> Ending | None:
    """Whether the next call must be the last, without tools, and why."""
    if not tools:
        return Ending.ANSWERED
    if rounds_done + state.rounds >= max_rounds:
        return Ending.ROUNDS
    # A round costs two calls: the one that asks for tools, and the one that makes something of their results.
    if not state.affords(max_tokens, reply_tokens, calls=2):
        return Ending.BUDGET
    return None
