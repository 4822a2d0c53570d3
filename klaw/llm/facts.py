"""What is known of a model, who says so, and what services say of their models in their own forms. Pure. An answer is
not trusted: what is not of the promised type counts as not said, and a model whose name nobody could type is left out.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Annotated, Any, Literal, TypeAlias
from urllib.parse import urlsplit

import attrs

from klaw.config.keys import TOKENS_MAX
from klaw.config.llm import ProviderModelConfig
from klaw.convert import OMIT
from klaw.llm.prices import Prices, Rate

Source: TypeAlias = Literal["config", "tried", "service", "prices", "default"]
"""The configuration, a small call, the service, the price list, or Klaw's assumption."""


@attrs.frozen(kw_only=True)
class FactOrigin:
    source: Source
    at: str | None = None
    """When the service said so, or when it was tried (ISO-8601 UTC)."""

    def __str__(self) -> str:
        return f"{self.source} {self.at[:10]}" if self.at else self.source


@attrs.frozen(kw_only=True)
class ModelFacts:
    """What is known of one model; None: nobody knows. ``origins`` has each field that is known."""

    name: str
    """The service's own name of it; in a ``Registry`` it is ``provider/model``."""
    context_tokens: Annotated[int | None, OMIT] = None
    """Prompt and answer together, as they fit now."""
    longest_context: Annotated[int | None, OMIT] = None
    """What the model could have, if the service were asked to load it so."""
    output_tokens: Annotated[int | None, OMIT] = None
    tools: Annotated[bool | None, OMIT] = None
    images: Annotated[bool | None, OMIT] = None
    thinking: Annotated[bool | None, OMIT] = None
    json_schema: Annotated[bool | None, OMIT] = None
    embedding: Annotated[bool | None, OMIT] = None
    """It cannot chat: it makes vectors, mostly."""
    prices: Annotated[Prices | None, OMIT] = None
    origins: Annotated[Mapping[str, FactOrigin], OMIT] = attrs.field(factory=dict)

    def dated(self, origin: FactOrigin) -> "ModelFacts":
        """The same with this origin for every known value that has none."""
        return attrs.evolve(self, origins={**dict.fromkeys(self.known(), origin), **self.origins})

    def undated(self) -> "ModelFacts":
        return attrs.evolve(self, origins={k: each for k, each in self.origins.items() if each.source != "service"})

    def is_since(self, at: str) -> bool:
        return any(origin.at is not None and origin.at >= at for origin in self.origins.values())

    def known(self) -> tuple[str, ...]:
        return tuple(name for name in FIELDS if getattr(self, name) is not None)


FIELDS = tuple(field.name for field in attrs.fields(ModelFacts) if field.name not in ("name", "origins"))


def merged(name: str, sources: Iterable[ModelFacts]) -> ModelFacts:
    """Each value from the first source that has it."""
    values, origins = {}, {}
    for source in sources:
        for field in source.known():
            if field not in values:
                values[field] = getattr(source, field)
                origins[field] = source.origins[field]
    return ModelFacts(name=name, **values, origins=origins)


@attrs.frozen
class ModelCheck:
    """One ability of a model."""

    name: Literal["chat", "stream", "tools", "images", "json", "embeddings", "rerank"]
    state: Literal["works", "fails", "not tried"]
    text: str
    seconds: float | None = None
    found: bool | None = None
    """Whether the model can do it; None: that did not show."""
    sure: bool = True
    """It would not come out otherwise the next time."""


def configured(own: ProviderModelConfig) -> ModelFacts:
    """What the configuration says of a model."""

    def rate(price: float | None) -> Rate | None:
        return Rate(Decimal(str(price))) if price is not None else None

    price, output = rate(own.input_price), rate(own.output_price)
    prices = None
    if price is not None and output is not None:
        cached, written = rate(own.cached_input_price), rate(own.cache_write_price)
        prices = Prices(input=price, output=output, cached_input=cached, cache_write=written)
    return ModelFacts(
        name="",
        context_tokens=own.context_tokens,
        output_tokens=own.max_output_tokens,
        tools=own.tools,
        images=own.images,
        thinking=own.thinking is not None or None,
        json_schema=own.json_schema,
        prices=prices,
    )


# -- recognising a service ---------------------------------------------------------------------------------------------

ServiceName: TypeAlias = Literal[
    "ollama", "openrouter", "anthropic", "openai", "gemini", "mistral", "groq", "deepseek", "zai", "qwen",
    "llamacpp", "lmstudio", "vllm", "litellm", "klaw", "other",
]  # fmt: skip

MAX_NAME_CHARS = 200
MOST_MODELS = 5_000
UNLOADED_CONTEXT = 4_096
"""What Ollama and LM Studio load a model with if nobody says otherwise."""
ASSUMED = FactOrigin(source="default")

_HOSTS: Mapping[str, ServiceName] = {
    "openrouter.ai": "openrouter",
    "api.anthropic.com": "anthropic",
    "api.openai.com": "openai",
    "generativelanguage.googleapis.com": "gemini",
    "api.mistral.ai": "mistral",
    "api.groq.com": "groq",
    "api.deepseek.com": "deepseek",
    "api.z.ai": "zai",
    "open.bigmodel.cn": "zai",
    "dashscope.aliyuncs.com": "qwen",
    "dashscope-intl.aliyuncs.com": "qwen",
    "dashscope-us.aliyuncs.com": "qwen",
}
_OWNERS: Mapping[str, ServiceName] = {"llamacpp": "llamacpp", "vllm": "vllm", "klaw": "klaw"}
_NO_CHAT = re.compile(r"embed|\bbge-|\bgte-|\be5-|minilm|rerank|whisper|\btts\b|dall-e|moderation", re.IGNORECASE)
_CHATS = frozenset({"chat", "language", "llm", "model", "vlm"})
_EMBEDS = frozenset({"embedding", "embeddings"})


def by_address(url: str) -> ServiceName | None:
    return _HOSTS.get(urlsplit(url).hostname or "")


def rows(answer: object) -> list[Mapping[str, Any]] | None:
    """The models in a list, whatever it is wrapped in; None: it is none."""
    for key in ("data", "models"):
        if isinstance(answer, dict) and isinstance(answer.get(key), list):
            answer = answer[key]
    return [row for row in answer if isinstance(row, dict)] if isinstance(answer, list) else None


def by_rows(answer: Sequence[Mapping[str, Any]]) -> ServiceName:
    """The service by what its list looks like."""
    for row in answer[:3]:
        if (owner := _OWNERS.get(str(row.get("owned_by")))) is not None:
            return owner
        if isinstance(row.get("top_provider"), dict):
            return "openrouter"
        if "max_model_len" in row:
            return "vllm"
    return "other"


def listed(answer: Sequence[Mapping[str, Any]]) -> Iterator[ModelFacts]:
    """The models of ``/models``: of OpenAI, and of all who answer like it and say more."""
    for row in answer:
        name = _name(_first(row, "id", "key", "name", "model"))
        if name is not None:
            yield _named(of_row(name, row))


def of_row(name: str, row: Mapping[str, Any]) -> ModelFacts:
    """Whatever of a model's row has a meaning that all who use the word agree on."""
    said = _abilities(row)
    top, meta = _object(row.get("top_provider")), _object(row.get("meta"))
    kind = str(row.get("type") or row.get("mode"))
    lengths = [
        _count(_first(row, "context_length", "context_window", "max_model_len", "max_input_tokens", "inputTokenLimit")),
        _count(top.get("context_length")),
        _count(meta.get("n_ctx")),
        _count(row.get("max_context_length")),
    ]
    methods = row.get("supportedGenerationMethods")
    if isinstance(methods, list):
        said["embedding"] = "generateContent" not in methods
    if "embedding" not in said and kind in _CHATS | _EMBEDS:
        said["embedding"] = kind in _EMBEDS
    if kind == "vlm":
        said["images"] = True
    most = _first(row, "max_completion_tokens", "max_output_tokens", "outputTokenLimit", "max_tokens")
    return ModelFacts(
        name=name,
        context_tokens=min(filter(None, lengths), default=None),
        output_tokens=_count(top.get("max_completion_tokens") or most),
        prices=_prices(row),
        **said,
    )


_PARAMETERS = {"tools": "tools", "thinking": "reasoning", "json_schema": "structured_outputs"}
_WORDS: Mapping[str, tuple[str, ...]] = {
    "tools": ("tools", "tool_use", "function_calling", "trained_for_tool_use"),
    "images": ("vision", "image_input", "multimodal"),
    "thinking": ("thinking", "reasoning"),
    "json_schema": ("structured_outputs",),
    "embedding": ("embedding",),
}
_MEMBERS: Mapping[str, tuple[str, ...]] = {
    "tools": ("supports_tools", "supports_function_calling"),
    "images": ("supports_vision", "supports_image_input"),
    "thinking": ("supports_reasoning", "thinking"),
    "json_schema": ("supports_response_schema",),
}


def _abilities(row: Mapping[str, Any]) -> dict[str, Any]:
    said: dict[str, Any] = {
        field: flag for field, names in _MEMBERS.items() if isinstance(flag := _first(row, *names), bool)
    }
    if isinstance(parameters := row.get("supported_parameters"), list):
        said |= {field: word in parameters for field, word in _PARAMETERS.items()}
    if isinstance(inputs := _object(row.get("architecture")).get("input_modalities"), list):
        said["images"] = "image" in inputs
    told = row.get("capabilities")
    if isinstance(told, list):
        said |= {field: True for field, words in _WORDS.items() if any(word in told for word in words)}
    for field, words in _WORDS.items():
        flag = _first(_object(told), *words)
        flag = flag.get("supported") if isinstance(flag, dict) else flag
        said |= {field: flag} if isinstance(flag, bool) else {}
    if isinstance(told, dict) and told.get("completion_chat") is False:  # Mistral
        said["embedding"] = True
    return said


# -- forms of their own ------------------------------------------------------------------------------------------------


def of_anthropic(answer: Sequence[Mapping[str, Any]]) -> Iterator[ModelFacts]:
    """All its models call tools, and see: only what differs is in the list."""
    for model in listed(answer):
        yield attrs.evolve(model, tools=True, images=model.images is not False)


def of_gemini(answer: Sequence[Mapping[str, Any]]) -> Iterator[ModelFacts]:
    for row in answer:
        name = _name(str(row.get("name")).removeprefix("models/"))
        if name is not None:
            yield of_row(name, row)


def ollama_names(tags: Sequence[Mapping[str, Any]]) -> list[str]:
    return [name for row in tags if (name := _name(_first(row, "model", "name"))) is not None]


def of_ollama(name: str, show: object, running: Sequence[Mapping[str, Any]]) -> ModelFacts:
    """A model by ``/api/show``, and by ``/api/ps`` if it is loaded. The context is what it is loaded with, or will be:
    longer prompts are cut without a word."""
    told = _object(show)
    loaded = next((_count(row.get("context_length")) for row in running if row.get("model") == name), None)
    info, capabilities = _object(told.get("model_info")), told.get("capabilities")
    longest = next((_count(value) for key, value in info.items() if str(key).endswith(".context_length")), None)
    set_to = re.search(r"^num_ctx\s+(\d{1,9})$", str(told.get("parameters")), re.MULTILINE)
    now = loaded or (_count(int(set_to[1])) if set_to is not None else None)
    # Models in Ollama's cloud have all of their context.
    now = now or (longest if told.get("remote_host") or told.get("remote_model") else None)
    said: dict[str, Any] = {}
    if isinstance(capabilities, list):
        said = {"tools": "tools" in capabilities, "images": "vision" in capabilities}
        said |= {"thinking": "thinking" in capabilities, "embedding": "completion" not in capabilities}
    return ModelFacts(
        name=name,
        context_tokens=min(filter(None, (longest, now or UNLOADED_CONTEXT))),
        longest_context=longest,
        json_schema=True,
        origins={} if now else {"context_tokens": ASSUMED},
        **said,
    )


def of_llamacpp(answer: Sequence[Mapping[str, Any]], props: Mapping[str, Any]) -> Iterator[ModelFacts]:
    """It serves one model: what its properties say is about that."""
    caps, modes = _object(props.get("chat_template_caps")), _object(props.get("modalities"))
    context = _count(_object(props.get("default_generation_settings")).get("n_ctx"))
    flags = [caps.get(key) for key in ("supports_tools", "supports_tool_calls")]
    for model in listed(answer):
        yield attrs.evolve(
            model,
            context_tokens=context or model.context_tokens,
            tools=all(flags) if all(isinstance(flag, bool) for flag in flags) else model.tools,
            images=modes["vision"] if isinstance(modes.get("vision"), bool) else model.images,
        )


def of_lmstudio(answer: Sequence[Mapping[str, Any]]) -> Iterator[ModelFacts]:
    for row, model in ((each, model) for each in answer for model in listed([each])):
        longest, loaded = model.context_tokens, _count(row.get("loaded_context_length"))
        now = loaded or (min(longest or UNLOADED_CONTEXT, UNLOADED_CONTEXT))
        yield attrs.evolve(
            model,
            context_tokens=now,
            longest_context=longest,
            images=row.get("type") == "vlm",
            origins={**model.origins, **({} if loaded else {"context_tokens": ASSUMED})},
        )


def of_litellm(answer: Sequence[Mapping[str, Any]]) -> Iterator[ModelFacts]:
    """The models of ``/model/info``; of several behind one name the first counts."""
    seen = set()
    for row in answer:
        name = _name(row.get("model_name"))
        if name is not None and name not in seen:
            seen.add(name)
            yield _named(of_row(name, _object(row.get("model_info"))))


# -- single values -----------------------------------------------------------------------------------------------------


def _named(model: ModelFacts) -> ModelFacts:
    """Mark what cannot chat, by its name if nobody says it."""
    if model.embedding is not None or not _NO_CHAT.search(model.name):
        return model
    return attrs.evolve(model, embedding=True, origins={**model.origins, "embedding": ASSUMED})


def _name(value: object) -> str | None:
    if not isinstance(value, str) or not 0 < len(value) <= MAX_NAME_CHARS:
        return None
    return None if any(char.isspace() or not char.isprintable() for char in value) else value


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _first(row: Mapping[str, Any], *keys: str) -> Any:
    return next((row[key] for key in keys if row.get(key) is not None), None)


def _count(value: object) -> int | None:
    return value if type(value) is int and 0 < value <= TOKENS_MAX else None


def _prices(row: Mapping[str, Any]) -> Prices | None:
    """Dollars for a token, as OpenRouter and LiteLLM have them."""
    told = _object(row.get("pricing"))
    price, output = (
        _rate(_first(told, short) if told else row.get(f"{long}_cost_per_token"))
        for short, long in (("prompt", "input"), ("completion", "output"))
    )
    if price is None or output is None:
        return None
    cached, written = _rate(told.get("input_cache_read")), _rate(told.get("input_cache_write"))
    return Prices(input=price, output=output, cached_input=cached, cache_write=written)


def _rate(value: object) -> Rate | None:
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        with suppress(ArithmeticError):
            price = Decimal(str(value)[:40]) * 1_000_000
            if price.is_finite() and 0 <= price < 1_000_000:
                return Rate(price.normalize())
    return None
