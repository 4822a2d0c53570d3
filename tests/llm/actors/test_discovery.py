"""What services say of their models: asked over real sockets, of imitations that are as strict as they are."""

from collections.abc import AsyncIterator
from decimal import Decimal
from typing import Any

import pytest
import trio

from klaw.llm import discovery
from klaw.llm.discovery import discover, find_local
from klaw.llm.errors import ProviderError, ProviderMalformed, ProviderRefused, ProviderTimeout, ProviderUnreachable
from klaw.llm.facts import MOST_MODELS, ModelFacts
from tests.support.llm_server import Hang, Reply, serve_llm, text_reply
from tests.support.services.anthropic import AnthropicModel, AnthropicService
from tests.support.services.imitation import ServiceImitation, json_reply, page_reply
from tests.support.services.ollama import OllamaModel, OllamaService
from tests.support.services.openai import (
    GeminiService,
    LlamaCppService,
    LmStudioService,
    OpenAiService,
    OpenRouterModel,
    OpenRouterService,
    lmstudio_row,
    openai_rows,
)

KEY = "sk-canary-91c2d7"


def named(models: tuple[ModelFacts, ...]) -> dict[str, ModelFacts]:
    return {model.name: model for model in models}


def origin(model: ModelFacts, field: str) -> str:
    return model.origins[field].source


# -- what each service says --------------------------------------------------------------------------------------------


async def test_ollama_tells_abilities_and_the_context_that_is_in_force() -> None:
    service = OllamaService(
        OllamaModel(name="qwen3:8b", longest=40_960, capabilities=("completion", "tools", "thinking")),
        OllamaModel(name="llava:7b", longest=32_768, capabilities=("completion", "vision"), parameters="num_ctx 16384"),
        OllamaModel(name="tiny:1b", longest=2_048),
        OllamaModel(name="nomic-embed-text:latest", capabilities=("embedding",)),
    )
    async with serve_llm(service):
        service.loaded["qwen3:8b"] = 8_192
        found = await discover(None, f"{service.root}/v1", None)
    models = named(found.models)
    assert (found.service, found.base_url) == ("ollama", f"{service.root}/v1")
    qwen, llava, tiny = models["qwen3:8b"], models["llava:7b"], models["tiny:1b"]
    assert (qwen.context_tokens, qwen.longest_context, origin(qwen, "context_tokens")) == (8_192, 40_960, "service")
    assert (qwen.tools, qwen.images, qwen.thinking, qwen.embedding) == (True, False, True, False)
    assert (llava.context_tokens, llava.tools, llava.images) == (16_384, False, True)
    assert (tiny.context_tokens, origin(tiny, "context_tokens")) == (2_048, "default")
    assert models["nomic-embed-text:latest"].embedding is True


async def test_ollama_is_found_at_its_address_without_v1() -> None:
    async with serve_llm(service := OllamaService(OllamaModel(name="qwen3:8b"))):
        found = await discover(None, f"{service.root}/", None)
    assert (found.service, found.base_url) == ("ollama", f"{service.root}/v1")
    assert found.models[0].context_tokens == 4_096
    assert origin(found.models[0], "context_tokens") == "default"


async def test_openrouter_tells_everything_and_its_key_is_checked() -> None:
    rows = [
        OpenRouterModel(id="qwen/qwen3-32b", context=131_072, served_context=40_960, prompt="0.0000001").row(),
        OpenRouterModel(id="some/seer", inputs=("text", "image"), parameters=("max_tokens", "reasoning")).row(),
        OpenRouterModel(id="openrouter/auto", prompt="-1", completion="-1").row(),
    ]
    async with serve_llm(service := OpenRouterService(rows, key=KEY)):
        assert isinstance(service, OpenRouterService)
        found = await discover("openrouter", service.address, KEY)
        with pytest.raises(ProviderRefused) as caught:
            await discover("openrouter", service.address, "sk-or-wrong-one")
    models = named(found.models)
    qwen, seer = models["qwen/qwen3-32b"], models["some/seer"]
    assert (qwen.context_tokens, qwen.output_tokens, qwen.tools, qwen.images) == (40_960, 16_384, True, False)
    assert (seer.tools, seer.images, seer.thinking, seer.json_schema) == (False, True, True, False)
    assert qwen.prices is not None
    assert qwen.prices.cached_input is not None
    assert (qwen.prices.input.base, qwen.prices.cached_input.base) == (Decimal("0.1"), Decimal("0.1"))
    assert models["openrouter/auto"].prices is None
    assert "is the key right?" in caught.value.told()


@pytest.mark.parametrize("bare", [False, True])
async def test_anthropic_is_asked_with_its_headers_page_by_page(*, bare: bool) -> None:
    models = [AnthropicModel(id=f"claude-{number}", thinking=number > 0) for number in range(1_200)]
    async with serve_llm(service := AnthropicService(*models, key=KEY, bare=bare)):
        assert isinstance(service, AnthropicService)
        found = await discover("anthropic", service.address, KEY)
    assert len(found.models) == 1_200
    first = found.models[0]
    assert (first.tools, first.images) == (True, True)
    wanted = (None, None, None) if bare else (200_000, 64_000, False)
    assert (first.context_tokens, first.output_tokens, first.thinking) == wanted


async def test_gemini_is_asked_by_its_own_list() -> None:
    row = {"name": "models/gemini-2.5-flash", "inputTokenLimit": 1_048_576, "outputTokenLimit": 65_536}
    rows = [
        {**row, "supportedGenerationMethods": ["generateContent", "countTokens"], "thinking": True},
        {"name": "models/gemini-embedding-001", "supportedGenerationMethods": ["embedContent"]},
    ]
    async with serve_llm(service := GeminiService(rows, key=KEY)):
        assert isinstance(service, GeminiService)
        found = await discover("gemini", service.address, KEY)
        with pytest.raises(ProviderRefused, match="is the key right"):
            await discover("gemini", service.address, "wrong")
    flash, embedder = found.models
    assert (flash.name, flash.context_tokens, flash.output_tokens) == ("gemini-2.5-flash", 1_048_576, 65_536)
    assert (flash.thinking, flash.embedding, embedder.embedding) == (True, False, True)


async def test_llamacpp_tells_the_context_of_a_slot_and_what_its_template_can() -> None:
    caps = {"supports_tools": True, "supports_tool_calls": True, "supports_system_role": True}
    async with serve_llm(service := LlamaCppService("qwen3", context=12_288, caps=caps, vision=True)):
        found = await discover(None, service.root, None)
    assert (found.service, found.base_url) == ("llamacpp", f"{service.root}/v1")
    (model,) = found.models
    assert (model.context_tokens, model.tools, model.images) == (12_288, True, True)


async def test_lmstudio_tells_the_loaded_context_and_types() -> None:
    rows = [
        lmstudio_row("qwen2-vl-7b", loaded=8_192, type="vlm", capabilities=["tool_use"]),
        lmstudio_row("llama-3.2-1b", longest=131_072),
        lmstudio_row("nomic-embed", longest=2_048, type="embeddings"),
    ]
    async with serve_llm(service := LmStudioService(rows)):
        found = await discover(None, f"{service.root}/v1", None)
    assert found.service == "lmstudio"
    seer, llama, embedder = found.models
    assert (seer.context_tokens, seer.images, seer.tools) == (8_192, True, True)
    assert (llama.context_tokens, origin(llama, "context_tokens"), llama.tools) == (4_096, "default", None)
    assert embedder.embedding is True


@pytest.mark.parametrize(
    ("row", "wanted"),
    [
        ({"max_model_len": 32_768, "owned_by": "vllm"}, {"context_tokens": 32_768}),
        (
            {"context_window": 131_072, "max_completion_tokens": 8_192},
            {"context_tokens": 131_072, "output_tokens": 8_192},
        ),
        (
            {
                "max_context_length": 40_000,
                "capabilities": {"completion_chat": True, "function_calling": True, "vision": False},
            },
            {"context_tokens": 40_000, "tools": True, "images": False, "embedding": None},
        ),
        ({"capabilities": {"completion_chat": False, "function_calling": False}}, {"embedding": True}),
        ({}, {"context_tokens": None, "tools": None, "images": None}),
        ({"id": "text-embedding-3-small"}, {"embedding": True}),
    ],
    ids=["vllm", "groq", "mistral", "mistral-embed", "openai", "openai-embed"],
)
async def test_lists_like_that_of_openai(row: dict[str, Any], wanted: dict[str, Any]) -> None:
    async with serve_llm(service := OpenAiService([{**openai_rows("some-model")[0], **row}], key=KEY)):
        assert isinstance(service, OpenAiService)
        found = await discover(None, service.address, KEY)
    (model,) = found.models
    assert {name: getattr(model, name) for name in wanted} == wanted
    assert set(model.origins) == set(model.known())


async def test_litellm_tells_what_it_knows_of_those_behind_it() -> None:
    about = {"max_input_tokens": 128_000, "max_output_tokens": 16_384, "mode": "chat", "input_cost_per_token": 2.5e-06}
    about |= {"output_cost_per_token": 1e-05, "supports_function_calling": True, "supports_vision": None}
    info = {"data": [{"model_name": "big", "litellm_params": {"model": "openai/gpt-4o"}, "model_info": about}]}
    async with serve_llm(service := OpenAiService(openai_rows("big", owner="openai"), key=KEY)):
        assert isinstance(service, OpenAiService)
        service.replaced["/model/info"] = json_reply(info)
        found = await discover(None, service.address, KEY)
    (model,) = found.models
    assert found.service == "litellm"
    assert (model.context_tokens, model.output_tokens, model.tools, model.images) == (128_000, 16_384, True, None)
    assert model.prices is not None
    assert model.prices.input.base == Decimal("2.5")


# -- what goes wrong ---------------------------------------------------------------------------------------------------


@pytest.fixture
async def plain() -> AsyncIterator[OpenAiService]:
    service = OpenAiService(openai_rows("a-model"), key=KEY)
    async with serve_llm(service):
        yield service


@pytest.mark.parametrize(("key", "hint"), [("sk-wrong-key-77", "is the key right?"), (None, "it wants a key")])
async def test_a_wrong_key_is_named_and_never_shown(plain: OpenAiService, key: str | None, hint: str) -> None:
    with pytest.raises(ProviderRefused) as caught:
        await discover(None, plain.address, key)
    assert hint in caught.value.told()
    assert plain.address in caught.value.told()
    for part in ("sk-wrong-key-77", "y-77"):
        assert part not in caught.value.told()
        assert part not in str(caught.value)


async def test_a_wrong_path_says_what_to_look_at(plain: OpenAiService) -> None:
    with pytest.raises(ProviderRefused, match="is the address right") as caught:
        await discover(None, f"{plain.root}/v2/here", KEY)
    assert caught.value.status == 404


async def test_nobody_there_is_said_at_once() -> None:
    with pytest.raises(ProviderUnreachable, match="is it running"):
        await discover(None, "http://127.0.0.1:9/v1", None)


@pytest.mark.parametrize("status", [200, 404, 502])
async def test_a_web_page_is_no_list(plain: OpenAiService, status: int) -> None:
    plain.respond = lambda _request: page_reply(status)
    with pytest.raises(ProviderError, match=r"is the address right|status 502"):
        await discover(None, plain.address, KEY)


@pytest.mark.parametrize("body", [b"", b"{", b"[1, 2", b'{"data": 7}', b'"models"', b"[" * 100_000])
async def test_what_is_no_list_is_said(plain: OpenAiService, body: bytes) -> None:
    plain.respond = lambda _request: Reply(body=body, content_type="application/json")
    with pytest.raises(ProviderMalformed):
        await discover(None, plain.address, KEY)


async def test_a_redirect_is_not_followed(plain: OpenAiService) -> None:
    other = "https://elsewhere.example/v1/models"
    plain.replaced["/v1/models"] = Reply(status=301, body=b"", headers=[("location", f"{other}?token=1")])
    with pytest.raises(ProviderRefused, match="redirects") as caught:
        await discover(None, plain.address, KEY)
    assert other in caught.value.told()
    assert "token" not in caught.value.told()


@pytest.mark.parametrize("before_head", [True, False])
async def test_a_service_that_hangs_is_given_up_in_time(plain: OpenAiService, *, before_head: bool) -> None:
    step = (Hang(),)
    plain.respond = lambda _request: Reply(before_head=step) if before_head else Reply(steps=step, content_type="a/b")
    began = trio.current_time()
    with pytest.raises(ProviderTimeout, match="is it running"):
        await discover(None, plain.address, KEY, within_s=0.3)
    assert trio.current_time() - began < discovery.WITHIN_S


async def test_a_list_without_end_is_not_read(plain: OpenAiService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "MAX_LIST_BYTES", 1_000_000)
    plain.respond = lambda _request: Reply(body=b" " * 1_000_001, content_type="application/json")
    with pytest.raises(ProviderMalformed, match="longer than"):
        await discover(None, plain.address, KEY)


async def test_three_thousand_models_are_read_and_of_more_it_is_said(plain: OpenAiService) -> None:
    plain.rows = openai_rows(*(f"model-{number}" for number in range(3_000)))
    found = await discover(None, plain.address, KEY)
    assert (len(found.models), found.note) == (3_000, "")
    plain.rows = openai_rows(*(f"model-{number}" for number in range(MOST_MODELS + 7)))
    found = await discover(None, plain.address, KEY)
    assert len(found.models) == MOST_MODELS
    assert str(MOST_MODELS + 7) in found.note


async def test_no_models_at_all_are_no_error_but_a_note() -> None:
    async with serve_llm(service := OllamaService()):
        found = await discover(None, f"{service.root}/v1", None)
    assert found.models == ()
    assert "ollama pull" in found.note


async def test_hostile_rows_cost_nothing_but_themselves(plain: OpenAiService) -> None:
    rows: list[Any] = [
        {"id": "good", "context_length": 9_000},
        {"id": "two words", "context_length": 1},
        {"id": "turn\u202earound"},
        {"id": "x" * 5_000},
        {"id": ["list"]},
        {"id": "odd", "context_length": True, "top_provider": 7, "capabilities": "all", "pricing": [], "meta": "n"},
        {"id": "huge", "context_length": 10**30, "pricing": {"prompt": "1e999", "completion": "NaN"}},
        {"id": "negative", "context_length": -5, "max_tokens": 0, "supported_parameters": {"tools": 1}},
        "text",
        None,
    ]
    plain.rows = rows
    models = named((await discover(None, plain.address, KEY)).models)
    assert sorted(models) == ["good", "huge", "negative", "odd"]
    assert models["good"].context_tokens == 9_000
    for name in ("odd", "huge", "negative"):
        assert models[name].known() == ()


async def test_services_of_this_machine_are_found() -> None:
    async with serve_llm(ollama := OllamaService(OllamaModel(name="qwen3:8b"))), serve_llm(closed := _closed()):
        found = await find_local((ollama.port, 9, closed.port))
    assert [(each.service, each.base_url) for each in found] == [
        ("ollama", f"{ollama.root}/v1"),
        ("other", f"{closed.root}/v1"),
    ]
    assert found[1].note == "wants a key"


def _closed() -> ServiceImitation:
    return OpenAiService(openai_rows("a"), key=KEY)


async def test_no_question_is_put_to_a_model(plain: OpenAiService) -> None:
    plain.answer = lambda _request: text_reply("asked")
    await discover(None, plain.address, KEY)
    assert {request.method for request in plain.requests} == {"GET"}
