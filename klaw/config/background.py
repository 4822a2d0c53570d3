"""The keys of engine.json for work that nobody waits for: tasks, subagents, the heartbeat, summaries."""

import attrs

from klaw.config.keys import key

_DAY_S = 86_400
_YEAR_S = 366 * _DAY_S
_TOKENS_MAX = 10_000_000

SYSTEM_ZONE = "system"
"""Value of ``subagents.zone`` that stands for the time zone of the machine."""
MIN_HEARTBEAT_S = 60
"""Shortest pause between heartbeats; 0 is none at all."""


@attrs.frozen(kw_only=True)
class SubagentsConfig:
    """Scheduled tasks and spawned subagents."""

    max_concurrent: int = key("Runs at the same time; the others wait.", 2, minimum=1, maximum=64)
    timeout_s: int = key("Deadline of a run whose task names none.", 600, minimum=1, maximum=_DAY_S)
    max_tokens: int = key(
        "Tokens that one run may use, prompts and answers together, when its task names no number; 0 = no limit.",
        200_000,
        minimum=0,
        maximum=1_000_000_000,
    )
    daily_tokens: int = key(
        "Tokens that all runs of one user may use in one day (UTC); 0 = no limit.",
        0,
        minimum=0,
        maximum=1_000_000_000,
    )
    retries: int = key(
        "Further attempts after a failure that may pass, 60 s later, then 120 s …; never past the next fire time.",
        3,
        minimum=0,
        maximum=10,
    )
    max_depth: int = key(
        "How deep subagents may spawn subagents; 1 = a task's run may, and what it spawned may not.",
        1,
        minimum=0,
        maximum=8,
    )
    max_spawned: int = key("Spawned subagents of one user that are not finished.", 8, minimum=0, maximum=1000)
    zone: str = key(
        "Time zone of a cron task that names none: an IANA name such as Europe/Berlin; system = the machine's own.",
        SYSTEM_ZONE,
        pattern=r"[A-Za-z][A-Za-z0-9_+/-]{0,63}",
        hint="be an IANA name such as Europe/Berlin, or system",
    )


@attrs.frozen(kw_only=True)
class HeartbeatConfig:
    """A regular look at HEARTBEAT.md, the list of what the agent is to watch by itself."""

    interval_s: int = key(
        f"Pause between heartbeats, at least {MIN_HEARTBEAT_S}; 0 = none.", 0, minimum=0, maximum=_YEAR_S
    )


@attrs.frozen(kw_only=True)
class SummariesConfig:
    """Summaries of the older part of a long chat, made in the background."""

    enabled: bool = key("Condense the older part of a long chat, and show the summary in its place.", True)
    threshold_fraction: float = key(
        "A summary is made when messages without one take more than this share of the context.",
        0.5,
        above=0,
        maximum=0.9,
    )
    left_out_tokens: int = key(
        "A summary is also made when messages beyond context.slidingWindow without one have this many tokens.",
        2000,
        minimum=1,
        maximum=_TOKENS_MAX,
    )
    max_tokens: int = key(
        "Tokens that a chat's summaries may take in the context; the oldest makes room.",
        600,
        minimum=50,
        maximum=20_000,
    )
    hold_uncovered: bool = key(
        "Messages beyond context.slidingWindow stay in the context until a summary holds them.", False
    )
    tool_calls: bool = key("Also note in a sentence or two what each tool call brought, to be found later.", False)
    daily_tokens: int = key(
        "Tokens that summaries of one user may use in one day (UTC); 0 = no limit.",
        0,
        minimum=0,
        maximum=1_000_000_000,
    )
