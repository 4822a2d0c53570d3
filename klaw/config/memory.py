"""The keys of engine.yaml for what of the past goes into a request: recall, the window, summaries, topics, vectors."""

# ruff: noqa: RUF009  ``key`` returns an attrs field, which is what a class body of attrs holds

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import attrs

from klaw.config.keys import DAY_S, MODEL_NAME, TOKENS_MAX, YEAR_S, Rule, key, section

_REMOTE_MODEL: Mapping[str, Any] = {"pattern": r"\S{1,200}", "hint": "be a model's name without spaces"}


@attrs.frozen(kw_only=True)
class RerankConfig:
    """A service that puts what recall found into its order (docs/models.md). What is sent to it leaves this machine."""

    provider: str | None = key("A name in `providers` that serves /rerank; null: none is asked.", None)
    model: str | None = key("What the provider calls the model.", None, **_REMOTE_MODEL)
    candidates: int = key("At most this many messages are sent for one question, the best.", 30, within=(2, 50))

    def mistakes(self) -> Iterator[tuple[str, str]]:
        if self.model is not None and self.provider is None:
            yield "provider", "is required beside model"


@attrs.frozen(kw_only=True)
class AutoRagConfig:
    """Retrieval of older messages before every reply."""

    enabled: bool = key("Look for older messages that matter, before every reply.", True)
    top_k: int = key("At most this many recalled messages in one context.", 8, within=(1, 100))
    max_tokens: int = key("At most this many tokens of recalled text.", 400, within=(1, 100_000))
    relevance_threshold: float = key(
        "Farthest distance that counts as relevant: near 0 = the same text, 1 = as far as random pairs.", 0.5, up_to=1
    )
    min_message_tokens: int = key("Messages shorter than this are not embedded.", 10, within=(0, 10_000), restart=True)
    tokens: bool = key(
        "Also compare a question's words with a message's one by one; 16 bytes a word on disk.", True, restart=True
    )
    time_budget_ms: int = key("Recall may take this long; the receipt names what was cut.", 150, within=(1, 60_000))
    expansion: bool = key(
        "Also search for words that a model adds to a question, if it answers within timeBudgetMs; a call for each.",
        False,
    )
    rerank: RerankConfig = section(RerankConfig)


@attrs.frozen(kw_only=True)
class ContextConfig:
    """What of the past goes into a request to the model."""

    sliding_window: int = key("The newest messages that are always offered to the model.", 20, within=(1, 10_000))
    subagent_history: int = key("Earlier complete runs of the same task that a subagent sees.", 5, within=(0, 1000))
    default_budget_tokens: int = key("Context length of a model whose own is unknown.", 8192, within=(64, TOKENS_MAX))
    reply_reserve_tokens: int = key("Part of the context that stays free for the answer.", 1024, within=(1, TOKENS_MAX))

    def mistakes(self) -> Iterator[tuple[str, str]]:
        if self.reply_reserve_tokens >= self.default_budget_tokens:
            limit = f"must be < context.defaultBudgetTokens ({self.default_budget_tokens})"
            yield "replyReserveTokens", f"{limit}, got {self.reply_reserve_tokens}"


@attrs.frozen(kw_only=True)
class EmbeddingConfig:
    """Vectors for messages; without them recall is full-text only."""

    enabled: bool = key("Make vectors and search with them.", True)
    provider: str | None = key("A name in `providers`, to whose /embeddings all messages go; null: this machine.", None)
    model: str = key("Its name in `klaw models list`, or at the provider.", "multilingual-e5-small", **_REMOTE_MODEL)
    path: Path | None = key("A model folder to use in place of the pulled model.", None)
    dimensions: int | None = key("With provider: length of vectors; null: the model's own.", None, within=(8, 8192))
    query_prefix: str = key("With provider: what stands before a question, for models that want it.", "")
    passage_prefix: str = key("With provider: the same before a message.", "")
    threads: int = key("Threads for inference: one question, or this many batches of messages.", 2, within=(1, 1024))
    batch_tokens: int = key("Tokens that go through the model in one step.", 256, within=(1, 65_536))
    sweep_s: float = key("Pause between searches for messages without a vector.", 60.0, up_to=DAY_S)
    gather_s: float = key(
        "A few new messages wait so long for more to get vectors together: it spares the disk.", 60.0, within=(0, DAY_S)
    )

    def mistakes(self) -> Iterator[tuple[str, str]]:
        if self.provider is not None:
            if self.path is not None:
                yield "path", "means nothing beside provider"
            return
        if broken := Rule(description="", **MODEL_NAME).broken_by(self.model):
            yield "model", broken
        remote = {"dimensions": self.dimensions, "queryPrefix": self.query_prefix, "passagePrefix": self.passage_prefix}
        for name, value in remote.items():
            if value:
                yield name, "needs embedding.provider"


@attrs.frozen(kw_only=True)
class SummariesConfig:
    """Summaries of the older part of a long chat, made in the background."""

    enabled: bool | None = key(
        "Condense the older part of a long chat, and show the summary in its place; null: when a model can, which the"
        " built-in one cannot.",
        None,
    )
    threshold_fraction: float = key("Messages are summarised beyond this share of the context.", 0.5, up_to=0.9)
    left_out_tokens: int = key(
        "Messages outside context.slidingWindow are summarised beyond this many tokens.", 2000, within=(1, TOKENS_MAX)
    )
    max_tokens: int = key("Tokens of a chat's summaries in context; the oldest makes room.", 600, within=(50, 20_000))
    hold_uncovered: bool = key("Messages beyond context.slidingWindow stay until a summary holds them.", False)
    tool_calls: bool = key("Also note in a sentence or two what each tool call brought, to be found later.", False)
    daily_tokens: int = key("Tokens of summaries of a user in a day (UTC); 0 = no limit.", 0, within=(0, 1_000_000_000))


@attrs.frozen(kw_only=True)
class TopicsConfig:
    """Long-term memory: finished sessions become topics with summaries, written by routing.tasks.topics."""

    enabled: bool | None = key(
        "Make topics in the background, and note facts; it costs calls to a model. null: when a model can, which the"
        " built-in one cannot.",
        None,
    )
    chunk_interval_s: float = key("A session is over after a pause of this length.", 3600.0, within=(1, YEAR_S))
    max_chunk_size: int = key("A session is cut into pieces of this many messages at most.", 400, within=(2, 5000))
    split_threshold_chars: int = key("A topic with more characters is split again.", 25_000, within=(1000, 10_000_000))
    inject: Literal["tool", "auto", "off"] = key(
        "How topics come into a prompt: tool = memory_search finds them; auto = also the fitting ones before every"
        " reply; off = not at all.",
        "tool",
    )
    max_tokens: int = key(
        "With inject = auto: tokens of topics in a prompt, and at most a fifth of it.", 1000, within=(50, 100_000)
    )
    time_budget_ms: int | None = key(
        "With inject = auto: search and choice may hold up a reply for this long, then the best found are taken. null"
        " = 6 s, and 20 s where the built-in model chooses.",
        None,
        within=(1, 60_000),
    )
