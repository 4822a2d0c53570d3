"""``klaw models test`` says of each model what works, without a server."""

import json

import pytest

from tests.support.llm_server import Tool, error_reply, serve_llm, text_reply, tool_reply
from tests.support.memory import endpoints
from tests.support.programs.anthropic_server import anthropic_error, serve_anthropic
from tests.support.server import run_klaw, served, write_home

SERVERS = {"openai": (serve_llm, error_reply), "anthropic": (serve_anthropic, anthropic_error)}


@pytest.fixture(params=SERVERS)
def kind(request):
    return request.param


def home_of(tmp_path, kind, url):
    providers = {
        "stub": {
            "type": kind,
            "baseUrl": url,
            "apiKey": "sk-canary-31c9f0",
            "maxRetries": 0,
            "models": {"big": {"tools": True, "images": True}, "small": {"tools": False}},
        }
    }
    return write_home(
        tmp_path, llm=url, routing={"default": "stub/big", "fallback": ["stub/small"]}, providers=providers
    )


def answer(request):
    said = json.dumps(request.body["messages"])
    if request.body.get("tools"):
        return tool_reply(Tool("t1", "say_ping", '{"name": "Anna"}'))
    if request.body.get("response_format") or request.body.get("output_config"):
        return text_reply('{"colour": "blue"}')
    return text_reply("Red." if "image" in said else "Hel", "" if "image" in said else "lo")


async def test_a_model_that_can_do_all(tmp_path, kind):
    async with SERVERS[kind][0]() as server:
        server.respond = answer
        code, out, error = await run_klaw("models", "test", "--home", str(home_of(tmp_path, kind, server.url)))
    assert (code, error) == (0, "")
    big, *checks = out.splitlines()[:6]
    assert big == f"stub/big at {server.url}"
    assert [each.split(",")[0] for each in checks] == [
        "  chat     works",
        "  stream   works: 2 pieces",
        "  tools    works: it calls a tool",
        "  images   works: it sees a red square",
        "  json     works: its answer fits a JSON schema",
    ]
    assert "  tools    not tried: providers.stub.models.small.tools is false" in out
    assert len(server.requests) == 4 + 3  # the second is asked for all but tools


async def test_a_model_that_promises_too_much(tmp_path, kind):
    async with SERVERS[kind][0]() as server:
        server.respond = lambda request: text_reply("Blue" if request.body.get("tools") else "Синий")
        home = home_of(tmp_path, kind, server.url)
        code, out, _ = await run_klaw("models", "test", "stub/big", "--json", "--home", str(home))
    assert code == 0
    (found,) = json.loads(out)["models"]
    states = {check["name"]: check["state"] for check in found["checks"]}
    assert states == {"chat": "works", "stream": "works", "tools": "fails", "images": "fails", "json": "fails"}


async def test_a_wrong_key_a_wrong_name_and_a_dead_server(tmp_path, kind):
    serve, refusal = SERVERS[kind]
    async with serve() as server:
        home = home_of(tmp_path, kind, server.url)
        server.respond = lambda _: refusal(401, "authentication_error", "bad key sk-canary-31c9f0")
        code, out, error = await run_klaw("models", "test", "stub/small", "--home", str(home))
        assert (code, error) == (1, "")
        assert '"bad key ***"' in out
        assert "is providers.stub.apiKey right?" in out
        assert "not tried: the model does not answer" in out
        assert len(server.requests) == 1
        code, _, error = await run_klaw("models", "test", "other/small", "--home", str(home))
        assert code == 1
        assert "known are local, stub" in error
    code, out, _ = await run_klaw("models", "test", "stub", "--home", str(home))
    assert code == 1
    assert out.count("cannot be reached: Connection refused") == 2


async def test_a_running_server_asks_with_its_own_keys(tmp_path):
    """26.D2: not with those of the shell; and a changed file that it has not read yet is told of."""
    async with serve_llm() as llm:
        llm.respond = answer
        home = home_of(tmp_path, "openai", llm.url)
        file = home / "config" / "engine.yaml"
        file.write_text(file.read_text().replace("sk-canary-31c9f0", "${OTHER_KEY}"))
        async with served(home, environ={"OTHER_KEY": "sk-of-the-server"}):
            code, out, _ = await run_klaw("models", "test", "--home", str(home))
            assert code == 0, out
            assert out.splitlines()[-1] == "Asked by the running server, with its keys."
            assert {each.headers["authorization"] for each in llm.requests} == {"Bearer sk-of-the-server"}
            _, listed, _ = await run_klaw("mcp", "list", "--home", str(home))
            assert "changed" not in listed
            file.write_text(file.read_text() + "\n")
            _, listed, _ = await run_klaw("mcp", "list", "--home", str(home))
            assert "The configuration file was changed" in listed
            code, out, _ = await run_klaw("models", "test", "--home", str(home))
            assert code == 1
            assert "Asked with the keys of this shell: the configuration file was changed" in out
    _, out, _ = await run_klaw("models", "test", "--home", str(home))
    assert out.splitlines()[-1] == "Asked with the keys of this shell: no server is running."


CLOUD = {"provider": "stub", "model": "vec/tor"}
ORDER = {"rerank": {"provider": "stub", "model": "order"}}


async def test_models_for_embeddings_and_reranking(tmp_path):
    """Each is asked what it is for; `klaw doctor` names both, and asks neither."""
    async with serve_llm() as server:
        server.respond = lambda request: (
            endpoints.answer(request) if "messages" not in request.body else answer(request)
        )
        home = write_home(tmp_path, llm=server.url, embedding={**CLOUD, "enabled": True}, autoRag=ORDER)
        code, out, error = await run_klaw("models", "test", "--home", str(home))
        asked = len(server.requests)
        _, told, _ = await run_klaw("doctor", "--home", str(home), "--json")
        assert len(server.requests) == asked
        server.respond = lambda request: error_reply(404) if "rerank" in request.path else endpoints.answer(request)
        lost, after, _ = await run_klaw("models", "test", "stub/order", "--home", str(home))
    assert (code, error) == (0, "")
    assert f"stub/vec/tor at {server.url}\n  embeddings works: vectors of 64 numbers" in out
    assert f"stub/order at {server.url}\n  rerank   works" in out
    findings = {each["name"]: each["text"] for each in json.loads(told)["findings"]}
    assert findings["embedding_model"].startswith("stub/vec/tor, to which all messages are sent")
    assert findings["reranker"].startswith("stub/order, to which what recall found is sent")
    assert lost == 1
    assert "  rerank   fails" in after
    assert "status 404" in after
