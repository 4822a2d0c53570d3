"""``embedding.provider``, ``autoRag.rerank`` and ``voice``: what is wrong names its key."""

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


def test_models_for_sound_are_known_and_answer_in_no_chat() -> None:
    config = read_settings({"providers": CLOUD, "voice": {"transcribe": "cloud/openai/whisper", "speak": "cloud/tts"}})
    assert config.endpoints == {"audio/transcriptions": ("cloud", "openai/whisper"), "audio/speech": ("cloud", "tts")}
    assert {"cloud/openai/whisper", "cloud/tts"} <= set(configured_models(config))
    assert not {"cloud/openai/whisper", "cloud/tts"} & set(configured_models(config, chat=True))


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
        ({"voice": {"transcribe": "x/whisper-1"}}, "voice.transcribe: must be a name in providers"),
        ({"voice": {"speak": "local/tts"}}, "voice.speak: must be a name in providers"),
        ({"voice": {"speak": "claude/tts"}}, "voice.speak: must name a provider of type 'openai'"),
        ({"voice": {"transcribe": "whisper-1"}}, "voice.transcribe: must have the form provider/model"),
        ({"voice": {"voice": "two words"}}, "voice.voice: must have no spaces"),
    ],
)
def test_mistakes_name_their_key(sections: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_settings({"providers": CLOUD, **sections})
    (problem,) = refused.value.problems
    assert str(problem).startswith(said)
