"""The keys of engine.yaml for models: which does which work, and the services and the built-in model that run them."""

# ruff: noqa: RUF009  ``key`` returns an attrs field, which is what a class body of attrs holds

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

import attrs

from klaw.config.environment import Secret
from klaw.config.keys import ADDRESS, DAY_S, HEADERS, MODEL_NAME, TOKENS_MAX, key, section
from klaw.domain.message import ThinkingLevel

LOCAL_PROVIDER = "local"
"""The provider name of the built-in model; no entry of ``providers`` may take it."""

BUILT_IN_MODEL = f"{LOCAL_PROVIDER}/smollm2-135m-instruct"

EndpointPath: TypeAlias = Literal["embeddings", "rerank", "audio/transcriptions", "audio/speech"]
"""What a model that does not chat is asked at, below ``baseUrl``."""

_PRICE: Mapping[str, Any] = {"within": (0, 1_000_000)}
_ROUTE: Mapping[str, Any] = {"pattern": r"[^/\s]+/\S+", "hint": "have the form provider/model"}
_ROUTES: Mapping[str, Any] = {**_ROUTE, "default": (), "one_or_more": True}
_IN_TURN = "the first does it, the others in turn when it fails. Empty:"


@attrs.frozen(kw_only=True)
class TaskRoutingConfig:
    """Models for work in the background; one name, or a list of names."""

    summarization: tuple[str, ...] = key(f"Models that summarise: {_IN_TURN} as for chats.", **_ROUTES)
    topics: tuple[str, ...] = key(f"Models that make topics and note facts: {_IN_TURN} as for chats.", **_ROUTES)
    reranker: tuple[str, ...] = key(
        f"Models that choose among topics (topics.inject = auto): {_IN_TURN} the best found ones are taken.", **_ROUTES
    )
    expansion: tuple[str, ...] = key(
        f"Models that add words to questions (autoRag.expansion): {_IN_TURN} as for chats.", **_ROUTES
    )
    subagent: tuple[str, ...] = key(f"Models that do scheduled tasks: {_IN_TURN} as for chats.", **_ROUTES)


@attrs.frozen(kw_only=True)
class RoutingConfig:
    """Which model does which work."""

    default: str = key(
        "The model that chats, as provider/model; the provider is `local` or a name in `providers`.",
        BUILT_IN_MODEL,
        **_ROUTE,
    )
    fallback: tuple[str, ...] = key("Models asked in turn when the one that chats fails before any word.", **_ROUTES)
    tasks: TaskRoutingConfig = section(TaskRoutingConfig)

    @property
    def default_provider(self) -> str:
        return self.default.partition("/")[0]

    def first(self, task: str) -> str:
        """The model that does a key of ``tasks``, as long as it does not fail."""
        own: tuple[str, ...] = getattr(self.tasks, task)
        return own[0] if own else self.default

    @property
    def uses_local(self) -> bool:
        return any(name.partition("/")[0] == LOCAL_PROVIDER for _, name in self.places())

    def places(self) -> Iterator[tuple[str, str]]:
        """Every name of a model with its key path, in the file's order."""
        yield "routing.default", self.default
        lists = {"routing.fallback": self.fallback}
        lists |= {f"routing.tasks.{task}": names for task, names in attrs.asdict(self.tasks).items()}
        for path, names in lists.items():
            yield from ((f"{path}[{place}]", name) for place, name in enumerate(names))


@attrs.frozen(kw_only=True)
class VoiceConfig:
    """Listening and speaking, by models of providers with OpenAI's API (docs/voice.md)."""

    transcribe: str | None = key(
        "The model that writes down what is said in a sound, as provider/model; null: Klaw cannot listen.",
        None,
        **_ROUTE,
    )
    speak: str | None = key(
        "The model that reads answers aloud, as provider/model; null: Klaw cannot speak.", None, **_ROUTE
    )
    voice: str = key(
        "The voice that reads aloud, as the provider calls it.", "alloy", pattern=r"\S{1,100}", hint="have no spaces"
    )
    max_bytes: int = key("Bytes of a sound that is written down.", 10_000_000, within=(1, 1_000_000_000))

    @property
    def models(self) -> Mapping[EndpointPath, str]:
        """Those that are set."""
        paths: Mapping[EndpointPath, str | None] = {"audio/transcriptions": self.transcribe, "audio/speech": self.speak}
        return {path: name for path, name in paths.items() if name is not None}


@attrs.frozen(kw_only=True)
class ProviderModelConfig:
    """What is known of one model of a provider."""

    context_tokens: int | None = key(
        "Context length of the model; null: what the service says. Ollama is asked to load the model so.",
        None,
        within=(64, TOKENS_MAX),
    )
    max_output_tokens: int | None = key("Longest answer that the model gives.", None, within=(1, TOKENS_MAX))
    tools: bool | None = key(
        "The model can call tools: it is offered Klaw's; null: what the service says, or a tiny call finds out.", None
    )
    images: bool | None = key("The model takes images; null: as with tools.", None)
    thinking: ThinkingLevel | None = key("How much it thinks before it answers; null leaves that to the model.", None)
    json_schema: bool | None = key(
        "The API takes a JSON schema for the answer; false: the prompt has the schema; null: as with tools.", None
    )
    input_price: float | None = key(
        "US dollars for a million tokens of the prompt; 0 = free; null takes the price list.", None, **_PRICE
    )
    output_price: float | None = key("The same of the answer; goes with inputPrice.", None, **_PRICE)
    cached_input_price: float | None = key("The same of what was cached; null takes inputPrice.", None, **_PRICE)
    cache_write_price: float | None = key("The same of what it caches; null takes inputPrice.", None, **_PRICE)

    def mistakes(self) -> Iterator[tuple[str, str]]:
        prices = self.input_price, self.output_price, self.cached_input_price, self.cache_write_price
        missing = "inputPrice" if self.input_price is None else "outputPrice" if self.output_price is None else ""
        if missing and any(price is not None for price in prices):
            yield missing, "is required beside another price"


@attrs.frozen(kw_only=True)
class ProviderConfig:
    """One LLM service that speaks an API known to Klaw."""

    type: Literal["openai", "anthropic"] = key("The API that the provider speaks.", "openai")
    base_url: str | None = key(
        "Address of the API, up to and with its version (usually /v1); anthropic has one of its own.", None, **ADDRESS
    )
    api_key: Secret | None = key(
        "The key of the account; take it from the environment or a file.",
        None,
        pattern=r"[\x21-\x7e]+",
        hint="be printable ASCII text without spaces or line ends, and not empty",
    )
    headers: Mapping[str, Secret] = key("Further request headers.", **HEADERS)
    extra_body: Mapping[str, Any] = key("JSON members that are added to every request body.", factory=dict)
    timeout_s: float = key("No byte from the provider for this long is a time-out.", 120.0, up_to=DAY_S)
    max_s: float = key("A whole answer may take this long.", 1800.0, up_to=DAY_S)
    max_retries: int = key("Repetitions after errors that may pass (429, 5xx, network).", 2, within=(0, 20))
    models: Mapping[str, ProviderModelConfig] = key(
        "What is known of single models; a model that is not named here works too.",
        factory=dict,
        names=r"\S+",
        names_hint="have no spaces and not be empty",
    )

    def mistakes(self) -> Iterator[tuple[str, str]]:
        if self.type == "openai" and self.base_url is None:
            yield "baseUrl", "is required for type 'openai'"


@attrs.frozen(kw_only=True)
class LlmConfig:
    """How every model is asked."""

    temperature: float | None = key("Randomness of the answers; null leaves it to the provider.", None, within=(0, 2))
    max_reply_tokens: int = key("Longest answer.", 1024, within=(1, TOKENS_MAX))
    daily_budget: float | None = key(
        "US dollars that all chats and tasks together may spend in one UTC day; null = no limit.", None, up_to=1_000_000
    )
    daily_tokens: int | None = key(
        "Tokens of a UTC day with models of unknown price; null = no limit.", None, within=(1, 1_000_000_000_000)
    )
    budget_warn_share: float = key("A notice is sent, once a day, when this share of a limit is used up.", 0.8, up_to=1)


@attrs.frozen(kw_only=True)
class LocalModelConfig:
    """The built-in LLM that needs no key and no network."""

    model: str = key("Name of the model, as `klaw models list` shows it.", "smollm2-135m-instruct", **MODEL_NAME)
    path: Path | None = key("A GGUF file to use in place of the pulled model.", None)
    threads: int = key("Threads for inference; 0 = one for each core, one less while it writes.", 0, within=(0, 1024))
    context_tokens: int = key("Context length of each slot.", 8192, within=(256, TOKENS_MAX))
    max_reply_tokens: int = key(
        "Longest answer, beside llm.maxReplyTokens: a small model has said it all by then.", 512, within=(1, TOKENS_MAX)
    )
    parallel: int = key("Requests that the model process works on at the same time.", 2, within=(1, 64))
    start_timeout_s: float = key("The model process must be ready within this time.", 120.0, up_to=DAY_S)
    tools: bool = key("The model can call tools: it is offered Klaw's. The built-in one is too small for that.", False)
