"""A provider's address and a routed model are enough: the rest comes from the service, in the first turn already."""

import json

from tests.e2e.test_http import http
from tests.support.llm_server import Hang, Recorded, Reply, Tool, serve_llm, text_reply, tool_reply
from tests.support.server import run_klaw, served, write_home
from tests.support.services.ollama import OllamaModel, OllamaService
from tests.support.talking import talking
from tests.support.waiting import until

QWEN = OllamaModel(name="qwen3:8b", longest=40_960, capabilities=("completion", "tools"))


def home_of(tmp_path, service, **model):
    models = {"models": {"qwen3:8b": model}} if model else {}
    providers = {"ollama": {"baseUrl": f"{service.root}/v1", "maxRetries": 0, **models}}
    return write_home(
        tmp_path, llm="http://127.0.0.1:9/v1", providers=providers, routing={"default": "ollama/qwen3:8b"}
    )


def uses_a_tool(request: Recorded) -> Reply:
    results = [message["content"] for message in request.messages if message["role"] == "tool"]
    if results:
        return text_reply(results[-1].partition(",")[0])
    return tool_reply(Tool("call_0", "current_time", json.dumps({"zone": "Europe/Moscow"})))


async def test_the_first_answer_calls_a_tool(tmp_path):
    async with serve_llm(service := OllamaService(QWEN)):
        service.answer = uses_a_tool
        async with served(home_of(tmp_path, service)) as server, talking(server.url, {"main": 0}) as talk:
            receipt = await talk.ask("Какой сегодня день в Москве?")
            assert (await talk.answer_to(receipt)).endswith("day")
            assert receipt.receipt["budget"]["context_tokens"] == 4_096
            assert {request.path for request in service.requests if request.method == "POST"} == {
                "/api/show",
                "/v1/chat/completions",
            }
            async with http(server) as client:
                told = (await client.get("/api/v1/models")).json()
            known = {each["name"]: each["values"] for each in told["known"]}["ollama/qwen3:8b"]
            assert (known["tools"]["value"], known["tools"]["source"]) == (True, "service")
            service_told = next(each for each in told["services"] if each["provider"] == "ollama")
            assert (service_told["service"], service_told["models"], service_told["error"]) == ("ollama", 1, None)
            _, listed, _ = await run_klaw("models", "list", "--home", str(server.home))
        _, later, _ = await run_klaw("models", "list", "--home", str(server.home))
    for text in (listed, later):
        assert "ollama/qwen3:8b (default)" in text
        assert "the service, 20" in text


async def test_a_configured_context_is_asked_for_with_tools_and_in_a_stream(tmp_path):
    async with serve_llm(service := OllamaService(QWEN)):
        service.answer = uses_a_tool
        async with (
            served(home_of(tmp_path, service, contextTokens=16_384)) as server,
            talking(server.url, {"main": 0}) as talk,
        ):
            receipt = await talk.ask("What day is it in Moscow?")
            assert (await talk.answer_to(receipt)).endswith("day")
            assert receipt.receipt["budget"]["context_tokens"] == 16_384
    asked = service.asked("/api/chat")
    assert [request.body["options"]["num_ctx"] for request in asked] == [16_384, 16_384]
    assert [message["tool_name"] for message in asked[1].messages if message["role"] == "tool"] == ["current_time"]
    assert service.loaded == {"qwen3:8b": 16_384}


async def test_a_service_that_hangs_when_it_is_asked_holds_up_no_start(tmp_path):
    async with serve_llm(service := OllamaService(QWEN)):
        for path in ("/api/tags", "/v1/models", "/props", "/api/v0/models", "/model/info"):
            service.replaced[path] = Reply(before_head=(Hang(),))
        async with served(home_of(tmp_path, service)) as server, http(server) as client:

            async def error():
                told = (await client.get("/api/v1/models")).json()
                return next(each["error"] for each in told["services"] if each["provider"] == "ollama")

            assert "did not answer within 10 s" in await until(error, every_s=0.2)
