"""The services of models that Klaw knows: where each is, and where a key comes from. Values only."""

from collections.abc import Mapping
from typing import Literal, TypeAlias

import attrs

OTHER = "other"
"""Any service with OpenAI's API; a person gives its address."""
ANTHROPIC_URL = "https://api.anthropic.com/v1"
Use: TypeAlias = Literal["chats", "background", "tasks"]
"""What a model is for; ``background``: summaries, topics and facts."""


@attrs.frozen(kw_only=True)
class KnownService:
    id: str
    """Also the name that it gets in ``providers``."""
    name: str
    base_url: str = ""
    type: Literal["openai", "anthropic"] = "openai"
    key_env: str = ""
    """The usual variable of its key; empty: it needs none."""
    key_page: str = ""
    """Where a person gets a key."""


def _local(id_: str, name: str, port: int) -> KnownService:
    return KnownService(id=id_, name=name, base_url=f"http://127.0.0.1:{port}/v1")


def _cloud(id_: str, name: str, base_url: str, key_env: str, key_page: str) -> KnownService:
    return KnownService(id=id_, name=name, base_url=base_url, key_env=key_env, key_page=key_page)


_SERVICES = (
    _local("ollama", "Ollama", 11434),
    _local("llamacpp", "llama.cpp", 8080),
    _local("lmstudio", "LM Studio", 1234),
    _local("vllm", "vLLM", 8000),
    _cloud("openrouter", "OpenRouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY", "openrouter.ai/keys"),
    attrs.evolve(
        _cloud("anthropic", "Anthropic", ANTHROPIC_URL, "ANTHROPIC_API_KEY", "console.anthropic.com/settings/keys"),
        type="anthropic",
    ),
    _cloud("openai", "OpenAI", "https://api.openai.com/v1", "OPENAI_API_KEY", "platform.openai.com/api-keys"),
    _cloud(
        "gemini",
        "Gemini",
        "https://generativelanguage.googleapis.com/v1beta/openai",
        "GEMINI_API_KEY",
        "aistudio.google.com/apikey",
    ),
    _cloud("mistral", "Mistral", "https://api.mistral.ai/v1", "MISTRAL_API_KEY", "console.mistral.ai/api-keys"),
    _cloud("groq", "Groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY", "console.groq.com/keys"),
    _cloud("deepseek", "DeepSeek", "https://api.deepseek.com/v1", "DEEPSEEK_API_KEY", "platform.deepseek.com/api_keys"),
    _cloud("zai", "Z.ai", "https://api.z.ai/api/paas/v4", "ZAI_API_KEY", "z.ai/manage-apikey/apikey-list"),
    _cloud(
        "qwen",
        "Qwen",
        "https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
        "DASHSCOPE_API_KEY",
        "modelstudio.console.alibabacloud.com",
    ),
    KnownService(id=OTHER, name="other (OpenAI-compatible)"),
)
SERVICES: Mapping[str, KnownService] = {each.id: each for each in _SERVICES}

QUESTIONS = 50
"""Of a day of talk."""


@attrs.frozen(kw_only=True)
class DayCost:
    """US dollars for a day of ``QUESTIONS``; None: the price is unknown."""

    chats: float | None
    background: float | None
