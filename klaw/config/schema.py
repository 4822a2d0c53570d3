"""Every key of engine.yaml, with its default, its meaning and its rule; rules between keys of one section are its
``mistakes``. Attribute names carry units (``_s``, ``_ms``). Values only: ``load`` reads the file."""

# ruff: noqa: RUF009  ``key`` returns an attrs field, which is what a class body of attrs holds

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import attrs

from klaw.config.channels import ChannelsConfig
from klaw.config.keys import ADDRESS, DAY_S, YEAR_S, key, section
from klaw.config.llm import (
    BUILT_IN_MODEL,
    LOCAL_PROVIDER,
    EndpointPath,
    LlmConfig,
    LocalModelConfig,
    ProviderConfig,
    RoutingConfig,
    VoiceConfig,
)
from klaw.config.memory import AutoRagConfig, ContextConfig, EmbeddingConfig, SummariesConfig, TopicsConfig
from klaw.config.tools import KnowledgeConfig, McpConfig, ToolsConfig
from klaw.domain.names import zone
from klaw.errors import InvalidName


@attrs.frozen(kw_only=True)
class ProcessingConfig:
    """When an answer begins and what it may use."""

    debounce_ms: int = key(
        "Wait this long after a message for more to answer together; 0 = answer at once.", 1500, within=(0, 600_000)
    )
    debounce_max_ms: int = key(
        "A steady stream of messages is answered after this time; at least debounceMs.", 15_000, within=(0, 3_600_000)
    )
    max_concurrent_llm: int = key("LLM calls that run at the same time, over all chats.", 2, within=(1, 64))
    max_tool_call_rounds: int = key("Rounds of tool calls in one answer or run; 0 = no tools.", 10, within=(0, 100))

    def mistakes(self) -> Iterator[tuple[str, str]]:
        if self.debounce_max_ms < self.debounce_ms:
            limit = f"must be >= processing.debounceMs ({self.debounce_ms})"
            yield "debounceMaxMs", f"{limit}, got {self.debounce_max_ms}"


@attrs.frozen(kw_only=True)
class ChatsConfig:
    """Limits of chats."""

    idle_s: float = key("A chat without work for this long leaves memory.", 900.0, up_to=YEAR_S)
    max_per_user: int = key("Chats that one user may have.", 10_000, within=(1, 1_000_000))
    max_user_bytes_per_day: int = key(
        "Bytes of one user's messages in one day (UTC); 0 = no limit.", 256_000_000, within=(0, 1_000_000_000_000_000)
    )
    mailbox_size: int = key("Requests that may wait for one chat.", 256, within=(1, 100_000))


@attrs.frozen(kw_only=True)
class RecoveryConfig:
    """What happens at start with what was left unfinished."""

    answer_pending_s: float = key("Younger unanswered questions are answered at start.", 3600.0, within=(0, YEAR_S))


SYSTEM_ZONE = "system"
"""Value of ``subagents.zone`` that stands for the time zone of the machine."""

MIN_HEARTBEAT_S = 60
"""Shortest pause between heartbeats; 0 switches them off."""


@attrs.frozen(kw_only=True)
class SubagentsConfig:
    """Scheduled tasks and spawned subagents."""

    max_concurrent: int = key("Runs at the same time; the others wait.", 2, within=(1, 64))
    timeout_s: int = key("Deadline of a run whose task names none.", 600, within=(1, DAY_S))
    max_tokens: int = key(
        "Tokens of a run, prompts and answers, if its task has none; 0 = no limit.", 200_000, within=(0, 1_000_000_000)
    )
    daily_tokens: int = key("Tokens of all runs of a user in a day (UTC); 0 = no limit.", 0, within=(0, 1_000_000_000))
    retries: int = key(
        "Attempts after a failure that may pass: 60 s later, 120 s …; never past the next fire time.", 3, within=(0, 10)
    )
    max_depth: int = key("How deep subagents spawn others; 1 = a task's run may, its subagents not.", 1, within=(0, 8))
    max_spawned: int = key("Spawned subagents of one user that are not finished.", 8, within=(0, 1000))
    zone: str = key(
        "Time zone of a cron task that names none: an IANA name such as Europe/Berlin; system = the machine's own.",
        SYSTEM_ZONE,
        pattern=r"[A-Za-z][A-Za-z0-9_+/-]{0,63}",
        hint="be an IANA name such as Europe/Berlin, or system",
    )

    def mistakes(self) -> Iterator[tuple[str, str]]:
        if self.zone != SYSTEM_ZONE:
            try:
                zone(self.zone)
            except InvalidName as error:
                yield "zone", str(error)


@attrs.frozen(kw_only=True)
class HeartbeatConfig:
    """A regular look at HEARTBEAT.md, the list of what the agent is to watch by itself."""

    interval_s: int = key(f"Pause between heartbeats, at least {MIN_HEARTBEAT_S}; 0 = none.", 0, within=(0, YEAR_S))

    def mistakes(self) -> Iterator[tuple[str, str]]:
        if 0 < self.interval_s < MIN_HEARTBEAT_S:
            yield "intervalSeconds", f"must be 0 or >= {MIN_HEARTBEAT_S}, got {self.interval_s}"


RENAMED: Mapping[tuple[str, str], str] = {("context", "subagentWindow"): "subagentHistory"}
"""Old keys that are still read, with a warning: (section, old key) -> new key."""

RETIRED: Mapping[tuple[str, ...], str] = {
    ("facts", "daily"): "facts are made from topics (topics.enabled)",
    ("kb", "sparql", "generate"): "graphs are searched without a model",
    ("kb", "sparql", "maxRows"): "graphs are searched without a model",
}
"""Keys that are accepted without effect, with a warning: path -> what there is instead."""


PATH_PREFIX = r"(?=.{0,99}$)((/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)+)?"
"""It gets into HTML, headers and scripts: no dots that lead elsewhere, no ``//host``, no quotes."""


@attrs.frozen(kw_only=True)
class HttpConfig:
    """The page, the HTTP API and what other clients speak, on the gateway's port."""

    enabled: bool = key("Serve HTTP beside the WebSocket; false = nothing of it is loaded.", True, restart=True)
    prefix: str = key(
        "Path below which a proxy shows Klaw, such as /klaw, if it passes the whole path on.",
        "",
        pattern=PATH_PREFIX,
        hint="be empty, or a path such as /klaw of at most 99 characters, without a slash at its end",
    )
    max_body_bytes: int = key("Longest body of a request.", 1_048_576, within=(1024, 1_073_741_824))
    requests_per_second: float = key("Requests on one connection, on average; 5 s worth at once.", 50.0, up_to=100_000)
    session_days: float = key(
        "A browser's login ends after so many days; an MCP client's so long after it was used last.", 30.0, up_to=3660
    )
    public_url: str | None = key(
        "The address of Klaw's page for browsers elsewhere, behind a proxy or a tunnel; null = as each request says.",
        None,
        **ADDRESS,
    )


@attrs.frozen(kw_only=True)
class TlsConfig:
    """HTTPS on the gateway's port, without a proxy."""

    cert_file: Path | None = key("Certificate and its chain (PEM), read again when it is renewed; null = no TLS.", None)
    key_file: Path | None = key("Private key of the certificate (PEM), without a password.", None)

    def mistakes(self) -> Iterator[tuple[str, str]]:
        if (self.cert_file is None) != (self.key_file is None):
            yield ("keyFile", "is missing: certFile needs it") if self.cert_file else ("certFile", "is missing")


@attrs.frozen(kw_only=True)
class GatewayConfig:
    """The listener for chat clients, and its limits."""

    host: str = key(
        "Address to listen on.", "127.0.0.1", pattern=r"[^\s/]+", hint="be a host name or an IP address", restart=True
    )
    port: int = key("Port to listen on; 0 = any free one.", 8181, within=(0, 65_535), restart=True)
    max_frame_bytes: int = key("Longest frame that a client may send.", 65_536, within=(1024, 16_777_216))
    max_connections: int = key("Connections at once; each user may have four beyond that.", 128, within=(1, 10_000))
    max_pending: int = key(
        "Connections at once that have not logged in; a newcomer takes an idle one's place.", 64, within=(1, 10_000)
    )
    max_per_address: int = key("Connections of one address at once; behind a proxy, of all.", 256, within=(1, 10_000))
    max_per_user: int = key("Connections of one user at the same time.", 64, within=(1, 10_000))
    connects_per_second: float = key("Connects of one address, on average; 5 s worth at once.", 200.0, up_to=100_000)
    user_messages_per_second: float = key("Messages of a user, on average; 5 s worth at once.", 200.0, up_to=1_000_000)
    user_bytes_per_second: float = key(
        "Bytes of a user's frames, on average; 5 s worth at once.", 1_000_000.0, up_to=1_000_000_000
    )
    messages_per_second: float = key("Messages that one connection may send, on average.", 20.0, up_to=100_000)
    burst: int = key("Messages that one connection may send at once.", 100, within=(1, 1_000_000))
    outbox_frames: int = key("Frames that wait for a slow client before it is dropped.", 256, within=(16, 100_000))
    allowed_origins: tuple[str, ...] = key(
        "Origins of web pages, apps and extensions, besides Klaw's own, that may connect.",
        (),
        pattern=r"[a-zA-Z][a-zA-Z0-9+.-]*://(\[[0-9a-fA-F:.]+\]|[^\s/?#@:\\\[\]%]+)(:[1-9][0-9]{0,4})?",
        hint="be an origin such as https://example.org or app://obsidian.md, without a path",
    )
    hello_timeout_s: float = key("A client must say hello within this time.", 10.0, up_to=DAY_S)
    ping_s: float = key("A connection that is silent this long is asked for a sign of life.", 30.0, up_to=DAY_S)
    tls: TlsConfig = section(TlsConfig, restart=True)
    http: HttpConfig = section(HttpConfig)

    @property
    def page_origins(self) -> tuple[str, ...]:
        """Origins of pages that may connect, besides those of the addresses that the server knows of itself."""
        public = self.http.public_url
        return (*self.allowed_origins, *(["/".join(public.split("/")[:3])] if public else []))


@attrs.frozen(kw_only=True)
class AttachmentsConfig:
    """Files of messages."""

    max_file_bytes: int = key("Bytes of one file.", 20_000_000, within=(1, 1_000_000_000))
    max_message_bytes: int = key("Bytes of all files of one message.", 50_000_000, within=(1, 10_000_000_000))
    max_user_bytes: int = key(
        "Bytes of all files of one user, those too that were not sent; each counts as 16384 at least.",
        2_000_000_000,
        within=(1, 1_000_000_000_000_000),
    )


@attrs.frozen(kw_only=True)
class StoreConfig:
    """The database."""

    readers: int = key("Read-only connections.", 2, within=(1, 64))
    checkpoint_bytes: int = key("The commit log is emptied at this size.", 4_194_304, within=(4096, 1_073_741_824))


@attrs.frozen(kw_only=True)
class ShutdownConfig:
    """How long an orderly stop may take."""

    grace_s: float = key("Answers in progress may continue for this long.", 60.0, within=(0, DAY_S), restart=True)
    embed_drain_s: float = key("Waiting embeds may continue for this long.", 5.0, within=(0, DAY_S))


@attrs.frozen(kw_only=True)
class LoggingConfig:
    """What is logged, and in which form."""

    level: Literal["debug", "info", "warning", "error"] = key("Least important events that are logged.", "info")
    format: Literal["auto", "console", "json"] = key(
        "Form of a line; auto = console on a terminal, else json.", "auto", restart=True
    )


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
    voice: VoiceConfig = section(VoiceConfig)
    tools: ToolsConfig = section(ToolsConfig)
    mcp: McpConfig = section(McpConfig)
    local_model: LocalModelConfig = section(LocalModelConfig)
    embedding: EmbeddingConfig = section(EmbeddingConfig, restart=True)
    gateway: GatewayConfig = section(GatewayConfig)
    channels: ChannelsConfig = section(ChannelsConfig)
    chats: ChatsConfig = section(ChatsConfig)
    attachments: AttachmentsConfig = section(AttachmentsConfig)
    store: StoreConfig = section(StoreConfig, restart=True)
    subagents: SubagentsConfig = section(SubagentsConfig)
    heartbeat: HeartbeatConfig = section(HeartbeatConfig)
    topics: TopicsConfig = section(TopicsConfig)
    kb: KnowledgeConfig = section(KnowledgeConfig)
    recovery: RecoveryConfig = section(RecoveryConfig)
    shutdown: ShutdownConfig = section(ShutdownConfig)
    logging: LoggingConfig = section(LoggingConfig)

    @property
    def endpoints(self) -> Mapping[EndpointPath, tuple[str, str]]:
        """Provider and model of what is asked beside chats."""
        found: dict[EndpointPath, tuple[str, str]] = {}
        if self.embedding.enabled and self.embedding.provider is not None:
            found["embeddings"] = self.embedding.provider, self.embedding.model
        rerank = self.auto_rag.rerank
        if self.auto_rag.enabled and rerank.provider is not None and rerank.model is not None:
            found["rerank"] = rerank.provider, rerank.model
        for path, name in self.voice.models.items():
            provider, _, model = name.partition("/")
            found[path] = provider, model
        return found

    def is_built_in(self, name: str) -> bool:
        """Whether a model is the one that comes with Klaw, and so too small for more than a try."""
        return name == BUILT_IN_MODEL and self.local_model.path is None

    @property
    def summarises(self) -> bool:
        """Whether summaries are made: as it is set, else where a model does it that can."""
        own = self.summaries.enabled
        return own if own is not None else not self.is_built_in(self.routing.first("summarization"))

    @property
    def makes_topics(self) -> bool:
        """The same of topics and facts."""
        own = self.topics.enabled
        return own if own is not None else not self.is_built_in(self.routing.first("topics"))

    @property
    def waits_for_model(self) -> list[str]:
        """What is off only because no model is connected that can do it."""
        now = (("summaries", self.summaries, self.summarises), ("topics", self.topics, self.makes_topics))
        return [name for name, section, on in now if section.enabled is None and not on]

    @property
    def holds_uncovered(self) -> bool:
        """Whether messages stay in the window until a summary holds them."""
        return self.summarises and self.summaries.hold_uncovered

    @property
    def injected_tokens(self) -> int:
        """Tokens of topics that come into a prompt by themselves, at most."""
        return self.topics.max_tokens if self.topics.inject == "auto" else 0

    @property
    def window_rows(self) -> int:
        """So many of the newest messages are read for a turn."""
        return max(self.context.sliding_window, HELD_ROWS if self.holds_uncovered else 0)
