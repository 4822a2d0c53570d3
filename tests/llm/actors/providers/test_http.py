"""The streaming client against a real server on a real socket."""

import json
import socket
from collections.abc import AsyncIterator, Callable

import pytest
import structlog
import trio
from trio.testing import wait_all_tasks_blocked

from klaw.llm.errors import ProviderError, ProviderMalformed, ProviderNetworkError, ProviderRefused, ProviderTimeout
from klaw.llm.providers.dialect import MAX_REPLY_BYTES
from klaw.llm.providers.http import HttpProvider, HttpSettings
from klaw.llm.providers.openai import OpenAiDialect
from klaw.llm.types import ChatMessage, Completion, Delta, ReasoningDelta, Request, TextDelta, ToolCall, Usage
from tests.support.llm_server import (
    Cut,
    Hang,
    LlmServer,
    Raw,
    Reasoning,
    Reply,
    Text,
    Tool,
    Wait,
    error_reply,
    serve_llm,
    text_reply,
    tool_reply,
)
from tests.support.waiting import HANG_S

SECRET = "sk-canary-5f1e"
Make = Callable[..., HttpProvider]


@pytest.fixture
async def server() -> AsyncIterator[LlmServer]:
    with trio.fail_after(HANG_S):
        async with serve_llm() as running:
            yield running


@pytest.fixture
async def make(server: LlmServer) -> AsyncIterator[Make]:
    made: list[HttpProvider] = []

    def provider(**changes: object) -> HttpProvider:
        settings = {"name": "test", "base_url": server.url, "api_key": SECRET, "timeout_s": 10.0, "max_retries": 0}
        made.append(HttpProvider(HttpSettings(**{**settings, **changes}), OpenAiDialect(), chance=lambda: 0.0))
        return made[-1]

    yield provider
    for one in made:
        await one.aclose()


def ask(text: str = "Привет, model") -> Request:
    return Request(model="m", messages=(ChatMessage(role="user", content=text),), temperature=0.5, max_tokens=9)


async def call(provider: HttpProvider) -> tuple[list[Delta], Completion]:
    deltas: list[Delta] = []
    completion = await provider.stream(ask(), deltas.append)
    return deltas, completion


def data(value: object) -> bytes:
    return b"data: " + json.dumps(value, ensure_ascii=False).encode() + b"\n\n"


def content(text: str, finish: str | None = None) -> dict[str, object]:
    return {"choices": [{"delta": {"content": text}, "finish_reason": finish}]}


async def test_a_stream_of_text(server: LlmServer, make: Make) -> None:
    """Deltas, completion, and what the server was sent."""
    server.replies.append(text_reply("При", "вет", "!"))
    deltas, completion = await call(make(headers={"X-Title": "klaw"}, extra_body={"top_p": 1}))
    assert deltas == [TextDelta("При"), TextDelta("вет"), TextDelta("!")]
    assert completion == Completion(
        text="Привет!", finish_reason="stop", usage=Usage(prompt_tokens=11, completion_tokens=7), model="test/m"
    )
    (request,) = server.requests
    assert request.path == "/v1/chat/completions"
    assert request.headers["authorization"] == f"Bearer {SECRET}"
    assert request.headers["x-title"] == "klaw"
    assert request.last_user == "Привет, model"
    assert (request.body["temperature"], request.body["max_tokens"], request.body["top_p"]) == (0.5, 9, 1)


async def test_deltas_come_before_the_end(server: LlmServer, make: Make) -> None:
    """A delta is passed on while the server still holds the rest back."""
    gate = trio.Event()
    server.replies.append(Reply(steps=(Text("one"), Wait(gate), Text("two"))))
    seen: list[Delta] = []

    def on_delta(delta: Delta) -> None:
        seen.append(delta)
        gate.set()

    await make().stream(ask(), on_delta)
    assert seen == [TextDelta("one"), TextDelta("two")]


async def test_tool_calls_and_thinking(server: LlmServer, make: Make) -> None:
    tools = (Tool("a", "search", '{"q": "кот"}'), Tool("b", "time", "{}"))
    server.replies.append(tool_reply(*tools))
    deltas, completion = await call(make())
    assert not deltas
    assert completion.tool_calls == tuple(ToolCall(id=t.id, name=t.name, arguments=t.arguments) for t in tools)
    assert completion.finish_reason == "tool_calls"
    server.replies.append(Reply(steps=(Reasoning("hm"), Text("<thi"), Text("nk>ах</think> да"))))
    deltas, completion = await call(make())
    assert deltas == [ReasoningDelta("hm"), ReasoningDelta("ах"), TextDelta("да")]
    assert completion.text == "да"


@pytest.mark.parametrize(
    "raw",
    [
        b": keep-alive\n\n" + data(content("да", "stop")) + b": end\n\ndata: [DONE]\n\n",
        data(content("да", "stop")).replace(b"\n", b"\r\n") + b"data: [DONE]\r\n\r\n",
        b'event: x\nid: 1\ndata: {"choices": [{"delta":\ndata: {"content": "\xd0\xb4\xd0\xb0"}}]}\n\ndata:[DONE]\n\n',
        data(content("да", "stop")),
        data(content("да")) + b"data: [DONE]\n\n" + data(content("", "stop")),
    ],
    ids=["comments", "crlf", "many data lines", "no DONE", "after DONE"],
)
async def test_forms_of_event_streams(server: LlmServer, make: Make, raw: bytes) -> None:
    """Also when every byte comes alone."""
    for steps in ((Raw(raw),), tuple(Raw(raw[n : n + 1]) for n in range(len(raw)))):
        server.replies.append(Reply(steps=steps, finish_reason=None, usage=None, done=False))
        _, completion = await call(make())
        assert completion.text == "да"


async def test_bytes_that_are_no_utf8_are_replaced(server: LlmServer, make: Make) -> None:
    raw = b'data: {"choices": [{"delta": {"content": "a\xff\xc3b"}, "finish_reason": "stop"}]}\n\n'
    server.replies.append(Reply(steps=(Raw(raw),), content_type="text/event-stream; charset=utf-16"))
    _, completion = await call(make())
    assert completion.text == "a��b"


async def test_a_completion_in_one_piece(server: LlmServer, make: Make) -> None:
    body = json.dumps({"choices": [{"message": {"role": "assistant", "content": "да"}, "finish_reason": "stop"}]})
    server.replies.append(Reply(body=body.encode(), content_type="application/json; charset=utf-8"))
    deltas, completion = await call(make())
    assert (deltas, completion.text) == ([TextDelta("да")], "да")


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (Reply(steps=(Raw(b"data: {broken SECRET\n\n"),)), ProviderMalformed),
        (Reply(body=b"{broken SECRET", content_type="application/json"), ProviderMalformed),
        (Reply(body=b"<html>SECRET", content_type="text/html"), ProviderMalformed),
        (Reply(body=b"SECRET", status=302, headers=[("location", "http://127.0.0.1:1/")]), ProviderRefused),
        (Reply(steps=(Text("half"),), finish_reason=None, usage=None, done=False), ProviderNetworkError),
        (Reply(steps=(Text("half"), Cut())), ProviderNetworkError),
        (Reply(before_head=(Cut(),)), ProviderNetworkError),
        (Reply(steps=(Raw(b"data: " + b"x" * 1_100_000),)), ProviderMalformed),
        (Reply(steps=(Text("x"), Raw(data({"error": {"message": "SECRET", "code": 502}})))), ProviderRefused),
        (text_reply(), ProviderMalformed),
        (Reply(body=b"x", headers=[("content-encoding", "gzip")]), ProviderMalformed),
        (error_reply(401, "invalid_api_key", "SECRET"), ProviderRefused),
        (error_reply(400, "SECRET prompt is too long", "SECRET"), ProviderRefused),
        (error_reply(400, SECRET, "SECRET"), ProviderRefused),
    ],
)
async def test_every_failure_has_its_error_and_quotes_nothing(
    server: LlmServer, make: Make, reply: Reply, error: type[ProviderError]
) -> None:
    """Neither the error nor the log holds what the provider wrote, the prompt, or the key."""
    server.replies.append(reply)
    with structlog.testing.capture_logs() as logs, pytest.raises(error) as caught:
        await call(make())
    said = str(caught.value) + repr(logs)
    for private in ("SECRET", SECRET, "Привет"):
        assert private not in said
    assert [entry["event"] for entry in logs] == ["llm_call_failed"]


async def test_an_endless_answer_is_cut(server: LlmServer, make: Make) -> None:
    """10 MB of text: the client gives up at its cap and closes the connection."""
    server.replies.append(text_reply(*["я" * 50_000] * 100))
    deltas: list[Delta] = []
    with pytest.raises(ProviderMalformed, match="longer than"):
        await make().stream(ask(), deltas.append)
    assert sum(len(delta.text.encode()) for delta in deltas) <= MAX_REPLY_BYTES
    await server.requests[0].gone.wait()


async def test_an_answer_that_is_complete_survives_a_broken_end(server: LlmServer, make: Make) -> None:
    """The connection breaks behind the finish reason."""
    server.replies.append(Reply(steps=(Raw(data(content("да", "stop"))), Cut())))
    _, completion = await call(make())
    assert completion.text == "да"


async def test_a_response_that_stays_open_after_done_does_not_hold_the_answer(server: LlmServer, make: Make) -> None:
    server.replies.append(Reply(steps=(Raw(data(content("да", "stop")) + b"data: [DONE]\n\n"), Hang())))
    _, completion = await call(make())
    assert completion.text == "да"
    await server.requests[0].gone.wait()


async def test_failures_that_may_pass_are_repeated(server: LlmServer, make: Make) -> None:
    server.replies += [error_reply(503), error_reply(429, headers=[("retry-after", "0")]), text_reply("ok")]
    _, completion = await call(make(max_retries=2))
    assert completion.text == "ok"
    assert len(server.requests) == 3


async def test_retries_are_bounded(server: LlmServer, make: Make) -> None:
    server.respond = lambda _request: error_reply(500, "server_error")
    with pytest.raises(ProviderRefused, match="500.*server_error") as caught:  # noqa: RUF043 - a pattern
        await call(make(max_retries=1))
    assert caught.value.status == 500
    assert len(server.requests) == 2


async def test_a_long_retry_after_is_not_waited_for(server: LlmServer, make: Make) -> None:
    server.replies.append(error_reply(429, headers=[("retry-after", "3600")]))
    with pytest.raises(ProviderRefused) as caught:
        await call(make(max_retries=5))
    assert caught.value.retry_after_s == 3600
    assert len(server.requests) == 1


@pytest.mark.parametrize("step", [Text("x"), Reasoning("x")])
async def test_nothing_is_repeated_after_the_first_delta(server: LlmServer, make: Make, step: Text | Reasoning) -> None:
    server.replies.append(Reply(steps=(step, Cut())))
    with pytest.raises(ProviderNetworkError):
        await call(make(max_retries=5))
    assert len(server.requests) == 1


@pytest.mark.parametrize("reply", [Reply(before_head=(Hang(),)), Reply(steps=(Text("x"), Hang()))])
async def test_silence_is_a_timeout(server: LlmServer, make: Make, reply: Reply) -> None:
    """Before the head, and between two chunks."""
    server.replies.append(reply)
    with pytest.raises(ProviderTimeout, match="sent nothing"):
        await call(make(timeout_s=1.0))
    await server.requests[0].gone.wait()


async def test_no_server_is_a_network_error(make: Make) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(ProviderNetworkError, match="cannot be reached"):
        await call(make(base_url=f"http://127.0.0.1:{port}/v1"))


async def test_an_unusable_address_is_a_network_error(make: Make) -> None:
    with pytest.raises(ProviderNetworkError):
        await call(make(base_url="http://127.0.0.1:99999999/v1"))


async def test_a_header_that_cannot_be_sent_is_not_quoted(make: Make) -> None:
    """Not even in the chain of causes."""
    with pytest.raises(ProviderNetworkError, match="cannot be sent") as caught:
        await call(make(headers={"x-key": f"{SECRET} "}))
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


async def test_a_proxy_of_the_environment_is_not_used_for_this_machine(
    server: LlmServer, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    _, completion = await call(make())
    assert completion.text == "ok"


@pytest.mark.parametrize("reply", [Reply(before_head=(Hang(),)), Reply(steps=(Text("x"), Hang()))])
async def test_cancellation_closes_the_connection(server: LlmServer, make: Make, reply: Reply) -> None:
    """While waiting for the head and in the middle of the stream; the provider goes on working."""
    server.replies.append(reply)
    provider = make()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(call, provider)
        await server.wait_for_requests(1)
        await wait_all_tasks_blocked(0.01)
        nursery.cancel_scope.cancel(reason="/stop")
    await server.requests[0].gone.wait()
    _, completion = await call(provider)
    assert completion.text == "ok"


async def test_cancellation_ends_the_pause_before_a_retry(server: LlmServer, make: Make) -> None:
    server.respond = lambda _request: error_reply(429, headers=[("retry-after", "20")])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(call, make(max_retries=3))
        await server.wait_for_requests(1)
        await wait_all_tasks_blocked(0.01)
        nursery.cancel_scope.cancel(reason="/stop")
    assert len(server.requests) == 1


async def test_an_error_of_the_callback_reaches_the_caller(server: LlmServer, make: Make) -> None:
    """And closes the connection, and is not repeated."""
    server.replies.append(Reply(steps=(Text("x"), Hang())))

    def on_delta(_delta: Delta) -> None:
        raise KeyError("bug")

    with pytest.raises(KeyError):
        await make(max_retries=3).stream(ask(), on_delta)
    await server.requests[0].gone.wait()


async def test_calls_run_side_by_side(server: LlmServer, make: Make) -> None:
    gate = trio.Event()
    server.respond = lambda _request: Reply(steps=(Wait(gate), Text("ok")))
    provider = make()
    async with trio.open_nursery() as nursery:
        for _ in range(8):
            nursery.start_soon(call, provider)
        await server.wait_for_requests(8)
        gate.set()


async def test_a_closed_provider_refuses(make: Make) -> None:
    provider = make()
    await call(provider)
    await provider.aclose()
    await provider.aclose()
    with pytest.raises(ProviderNetworkError, match="closed"):
        await call(provider)


async def test_settings_hide_the_key() -> None:
    settings = HttpSettings(name="x", base_url="http://x/v1", api_key=SECRET, headers={"a": SECRET})
    assert SECRET not in repr(settings)
