"""Tools for models that cannot call them: over real HTTP, in a chain, counted, and on the real local model."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import attrs
import pytest
import structlog
import trio

from klaw.actor.clock import SystemClock
from klaw.actor.supervisor import Supervisor
from klaw.config.load import parse
from klaw.errors import ProviderMalformed
from klaw.llm.anthropic import AnthropicDialect
from klaw.llm.calling import reply_schema
from klaw.llm.dialect import Dialect
from klaw.llm.fallback import FallbackProvider, Link
from klaw.llm.http import HttpProvider, HttpSettings
from klaw.llm.local.process import ACTOR_NAME, LocalProcess, LocalSettings
from klaw.llm.local.provider import LocalProvider
from klaw.llm.local.state import LocalModel
from klaw.llm.openai import OpenAiDialect
from klaw.llm.provider import Provider
from klaw.llm.router import Router
from klaw.llm.subset import Rules
from klaw.llm.tools_by_schema import ToolsBySchema
from klaw.llm.types import (
    ChatMessage,
    Completion,
    Delta,
    JsonSchema,
    ReasoningDelta,
    Request,
    TextDelta,
    ToolDescription,
)
from klaw.toolbox.calls import parse_arguments
from tests.support.anthropic_server import serve_anthropic
from tests.support.llm_server import Cut, LlmServer, Reasoning, Reply, Text, Tool, error_reply, serve_llm, text_reply
from tests.support.waiting import HANG_S

TOOL = ToolDescription(
    name="search",
    description="Find what was said.",
    parameters={"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]},
)
TWO_CALLS = '{"reply":{"calls":[{"name":"search","arguments":{"q":"кот"}},{"name":"search","arguments":{"q":"dog"}}]}}'

Serve = Callable[[], AbstractAsyncContextManager[LlmServer]]
APIS: dict[str, tuple[Dialect, Serve]] = {
    "openai": (OpenAiDialect(), serve_llm),
    "anthropic": (AnthropicDialect(), serve_anthropic),
}


@attrs.frozen
class World:
    server: LlmServer
    plain: HttpProvider
    provider: Provider


@pytest.fixture(params=APIS)
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    dialect, serve = APIS[request.param]
    with trio.fail_after(HANG_S):
        async with serve() as server:
            plain = HttpProvider(
                HttpSettings(name="test", base_url=server.url, api_key="k", timeout_s=10.0, max_retries=0), dialect
            )
            yield World(server, plain, ToolsBySchema(plain, Rules.STRICT))
            await plain.aclose()


def ask(text: str = "Где кот?", **changes: Any) -> Request:
    messages = (ChatMessage(role="system", content="Klaw."), ChatMessage(role="user", content=text))
    return attrs.evolve(Request(model="m", messages=messages, tools=(TOOL,), max_tokens=50), **changes)


async def call(provider: Provider, request: Request) -> tuple[list[Delta], Completion]:
    deltas: list[Delta] = []
    completion = await provider.stream(request, deltas.append)
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == completion.text
    return deltas, completion


def parts(text: str, size: int = 3) -> Reply:
    return text_reply(*(text[at : at + size] for at in range(0, len(text), size)))


async def test_the_same_tool_conversation_passes_by_schema(world: World) -> None:
    """As ``test_bad_providers`` plays it with native tools: two calls, their results, an answer; once more without."""
    world.server.replies.append(parts(TWO_CALLS))
    request = ask()
    deltas, first = await call(world.provider, request)
    assert deltas == []
    assert [one.arguments for one in first.tool_calls] == ['{"q": "кот"}', '{"q": "dog"}']
    assert len({one.id for one in first.tool_calls}) == 2
    assert (first.text, first.finish_reason, first.model) == ("", "tool_calls", "test/m")
    assert first.usage is not None
    said = ChatMessage(role="assistant", content=first.text, tool_calls=first.tool_calls)
    results = [ChatMessage(role="tool", content=f"r{n}", tool_call_id=one.id) for n, one in enumerate(first.tool_calls)]
    request = attrs.evolve(request, messages=(*request.messages, said, *results))
    world.server.replies.append(parts('{"reply":{"answer":"Кот — \\"Барсик\\"."}}'))
    deltas, second = await call(world.provider, request)
    assert (second.text, second.tool_calls, second.finish_reason) == ('Кот — "Барсик".', (), "stop")
    assert len(deltas) > 3
    world.server.replies.append(text_reply("Да."))
    _, last = await call(world.provider, attrs.evolve(request, tools=()))
    assert last.text == "Да."
    for recorded in world.server.requests[1:]:
        assert "tools" not in recorded.body
        assert [message["role"] for message in recorded.messages if message["role"] != "system"] == [
            "user",
            "assistant",
            "user",
        ]
        sent = json.dumps(recorded.body, ensure_ascii=False)
        assert all(part in sent for part in ("r0", "r1", "кот"))
    bodies = [json.dumps(recorded.body) for recorded in world.server.requests]
    assert [("response_format" in body or "output_config" in body) for body in bodies] == [True, True, False]
    assert [TOOL.description in body for body in bodies] == [True, True, False]


async def test_thinking_passes_through(world: World) -> None:
    world.server.replies.append(Reply(steps=(Reasoning("Хм"), Text('{"reply":{"answer":"Да"}}'))))
    deltas, completion = await call(world.provider, ask())
    assert deltas == [ReasoningDelta("Хм"), TextDelta("Да")]
    assert completion.text == "Да"


async def test_a_model_that_is_only_told(world: World) -> None:
    """No schema is sent; it writes a word, then its calls in a code fence."""
    provider = ToolsBySchema(world.plain, Rules.STRICT, constrained=False)
    world.server.replies.append(parts(f"Сейчас посмотрю.\n```json\n{TWO_CALLS}\n```", 5))
    deltas, completion = await call(provider, ask())
    assert completion.text == "Сейчас посмотрю."
    assert len(completion.tool_calls) == 2
    assert len(deltas) > 1
    body = world.server.requests[0].body
    assert not {"response_format", "output_config"} & set(body)
    world.server.replies.append(text_reply("Просто ", "ответ."))
    _, completion = await call(provider, ask())
    assert (completion.text, completion.tool_calls) == ("Просто ответ.", ())


BROKEN = [
    '{"reply":{"calls":[]}}',
    '{"reply":{"ans',
    '{"reply":{"answer":""}}',
    '{"reply": 5 5}',
    '{"reply":{"answer":" "}}',
]


@pytest.mark.parametrize("reply", BROKEN)
async def test_an_answer_that_is_none(world: World, reply: str) -> None:
    world.server.replies.append(text_reply(reply))
    with pytest.raises(ProviderMalformed):
        await call(world.provider, ask())


async def test_a_call_cut_off_by_the_limit_is_handed_on_broken(world: World) -> None:
    world.server.replies.append(text_reply(TWO_CALLS[:-20], finish_reason="length"))
    _, completion = await call(world.provider, ask())
    assert completion.finish_reason == "length"
    whole, cut = completion.tool_calls
    assert json.loads(whole.arguments) == {"q": "кот"}
    assert parse_arguments(cut.arguments)[1] is not None


async def test_a_chain_goes_on_with_a_model_of_the_other_kind(world: World) -> None:
    """The first one has tools of its own and fails; the one that stands in is asked by a schema."""

    def link(name: str, provider: Provider) -> Link:
        return Link(
            provider=provider,
            name=name,
            model=name,
            context_tokens=4096,
            max_output_tokens=50,
            tools=True,
            images=False,
        )

    chain = FallbackProvider([link("a", world.plain), link("b", world.provider)])
    world.server.replies += [error_reply(401), parts(TWO_CALLS)]
    with structlog.testing.capture_logs():
        deltas, completion = await call(chain, ask())
    assert (deltas, len(completion.tool_calls), completion.model) == ([], 2, "test/b")
    first, second = (recorded.body for recorded in world.server.requests)
    assert "tools" in first
    assert "tools" not in second
    # An empty reply is a failure like any other.
    world.server.replies += [error_reply(401), text_reply('{"reply":{"calls":[]}}')]
    with structlog.testing.capture_logs(), pytest.raises(Exception, match="401"):
        await call(chain, ask())


async def test_a_torn_answer_is_not_repeated(world: World) -> None:
    world.server.replies.append(Reply(steps=(Text('{"reply":{"answer":"Кот'), Cut())))
    deltas: list[Delta] = []
    with pytest.raises(Exception, match=r"broke|cut off"):
        await world.provider.stream(ask(), deltas.append)
    assert deltas == [TextDelta("Кот")]


async def test_the_configuration_says_so() -> None:
    """``tools: schema`` of a model; true and false are as they were."""
    async with serve_llm() as server:
        models = {"by": {"tools": "schema"}, "own": {"tools": True}, "none": {"tools": False}}
        config, _ = parse(
            json.dumps(
                {
                    "providers": {"p": {"baseUrl": server.url, "maxRetries": 0, "models": models}},
                    "routing": {"default": "p/by"},
                }
            ),
            {},
        )
        router = Router(config, local=lambda: pytest.fail("not asked for"))
        server.replies += [parts(TWO_CALLS), Reply(steps=(Tool("a", "search", "{}"),), finish_reason="tool_calls")]
        for name in ("by", "own"):
            route = router.route(f"p/{name}")
            assert route.tools is True
            _, completion = await call(route.provider, ask(model=route.model))
            assert completion.tool_calls
        assert "response_format" in server.requests[0].body
        assert "tools" in server.requests[1].body
        assert router.route("p/none").tools is False
        assert router.route("p/unknown").tools is False
        await router.aclose()


# -- the local model -------------------------------------------------------------------------------------------------


@pytest.fixture
async def local(local_llm_dir: Path) -> AsyncIterator[LocalProvider]:
    pytest.importorskip("xllamacpp")
    model = LocalModel()
    settings = LocalSettings(
        model="smollm2-135m-instruct", file=local_llm_dir / "model.gguf", context_tokens=2048, threads=1
    )
    provider = LocalProvider(model, ready_within_s=60)
    with trio.fail_after(HANG_S):
        async with trio.open_nursery() as nursery:
            supervisor = Supervisor(nursery, SystemClock())
            await supervisor.start(LocalProcess(settings, model).spec())
            yield provider
            assert await supervisor.stop(ACTOR_NAME, "the test is over")
    await provider.aclose()


ODD: dict[str, dict[str, Any]] = {
    "nothing": {"type": "object", "properties": {}},
    "anything": {"type": "object", "additionalProperties": True},
    "long_text": {"properties": {"x": {"type": "string", "minLength": 1, "maxLength": 100_000}}, "required": ["x"]},
    "pattern": {"properties": {"x": {"type": "string", "pattern": "(?i)^a", "format": "zork"}}, "required": ["x"]},
    "bounds": {"properties": {"x": {"type": "integer", "minimum": -5, "maximum": 2**70}}, "required": ["x"]},
    "number": {"properties": {"x": {"type": "number", "exclusiveMinimum": 0.5}}, "required": ["x"]},
    "choice": {"properties": {"x": {"type": ["string", "null"], "enum": ["а", 'q"', None]}}, "required": ["x"]},
    "nested": {
        "$defs": {"e": {"type": "object", "properties": {"s": {"type": "string"}}, "required": ["s"]}},
        "properties": {"x": {"type": "array", "items": {"$ref": "#/$defs/e"}, "minItems": 1, "maxItems": 3000}},
        "required": ["x"],
    },
    "not": {"properties": {"x": {"not": {"type": "string"}}}},
}


@pytest.mark.parametrize("rules", Rules)
async def test_llama_cpp_takes_the_schema_of_odd_tools(local: LocalProvider, rules: Rules) -> None:
    """All tools share one grammar, so one that it refused would take all the others with it."""
    tools = [ToolDescription(name=name, description=name, parameters=schema) for name, schema in ODD.items()]
    for tool in tools:
        schema: Any = reply_schema([tool], rules)
        calls = schema["properties"]["reply"]["anyOf"].pop()
        only = {**schema, "properties": {"reply": calls}}
        request = Request(
            model="m",
            messages=(ChatMessage(role="user", content=f"Call {tool.name}."),),
            max_tokens=48,
            temperature=0.0,
            json_schema=JsonSchema(name="reply", schema=only),
        )
        completion = await local.stream(request, lambda _delta: None)
        assert completion.text.split() != []
        assert f'"{tool.name}"' in completion.text
    whole = JsonSchema(name="reply", schema=reply_schema(tools, rules))
    completion = await local.stream(attrs.evolve(request, json_schema=whole), lambda _delta: None)
    assert '"reply"' in completion.text


@pytest.mark.parametrize(
    ("question", "zone"),
    [("What time is it in New York?", "America/New_York"), ("Сколько времени в Москве?", "Europe/Moscow")],
)
async def test_the_local_model_calls_and_answers(local: LocalProvider, question: str, zone: str) -> None:
    """A call, its result, then whatever it makes of it, and a last answer without tools."""
    parameters = {"type": "object", "properties": {"zone": {"type": "string", "maxLength": 40}}, "required": ["zone"]}
    tool = ToolDescription(name="current_time", description="Tell the time.", parameters=parameters)
    provider = ToolsBySchema(local, Rules.LLAMA)
    shown = json.dumps({"reply": {"calls": [{"name": "current_time", "arguments": {"zone": zone}}]}})
    request = ask(f"{question} Write {shown}", tools=(tool,), temperature=0.0, max_tokens=100)
    _, first = await call(provider, request)
    assert [one.name for one in first.tool_calls][:1] == ["current_time"]
    assert json.loads(first.tool_calls[0].arguments) == {"zone": zone}
    said = ChatMessage(role="assistant", content=first.text, tool_calls=first.tool_calls)
    results = [ChatMessage(role="tool", content="12:30", tool_call_id=one.id) for one in first.tool_calls]
    request = attrs.evolve(request, messages=(*request.messages, said, *results))
    _, second = await call(provider, request)
    assert second.text.strip() or {one.name for one in second.tool_calls} == {"current_time"}
    deltas, last = await call(provider, attrs.evolve(request, tools=(), max_tokens=20))
    assert last.text.strip()
    assert deltas
