"""What is learned of models: from their services, by tiny calls and from what they refuse; kept, and used again."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from klaw.actor.clock import FixedClock
from klaw.actor.supervisor import Vitals
from klaw.config.load import parse
from klaw.config.schema import EngineConfig
from klaw.llm import registry as registries
from klaw.llm.errors import ProviderRefused
from klaw.llm.providers.adapt import fitted
from klaw.llm.providers.thinking_members import CONTEXT_SHARE
from klaw.llm.registry import DAY_S, Registry
from klaw.llm.router import Router
from klaw.llm.trial import trials_of, try_abilities
from klaw.llm.types import ChatMessage, Completion, Request, ToolDescription
from tests.support.llm_server import Hang, Recorded, Reply, Tool, serve_llm, text_reply, tool_reply
from tests.support.scripted import client
from tests.support.services.ollama import OllamaModel, OllamaService
from tests.support.services.openai import LmStudioService, OpenAiService, lmstudio_row, openai_rows
from tests.support.waiting import until

NOW = 1_795_680_000.0
QWEN = OllamaModel(name="qwen3:8b", longest=40_960, capabilities=("completion", "tools", "thinking"))
CLOCK = ToolDescription(name="clock", description="Tells the time.", parameters={"type": "object", "properties": {}})


def config_of(name: str, url: str, model: str, models: Any = None) -> EngineConfig:
    settings: dict[str, Any] = {"baseUrl": url, "maxRetries": 0} | ({"models": models} if models else {})
    return parse(json.dumps({"providers": {name: settings}, "routing": {"default": f"{name}/{model}"}}), {})[0]


class Kept:
    """Where a registry keeps what it knows."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    async def save(self, provider: str, text: str) -> None:
        self.texts[provider] = text


@asynccontextmanager
async def watched(registry: Registry, router: Router, config: EngineConfig) -> AsyncIterator[None]:
    """The actor that asks and tries, for the body."""
    actor = registry.spec(partial(try_abilities, config, client(router, registry=registry)))
    async with trio.open_nursery() as nursery:
        await nursery.start(lambda task_status: actor.run(Vitals(FixedClock(NOW)), task_status))
        yield
        nursery.cancel_scope.cancel(reason="the test is over")
    await router.aclose()


def router_of(config: EngineConfig, registry: Registry) -> Router:
    return Router(config, lambda: None, registry)  # type: ignore[arg-type,return-value]


async def say(router: Router, text: str = "Hello", *tools: ToolDescription) -> Completion:
    route = router.route()
    request = Request(
        model=route.model,
        messages=(ChatMessage(role="user", content=text),),
        tools=tools,
        max_tokens=100,
        temperature=0.5,
    )
    return await route.provider.stream(fitted(request, route, stands_in=False), lambda _delta: None)


def seen(registry: Registry, name: str) -> dict[str, tuple[Any, str]]:
    facts = registry.facts(name)
    return {field: (getattr(facts, field), facts.origins[field].source) for field in facts.known()}


async def test_an_address_is_enough_and_the_configuration_wins() -> None:
    async with serve_llm(service := OllamaService(QWEN)):
        bare = Registry(config := config_of("ollama", f"{service.root}/v1", "qwen3:8b"), FixedClock(NOW))
        assert await bare.know("ollama/qwen3:8b")
        own = {"qwen3:8b": {"contextTokens": 16_384, "tools": False}}
        set_up = Registry(config_of("ollama", f"{service.root}/v1", "qwen3:8b", own), FixedClock(NOW))
        await set_up.know("ollama/qwen3:8b")
    known = seen(bare, "ollama/qwen3:8b")
    assert known["tools"] == (True, "service")
    assert known["thinking"] == (True, "service")
    assert known["context_tokens"] == (4_096, "default")
    route = router_of(config, bare).route()
    assert (route.context_tokens, route.tools, route.images, route.loads_context) == (4_096, True, False, False)
    known = seen(set_up, "ollama/qwen3:8b")
    assert known["context_tokens"] == (16_384, "config")
    assert known["tools"] == (False, "config")


async def test_what_was_known_counts_while_the_service_cannot_be_reached() -> None:
    kept = Kept()
    async with serve_llm(service := OllamaService(QWEN)):
        config = config_of("ollama", f"{service.root}/v1", "qwen3:8b")
        registry = Registry(config, FixedClock(NOW), kept.save)
        async with watched(registry, router_of(config, registry), config):
            await until(lambda: "ollama" in kept.texts)
    later = Registry(config, FixedClock(NOW + 2 * DAY_S), kept.save)
    await later.restore(kept.texts)
    async with watched(later, router_of(config, later), config):
        await until(lambda: "ollama" in later.errors)
        assert "cannot be reached" in later.errors["ollama"]
        known = later.facts("ollama/qwen3:8b")
        assert (known.tools, known.longest_context) == (True, 40_960)
        assert str(known.origins["tools"]).startswith("service 20")
    moved = Registry(config_of("ollama", "http://127.0.0.1:9/v1", "qwen3:8b"), FixedClock(NOW))
    await moved.restore(kept.texts)
    assert moved.facts("ollama/qwen3:8b").tools is None
    await moved.restore({"ollama": "{", "other": '{"base_url": 7}'})


async def test_a_service_is_asked_once_a_day() -> None:
    kept = Kept()
    async with serve_llm(service := OllamaService(QWEN)):
        config = config_of("ollama", f"{service.root}/v1", "qwen3:8b")
        registry = Registry(config, FixedClock(NOW), kept.save)
        async with watched(registry, router_of(config, registry), config):
            await until(lambda: "ollama" in kept.texts)
        asked = len(service.asked("/api/tags"))
        for age_s, more in ((DAY_S / 2, 0), (DAY_S, 1)):
            again = Registry(config, FixedClock(NOW + age_s), kept.save)
            await again.restore(kept.texts)
            async with watched(again, router_of(config, again), config):
                if more:
                    await until(lambda: len(service.asked("/api/tags")) > asked)
                assert not await again.know("ollama/qwen3:8b")
            assert len(service.asked("/api/tags")) == asked + more


async def test_ollama_is_asked_for_the_configured_context_through_its_own_api() -> None:
    own = {"qwen3:8b": {"contextTokens": 16_384}}
    async with serve_llm(service := OllamaService(QWEN)):
        config = config_of("ollama", f"{service.root}/v1", "qwen3:8b", own)
        registry = Registry(config, FixedClock(NOW))
        await registry.know("ollama/qwen3:8b")
        router = router_of(config, registry)
        service.answers.append(tool_reply(Tool("call_7", "clock", '{"zone": "UTC"}')))
        called = await say(router, "What time is it?", CLOCK)
        plain = await say(router)
        await router.aclose()
    assert [(call.name, json.loads(call.arguments)) for call in called.tool_calls] == [("clock", {"zone": "UTC"})]
    assert plain.text == "ok"
    assert plain.usage is not None
    assert (plain.usage.prompt_tokens, plain.usage.completion_tokens) == (11, 7)
    first, _ = service.asked("/api/chat")
    thinking = 16_384 // CONTEXT_SHARE  # it may think beside its answer
    assert first.body["options"] == {"num_ctx": 16_384, "temperature": 0.5, "num_predict": 100 + thinking}
    assert service.loaded == {"qwen3:8b": 16_384}
    assert not service.asked("/v1/chat/completions")


async def test_ollama_is_asked_for_no_more_than_the_model_can() -> None:
    own = {"qwen3:8b": {"contextTokens": 500_000}}
    async with serve_llm(service := OllamaService(QWEN)):
        config = config_of("ollama", f"{service.root}/v1", "qwen3:8b", own)
        registry = Registry(config, FixedClock(NOW))
        await registry.know("ollama/qwen3:8b")
        router = router_of(config, registry)
        assert router.route().context_tokens == 40_960
        await say(router)
        await router.aclose()
    assert service.loaded == {"qwen3:8b": 40_960}


async def test_an_assumed_context_is_asked_for_when_the_model_is_loaded() -> None:
    async with serve_llm(service := OllamaService(QWEN, default_context=32_768)):
        config = config_of("ollama", f"{service.root}/v1", "qwen3:8b")
        registry = Registry(config, FixedClock(NOW))
        router = router_of(config, registry)
        await registry.know("ollama/qwen3:8b")
        assert seen(registry, "ollama/qwen3:8b")["context_tokens"] == (4_096, "default")
        await say(router)
        registry._asked_at["ollama"] -= 100  # it was asked a while ago
        registry.answered("ollama/qwen3:8b")
        async with watched(registry, router, config):
            await until(lambda: registry.facts("ollama/qwen3:8b").context_tokens == 32_768)
    assert seen(registry, "ollama/qwen3:8b")["context_tokens"] == (32_768, "service")


async def test_what_nobody_says_is_tried_with_tiny_calls() -> None:
    def answer(request: Recorded) -> Reply:
        if isinstance(request.messages[-1]["content"], list):
            return text_reply("Blue.")
        return tool_reply(Tool("c", "say_ping", '{"name": "Anna"}')) if "tools" in request.body else text_reply("ok")

    kept = Kept()
    async with serve_llm(service := LmStudioService([lmstudio_row("llama", loaded=8_192)])):
        assert isinstance(service, LmStudioService)
        service.answer = answer
        config = config_of("studio", service.address, "llama")
        registry = Registry(config, FixedClock(NOW), kept.save)
        async with watched(registry, router_of(config, registry), config):
            await until(lambda: json.loads(kept.texts.get("studio", "{}")).get("tried"))
        known = seen(registry, "studio/llama")
        assert known["tools"] == (True, "tried")
        assert known["images"] == (False, "service")
        calls = len(service.asked("/v1/chat/completions"))
        again = Registry(config, FixedClock(NOW + 60), kept.save)
        await again.restore(kept.texts)
        assert seen(again, "studio/llama") == known
        async with watched(again, router_of(config, again), config):
            await again.know("studio/llama")
        assert len(service.asked("/v1/chat/completions")) == calls


async def test_a_service_that_lies_about_tools_is_found_out_by_the_test() -> None:
    row = openai_rows("liar", supports_tools=True)[0]
    refusal = {"tools": "This model does not support tools."}
    async with serve_llm(service := OpenAiService([row], refuses=refusal)):
        assert isinstance(service, OpenAiService)
        config = config_of("some", service.address, "liar")
        registry = Registry(config, FixedClock(NOW))
        await registry.know("some/liar")
        assert seen(registry, "some/liar")["tools"] == (True, "service")
        router = router_of(config, registry)
        llm = client(router, registry=registry)
        checks = [check for trial in trials_of(config, llm, "some/liar") for check in await trial()]
        registry.note_checks("some/liar", checks)
        await router.aclose()
    assert {check.name: check.state for check in checks}["tools"] == "fails"
    assert seen(registry, "some/liar")["tools"] == (False, "tried")


async def test_what_a_model_refuses_is_left_out_after_a_restart_too() -> None:
    words = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
    refuses = {"max_tokens": words, "temperature": "Unsupported value: 'temperature' does not support 0.5."}
    kept = Kept()
    async with serve_llm(service := OpenAiService(openai_rows("o9"), refuses=refuses)):
        assert isinstance(service, OpenAiService)
        config = config_of("openai", service.address, "o9", {"o9": {"tools": False, "images": False}})
        registry = Registry(config, FixedClock(NOW), kept.save)
        router = router_of(config, registry)
        assert (await say(router)).adapted == ("max_tokens", "temperature")
        assert registry.left_out("openai/o9") == ("max_tokens", "temperature")
        async with watched(registry, router, config):
            await until(
                lambda: "max_tokens" in kept.texts.get("openai", "") or "renamed" in kept.texts.get("openai", "")
            )
        before = len(service.asked("/v1/chat/completions"))
        again = Registry(config, FixedClock(NOW + 60))
        await again.restore(kept.texts)
        router = router_of(config, again)
        assert (await say(router)).text == "ok"
        await router.aclose()
        bodies = [request.body for request in service.asked("/v1/chat/completions")]
        assert len(bodies) == before + 1
        assert bodies[-1]["max_completion_tokens"] == 100
        assert not {"max_tokens", "temperature"} & bodies[-1].keys()
        long_after = Registry(config, FixedClock(NOW + 40 * DAY_S))
        await long_after.restore(kept.texts)
        assert long_after.left_out("openai/o9") == ()
        again.unlearn("openai/o9")
        assert again.left_out("openai/o9") == ()


async def test_an_error_that_a_changed_model_explains_lets_the_service_be_asked_again() -> None:
    async with serve_llm(service := OllamaService(QWEN)):
        config = config_of("ollama", f"{service.root}/v1", "qwen3:8b")
        registry = Registry(config, FixedClock(NOW))
        await registry.know("ollama/qwen3:8b")
        registry._asked_at["ollama"] -= 100  # it was asked a while ago
        asked = len(service.asked("/api/tags"))
        service.models["qwen3:8b"] = OllamaModel(name="qwen3:8b", capabilities=("completion",))
        async with watched(registry, router_of(config, registry), config):
            registry.failed_with("ollama/qwen3:8b", ProviderRefused("busy", status=503, retryable=True))
            await wait_all_tasks_blocked(0.05)
            assert len(service.asked("/api/tags")) == asked
            registry.failed_with("ollama/qwen3:8b", ProviderRefused("no tools", status=400, retryable=False))
            await until(lambda: registry.facts("ollama/qwen3:8b").tools is False)


@pytest.mark.parametrize("own", [None, {"qwen3:8b": {"tools": True}}])
async def test_a_turn_waits_for_a_hanging_service_only_where_nothing_is_known_and_not_for_long(
    monkeypatch: pytest.MonkeyPatch, own: Any
) -> None:
    """It is asked again in the background, with all the time that it gets there."""
    monkeypatch.setattr(registries, "HURRY_S", 0.2)
    async with serve_llm(service := OllamaService(QWEN)):
        service.replaced = dict.fromkeys(("/api/tags", "/v1/models"), Reply(before_head=(Hang(),)))
        config = config_of("ollama", f"{service.root}/v1", "qwen3:8b", own)
        registry = Registry(config, FixedClock(NOW))
        asked = await registry.know("ollama/qwen3:8b", hurry=True)
        assert asked is (own is None)
        assert bool(service.requests) is (own is None)
        assert not registry.errors
        assert not await registry.know("ollama/qwen3:8b", hurry=True)
        service.replaced = {}
        if own is None:
            registry._asked_at["ollama"] -= 100  # that was a while ago
        async with watched(registry, router_of(config, registry), config):
            await until(lambda: registry.facts("ollama/qwen3:8b").longest_context == 40_960)
