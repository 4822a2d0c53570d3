"""The agent loop: rounds, limits, budgets, what it stores and what it sends."""

import itertools
import json
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import attrs
import pytest

from klaw.agent.conversation import LAST_ROUND, Conversation, Ending, ModelCall
from klaw.config.memory import ContextConfig
from klaw.config.schema import EngineConfig, ProcessingConfig
from klaw.context.inputs import SAFETY, Budget
from klaw.domain.message import MessageKind, Role
from klaw.domain.names import LOCAL_USER
from klaw.llm.client import TokenCorrection
from klaw.llm.errors import ContextTooLong, ProviderNetworkError
from klaw.llm.providers.adapt import request_tokens, tools_tokens
from klaw.llm.types import ChatMessage, Completion, Delta, Request, Route, ToolCall, ToolDescription, Usage
from klaw.toolbox.executor import Executor
from klaw.toolbox.spec import Permission, Toolbox, ToolContext, tool

CONTEXT = ToolContext(user=LOCAL_USER, chat=None, run="r1")
MESSAGES = (ChatMessage(role="user", content="Что у меня сегодня?"),)
MAX_TOKENS, RESERVE = 4000, 500
"""What the messages may take, and what is kept free for the answer."""
TOO_LONG = ContextTooLong("too long", status=400, retryable=False)


@tool(permission=Permission.READ)
async def look(_context: ToolContext, much: int = 1) -> str:
    """Look."""
    return "a line of text\n" * much


@attrs.define
class Script:
    """A model that says what it is told, and the hooks' record."""

    answers: list[Completion | Exception]
    requests: list[tuple[tuple[ChatMessage, ...], tuple[ToolDescription, ...]]] = attrs.Factory(list)
    record: list[tuple[str, Any]] = attrs.Factory(list)

    async def context(self, _budget: Budget, _tools_tokens: int) -> tuple[ChatMessage, ...]:
        return MESSAGES

    @asynccontextmanager
    async def call(self, _estimated: int, most: int) -> AsyncIterator[ModelCall]:
        yield ModelCall(answer_tokens=most)

    def heard(self, delta: Delta) -> None:
        raise AssertionError(delta)

    async def stream(self, _route: Route, request: Request, _heard: Any) -> Completion:
        self.requests.append((request.messages, request.tools))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def keep(self, _role: Role, kind: MessageKind, text: str, metadata: dict[str, Any]) -> None:
        if kind is MessageKind.TOOL_CALL:
            self.record.append(("called", [text, *(each["id"] for each in metadata["calls"])]))
        else:
            self.record.append(("ended", metadata["call"]))

    def tool_used(self, call: ToolCall, state: str, _what: str) -> None:
        if state == "started":
            self.record.append((state, call.id))


def wants(*calls: str, text: str = "", usage: Usage | None = None, **arguments: Any) -> Completion:
    made = tuple(ToolCall(id=each, name="look", arguments=json.dumps(arguments)) for each in calls)
    return Completion(text=text, tool_calls=made, finish_reason="tool_calls", usage=usage)


def says(text: str, usage: Usage | None = None) -> Completion:
    return Completion(text=text, usage=usage)


async def run(
    script: Script, *, tools: bool = True, reply_tokens: int = 0, max_rounds: int = 10, **options: Any
) -> Conversation:
    toolbox = Toolbox()
    toolbox.register(look)
    ids = (f"new{number}" for number in itertools.count(1))
    config = EngineConfig(
        processing=ProcessingConfig(max_tool_call_rounds=max_rounds),
        context=ContextConfig(reply_reserve_tokens=RESERVE),
    )
    agent = SimpleNamespace(
        core=SimpleNamespace(config=config, new_id=lambda: next(ids)),
        llm=SimpleNamespace(correction=TokenCorrection()),
        tools=SimpleNamespace(executor=Executor(toolbox=toolbox)),
    )
    offered = toolbox.describe(CONTEXT) if tools else ()
    length = math.ceil((MAX_TOKENS + tools_tokens(offered) + RESERVE) / SAFETY)
    route = Route(
        provider=None,  # type: ignore[arg-type]
        name="test/m",
        model="m",
        context_tokens=length,
        max_output_tokens=reply_tokens,
        tools=tools,
    )
    conversation = Conversation(
        agent=agent,  # type: ignore[arg-type]
        host=script,
        route=route,
        meter=script,  # type: ignore[arg-type]
        about=CONTEXT,
        **options,
    )
    await conversation.run()
    return conversation


async def test_an_answer_without_calls_ends_it() -> None:
    script = Script([says("Ничего.", Usage(prompt_tokens=10, completion_tokens=3))])
    outcome = await run(script)
    assert (outcome.text, outcome.ending, outcome.rounds, outcome.calls) == ("Ничего.", Ending.ANSWERED, 0, ())
    assert script.record == []


async def test_each_round_is_stored_before_its_tools_run() -> None:
    script = Script([wants("a", "b", text="Смотрю"), wants("a"), says("Всё.")])
    outcome = await run(script)
    assert (outcome.rounds, outcome.calls, outcome.llm_calls) == (2, ("look", "look", "look"), 3)
    assert script.record[0] == ("called", ["Смотрю", "a", "b"])
    assert sorted(script.record[1:5]) == [("ended", "a"), ("ended", "b"), ("started", "a"), ("started", "b")]
    # The second round's id was taken.
    assert script.record[5:] == [("called", ["", "new1"]), ("started", "new1"), ("ended", "new1")]
    messages, tools = script.requests[-1]
    assert [m.role for m in messages] == ["user", "assistant", "tool", "tool", "assistant", "tool"]
    assert [m.tool_call_id for m in messages if m.role == "tool"] == ["a", "b", "new1"]
    assert [each.name for each in tools] == ["look"]


async def test_the_last_call_has_no_tools_and_says_so() -> None:
    script = Script([wants("a"), wants("b"), says("Вот.")])
    outcome = await run(script, max_rounds=2)
    assert (outcome.text, outcome.ending, outcome.rounds) == ("Вот.", Ending.ROUNDS, 2)
    assert [len(tools) for _, tools in script.requests] == [1, 1, 0]
    assert script.requests[-1][0][-1].content.endswith(LAST_ROUND)
    assert LAST_ROUND not in script.requests[-2][0][-1].content


async def test_a_model_that_calls_tools_it_is_not_offered_ends_with_what_it_said() -> None:
    outcome = await run(Script([wants("a"), wants("b", text="")]), max_rounds=1)
    assert (outcome.text, outcome.ending, outcome.rounds) == ("", Ending.ROUNDS, 1)
    outcome = await run(Script([wants("a", text="I cannot.")]), tools=False)
    assert (outcome.text, outcome.ending, outcome.rounds) == ("I cannot.", Ending.ANSWERED, 0)


@pytest.mark.parametrize(("done", "offered"), [(9, [1, 0]), (10, [0]), (20, [0])])
async def test_rounds_of_an_interrupted_conversation_count(done: int, offered: list[int]) -> None:
    script = Script([*[wants("a")] * (len(offered) - 1), says("ok")])
    await run(script, rounds_done=done)
    assert [len(tools) for _, tools in script.requests] == offered


async def test_the_budget_ends_with_a_last_call_without_tools() -> None:
    used = Usage(prompt_tokens=500, completion_tokens=100)
    script = Script([wants("a", usage=used), wants("b", usage=used), says("Коротко.", used)])
    outcome = await run(script, max_tokens=1500, reply_tokens=100)
    assert (outcome.text, outcome.ending) == ("Коротко.", Ending.BUDGET)
    assert [len(tools) for _, tools in script.requests] == [1, 1, 0]


async def test_a_budget_that_is_spent_ends_without_another_call() -> None:
    used = Usage(prompt_tokens=5000, completion_tokens=100)
    script = Script([wants("a", usage=used)])
    outcome = await run(script, max_tokens=5000)
    assert (outcome.text, outcome.ending, outcome.rounds, outcome.llm_calls) == ("", Ending.BUDGET, 1, 1)
    script = Script([])
    outcome = await run(script, max_tokens=10)
    assert (outcome.text, outcome.ending, outcome.llm_calls) == ("", Ending.BUDGET, 0)


async def test_long_results_are_shortened_to_the_prompts_limit() -> None:
    script = Script([wants("a", much=600), wants("b", much=600), wants("c", much=600), says("ok")])
    await run(script)
    sizes = [request_tokens(messages) for messages, _ in script.requests]
    assert max(sizes) <= MAX_TOKENS
    newest = script.requests[-1][0][-1].content
    assert newest.count("a line of text") > 500


async def test_a_prompt_that_is_too_long_is_made_shorter_once() -> None:
    script = Script([wants("a", much=300), TOO_LONG, says("ok")])
    outcome = await run(script)
    assert (outcome.text, outcome.llm_calls) == ("ok", 2)
    first, second = (request_tokens(messages) for messages, _ in script.requests[-2:])
    assert second < 0.95 * first
    with pytest.raises(ContextTooLong):
        await run(Script([TOO_LONG, TOO_LONG]))


async def test_a_failing_call_keeps_what_was_stored() -> None:
    script = Script([wants("a"), ProviderNetworkError("gone")])
    with pytest.raises(ProviderNetworkError):
        await run(script)
    assert [what for what, _ in script.record] == ["called", "started", "ended"]


async def test_what_a_hook_raises_ends_it() -> None:
    class Full(Script):
        async def keep(self, _role: Role, _kind: MessageKind, _text: str, _metadata: dict[str, Any]) -> None:
            raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        await run(Full([wants("a")]))
