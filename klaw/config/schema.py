"""Every key of engine.json, with its default, its meaning and its rule. Attribute names carry units (``_s``, ``_ms``).

Values only: reading files is ``load``'s work, and rules that span keys are in ``structure``.
"""

# ruff: noqa: RUF009  ``key`` returns an attrs field, which is what a class body of attrs holds

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import attrs

from klaw.config.background import HeartbeatConfig, SubagentsConfig, SummariesConfig
from klaw.config.environment import Secret
from klaw.config.keys import key, section
from klaw.config.mcp import McpConfig
from klaw.config.tools import ExecToolConfig, WebToolConfig
from klaw.config.topics import TopicsConfig

LOCAL_PROVIDER = "local"
"""The provider name of the built-in model; no entry of ``providers`` may take it."""

RENAMED: Mapping[tuple[str, str], str] = {("context", "subagentWindow"): "subagentHistory"}
"""Old keys that are still read, with a warning: (section, old key) -> new key."""
RETIRED: Mapping[tuple[str, str], str] = {("facts", "daily"): "facts are drawn from topics (topics.enabled)"}
"""Keys that one more version accepts without effect, with a warning: (section, key) -> what there is instead. Their
sections have no other keys."""

_TOKENS_MAX = 10_000_000
_DAY_S = 86_400
_YEAR_S = 366 * _DAY_S
_PRICE: Mapping[str, Any] = {"minimum": 0, "maximum": 1_000_000}
_MODEL_ID = r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
_MODEL_ID_HINT = "be a model's name: letters, digits, '.', '_' and '-', no '/'"
_ROUTE = r"[^/\s]+/\S+"
_ROUTE_HINT = "have the form provider/model"


@attrs.frozen(kw_only=True)
class AutoRagConfig:
    """Retrieval of older messages before every reply."""

    enabled: bool = key("Look for older messages that matter, before every reply.", True)
    top_k: int = key("At most this many recalled messages in one context.", 8, minimum=1, maximum=100)
    max_tokens: int = key("At most this many tokens of recalled text.", 400, minimum=1, maximum=100_000)
    relevance_threshold: float = key(
        "Farthest distance that still counts as relevant: near 0 = the same text, 1 = as far as random pairs.",
        0.5,
        above=0,
        maximum=1,
    )
    min_message_tokens: int = key("Messages shorter than this are not embedded.", 10, minimum=0, maximum=10_000)
    time_budget_ms: int = key(
        "Recall may take this long; the receipt names what was cut.", 150, minimum=1, maximum=60_000
    )


@attrs.frozen(kw_only=True)
class ContextConfig:
    """What of the past goes into a request to the model."""

    sliding_window: int = key(
        "The newest messages that are always offered to the model.", 20, minimum=1, maximum=10_000
    )
    subagent_history: int = key(
        "Earlier complete runs of the same task that a subagent sees.",
        5,
        minimum=0,
        maximum=1000,
    )
    default_budget_tokens: int = key(
        "Context length of a model whose own length is not known.", 8192, minimum=64, maximum=_TOKENS_MAX
    )
    reply_reserve_tokens: int = key(
        "Part of the context that is kept free for the answer.", 1024, minimum=1, maximum=_TOKENS_MAX
    )


@attrs.frozen(kw_only=True)
class ProcessingConfig:
    """When a turn starts and what it may use."""

    debounce_ms: int = key(
        "Wait this long after a message for further ones; they are answered together. 0 = answer at once.",
        1500,
        minimum=0,
        maximum=600_000,
    )
    debounce_max_ms: int = key(
        "A steady stream of messages is answered at the latest after this time; at least debounceMs.",
        15_000,
        minimum=0,
        maximum=3_600_000,
    )
    max_concurrent_llm: int = key("LLM calls that run at the same time, over all chats.", 2, minimum=1, maximum=64)
    max_tool_call_rounds: int = key(
        "Rounds of tool calls in one turn or run, before the model must answer; 0 = no tools.",
        10,
        minimum=0,
        maximum=100,
    )


def _task(work: str) -> Any:
    return key(
        f"Models {work}: the first does it, the others in turn when it fails. Empty: as for chats.",
        (),
        pattern=_ROUTE,
        hint=_ROUTE_HINT,
        one_or_more=True,
    )


@attrs.frozen(kw_only=True)
class TaskRoutingConfig:
    """Models for work in the background; one name, or a list of names."""

    summarization: tuple[str, ...] = _task("that summarise")
    topics: tuple[str, ...] = _task("that split and merge topics and note facts")
    reranker: tuple[str, ...] = key(
        "Models that choose among found topics (topics.inject = auto): the first does it, the others in turn when it"
        " fails. Empty: no model is asked, and the best found ones are taken.",
        (),
        pattern=_ROUTE,
        hint=_ROUTE_HINT,
        one_or_more=True,
    )
    subagent: tuple[str, ...] = _task("that do scheduled tasks")


@attrs.frozen(kw_only=True)
class RoutingConfig:
    """Which model does which work."""

    default: str = key(
        "The model that chats, as provider/model; the provider is `local` or a name in `providers`.",
        "local/smollm2-135m-instruct",
        pattern=_ROUTE,
        hint=_ROUTE_HINT,
    )
    fallback: tuple[str, ...] = key(
        "Models that are asked in turn when the one that chats fails before its first word.",
        (),
        pattern=_ROUTE,
        hint=_ROUTE_HINT,
        one_or_more=True,
    )
    tasks: TaskRoutingConfig = section(TaskRoutingConfig)

    @property
    def default_provider(self) -> str:
        return self.default.partition("/")[0]

    @property
    def uses_local(self) -> bool:
        """Whether any route leads to the built-in model."""
        return any(name.partition("/")[0] == LOCAL_PROVIDER for _, name in self.places())

    def places(self) -> Iterator[tuple[str, str]]:
        """Every name of a model with its key path, in the file's order."""
        yield "routing.default", self.default
        lists = {"routing.fallback": self.fallback}
        lists |= {f"routing.tasks.{task}": names for task, names in attrs.asdict(self.tasks).items()}
        for path, names in lists.items():
            yield from ((f"{path}[{place}]", name) for place, name in enumerate(names))


@attrs.frozen(kw_only=True)
class ProviderModelConfig:
    """What is known of one model of a provider."""

    context_tokens: int | None = key("Context length of the model.", None, minimum=64, maximum=_TOKENS_MAX)
    max_output_tokens: int | None = key("Longest answer that the model gives.", None, minimum=1, maximum=_TOKENS_MAX)
    tools: bool = key("The model can call tools: it is offered Klaw's.", False)
    images: bool = key("The model takes images.", False)
    json_schema: bool = key(
        "The API takes a JSON schema for the answer; false: Klaw writes the schema into the prompt.", True
    )
    input_price: float | None = key(
        "US dollars for a million tokens of the prompt; 0 = free; null takes the price list.", None, **_PRICE
    )
    output_price: float | None = key("The same of the answer; goes with inputPrice.", None, **_PRICE)
    cached_input_price: float | None = key(
        "The same of what the provider had cached; null takes inputPrice.", None, **_PRICE
    )
    cache_write_price: float | None = key(
        "The same of what is written to its cache; null takes inputPrice.", None, **_PRICE
    )


@attrs.frozen(kw_only=True)
class ProviderConfig:
    """One LLM service that speaks an API known to Klaw."""

    type: Literal["openai", "anthropic"] = key("The API that the provider speaks.", "openai")
    base_url: str | None = key(
        "Address of the API, up to and with its version part (usually /v1); anthropic has one of its own.",
        None,
        pattern=r"https?://[^/\s@?#]+(/[^\s?#]*)?",
        hint="be an http:// or https:// address without user name, password, query or fragment",
    )
    api_key: Secret | None = key(
        "The key of the account; take it from the environment or a file.",
        None,
        pattern=r"[\x21-\x7e]+",
        hint="be printable ASCII text without spaces or line ends, and not empty",
    )
    headers: Mapping[str, Secret] = key(
        "Further request headers.",
        factory=dict,
        pattern=r"[\x20-\x7e]*",
        hint="be printable ASCII text",
        names=r"[0-9A-Za-z!#$%&'*+.^_`|~-]+",
        names_hint="be an HTTP header name",
    )
    extra_body: Mapping[str, Any] = key("JSON members that are added to every request body.", factory=dict)
    timeout_s: float = key("No byte from the provider for this long is a time-out.", 120.0, above=0, maximum=_DAY_S)
    max_s: float = key("A whole answer may take this long.", 1800.0, above=0, maximum=_DAY_S)
    max_retries: int = key("Repetitions after errors that may pass (429, 5xx, network).", 2, minimum=0, maximum=20)
    models: Mapping[str, ProviderModelConfig] = key(
        "What is known of single models; a model that is not named here works too.",
        factory=dict,
        names=r"\S+",
        names_hint="have no spaces and not be empty",
    )


@attrs.frozen(kw_only=True)
class LlmConfig:
    """How every model is asked."""

    temperature: float | None = key(
        "Randomness of the answers; null leaves it to the provider.", None, minimum=0, maximum=2
    )
    max_reply_tokens: int = key("Longest answer.", 1024, minimum=1, maximum=_TOKENS_MAX)
    daily_budget: float | None = key(
        "US dollars that all chats and tasks together may spend in one UTC day; null = no limit.",
        None,
        above=0,
        maximum=1_000_000,
    )
    daily_tokens: int | None = key(
        "Tokens that may be used in one UTC day with models whose price is not known; null = no limit.",
        None,
        minimum=1,
        maximum=1_000_000_000_000,
    )
    budget_warn_share: float = key(
        "Somebody is told, once a day, when this share of a daily limit is used up.", 0.8, above=0, maximum=1
    )


@attrs.frozen(kw_only=True)
class ToolsConfig:
    """Tools that a model may call."""

    disabled: tuple[str, ...] = key(
        "Tools that are never offered: names, or patterns such as github__*.",
        (),
        pattern=r"[A-Za-z0-9_*?-]{1,64}",
        hint="be a tool's name, with * for any characters",
    )
    timeout_s: float = key("A call must end within this time, if its tool has no other.", 60.0, above=0, maximum=_DAY_S)
    max_output_chars: int = key(
        "The model sees this many characters of a tool's output; a longer one goes to a file of the workspace.",
        16_000,
        minimum=200,
        maximum=10_000_000,
    )
    web: WebToolConfig = section(WebToolConfig)
    exec: ExecToolConfig = section(ExecToolConfig)


@attrs.frozen(kw_only=True)
class LocalModelConfig:
    """The built-in LLM that needs no key and no network."""

    model: str = key(
        "Name of the model, as `klaw models list` shows it.",
        "smollm2-135m-instruct",
        pattern=_MODEL_ID,
        hint=_MODEL_ID_HINT,
    )
    path: Path | None = key("A GGUF file to use in place of the pulled model.", None)
    threads: int = key(
        "Threads for inference; 0 = one for each core, and one less while it writes.", 0, minimum=0, maximum=1024
    )
    context_tokens: int = key("Context length of each slot.", 8192, minimum=256, maximum=_TOKENS_MAX)
    max_reply_tokens: int = key(
        "Longest answer; llm.maxReplyTokens holds too. A model as small as the built-in one has said it all by then.",
        512,
        minimum=1,
        maximum=_TOKENS_MAX,
    )
    parallel: int = key("Requests that the model process works on at the same time.", 2, minimum=1, maximum=64)
    start_timeout_s: float = key("The model process must be ready within this time.", 120.0, above=0, maximum=_DAY_S)
    tools: bool = key("The model can call tools: it is offered Klaw's. The built-in one is too small for that.", False)


@attrs.frozen(kw_only=True)
class EmbeddingConfig:
    """Vectors for messages; without them recall is full-text only."""

    enabled: bool = key("Make vectors and search with them.", True)
    model: str = key(
        "Name of the model, as `klaw models list` shows it.",
        "multilingual-e5-small",
        pattern=_MODEL_ID,
        hint=_MODEL_ID_HINT,
    )
    path: Path | None = key("A model folder to use in place of the pulled model.", None)
    threads: int = key(
        "Threads for inference: one question at a time, or this many batches of messages.", 2, minimum=1, maximum=1024
    )
    batch_tokens: int = key("Tokens that go through the model in one step.", 256, minimum=1, maximum=65_536)
    sweep_s: float = key("Pause between searches for messages without a vector.", 60.0, above=0, maximum=_DAY_S)


@attrs.frozen(kw_only=True)
class GatewayConfig:
    """The listener for chat clients, and its limits."""

    host: str = key("Address to listen on.", "127.0.0.1", pattern=r"[^\s/]+", hint="be a host name or an IP address")
    port: int = key("Port to listen on; 0 = any free one.", 8181, minimum=0, maximum=65_535)
    max_frame_bytes: int = key("Longest frame that a client may send.", 65_536, minimum=1024, maximum=16_777_216)
    max_connections: int = key("Connections that have said hello, at the same time.", 64, minimum=1, maximum=10_000)
    max_pending: int = key(
        "Connections that have not said hello yet, at the same time; a newcomer takes the place of the oldest.",
        16,
        minimum=1,
        maximum=10_000,
    )
    max_per_address: int = key(
        "Connections of one address at the same time; behind a proxy all have the proxy's.",
        48,
        minimum=1,
        maximum=10_000,
    )
    max_per_user: int = key(
        "Connections of one user at the same time that have said hello.", 32, minimum=1, maximum=10_000
    )
    connects_per_second: float = key(
        "Connections that one address may open, on average; five seconds' worth at once.",
        50.0,
        above=0,
        maximum=100_000,
    )
    user_messages_per_second: float = key(
        "Messages that one user may send on all connections, on average; five seconds' worth at once.",
        100.0,
        above=0,
        maximum=1_000_000,
    )
    user_bytes_per_second: float = key(
        "Bytes of frames that one user may send on all connections, on average; five seconds' worth at once.",
        1_000_000.0,
        above=0,
        maximum=1_000_000_000,
    )
    messages_per_second: float = key(
        "Messages that one connection may send, on average.", 20.0, above=0, maximum=100_000
    )
    burst: int = key("Messages that one connection may send at once.", 100, minimum=1, maximum=1_000_000)
    outbox_frames: int = key(
        "Frames that wait for a slow client before it is dropped.", 256, minimum=16, maximum=100_000
    )
    allowed_origins: tuple[str, ...] = key(
        "Origins of web pages, besides Klaw's own, that may connect.",
        (),
        pattern=r"https?://[^/\s@?#]+",
        hint="be an origin such as https://example.org, without a path",
    )
    hello_timeout_s: float = key("A client must say hello within this time.", 10.0, above=0, maximum=_DAY_S)
    ping_s: float = key(
        "A connection that is silent this long is asked for a sign of life.", 30.0, above=0, maximum=_DAY_S
    )


@attrs.frozen(kw_only=True)
class ChatsConfig:
    """Limits of chats."""

    idle_s: float = key("A chat without work for this long leaves memory.", 900.0, above=0, maximum=_YEAR_S)
    max_per_user: int = key("Chats that one user may have.", 1000, minimum=1, maximum=1_000_000)
    mailbox_size: int = key("Requests that may wait for one chat.", 256, minimum=1, maximum=100_000)


@attrs.frozen(kw_only=True)
class StoreConfig:
    """The database."""

    readers: int = key("Read-only connections.", 2, minimum=1, maximum=64)
    checkpoint_bytes: int = key(
        "The commit log is emptied into the chats' own logs at this size.",
        4_194_304,
        minimum=4096,
        maximum=1_073_741_824,
    )


@attrs.frozen(kw_only=True)
class RecoveryConfig:
    """What happens at start with what was left unfinished."""

    answer_pending_s: float = key(
        "Questions without an answer that are younger than this are answered at start.",
        3600.0,
        minimum=0,
        maximum=_YEAR_S,
    )


@attrs.frozen(kw_only=True)
class ShutdownConfig:
    """How long an orderly stop may take."""

    grace_s: float = key("Running turns may continue for this long.", 60.0, minimum=0, maximum=_DAY_S)
    embed_drain_s: float = key("Waiting embeds may continue for this long.", 5.0, minimum=0, maximum=_DAY_S)


@attrs.frozen(kw_only=True)
class LoggingConfig:
    """What is logged, and in which form."""

    level: Literal["debug", "info", "warning", "error"] = key("Least important events that are logged.", "info")
    format: Literal["auto", "console", "json"] = key("Form of a line; auto = console on a terminal, else json.", "auto")


HELD_ROWS = 1_000
"""Messages that are read for a turn at most while messages stay until they are summarised."""


@attrs.frozen(kw_only=True)
class EngineConfig:
    """The whole configuration; ``EngineConfig()`` holds the shipped defaults."""

    auto_rag: AutoRagConfig = section(AutoRagConfig)
    context: ContextConfig = section(ContextConfig)
    summaries: SummariesConfig = section(SummariesConfig)
    processing: ProcessingConfig = section(ProcessingConfig)
    routing: RoutingConfig = section(RoutingConfig)
    providers: Mapping[str, ProviderConfig] = key(
        "LLM services by name.",
        factory=dict,
        names=rf"(?!{LOCAL_PROVIDER}$)[A-Za-z0-9][A-Za-z0-9._-]{{0,63}}",
        names_hint=f"be letters, digits, '.', '_' or '-', and not {LOCAL_PROVIDER!r}, which is the built-in model",
    )
    llm: LlmConfig = section(LlmConfig)
    tools: ToolsConfig = section(ToolsConfig)
    mcp: McpConfig = section(McpConfig)
    local_model: LocalModelConfig = section(LocalModelConfig)
    embedding: EmbeddingConfig = section(EmbeddingConfig)
    gateway: GatewayConfig = section(GatewayConfig)
    chats: ChatsConfig = section(ChatsConfig)
    store: StoreConfig = section(StoreConfig)
    subagents: SubagentsConfig = section(SubagentsConfig)
    heartbeat: HeartbeatConfig = section(HeartbeatConfig)
    topics: TopicsConfig = section(TopicsConfig)
    recovery: RecoveryConfig = section(RecoveryConfig)
    shutdown: ShutdownConfig = section(ShutdownConfig)
    logging: LoggingConfig = section(LoggingConfig)

    @property
    def holds_uncovered(self) -> bool:
        """Whether messages stay in the window until a summary holds them."""
        return self.summaries.enabled and self.summaries.hold_uncovered

    @property
    def injected_tokens(self) -> int:
        """Tokens of topics that come into a prompt by themselves, at most."""
        return self.topics.max_tokens if self.topics.inject == "auto" else 0

    @property
    def window_rows(self) -> int:
        """So many of the newest messages are read for a turn."""
        return max(self.context.sliding_window, HELD_ROWS if self.holds_uncovered else 0)
