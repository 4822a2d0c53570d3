"""What providers do to a client, played on both APIs by real servers: the outcome is the same on both."""

import email.utils
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from itertools import chain, count
from typing import Any

import attrs
import pytest
import structlog
import trio
from trio.testing import wait_all_tasks_blocked

from klaw.llm.errors import (
    ContextTooLong,
    OverQuota,
    ProviderError,
    ProviderMalformed,
    ProviderNetworkError,
    ProviderRefused,
    ProviderTimeout,
    RateLimited,
)
from klaw.llm.providers import response
from klaw.llm.providers.anthropic import AnthropicDialect
from klaw.llm.providers.dialect import MAX_REPLY_BYTES, Dialect, EmptyAnswer
from klaw.llm.providers.http import HttpProvider, HttpSettings
from klaw.llm.providers.ollama import OllamaDialect
from klaw.llm.providers.openai import OpenAiDialect
from klaw.llm.types import (
    ChatMessage,
    Completion,
    Delta,
    JsonSchema,
    ReasoningDelta,
    Request,
    TextDelta,
    ToolCall,
    ToolDescription,
)
from tests.support.llm_server import (
    Cut,
    Hang,
    LlmServer,
    Pause,
    Raw,
    Reasoning,
    Reply,
    Text,
    Tool,
    error_reply,
    event,
    serve_llm,
    text_reply,
    tool_reply,
)
from tests.support.programs.anthropic_server import anthropic_error, named_event, serve_anthropic
from tests.support.services.ollama import OllamaChats
from tests.support.waiting import HANG_S

SECRET = "sk-canary-5f1e"
MIB = 1024 * 1024


@attrs.frozen
class Api:
    """One API: how it is served and how its raw bytes look."""

    dialect: Dialect
    serve: Callable[[], AbstractAsyncContextManager[LlmServer]]
    text: Callable[[str], bytes]
    error: Callable[[str, str], bytes]
    """An error event in the stream, of a type and with a text."""
    refusal: Callable[..., Reply]
    """Status, code, text, headers."""


def openai_text(text: str) -> bytes:
    return event({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]})


def anthropic_text(text: str) -> bytes:
    return named_event("content_block_delta", {"index": 0, "delta": {"type": "text_delta", "text": text}})


def ollama_line(value: dict[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode() + b"\n"


def ollama_text(text: str) -> bytes:
    return ollama_line({"message": {"role": "assistant", "content": text}, "done": False})


APIS = {
    "openai": Api(
        OpenAiDialect(),
        serve_llm,
        openai_text,
        lambda kind, text: event({"error": {"type": kind, "message": text, "code": None}}),
        lambda status, code, text="SECRET", headers=(): error_reply(status, code, text, headers=headers),
    ),
    "anthropic": Api(
        AnthropicDialect(),
        serve_anthropic,
        anthropic_text,
        lambda kind, text: named_event("error", {"error": {"type": kind, "message": text}}),
        lambda status, code, text="SECRET", headers=(): anthropic_error(status, code, text, headers),
    ),
    "ollama": Api(
        OllamaDialect(),
        lambda: serve_llm(OllamaChats()),
        ollama_text,
        lambda _kind, text: ollama_line({"error": text}),
        lambda status, code, text="SECRET", headers=(): error_reply(status, code, text, headers=headers),
    ),
}


of_events = pytest.mark.parametrize("api", ["openai", "anthropic"], indirect=True)
"""About server-sent events, which Ollama's own API does not have, or about what the two say in their own way."""


@pytest.fixture(params=APIS)
def api(request: pytest.FixtureRequest) -> Api:
    return APIS[request.param]


@pytest.fixture
async def server(api: Api) -> AsyncIterator[LlmServer]:
    with trio.fail_after(HANG_S):
        async with api.serve() as running:
            yield running


Make = Callable[..., HttpProvider]


@pytest.fixture
async def make(api: Api, server: LlmServer) -> AsyncIterator[Make]:
    made: list[HttpProvider] = []

    def provider(**changes: Any) -> HttpProvider:
        settings = {"name": "test", "base_url": server.url, "api_key": SECRET, "timeout_s": 10.0, "max_retries": 0}
        made.append(HttpProvider(HttpSettings(**{**settings, **changes}), api.dialect, chance=lambda: 0.0))
        return made[-1]

    yield provider
    for one in made:
        await one.aclose()


TOOL = ToolDescription(name="search", description="d", parameters={"type": "object", "properties": {}})


def ask(**changes: Any) -> Request:
    messages = (ChatMessage(role="system", content="Ты Klaw."), ChatMessage(role="user", content="Привет"))
    return attrs.evolve(Request(model="m", messages=messages, max_tokens=9), **changes)


async def call(provider: HttpProvider, request: Request | None = None) -> tuple[list[Delta], Completion]:
    deltas: list[Delta] = []
    completion = await provider.stream(request or ask(), deltas.append)
    return deltas, completion


async def test_text_and_thinking_stay_apart(server: LlmServer, make: Make) -> None:
    server.replies.append(Reply(steps=(Reasoning("хм"), Text("При"), Text("вет"))))
    deltas, completion = await call(make())
    assert deltas == [ReasoningDelta("хм"), TextDelta("При"), TextDelta("вет")]
    assert (completion.text, completion.finish_reason, completion.model) == ("Привет", "stop", "test/m")
    assert completion.usage is not None
    assert (completion.usage.prompt_tokens, completion.usage.completion_tokens) == (11, 7)


async def test_a_tool_call_in_ten_pieces(server: LlmServer, make: Make) -> None:
    arguments = '{"query": "как зовут кота", "limit": 5}'
    server.replies.append(
        Reply(steps=(Text("Ищу."), Tool("a", "search", arguments, parts=10)), finish_reason="tool_calls")
    )
    deltas, completion = await call(make(), ask(tools=(TOOL,)))
    assert deltas == [TextDelta("Ищу.")]
    assert completion.tool_calls == (ToolCall(id="a", name="search", arguments=arguments),)
    assert completion.finish_reason == "tool_calls"


async def test_two_calls_with_one_id_get_two_ids(server: LlmServer, make: Make) -> None:
    """Else their results could not be told apart."""
    server.replies.append(tool_reply(Tool("same", "search", '{"q": 1}'), Tool("same", "search", '{"q": 2}')))
    _, completion = await call(make(), ask(tools=(TOOL,)))
    first, second = completion.tool_calls
    assert (first.id, first.arguments, second.arguments) == ("same", '{"q": 1}', '{"q": 2}')
    assert second.id not in ("", "same")


async def test_a_call_without_arguments_is_an_empty_object(server: LlmServer, make: Make) -> None:
    server.replies.append(tool_reply(Tool("a", "now", "")))
    _, completion = await call(make(), ask(tools=(TOOL,)))
    assert completion.tool_calls == (ToolCall(id="a", name="now", arguments="{}"),)


async def test_missing_usage_is_no_error(server: LlmServer, make: Make) -> None:
    server.replies.append(text_reply("ok", usage=None))
    _, completion = await call(make())
    assert (completion.text, completion.usage) == ("ok", None)


async def test_bytes_that_are_no_utf8_are_replaced(api: Api, server: LlmServer, make: Make) -> None:
    raw = api.text("a??b").replace(b"??", b"\xff\xc3")
    server.replies.append(Reply(steps=(Text("x"), Raw(raw))))
    _, completion = await call(make())
    assert completion.text == "xa��b"


async def test_every_byte_alone_makes_the_same_answer(api: Api, server: LlmServer, make: Make) -> None:
    raw = api.text("да, 😀")
    server.replies.append(Reply(steps=(Text("x"), *(Raw(raw[n : n + 1]) for n in range(len(raw))))))
    _, completion = await call(make())
    assert completion.text == "xда, 😀"


FAILURES: dict[str, tuple[Callable[[Api], Reply], type[ProviderError]]] = {
    "200 with html": (lambda _: Reply(body=b"<html>SECRET", content_type="text/html"), ProviderMalformed),
    "200 with html as json": (
        lambda _: Reply(body=b"<html>SECRET", content_type="application/json"),
        ProviderMalformed,
    ),
    "200 with html as events": (
        lambda _: Reply(body=b"<html>\n<body>SECRET</body>", content_type="text/event-stream"),
        ProviderNetworkError,
    ),
    "no json in an event": (lambda _: Reply(steps=(Raw(b"data: {SECRET\n\n"),)), ProviderMalformed),
    "closes before the head": (lambda _: Reply(before_head=(Cut(),)), ProviderNetworkError),
    "closes in the middle": (lambda _: Reply(steps=(Text("half"), Cut())), ProviderNetworkError),
    "ends in the middle": (
        lambda _: Reply(steps=(Text("half"),), finish_reason=None, usage=None, done=False),
        ProviderNetworkError,
    ),
    "an empty answer": (lambda _: text_reply(), EmptyAnswer),
    "an answer of white space": (lambda _: text_reply(" \n"), EmptyAnswer),
    "only thinking": (lambda _: Reply(steps=(Reasoning("hm"),), finish_reason="length"), EmptyAnswer),
    "10 MB in one event": (lambda api: Reply(steps=(Raw(api.text("я" * (5 * MIB))),)), ProviderMalformed),
    "10 MB in many events": (lambda api: Reply(steps=(Raw(api.text("x" * 1000)),) * 10_500), ProviderMalformed),
    "overloaded in the stream": (
        lambda api: Reply(steps=(Text("x"), Raw(api.error("overloaded_error", "SECRET")))),
        ProviderRefused,
    ),
    "500": (lambda api: api.refusal(500, "api_error"), ProviderRefused),
    "529": (lambda api: api.refusal(529, "overloaded_error"), ProviderRefused),
    "a wrong key": (lambda api: api.refusal(401, "authentication_error"), ProviderRefused),
    "a code that holds the key": (lambda api: api.refusal(401, SECRET), ProviderRefused),
    "an error that is no json": (lambda _: Reply(status=502, body=b"<html>SECRET"), ProviderRefused),
    "too many requests": (lambda api: api.refusal(429, "rate_limit_error"), RateLimited),
    "no credit": (lambda api: api.refusal(402, "billing_error"), OverQuota),
}


@pytest.mark.parametrize("case", FAILURES)
async def test_every_failure_has_its_error_and_quotes_nothing(
    api: Api, server: LlmServer, make: Make, case: str
) -> None:
    """Neither the error nor the log holds what the provider wrote, the prompt, or the key."""
    reply, error = FAILURES[case]
    server.replies.append(reply(api))
    with structlog.testing.capture_logs() as logs, pytest.raises(ProviderError) as caught:
        await call(make())
    assert type(caught.value) is error
    said = str(caught.value) + repr(logs)
    assert not any(private in said for private in ("SECRET", SECRET, "Привет"))


async def test_what_comes_before_the_cap_is_passed_on(api: Api, server: LlmServer, make: Make) -> None:
    """And the connection is closed at once, whatever the server still has to say."""
    server.replies.append(Reply(steps=(*(Raw(api.text("x" * (MIB // 2))) for _ in range(9)), Hang())))
    deltas: list[Delta] = []
    with pytest.raises(ProviderMalformed, match="longer than"):
        await make().stream(ask(), deltas.append)
    assert sum(len(delta.text) for delta in deltas) == MAX_REPLY_BYTES
    await server.requests[0].gone.wait()


TOO_LONG = {
    "openai": [
        (400, "context_length_exceeded", "x"),
        (400, "exceed_context_size_error", "x"),
        (400, "BadRequestError", "This model's maximum context length is 8192 tokens. However, you requested 9000."),
        (400, "1261", "Prompt exceeds max length"),
        (400, "invalid_parameter_error", "Range of input length should be [1, 6000]"),
        (422, "invalid_request", "Input length 131393 exceeds the maximum allowed input length of 131040 tokens."),
        (400, "invalid_request_error", "Your request exceeded model token limit: 262144 (requested: 566084)"),
        (413, "x", "payload too large"),
    ],
    "anthropic": [
        (400, "invalid_request_error", "prompt is too long: 208310 tokens > 200000 maximum"),
        (400, "invalid_request_error", "input length and `max_tokens` exceed context limit: 170636 + 34048 > 200000"),
        (413, "request_too_large", "Request exceeds the maximum size"),
    ],
}


async def test_a_prompt_that_is_too_long_is_known_in_every_dialect(api: Api, server: LlmServer, make: Make) -> None:
    kind = "anthropic" if isinstance(api.dialect, AnthropicDialect) else "openai"
    for status, code, text in TOO_LONG[kind]:
        server.replies.append(api.refusal(status, code, text))
        with pytest.raises(ContextTooLong) as caught:
            await call(make(max_retries=3))
        assert not caught.value.retryable
    assert len(server.requests) == len(TOO_LONG[kind])


@pytest.mark.parametrize(
    ("status", "code", "text"),
    [(429, "rate_limit_error", "too many tokens: maximum context"), (400, "invalid_request_error", "no such model")],
)
async def test_other_refusals_are_not_taken_for_a_long_prompt(
    api: Api, server: LlmServer, make: Make, status: int, code: str, text: str
) -> None:
    server.replies.append(api.refusal(status, code, text))
    with pytest.raises(ProviderRefused) as caught:
        await call(make())
    assert not isinstance(caught.value, ContextTooLong)


@pytest.mark.parametrize(
    ("status", "code", "text"),
    [
        (429, "insufficient_quota", "x"),
        (429, "1113", "x"),
        (400, "invalid_request_error", "Your credit balance is too low to access the API."),
        (402, "x", "Insufficient Balance"),
    ],
)
async def test_an_empty_account_is_not_asked_again(
    api: Api, server: LlmServer, make: Make, status: int, code: str, text: str
) -> None:
    server.replies.append(api.refusal(status, code, text))
    with pytest.raises(OverQuota):
        await call(make(max_retries=3))
    assert len(server.requests) == 1


async def test_what_passes_is_repeated(api: Api, server: LlmServer, make: Make) -> None:
    """An overload, also as an event before the first word; a break; a limit that asks to come back at once."""
    past = email.utils.formatdate(time.time() - 5, usegmt=True)
    server.replies += [
        api.refusal(529, "overloaded_error"),
        Reply(steps=(Raw(api.error("overloaded_error", "x")),)),
        Reply(before_head=(Cut(),)),
        api.refusal(429, "rate_limit_error", headers=[("retry-after", "0")]),
        api.refusal(429, "rate_limit_error", headers=[("retry-after", past)]),
    ]
    _, completion = await call(make(max_retries=5))
    assert completion.text == "ok"
    assert len(server.requests) == 6


async def test_a_long_retry_after_is_told_and_not_waited_for(api: Api, server: LlmServer, make: Make) -> None:
    """In seconds and as a date."""
    date = email.utils.formatdate(time.time() + 3600, usegmt=True)
    for header in ("3600", date):
        server.replies.append(api.refusal(429, "rate_limit_error", headers=[("retry-after", header)]))
        with pytest.raises(RateLimited) as caught:
            await call(make(max_retries=5))
        assert caught.value.retry_after_s is not None
        assert 3500 < caught.value.retry_after_s <= 3600
    assert len(server.requests) == 2


@pytest.mark.parametrize("step", [Text("x"), Reasoning("x")])
async def test_nothing_is_repeated_after_the_first_delta(
    api: Api, server: LlmServer, make: Make, step: Text | Reasoning
) -> None:
    for end in (Cut(), Raw(api.error("overloaded_error", "x"))):
        server.requests.clear()
        server.replies.append(Reply(steps=(step, end)))
        with pytest.raises(ProviderError):
            await call(make(max_retries=5))
        assert len(server.requests) == 1


async def test_one_byte_at_a_time_ends_at_the_cap(api: Api, server: LlmServer, make: Make) -> None:
    """No pause between two bytes is a time-out, all of them together are."""
    crawl = [step for byte in api.text("x") * 1000 for step in (Raw(bytes([byte])), Pause(0.02))]
    server.replies.append(Reply(steps=crawl))
    with pytest.raises(ProviderTimeout, match="not complete after"):
        await call(make(timeout_s=10.0, max_s=2.0))
    await server.requests[0].gone.wait()


@pytest.mark.parametrize("reply", [Reply(before_head=(Hang(),)), Reply(steps=(Text("x"), Hang()))])
async def test_silence_is_a_timeout(server: LlmServer, make: Make, reply: Reply) -> None:
    server.replies.append(reply)
    with pytest.raises(ProviderTimeout, match="sent nothing"):
        await call(make(timeout_s=1.0))
    await server.requests[0].gone.wait()


@pytest.mark.parametrize("reply", [Reply(before_head=(Hang(),)), Reply(steps=(Text("x"), Hang()))])
async def test_cancelling_closes_the_connection_within_a_second(server: LlmServer, make: Make, reply: Reply) -> None:
    """As the server sees it; the provider goes on working."""
    server.replies.append(reply)
    provider = make()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(call, provider)
        await server.wait_for_requests(1)
        await wait_all_tasks_blocked(0.01)
        nursery.cancel_scope.cancel(reason="/stop")
    with trio.fail_after(HANG_S):
        await server.requests[0].gone.wait()
    _, completion = await call(provider)
    assert completion.text == "ok"


@of_events
async def test_the_same_tool_conversation_passes_on_both(server: LlmServer, make: Make) -> None:
    """Text with two calls, their results, an answer; then once more without tools."""
    provider = make()
    server.replies.append(
        Reply(
            steps=(Text("Смотрю."), Tool("a", "search", '{"q": "кот"}'), Tool("b", "search", '{"q": "dog"}', index=1)),
            finish_reason="tool_calls",
        )
    )
    request = ask(tools=(TOOL,))
    _, first = await call(provider, request)
    assert [one.arguments for one in first.tool_calls] == ['{"q": "кот"}', '{"q": "dog"}']
    said = ChatMessage(role="assistant", content=first.text, tool_calls=first.tool_calls)
    results = [ChatMessage(role="tool", content=f"r{n}", tool_call_id=one.id) for n, one in enumerate(first.tool_calls)]
    request = attrs.evolve(request, messages=(*request.messages, said, *results))
    server.replies.append(text_reply("Кот — Барсик."))
    _, second = await call(provider, request)
    assert second.text == "Кот — Барсик."
    server.replies.append(text_reply("Да."))
    _, last = await call(provider, attrs.evolve(request, tools=()))
    assert last.text == "Да."
    sent = json.dumps([recorded.body for recorded in server.requests[1:]], ensure_ascii=False)
    assert all(part in sent for part in ('"a"', '"b"', "r0", "r1", "кот", "Смотрю."))


@of_events
async def test_a_schema_for_the_answer_is_sent(server: LlmServer, make: Make) -> None:
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    server.replies.append(text_reply('{"name": ', '"Барсик"}'))
    _, completion = await call(make(), ask(json_schema=JsonSchema(name="cat", schema=schema)))
    assert json.loads(completion.text) == {"name": "Барсик"}
    body = server.requests[0].body
    sent = body.get("output_config", {}).get("format") or body["response_format"]["json_schema"]
    assert sent["schema"]["properties"] == schema["properties"]


async def test_the_key_goes_where_the_api_wants_it(api: Api, server: LlmServer, make: Make) -> None:
    await call(make())
    headers = server.requests[0].headers
    if isinstance(api.dialect, AnthropicDialect):
        assert (headers["x-api-key"], headers["anthropic-version"]) == (SECRET, "2023-06-01")
        assert server.requests[0].path == "/v1/messages"
    else:
        assert headers["authorization"] == f"Bearer {SECRET}"


def endless(data: bytes, sent: list[int]) -> Iterator[Raw]:
    """The same bytes for ever; counts how often."""
    while True:
        sent[0] += len(data)
        yield Raw(data)


FLOODS: dict[str, Callable[[Api], bytes]] = {
    "comments": lambda _: b": alive\n\n" * 1000,
    "blank lines": lambda _: b"\n" * 10_000,
    "lines of other fields": lambda _: b"retry: 1\nid: 7\n\n" * 500,
    "one comment without an end": lambda _: b":" * 10_000,
    "events without content": lambda api: api.text("") * 100,
    "a byte in each chunk": lambda _: b"\n",
}


@of_events
@pytest.mark.parametrize("flood", FLOODS)
async def test_a_stream_without_content_is_given_up_after_a_megabyte(
    api: Api, server: LlmServer, make: Make, flood: str
) -> None:
    """However lively it is, and after content too."""
    for first in ((), (Raw(api.text("Привет")),)):
        sent = [0]
        server.replies.append(Reply(steps=chain(first, endless(FLOODS[flood](api), sent))))
        with pytest.raises(ProviderMalformed, match=r"without any content|event of more than|too many lines"):
            await call(make(timeout_s=10.0))
        await server.requests[-1].gone.wait()
        assert sent[0] < 32 * MIB  # most of it in the buffers of the sockets


async def test_deltas_of_a_byte_are_counted(
    api: Api, server: LlmServer, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(response, "MAX_LINES", 20_000)
    sent = [0]
    server.replies.append(Reply(steps=endless(api.text("x") * 100, sent)))
    with pytest.raises(ProviderMalformed, match="too many lines"):
        await call(make())
    await server.requests[-1].gone.wait()


@of_events
async def test_bytes_around_a_little_content_are_counted(
    api: Api, server: LlmServer, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(response, "MAX_STREAM_BYTES", 4 * MIB)
    sent = [0]
    server.replies.append(Reply(steps=endless(api.text("x") + b":" * 100_000 + b"\n", sent)))
    with pytest.raises(ProviderMalformed, match="took more than"):
        await call(make())
    await server.requests[-1].gone.wait()


@of_events
async def test_signs_of_life_without_content_end_in_a_timeout(api: Api, server: LlmServer, make: Make) -> None:
    pings = (step for _ in count() for step in (Raw(b": ping\n\n"), Pause(0.01)))
    server.replies.append(Reply(steps=chain((Raw(api.text("a")),), pings)))
    with pytest.raises(ProviderTimeout, match="no part of an answer"):
        await call(make(timeout_s=10.0, idle_s=0.3))
    await server.requests[-1].gone.wait()


@of_events
async def test_signs_of_life_between_content_do_no_harm(api: Api, server: LlmServer, make: Make) -> None:
    """Also while a tool call arrives, which gives no delta."""
    pings = (Raw(b": ping\n\n" * 10),) * 40
    words = [step for word in ("Да", ", ", "yes") for step in (*pings, Text(word))]
    server.replies.append(Reply(steps=(*words, *pings)))
    _, done = await call(make())
    assert done.text == "Да, yes"
    arguments = json.dumps({"text": "я" * 300_000})
    server.replies.append(tool_reply(Tool("c", "write", arguments, parts=8000)))
    _, done = await call(make(), ask(tools=(TOOL,)))
    assert done.tool_calls[0].arguments == arguments


@pytest.mark.parametrize("prompt", ["Мой пин 47-11, Лодка зовётся Странник", "My PIN is 47-11, the boat is Wanderer"])
@pytest.mark.parametrize(
    ("status", "code", "asks"),
    [
        (401, "authentication_error", "is providers.test.apiKey right?"),
        (404, "not_found_error", "are the model's name and providers.test.baseUrl right?"),
        (400, "invalid_request_error", ""),
        (529, "overloaded_error", ""),
    ],
)
async def test_a_refusal_says_who_where_and_why(
    api: Api, server: LlmServer, make: Make, status: int, code: str, asks: str, prompt: str
) -> None:
    """To the caller. The error's text and the log have neither the prompt that the provider echoes nor the key."""
    server.replies.append(api.refusal(status, code, f"The key {SECRET} is invalid for: {prompt}"))
    with structlog.testing.capture_logs() as logs, pytest.raises(ProviderRefused) as caught:
        await call(make(), ask(messages=(ChatMessage(role="user", content=prompt),)))
    told = caught.value.told()
    assert told.startswith(f"test/m at {server.url}: the LLM provider answered with status {status} ({code}): ")
    assert f'"The key *** is invalid for: {prompt}"' in told
    assert asks in told
    safe = str(caught.value) + repr(logs)
    assert "The key is invalid for" in safe
    assert not any(word in safe for word in (SECRET, "47-11", "boat", "Wanderer", "Лодка", "Странник", "пин"))


async def test_an_error_in_the_stream_masks_the_key_as_well(api: Api, server: LlmServer, make: Make) -> None:
    server.replies.append(Reply(steps=(Raw(api.error(SECRET, f"no {SECRET[:9]}")),)))
    with pytest.raises(ProviderRefused) as caught:
        await call(make())
    assert '"no ***"' in caught.value.told()
    assert SECRET not in caught.value.told()


async def test_a_dead_server_is_named_with_the_reason(api: Api, make: Make) -> None:
    url = "http://127.0.0.1:9/v1"
    with pytest.raises(ProviderNetworkError) as caught:
        await call(make(base_url=url))
    assert str(caught.value) == (
        f"test/m at {url}: the LLM provider cannot be reached: Connection refused "
        "(is it running, and is providers.test.baseUrl right?)"
    )


async def test_an_unknown_host_is_named_with_the_reason(api: Api, make: Make) -> None:
    with pytest.raises(ProviderNetworkError, match="no such host"):
        await call(make(base_url="http://klaw.invalid/v1"))


async def test_a_plain_text_is_told_and_a_page_is_not(api: Api, server: LlmServer, make: Make) -> None:
    server.replies.append(Reply(status=404, body=b"404 page not found", content_type="text/plain; charset=utf-8"))
    server.replies.append(Reply(status=404, body=b"<html>404 page not found</html>", content_type="text/html"))
    for quoted in (True, False):
        with pytest.raises(ProviderRefused) as caught:
            await call(make())
        assert ('"404 page not found"' in caught.value.told()) is quoted
