"""``embedding.provider`` and ``autoRag.rerank``: what is wrong names its key."""

from typing import Any

import pytest

from klaw.config.load import read_settings
from klaw.errors import ConfigError
from klaw.llm.router import configured_models

CLOUD = {"cloud": {"baseUrl": "https://llm.example.com/v1"}, "claude": {"type": "anthropic"}}
REMOTE = {"provider": "cloud", "model": "BAAI/bge-m3"}


def test_nothing_is_asked_unless_it_is_configured() -> None:
    assert read_settings({"providers": CLOUD}).endpoints == {}
    off = {"embedding": {**REMOTE, "enabled": False}, "autoRag": {"rerank": REMOTE, "enabled": False}}
    assert read_settings({"providers": CLOUD, **off}).endpoints == {}


def test_both_are_known_and_their_prices_are_looked_up() -> None:
    config = read_settings({"providers": CLOUD, "embedding": REMOTE, "autoRag": {"rerank": {**REMOTE, "model": "r"}}})
    assert config.endpoints == {"embeddings": ("cloud", "BAAI/bge-m3"), "rerank": ("cloud", "r")}
    assert {"cloud/BAAI/bge-m3", "cloud/r"} <= set(configured_models(config))
    assert config.auto_rag.rerank.candidates == 30


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"embedding": {**REMOTE, "provider": "x"}}, "embedding.provider: must be a name in providers"),
        ({"embedding": {**REMOTE, "provider": "local"}}, "embedding.provider: must be a name in providers"),
        ({"embedding": {**REMOTE, "provider": "claude"}}, "embedding.provider: must name a provider of type 'openai'"),
        ({"embedding": {"provider": "cloud"}}, "embedding.model: is required beside provider"),
        ({"embedding": {**REMOTE, "path": "/srv/m"}}, "embedding.path: means nothing beside provider"),
        ({"embedding": {**REMOTE, "dimensions": 7}}, "embedding.dimensions: must be >= 8, got 7"),
        ({"embedding": {"model": "BAAI/bge-m3"}}, "embedding.model: must be a model's name"),
        ({"embedding": {"dimensions": 512}}, "embedding.dimensions: needs embedding.provider"),
        ({"embedding": {"queryPrefix": "q: "}}, "embedding.queryPrefix: needs embedding.provider"),
        ({"autoRag": {"rerank": {"provider": "cloud"}}}, "autoRag.rerank.model: is required beside provider"),
        ({"autoRag": {"rerank": {"model": "r"}}}, "autoRag.rerank.provider: is required beside model"),
        ({"autoRag": {"rerank": {**REMOTE, "provider": "x"}}}, "autoRag.rerank.provider: must be a name in providers"),
        ({"autoRag": {"rerank": {**REMOTE, "candidates": 51}}}, "autoRag.rerank.candidates: must be <= 50, got 51"),
        ({"autoRag": {"rerank": {**REMOTE, "topN": 3}}}, "autoRag.rerank.topN: unknown key"),
    ],
)
def test_mistakes_name_their_key(sections: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_settings({"providers": CLOUD, **sections})
    (problem,) = refused.value.problems
    assert str(problem).startswith(said)
