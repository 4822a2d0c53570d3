"""What is known of a model, who says so, and what services say of their models in their own forms. Pure. An answer is
not trusted: what is not of the promised type counts as not said, and a model whose name nobody could type is left out.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Annotated, Any, Literal, TypeAlias, TypeGuard
from urllib.parse import urlsplit

import attrs

from klaw.config.keys import TOKENS_MAX
from klaw.config.llm import EndpointPath, ProviderModelConfig
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

    name: Literal["chat", "stream", "tools", "images", "json"] | EndpointPath
    state: Literal["works", "fails", "not tried"]
    text: str
    seconds: float | None = None
    found: bool | None = None
    """Whether the model can do it; None: that did not show."""
    sure: bool = True
    """It would not come out otherwise the next time."""


def configured(own: ProviderModelConfig) -> ModelFacts:
    """What the configuration says of a model."""
    told = (own.input_price, own.output_price, own.cached_input_price, own.cache_write_price)
    price, output, cached, written = (None if each is None else Rate(Decimal(str(each))) for each in told)
    prices = Prices(input=price, output=output, cached_input=cached, cache_write=written) if price and output else None
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
_KINDS = frozenset({"chat", "language", "llm", "model", "vlm", "embedding", "embeddings"})


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


# -- what a service says of a model ------------------------------------------------------------------------------------

_WORDS: Mapping[str, tuple[str, ...]] = {
    "tools": ("tools", "tool_use", "function_calling", "trained_for_tool_use"),
    "images": ("vision", "image_input", "multimodal"),
    "thinking": ("thinking", "reasoning"),
    "json_schema": ("structured_outputs", "response_schema"),
    "embedding": ("embedding",),
}
"""What services call an ability: in a list of capabilities, as a member of an object, or behind ``supports_``."""
_PARAMETERS = ("tools", "thinking", "json_schema")
"""Those that ``supported_parameters`` are whole about."""
_CONTEXT = ("context_length", "context_window", "max_model_len", "max_input_tokens", "inputTokenLimit")
_OUTPUT = ("max_completion_tokens", "max_output_tokens", "outputTokenLimit", "max_tokens")


def listed(answer: Iterable[Mapping[str, Any]]) -> Iterator[ModelFacts]:
    """The models of ``/models``: of OpenAI, and of all who answer like it and say more. Whatever of a row has a meaning
    that all who use the word agree on."""
    for row in answer:
        name = _first(row, "id", "key", "name", "model")
        name = name.removeprefix("models/") if isinstance(name, str) and "id" not in row else name  # as Gemini has it
        if not _is_name(name):
            continue
        top, meta = _object(row.get("top_provider")), _object(row.get("meta"))
        lengths = _first(row, *_CONTEXT), top.get("context_length"), meta.get("n_ctx"), row.get("max_context_length")
        told, said = ModelFacts(name=name), _abilities(row)
        if "embedding" not in said and _NO_CHAT.search(name):
            said["embedding"], told = True, attrs.evolve(told, origins={"embedding": ASSUMED})
        yield attrs.evolve(
            told,
            context_tokens=min(filter(None, map(_count, lengths)), default=None),
            output_tokens=_count(top.get("max_completion_tokens") or _first(row, *_OUTPUT)),
            prices=_prices(row),
            **said,
        )


def _abilities(row: Mapping[str, Any]) -> dict[str, Any]:
    told, parameters, said = row.get("capabilities"), row.get("supported_parameters"), dict[str, Any]()
    for field, words in _WORDS.items():
        flags = [row.get(f"supports_{word}") for word in words] + [row.get(field)] * (field == "thinking")
        if isinstance(parameters, list) and field in _PARAMETERS:
            flags.append(any(word in parameters for word in words))
        if isinstance(told, list):
            flags += [True for word in words if word in told]
        inner = [_object(told).get(word) for word in words]
        flags += [each.get("supported") if isinstance(each, dict) else each for each in inner]
        if known := [flag for flag in flags if isinstance(flag, bool)]:
            said[field] = known[-1]
    if isinstance(inputs := _object(row.get("architecture")).get("input_modalities"), list):
        said["images"] = "image" in inputs
    kind, methods = str(row.get("type") or row.get("mode")), row.get("supportedGenerationMethods")
    if isinstance(methods, list):
        said["embedding"] = "generateContent" not in methods
    elif _object(told).get("completion_chat") is False:  # Mistral
        said["embedding"] = True
    elif kind in _KINDS:
        said.setdefault("embedding", kind.startswith("embedding"))
    return said | ({"images": True} if kind == "vlm" else {})


def of_anthropic(answer: Sequence[Mapping[str, Any]]) -> Iterator[ModelFacts]:
    """All its models call tools, and see: only what differs is in the list."""
    for model in listed(answer):
        yield attrs.evolve(model, tools=True, images=model.images is not False)


def ollama_names(tags: Sequence[Mapping[str, Any]]) -> list[str]:
    return [name for row in tags if _is_name(name := _first(row, "model", "name"))]


def of_ollama(name: str, show: object, running: Sequence[Mapping[str, Any]]) -> ModelFacts:
    """A model by ``/api/show``, and by ``/api/ps`` if it is loaded. The context is what it is loaded with, or will be:
    longer prompts are cut without a word."""
    told = _object(show)
    loaded = next((_count(row.get("context_length")) for row in running if row.get("model") == name), None)
    info, can = _object(told.get("model_info")), told.get("capabilities")
    longest = next((_count(value) for key, value in info.items() if str(key).endswith(".context_length")), None)
    set_to = re.search(r"^num_ctx\s+(\d{1,9})$", str(told.get("parameters")), re.MULTILINE)
    now = loaded or (_count(int(set_to[1])) if set_to is not None else None)
    # Models in Ollama's cloud have all of their context.
    now = now or (longest if told.get("remote_host") or told.get("remote_model") else None)
    said: dict[str, Any] = {}
    if isinstance(can, list):
        said = {"tools": "tools" in can, "images": "vision" in can, "thinking": "thinking" in can}
        said["embedding"] = "completion" not in can
    context = min(filter(None, (longest, now or UNLOADED_CONTEXT)))
    model = ModelFacts(name=name, context_tokens=context, longest_context=longest, json_schema=True, **said)
    return model if now else attrs.evolve(model, origins={"context_tokens": ASSUMED})


def of_llamacpp(answer: Sequence[Mapping[str, Any]], props: Mapping[str, Any]) -> Iterator[ModelFacts]:
    """It serves one model: what its properties say is about that."""
    caps, sees = _object(props.get("chat_template_caps")), _object(props.get("modalities")).get("vision")
    context = _count(_object(props.get("default_generation_settings")).get("n_ctx"))
    flags = [caps.get(key) for key in ("supports_tools", "supports_tool_calls")]
    said: dict[str, Any] = {"context_tokens": context} if context else {}
    said |= {"tools": all(flags)} if all(isinstance(flag, bool) for flag in flags) else {}
    said |= {"images": sees} if isinstance(sees, bool) else {}
    return (attrs.evolve(model, **said) for model in listed(answer))


def of_lmstudio(answer: Sequence[Mapping[str, Any]]) -> Iterator[ModelFacts]:
    for row, model in ((each, model) for each in answer for model in listed([each])):
        longest, loaded = model.context_tokens, _count(row.get("loaded_context_length"))
        assumed = {} if loaded else {"context_tokens": ASSUMED}
        yield attrs.evolve(
            model,
            context_tokens=loaded or min(longest or UNLOADED_CONTEXT, UNLOADED_CONTEXT),
            longest_context=longest,
            images=row.get("type") == "vlm",
            origins={**model.origins, **assumed},
        )


def of_litellm(answer: Sequence[Mapping[str, Any]]) -> Iterable[ModelFacts]:
    """The models of ``/model/info``; of several behind one name the first counts."""
    found: dict[str, ModelFacts] = {}
    for model in listed({**_object(row.get("model_info")), "id": row.get("model_name")} for row in answer):
        found.setdefault(model.name, model)
    return found.values()


# -- single values -----------------------------------------------------------------------------------------------------


def _is_name(value: object) -> TypeGuard[str]:
    fits = isinstance(value, str) and 0 < len(value) <= MAX_NAME_CHARS
    return fits and not any(char.isspace() or not char.isprintable() for char in str(value))


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _first(row: Mapping[str, Any], *keys: str) -> Any:
    return next((row[key] for key in keys if row.get(key) is not None), None)


def _count(value: object) -> int | None:
    return value if type(value) is int and 0 < value <= TOKENS_MAX else None


def _prices(row: Mapping[str, Any]) -> Prices | None:
    """Dollars for a token, as OpenRouter and LiteLLM have them."""
    told = _object(row.get("pricing"))
    price = _rate(_first(told, "prompt") if told else row.get("input_cost_per_token"))
    output = _rate(_first(told, "completion") if told else row.get("output_cost_per_token"))
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
