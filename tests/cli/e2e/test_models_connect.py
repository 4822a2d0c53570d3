"""``klaw models connect``: from a fresh home to an answer with a tool call, without editing a file or a restart. What
goes wrong on the way changes nothing."""

import json
import stat

import pytest
import trio

from klaw.config.load import load
from tests.support.dialogue import dialogue
from tests.support.llm_server import Hang, Reply, Tool, serve_llm, text_reply, tool_reply
from tests.support.server import free_port, run_klaw, served
from tests.support.services.anthropic import AnthropicModel, AnthropicService
from tests.support.services.imitation import page_reply
from tests.support.services.ollama import OllamaModel, OllamaService
from tests.support.services.openai import (
    LlamaCppService,
    OpenAiService,
    OpenRouterModel,
    OpenRouterService,
    openai_rows,
)
from tests.support.talking import talking

KEY = "sk-or-v1-canary-0001"
COSTS = {"openrouter": "A day of 50 questions costs about $0.25", "anthropic": "nobody tells its prices"}
"""Of the others nothing: they are on this machine and want no key."""
SERVICES = {
    "ollama": (lambda: OllamaService(OllamaModel(name="qwen3:8b")), "qwen3:8b"),
    "llamacpp": (
        lambda: LlamaCppService("gemma", context=8192, caps={"supports_tools": True, "supports_tool_calls": True}),
        "gemma",
    ),
    "openrouter": (lambda: OpenRouterService([OpenRouterModel(id="qwen/qwen3-32b").row()], key=KEY), "qwen/qwen3-32b"),
    "anthropic": (lambda: AnthropicService(AnthropicModel(id="claude-sonnet-5"), key=KEY), "claude-sonnet-5"),
}


def fresh(tmp_path):
    """A home such as the first start finds it, but for its port."""
    folder = tmp_path / "config"
    folder.mkdir(mode=0o700, parents=True)
    settings = {"gateway": {"port": free_port()}, "embedding": {"enabled": False}, "processing": {"debounceMs": 20}}
    (folder / "engine.yaml").write_text(json.dumps({**settings, "logging": {"format": "json"}}))
    return tmp_path


def answer(request):
    said = json.dumps(request.body["messages"][-1], ensure_ascii=False)
    if "say_ping" in said:
        return tool_reply(Tool("t1", "say_ping", '{"name": "Anna"}'))
    if "What time is it?" in said:
        return tool_reply(Tool("t1", "current_time", '{"zone": "UTC"}'))
    return text_reply("It is ", "noon." if "T" in said else "well.")


def address(service):
    return getattr(service, "address", f"{service.root}/v1")


def files(home):
    return {path.name: path.read_bytes() for path in (home / "config").iterdir()}


async def connect(home, service, *more, key=KEY):
    given = ("--key-env", "THE_KEY") if key else ()
    return await run_klaw(
        *("models", "connect", *more, "--url", address(service), *given, "--yes", "--home", str(home)),
        environ={"THE_KEY": key} if key else {},
    )


@pytest.mark.parametrize("kind", SERVICES)
@pytest.mark.parametrize("running", [True, False])
async def test_from_a_fresh_home_to_an_answer_with_a_tool_call(tmp_path, kind, running):
    make, model = SERVICES[kind]
    async with serve_llm(make()) as service, served(fresh(tmp_path), start=running) as server:
        service.answer = answer
        code, out, error = await connect(tmp_path, service, kind, "--model", model, key=service.key)
        assert code == 0, error
        assert f"{kind}/{model} answers after" in out
        assert "It calls tools." in out
        assert COSTS.get(kind, "It is free.") in out
        assert "This also switches on: summaries of long chats, topics and facts." in out
        if not running:
            await server.start()
        async with talking(server.url) as at:
            receipt = await at.ask("What time is it?")
            assert await at.answer_to(receipt) == "It is noon."
        assert receipt.model == f"{kind}/{model}"
        assert receipt.receipt["tools"]["calls"]
        status = await server.status_when(lambda found: found["topics"] is not None)
        assert status["summaries"]["enabled"]
        assert KEY not in (tmp_path / "config" / "engine.yaml").read_text() + server.stderr
    if service.key:
        secrets = tmp_path / "config" / "secrets.env"
        assert (stat.S_IMODE(secrets.stat().st_mode), secrets.read_text()) == (0o600, f"THE_KEY={KEY}\n")


@pytest.mark.parametrize("running", [True, False])
@pytest.mark.parametrize(
    ("change", "key", "said"),
    [
        ({}, "sk-wrong", "is the key right?"),
        ({"/api/v1/models": page_reply()}, KEY, "a web page answers there"),
        ({"/api/v1/models": Reply(before_head=(Hang(),))}, KEY, "within 8 s"),
        ({"/api/v1/chat/completions": Reply(before_head=(Hang(),))}, KEY, "the model did not answer within 8 s"),
        ({"/api/v1/models": text_reply(body=b'{"data": []}', content_type="application/json")}, KEY, "no models"),
        ({"/api/v1/chat/completions": page_reply()}, KEY, "no event stream"),
    ],
)
async def test_what_goes_wrong_is_told_and_changes_nothing(tmp_path, running, change, key, said):
    async with serve_llm(SERVICES["openrouter"][0]()) as service, served(fresh(tmp_path), start=running):
        service.replaced = change
        before = files(tmp_path)
        code, out, error = await connect(tmp_path, service, "openrouter", "--model", "qwen/qwen3-32b", key=key)
        assert code == 1
        assert said in error
        assert key not in out + error
        assert files(tmp_path) == before


async def test_nobody_answers(tmp_path):
    home = fresh(tmp_path)
    where = ("models", "connect", "--yes", "--home", str(home))
    for given, said in (
        (("ollama", "--url", "http://127.0.0.1:9", "--model", "x"), "is it running"),
        (("openai", "--model", "x"), "wants a key: get one at https://platform.openai.com"),
        (("openai", "--key-env", "NO_SUCH", "--model", "x"), "NO_SUCH is not set"),
        (("olama", "--model", "x"), "did you mean ollama?"),
        (("other", "--model", "x"), "http:// or https://"),
        (("ollama",), "--model"),
    ):
        code, _, error = await run_klaw(*where, *given)
        assert code in (1, 2)
        assert said in error
    assert set(files(home)) == {"engine.yaml"}


async def test_a_service_that_tells_nothing_of_tools_is_tried(tmp_path):
    async with serve_llm(OpenAiService(openai_rows("small", "big"))) as service:
        service.answer = lambda request: text_reply("hi") if request.body["model"] == "small" else answer(request)
        for model, tools in (("small", False), ("big", True)):
            code, out, error = await connect(fresh(tmp_path / model), service, "other", "--model", model, key=None)
            assert code == 0, error
            assert ("It calls tools." in out) is tools


async def test_for_the_background_only(tmp_path):
    """The model that chats stays, and so does a person's own file."""
    home = fresh(tmp_path)
    file = home / "config" / "engine.yaml"
    file.write_text("# mine\ngateway: {port: 8181}\ntopics: {enabled: false}\n")
    async with serve_llm(SERVICES["ollama"][0]()) as service:
        service.answer = answer
        given = ("ollama", "--model", "qwen3:8b", "--for", "background")
        code, out, error = await connect(home, service, *given, key=None)
        assert code == 0, error
    config, _ = load(file, {})
    assert file.read_text().startswith("# mine\n")
    assert config.routing.default_provider == "local"
    assert config.routing.tasks.summarization == config.routing.tasks.topics == ("ollama/qwen3:8b",)
    assert (config.summarises, config.makes_topics) == (True, False)
    assert "This also switches on: summaries of long chats.\n" in out


async def test_a_new_key_takes_the_place_of_the_old_one_at_once(tmp_path):
    async with serve_llm(SERVICES["openrouter"][0]()) as service, served(fresh(tmp_path)) as server:
        service.answer = answer
        for key in (KEY, f"{KEY}-new"):
            service.key = key
            assert (await connect(tmp_path, service, "openrouter", "--model", "qwen/qwen3-32b", key=key))[0] == 0
            async with talking(server.url) as at:
                assert (await at.ask("Hello")).model == "openrouter/qwen/qwen3-32b"
    assert (tmp_path / "config" / "secrets.env").read_text() == f"THE_KEY={KEY}-new\n"


@pytest.mark.parametrize("running", [True, False])
async def test_the_questions_at_a_terminal(tmp_path, running):
    """A wrong key, then the right one; a model by a part of its name among 3,000; nothing shows the key."""
    rows = [OpenRouterModel(id=f"maker{number}/model-{number}").row() for number in range(2999)]
    rows.append(OpenRouterModel(id="qwen/qwen3-32b").row())
    async with serve_llm(OpenRouterService(rows, key=KEY)) as service, served(fresh(tmp_path), start=running):
        service.answer = answer
        answers = [
            ("Its number or name", "openroute"),
            ("did you mean openrouter?", "openrouter"),
            ("https://openrouter.ai/keys): ", "sk-wrong"),
            ("https://openrouter.ai/keys): ", KEY),
            ("3,000 models", "model-17"),
            ("models have this in their names", "QWEN3 32b"),
            ("Use it for", ""),
            ("Use it? yes or no [yes]: ", ""),
        ]
        arguments = ("models", "connect", "--url", address(service), "--home", str(tmp_path))
        code, shown = await trio.to_thread.run_sync(dialogue, arguments, answers)
        assert code == 0, shown
        assert "is the key right?" in shown
        assert "maker0/model-0: 131,072 tokens, tools, $1 in, $0.1 cached, $2 out" in shown
        assert "“It is well.”" in shown
        assert KEY not in shown
        assert "Connected: openrouter/qwen/qwen3-32b" in shown
    config, _ = load(tmp_path / "config" / "engine.yaml", {})
    assert config.routing.default == "openrouter/qwen/qwen3-32b"
    assert config.providers["openrouter"].api_key.reveal("key") == KEY


async def test_leaving_the_questions_changes_nothing(tmp_path):
    home = fresh(tmp_path)
    before = files(home)
    for answers in ([("Its number or name", "\x04")], [("Its number or name", "ollama"), ("Address", "\x04")]):
        code, shown = await trio.to_thread.run_sync(dialogue, ("models", "connect", "--home", str(home)), answers)
        assert code != 0, shown
        assert "Traceback" not in shown
    assert files(home) == before
