"""The conversation of a model and its tools: ask, carry out its calls, ask again, until there is an answer.

Turns of chats and runs of tasks are such conversations; what differs is their ``Host``. After the last round of tools
comes one call without them. When the provider finds the messages too long, they are made shorter, once. No slot is held
while tools run."""

import enum
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import attrs
import structlog

from klaw.actor.failure import error_class
from klaw.agent.agent import Agent
from klaw.agent.claims import Claims
from klaw.context.inputs import Budget
from klaw.context.request import make_room
from klaw.domain import tokens
from klaw.domain.message import CLIENT_CALLS, ECHO, MessageKind, Role
from klaw.domain.text import clean
from klaw.errors import ConfigError, KlawError, StorageFull
from klaw.llm.client import Meter
from klaw.llm.errors import BadCall, ContextTooLong, ProviderError, ProviderMalformed, ProviderRefused
from klaw.llm.providers.adapt import (
    images_as_text,
    message_tokens,
    request_tokens,
    rounds_as_text,
    stored_echo,
    tools_tokens,
)
from klaw.llm.providers.dialect import EmptyAnswer
from klaw.llm.types import (
    ChatMessage,
    Completion,
    Delta,
    ModelOptions,
    Request,
    Route,
    ToolCall,
    ToolDescription,
    Usage,
)
from klaw.toolbox import web_sources
from klaw.toolbox.executor import MAX_CALLS, CallResult, PreparedCall, in_short, prepare
from klaw.toolbox.spec import ToolContext

log = structlog.get_logger("klaw.turn")

BAD_REQUEST = frozenset({400, 413, 415, 422})
MAX_PICTURES = 8
PICTURES_OF = "[Klaw: the pictures of the result of {name}]"
MAX_BAD_CALLS = 2
BAD_CALL = (
    "[Klaw: you meant to call a tool, but the call could not be read. Call it again, with its arguments as one JSON"
    " object, or answer without it.]"
)
"""The reply to such a call. Not stored."""
ONE_AT_A_TIME = "Only one of these tools is called at a time. Call this one again in the next round."
LAST_ROUND = "[No more tools can be used now. Answer with what you have.]"
"""Stands behind the last result of the request that must be answered without tools. Not stored."""


@attrs.frozen(kw_only=True)
class ModelCall:
    """A call of a model that the limits allow, with at most ``answer_tokens`` of thinking and answer."""

    answer_tokens: int
    count: Callable[[Usage], None] = lambda _usage: None
    """To be called with what the call used; estimated where the provider does not count."""


class Host(Protocol):
    async def context(self, budget: Budget, tools_tokens: int) -> tuple[ChatMessage, ...]:
        """The messages to begin with. Called again when they prove too long."""
        ...

    def call(self, estimated: int, most: int) -> AbstractAsyncContextManager[ModelCall]:
        """An LLM slot, or a share of a limit, for a request of ``estimated`` tokens and at most ``most`` of answer and
        thinking."""
        ...

    def heard(self, delta: Delta) -> None:
        """A piece of the model's answer arrived. Must not raise."""
        ...

    async def keep(self, role: Role, kind: MessageKind, text: str, metadata: dict[str, Any]) -> None:
        """Store a message with calls of tools, or with the result of one; several results may come at once."""
        ...

    def tool_used(self, call: ToolCall, state: str, what: str) -> None:
        """A tool has ``started``, with ``what`` arguments in short, is ``done``, or ``failed``. Must not raise."""
        ...


class Ending(enum.StrEnum):
    """Why a conversation ended. When rounds or tokens are used up, the text is the answer to a last call without tools;
    empty when there were not even enough tokens for that."""

    ANSWERED = "answered"
    HANDED_OVER = "handed_over"
    """Tools of the program that asks were called: it carries them out."""
    ROUNDS = "rounds"
    BUDGET = "budget"


@attrs.define(kw_only=True)
class Conversation:
    """The conversation of one turn, or of one run, and its outcome. An exception of the host ends it."""

    agent: Agent
    host: Host
    route: Route
    meter: Meter
    about: ToolContext
    rounds_done: int = 0
    """Rounds of an interrupted conversation that this one goes on with; they count."""
    max_tokens: int | None = None
    """Prompts and answers of all calls together; None for no limit."""
    options: ModelOptions = attrs.Factory(ModelOptions)
    text: str = attrs.field(init=False, default="")
    """The final answer; may be empty when the model only wanted tools that it could not have."""
    ending: Ending = attrs.field(init=False, default=Ending.ANSWERED)
    rounds: int = attrs.field(init=False, default=0)
    tools: tuple[ToolDescription, ...] = attrs.field(init=False, default=())
    """What the model is offered; none asks it once."""
    accounts: dict[str, dict[str, Any]] = attrs.field(init=False, factory=dict)
    """For the receipt, by id of the call: name, round, and once it ended state, length and time."""
    llm_calls: int = attrs.field(init=False, default=0)
    finish_reason: str = attrs.field(init=False, default="stop")
    """Why the last call ended."""
    images: tuple[bytes, ...] = attrs.field(init=False, default=())
    """Pictures that are part of the answer; files, unchecked."""
    answered_by: str = attrs.field(init=False, default="")
    adapted: tuple[str, ...] = attrs.field(init=False, default=())
    """What its model turned out to refuse, see ``Completion.adapted``."""
    thinking_tokens: int = attrs.field(init=False, default=0)
    """Of all calls, see ``Completion.thinking_tokens``."""
    claims: Claims = attrs.field(init=False)
    _client: frozenset[str] = attrs.field(init=False)
    """The program's tools, by the names under which the model is offered them."""
    _prompt: tuple[ChatMessage, ...] = attrs.field(init=False)
    """The messages of the first request."""
    _max_prompt_tokens: int = attrs.field(init=False)
    """Estimated tokens that the messages of any request may take; results of tools are shortened to it."""
    _shortened: bool = attrs.field(init=False, default=False)
    """The provider found the messages too long, and they were made shorter."""
    _tail: list[ChatMessage] = attrs.field(init=False, factory=list)
    _ids: set[str] = attrs.field(init=False)
    _pictures: int = attrs.field(init=False, default=0)
    _bad_calls: int = attrs.field(init=False, default=0)
    _spent: int = attrs.field(init=False, default=0)
    """Tokens of all calls; estimated where the provider does not count."""

    def __attrs_post_init__(self) -> None:
        self.claims = Claims(self.about.trail)
        wanted, most_rounds = self.options, self.agent.core.config.processing.max_tool_call_rounds
        if self.route.tools and most_rounds and wanted.form is None and wanted.tool_choice in ("auto", "none"):
            self.tools = self.agent.tools.executor.toolbox.describe(self.about)
        offered = wanted.offered({tool.name for tool in self.tools})
        self.tools += tuple(attrs.evolve(tool, name=name) for name, tool in offered.items())
        self._client = frozenset(offered)

    @property
    def calls(self) -> tuple[str, ...]:
        """Names of the tools that were called, in order."""
        return tuple(account["name"] for account in self.accounts.values())

    def describe_tools(self) -> dict[str, Any]:
        """The receipt's part about tools: no arguments and no results."""
        told: dict[str, Any] = {"offered": len(self.tools), "rounds": self.rounds, "calls": [*self.accounts.values()]}
        return {**told, "earlier_rounds": self.rounds_done} if self.rounds_done else told

    @property
    def reply_tokens(self) -> int:
        most = min(self.route.max_output_tokens, self.agent.core.config.context.reply_reserve_tokens)
        return min(most, self.options.max_tokens or most)

    async def run(self) -> None:
        """Ask the model until it answers without calling tools, or calls those of the program that asks. Raises
        ProviderError; what was recorded stays."""
        if self._client and not self.route.tools:
            raise ProviderRefused(f"tools: {self.route.name} takes no tools", status=400, retryable=False)
        await self._begin(self.route)
        self._ids = {call.id for message in self._prompt for call in message.tool_calls}
        while True:
            last = self._last_call()
            if last is Ending.BUDGET and not self._affords(calls=1):
                self.ending = Ending.BUDGET
                return
            try:
                completion = await self._ask(() if last else self.tools, final=last is not None and bool(self._tail))
            except BadCall:
                self._bad_calls += 1
                if self._bad_calls > MAX_BAD_CALLS or last is not None:
                    raise
                self._tail.append(ChatMessage(role="user", content=BAD_CALL))
                continue
            if last is None and completion.tool_calls:
                if not await self._carry_out(completion):
                    continue
                self.text, self.ending = completion.text, Ending.HANDED_OVER
                return
            if self.options.forced is not None:
                raise ProviderMalformed("tool_choice: the model called no tool, although it must")
            # Once, and while tools can still be called; neither the answer nor the hint is stored.
            has_form, may_call = self.options.form is not None, last is None and self.claims.account is None
            hint = self.claims.object_to(completion.text) if may_call and not has_form else None
            if hint is None:  # a note would break a form
                self.text = completion.text if has_form else self.claims.settle(completion.text)
                self.ending = last or Ending.ANSWERED
                self.images = completion.images
                return
            self._tail.append(ChatMessage(role="assistant", content=completion.text))
            self._tail.append(ChatMessage(role="user", content=hint))

    def _budget(self, route: Route) -> Budget:
        return Budget(
            context_tokens=route.context_tokens - route.thinking_tokens,
            reply_reserve_tokens=self.agent.core.config.context.reply_reserve_tokens,
            correction=self.agent.llm.correction.of(route.name),
        )

    async def _begin(self, route: Route) -> None:
        budget, own = self._budget(route), tools_tokens(self.tools)
        prompt, self._max_prompt_tokens = await self.host.context(budget, own), budget.usable - own
        self._prompt = prompt if route.tools else rounds_as_text(prompt)

    async def _begin_shorter(self, refused: tuple[ChatMessage, ...], error: ContextTooLong) -> None:
        route = self.route
        if error.context_tokens is not None and error.context_tokens < route.context_tokens:
            route = attrs.evolve(route, context_tokens=error.context_tokens)  # a fallback with a shorter context
        else:
            too_many, usable = request_tokens(refused) + tools_tokens(self.tools), self._budget(route).usable
            self.agent.llm.correction.overflowed(route.name, refused=too_many, usable=usable)
        await self._begin(route)

    def _request(self, *, final: bool) -> tuple[ChatMessage, ...]:
        messages = [*self._prompt, *self._tail]
        if final:
            messages[-1] = attrs.evolve(messages[-1], content=f"{messages[-1].content}\n\n{LAST_ROUND}")
        return make_room(messages, len(self._prompt), self._max_prompt_tokens)

    def _affords(self, *, calls: int) -> bool:
        if self.max_tokens is None:
            return True
        following = request_tokens(self._request(final=False)) + self.reply_tokens + self.route.thinking_tokens
        return self._spent + calls * following <= self.max_tokens

    def _last_call(self) -> Ending | None:
        """Whether the next call must be the last, without tools, and why."""
        if not self.tools:
            return Ending.ANSWERED
        most_rounds = self.agent.core.config.processing.max_tool_call_rounds
        if len(self._client) < len(self.tools) and self.rounds_done + self.rounds >= most_rounds:
            return Ending.ROUNDS
        # A round costs two calls: the one that asks for tools, and the one that makes something of their results.
        return None if self._affords(calls=2) else Ending.BUDGET

    async def _ask(self, tools: tuple[ToolDescription, ...], *, final: bool) -> Completion:
        messages = self._request(final=final)
        try:
            completion = await self._call(messages, tools)
        except ContextTooLong as error:
            if self._shortened:
                raise
            self._shortened = True
            await self._begin_shorter(messages, error)
            messages = self._request(final=final)
            completion = await self._call(messages, tools)
        except ProviderRefused as error:
            if error.status not in BAD_REQUEST or not any(message.images for message in messages):
                raise
            # It may be a picture that it cannot read, which would fail every turn as long as it is in the window.
            log.warning("asked_without_pictures", status=error.status)
            self._prompt = images_as_text(self._prompt)
            self._tail = list(images_as_text(self._tail))
            messages = self._request(final=final)
            completion = await self._call(messages, tools)
        except EmptyAnswer as error:
            if error.finish_reason != "content_filter":
                raise
            completion = Completion(text="", finish_reason=error.finish_reason, usage=error.usage)
        self.llm_calls += 1
        self.finish_reason = completion.finish_reason
        used = _usage(request_tokens(messages), completion)
        self._spent += used.prompt_tokens + used.completion_tokens
        return completion

    async def _call(self, messages: tuple[ChatMessage, ...], tools: tuple[ToolDescription, ...]) -> Completion:
        route, wanted, estimated = self.route, self.options, request_tokens(messages) + tools_tokens(tools)
        most = self.reply_tokens + route.thinking_tokens
        async with self.host.call(estimated, most) as call:
            request = Request(
                model=route.model,
                messages=messages,
                tools=tools,
                stable_messages=len(messages) if tools else 0,  # the next round sends them again
                temperature=self.agent.core.config.llm.temperature
                if wanted.temperature is None
                else wanted.temperature,
                max_tokens=min(self.reply_tokens, call.answer_tokens),
                most_tokens=call.answer_tokens,
                json_schema=wanted.form,
                tool_choice=wanted.forced,
                parallel_calls=wanted.parallel_calls,
                sampling=wanted.sampling,
            )
            completion = await self.meter.stream(route, request, self.host.heard)
            self.answered_by = completion.model or route.name
            self.adapted = completion.adapted
            self.thinking_tokens += completion.thinking_tokens
            call.count(_usage(estimated, completion))
        if completion.usage is not None and not any(message.images for message in messages):
            reported = completion.usage.prompt_tokens
            self.agent.llm.correction.learn(self.answered_by, estimated=estimated, reported=reported)
        return completion

    async def _carry_out(self, completion: Completion) -> bool:
        """Returns whether the program has to carry out some of the calls."""
        made = prepare(completion.tool_calls, taken=self._ids, new_id=self.agent.core.new_id, most=MAX_CALLS)
        by_id = {each.call.id: each for each in self._told_apart(made)}
        self._ids |= by_id.keys()
        calls, own = tuple(by_id.values()), tuple(each.call for each in by_id.values())
        asked = [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in own]
        kept: dict[str, Any] = {ECHO: echo} if (echo := stored_echo(completion.echo)) is not None else {}
        if of_client := [each.call for each in calls if self._is_of_client(each)]:
            kept[CLIENT_CALLS] = [call.id for call in of_client]
        await self.host.keep(Role.ASSISTANT, MessageKind.TOOL_CALL, clean(completion.text), {"calls": asked, **kept})
        self.rounds += 1
        for call in own:
            state = "handed over" if call in of_client else "interrupted"
            self.accounts[call.id] = {"name": call.name, "round": self.rounds, "state": state}
        results = await self.agent.tools.executor.run(
            [each for each in calls if not self._is_of_client(each)],
            self.about,
            on_start=lambda call: self.host.tool_used(call, "started", in_short(by_id[call.id].arguments)),
            on_result=self._ended,
        )
        said = ChatMessage(role="assistant", content=completion.text, tool_calls=own, echo=completion.echo)
        self._tail.append(said)
        self._tail += [ChatMessage(role="tool", content=r.text, tool_call_id=r.call.id) for r in results]
        for result in results:
            pictures = result.pictures[: MAX_PICTURES - self._pictures]
            self._pictures += len(pictures)
            if pictures:  # providers take them from users only
                told = PICTURES_OF.format(name=result.call.name)
                self._tail.append(ChatMessage(role="user", content=told, images=pictures))
        return bool(of_client)

    def _is_of_client(self, call: PreparedCall) -> bool:
        return call.problem is None and call.call.name in self._client

    def _told_apart(self, calls: Sequence[PreparedCall]) -> Iterator[PreparedCall]:
        """The calls; the program's have ids that no other turn has, since its next request tells no more."""
        left = MAX_CALLS if self.options.parallel_calls else 1
        for each in calls:
            if self._is_of_client(each):
                own = attrs.evolve(each.call, id=f"call_{self.agent.core.new_id()}")
                yield attrs.evolve(each, call=own, problem=None if left else ONE_AT_A_TIME)
                left -= bool(left)
            else:
                yield each

    async def _ended(self, result: CallResult) -> None:
        call, state = result.call, "failed" if result.failed else "done"
        self.accounts[call.id] |= {"state": state, "chars": result.chars, "duration_ms": round(result.duration_ms, 1)}
        metadata: dict[str, Any] = {"call": call.id, "name": call.name, "error": result.failed}
        if result.origin != "tool":  # the role does not show it
            metadata["origin"] = result.origin
        if brought := self.about.trail.sources.brought_by(call.id):
            metadata[web_sources.KEY] = brought
        await self.host.keep(Role.TOOL, MessageKind.TOOL_RESULT, result.text, metadata)
        self.host.tool_used(call, state, "")


def describe_failure(error: Exception) -> tuple[str, str]:
    """Error code and note for the record of a turn or a run. Never quotes the provider or unknown errors."""
    match error:
        case ProviderError():
            return error.code, str(error)
        case StorageFull():
            return "storage_full", "the disk is full or read-only"
        case ConfigError():
            return "config", str(error)
        case KlawError():
            return "failed", f"it could not be carried out ({error_class(error)})"
        case _:
            return "internal", f"an internal error occurred ({error_class(error)}); see the log"


def _usage(estimated: int, completion: Completion) -> Usage:
    """What a call used; its prompt is ``estimated`` where the provider does not count."""
    if completion.usage is not None:
        return completion.usage
    answer = ChatMessage(role="assistant", content=completion.text, tool_calls=completion.tool_calls)
    return Usage(prompt_tokens=estimated, completion_tokens=message_tokens(answer) - tokens.PER_MESSAGE)
