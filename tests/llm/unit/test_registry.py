"""Facts about models: what the configuration says wins, then the list of prices, then defaults."""

import json
from decimal import Decimal
from typing import Any

import pytest

from klaw.actor.clock import FixedClock
from klaw.config.load import parse
from klaw.config.schema import EngineConfig
from klaw.errors import ConfigError
from klaw.llm import prices
from klaw.llm.prices import FREE
from klaw.llm.registry import Registry
from klaw.llm.router import configured_models

OPENROUTER = "https://openrouter.ai/api/v1"


def config(**providers: Any) -> EngineConfig:
    return parse(json.dumps({"providers": providers}), {})[0]


def registry(**providers: Any) -> Registry:
    return Registry(config(**providers), FixedClock(1_790_000_000))


async def test_the_configuration_wins_over_the_list() -> None:
    models = {"openai/gpt-5": {"inputPrice": 2, "outputPrice": 0.035, "tools": True}}
    facts = registry(router={"baseUrl": OPENROUTER, "models": models})
    await facts.know("router/openai/gpt-5", "router/openai/gpt-5-mini")
    own, listed = facts.facts("router/openai/gpt-5"), facts.facts("router/openai/gpt-5-mini")
    assert own.prices is not None
    assert listed.prices is not None
    assert (own.prices.input.base, own.prices.output.base) == (Decimal(2), Decimal("0.035"))
    assert (own.context_tokens, own.tools, listed.tools) == (400_000, True, None)
    assert facts.problems() == {}


async def test_nothing_is_asked_where_the_list_cannot_know(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prices.sys, "executable", "/bin/false")  # who asks gets a problem
    known = {"big": {"inputPrice": 0, "outputPrice": 0, "contextTokens": 9000}}
    facts = registry(
        ollama={"baseUrl": "http://127.0.0.1:11434/v1"},
        box={"baseUrl": "http://[::1]:8080/v1"},
        host={"baseUrl": "http://gpu:8080/v1"},
        own={"baseUrl": "https://llm.example.com/v1", "models": known},
    )
    await facts.know("ollama/llama3", "box/m", "host/m", "own/big", "local/smollm2-135m-instruct", "nobody/m", "нет")
    assert facts.facts("ollama/llama3").prices is None
    assert facts.facts("nobody/m").prices is None
    assert facts.facts("local/smollm2-135m-instruct").prices == FREE
    assert facts.facts("own/big").context_tokens == 9000
    assert facts.context_tokens("ollama/llama3") == 8192
    assert facts.problems() == {}


def test_a_model_at_home_is_free_where_nobody_tells_its_price_or_wants_a_key() -> None:
    own = {"m": {"inputPrice": 2, "outputPrice": 3}}
    facts = registry(
        near={"baseUrl": "http://192.168.1.20:11434/v1"},
        proxy={"baseUrl": "http://gpu.lan:4000/v1", "apiKey": "sk-1"},
        priced={"baseUrl": "http://127.0.0.1:8080/v1", "models": own},
        far={"baseUrl": "https://llm.example.com/v1"},
    )
    assert facts.charged("near/m") == facts.charged("local/smollm2-135m-instruct") == FREE
    assert facts.charged("proxy/m") is facts.charged("far/m") is facts.charged("nobody/m") is None
    assert facts.charged("priced/m") == facts.facts("priced/m").prices != FREE
    assert facts.facts("near/m").prices is None  # a limit of tokens counts it


async def test_a_list_that_cannot_be_read_leaves_prices_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prices.sys, "executable", "/bin/false")
    facts = registry(router={"baseUrl": OPENROUTER})
    await facts.know("router/openai/gpt-5")
    assert facts.facts("router/openai/gpt-5").prices is None
    assert "no_price_list" in facts.problems()


@pytest.mark.parametrize(
    ("prices", "missing"),
    [
        ({"inputPrice": 1}, "outputPrice"),
        ({"outputPrice": 1}, "inputPrice"),
        ({"cachedInputPrice": 1}, "inputPrice"),
        ({"inputPrice": 1, "outputPrice": -1}, "outputPrice"),
    ],
)
def test_half_a_price_is_refused_by_name(prices: dict[str, float], missing: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config(cloud={"baseUrl": OPENROUTER, "models": {"m": prices}})
    assert [problem.path for problem in caught.value.problems] == [f"providers.cloud.models.m.{missing}"]


def test_configured_models_are_listed_once_routes_first() -> None:
    providers = {"cloud": {"baseUrl": OPENROUTER, "models": {"a": {}, "b": {}}}}
    routing = {"default": "cloud/b", "fallback": ["local/smollm2-135m-instruct"]}
    parsed, _ = parse(json.dumps({"providers": providers, "routing": routing}), {})
    assert configured_models(parsed) == ["cloud/b", "local/smollm2-135m-instruct", "cloud/a"]
