"""The keys of engine.json about topics."""

from typing import Literal

import attrs

from klaw.config.keys import key

_YEAR_S = 366 * 86_400


@attrs.frozen(kw_only=True)
class TopicsConfig:
    """Long-term memory: finished sessions become topics with summaries, written by routing.tasks.topics."""

    enabled: bool = key("Make topics in the background; it costs calls to a model.", False)
    chunk_interval_s: float = key("A session is over after a pause of this length.", 3600.0, minimum=1, maximum=_YEAR_S)
    max_chunk_size: int = key(
        "A session is cut at this many messages; one question to the model covers no more.",
        400,
        minimum=2,
        maximum=5000,
    )
    split_threshold_chars: int = key(
        "A topic with more characters is divided again.", 25_000, minimum=1000, maximum=10_000_000
    )
    inject: Literal["tool", "auto", "off"] = key(
        "How topics come into a prompt: tool = memory_search finds them; auto = also the fitting ones before every"
        " reply; off = not at all.",
        "tool",
    )
    max_tokens: int = key(
        "With inject = auto: at most this many tokens of topics in a prompt, and never more than a fifth of it.",
        1000,
        minimum=50,
        maximum=100_000,
    )
    time_budget_ms: int | None = key(
        "With inject = auto: search and choice may hold up a reply for this long, then the best found are taken. null"
        " = 6 s, and 20 s where the built-in model chooses.",
        None,
        minimum=1,
        maximum=60_000,
    )
