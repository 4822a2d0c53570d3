"""The services of models that Klaw knows: where each is, and where a key comes from. Values only."""

import ipaddress
from collections.abc import Mapping
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

import attrs

OTHER = "other"
"""Any service with OpenAI's API; a person gives its address."""
ANTHROPIC_URL = "https://api.anthropic.com/v1"
Use: TypeAlias = Literal["chats", "background", "tasks"]
"""What a model is for; ``background``: summaries, topics and facts."""


@attrs.frozen
class KnownService:
    id: str
    """Also the name that it gets in ``providers``."""
    name: str
    base_url: str = ""
    key_env: str = ""
    """The usual variable of its key; empty: it needs none."""
    key_page: str = ""
    """Where a person gets a key."""

    @property
    def type(self) -> Literal["openai", "anthropic"]:
        """The API that it speaks."""
        return "anthropic" if self.id == "anthropic" else "openai"


_QWEN_URL = "https://dashscope-intl.aliyuncs.com/compatible-mode/v1"
_GEMINI_URL = "https://generativelanguage.googleapis.com/v1beta/openai"
SERVICES: Mapping[str, KnownService] = {
    row[0]: KnownService(*row)
    for row in (
        ("ollama", "Ollama", "http://127.0.0.1:11434/v1"),
        ("llamacpp", "llama.cpp", "http://127.0.0.1:8080/v1"),
        ("lmstudio", "LM Studio", "http://127.0.0.1:1234/v1"),
        ("vllm", "vLLM", "http://127.0.0.1:8000/v1"),
        ("openrouter", "OpenRouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY", "openrouter.ai/keys"),
        ("anthropic", "Anthropic", ANTHROPIC_URL, "ANTHROPIC_API_KEY", "console.anthropic.com/settings/keys"),
        ("openai", "OpenAI", "https://api.openai.com/v1", "OPENAI_API_KEY", "platform.openai.com/api-keys"),
        ("gemini", "Gemini", _GEMINI_URL, "GEMINI_API_KEY", "aistudio.google.com/apikey"),
        ("mistral", "Mistral", "https://api.mistral.ai/v1", "MISTRAL_API_KEY", "console.mistral.ai/api-keys"),
        ("groq", "Groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY", "console.groq.com/keys"),
        ("deepseek", "DeepSeek", "https://api.deepseek.com/v1", "DEEPSEEK_API_KEY", "platform.deepseek.com/api_keys"),
        ("zai", "Z.ai", "https://api.z.ai/api/paas/v4", "ZAI_API_KEY", "z.ai/manage-apikey/apikey-list"),
        ("qwen", "Qwen", _QWEN_URL, "DASHSCOPE_API_KEY", "modelstudio.console.alibabacloud.com"),
        (OTHER, "other (OpenAI-compatible)"),
    )
}

QUESTIONS = 50
"""Of a day of talk."""


@attrs.frozen(kw_only=True)
class DayCost:
    """US dollars for a day of ``QUESTIONS``; None: the price is unknown."""

    chats: float | None
    background: float | None


def is_near(url: str) -> bool:
    """Whether an address is on this machine or in its network, where nobody sends a bill."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return "." not in host or host.endswith((".local", ".lan", ".home.arpa"))
