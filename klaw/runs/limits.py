"""Spending limits in tokens, and limits of spawning. Pure.

A limit of 0 is none. A run is checked before each call of the model: what was used, and what the call is expected to
need, must stay within every limit. So a run is refused before it begins, or ended before the call that would pass one.
"""

import enum
from collections.abc import Iterable

import attrs

from klaw.domain.task import Run, RunStatus, Task


class Limit(enum.StrEnum):
    """Which limit refused; also the ``error`` of the run's record."""

    RUN = "limit_run_tokens"
    """``maxTokens`` of the task, or ``subagents.maxTokens``."""
    TASK_DAY = "limit_task_tokens"
    """``dailyTokens`` of the task."""
    USER_DAY = "limit_user_tokens"
    """``subagents.dailyTokens``."""
    DEPTH = "limit_depth"
    """``subagents.maxDepth``."""
    SPAWNED = "limit_spawned"
    """``subagents.maxSpawned``."""


@attrs.frozen(kw_only=True)
class Tokens:
    """Limits in tokens, prompts and answers together; 0 = none."""

    run: int
    task_day: int
    user_day: int


@attrs.frozen(kw_only=True)
class Used:
    """Tokens used, those of runs that go on included."""

    run: int = 0
    task_day: int = 0
    """By the task's runs that started on this UTC day."""
    user_day: int = 0
    """By all of the user's runs that started on this UTC day."""


@attrs.frozen(kw_only=True)
class Refusal:
    """A limit forbids it."""

    limit: Limit
    note: str
    """For the run's record and for the user."""


def tokens_of(task: Task | None, *, max_tokens: int, daily_tokens: int) -> Tokens:
    """The limits that hold for a run.

    Args:
        task: None for a spawned subagent and the heartbeat, which have no limits of their own.
        max_tokens: ``subagents.maxTokens``.
        daily_tokens: ``subagents.dailyTokens``.
    """
    own = None if task is None else task.max_tokens
    return Tokens(
        run=max_tokens if own is None else own,
        task_day=(None if task is None else task.daily_tokens) or 0,
        user_day=daily_tokens,
    )


def day_of(moment: str) -> str:
    """The UTC day that a run's ``started_at`` counts for: ``2026-11-22``."""
    return moment[:10]


def spent(runs: Iterable[Run], run: Run) -> Used:
    """What a user's runs of one day used, seen from one of them; ``runs`` may or may not hold it."""
    others = [other for other in runs if other.user == run.user and day_of(other.started_at) == day_of(run.started_at)]
    every = [*(other for other in others if other.id != run.id), run]
    return Used(
        run=_tokens(run),
        task_day=sum(_tokens(other) for other in every if other.task == run.task),
        user_day=sum(map(_tokens, every)),
    )


def refusal(limits: Tokens, used: Used, needed: int) -> Refusal | None:
    """Say why a call of the model must not be made; None when it may.

    Args:
        needed: estimated tokens of the call: its prompt and the shortest useful answer.
    """
    for limit, most, so_far, words in (
        (Limit.USER_DAY, limits.user_day, used.user_day, "of all subagents for one day (UTC)"),
        (Limit.TASK_DAY, limits.task_day, used.task_day, "of this task for one day (UTC)"),
        (Limit.RUN, limits.run, used.run, "of one run"),
    ):
        if most and so_far + needed > most:
            note = f"the limit {words} is {most} tokens; {so_far} are used and the next step needs about {needed}"
            return Refusal(limit=limit, note=note)
    return None


def answer_tokens(limits: Tokens, used: Used, prompt: int, most: int) -> int:
    """How many tokens an answer may have, so that a call whose prompt takes ``prompt`` stays within all limits.

    Args:
        most: the longest answer without limits.

    Returns:
        At least 1; ask ``refusal`` before.
    """
    left = [
        limit - so_far - prompt
        for limit, so_far in (
            (limits.run, used.run),
            (limits.task_day, used.task_day),
            (limits.user_day, used.user_day),
        )
        if limit
    ]
    return max(1, min([most, *left]))


def tells_user(refused: Refusal, run: Run, earlier: Iterable[Run]) -> bool:
    """Whether the user is to be told of a refusal: once a UTC day for each limit, and for each task where the limit is
    the task's own.

    Args:
        run: the run that was refused or ended by it.
        earlier: the user's other runs of that day. One that told the user has ``details["told"]`` true.
    """
    return not any(
        other.id != run.id
        and other.user == run.user
        and other.error == refused.limit
        and other.details.get("told") is True
        and day_of(other.started_at) == day_of(run.started_at)
        and (refused.limit is Limit.USER_DAY or other.task == run.task)
        for other in earlier
    )


def spawn_refusal(*, depth: int, unfinished: int, max_depth: int, max_spawned: int) -> Refusal | None:
    """Say why a subagent must not be spawned; None when it may.

    Args:
        depth: depth of the new run: 0 from a chat, else one more than its parent's.
        unfinished: the user's spawned runs that wait or go on.
        max_depth: ``subagents.maxDepth``.
        max_spawned: ``subagents.maxSpawned``.
    """
    if depth > max_depth:
        return Refusal(
            limit=Limit.DEPTH,
            note=f"subagents may be nested {max_depth} deep (subagents.maxDepth); this one would be at depth {depth}",
        )
    if unfinished >= max_spawned:
        return Refusal(
            limit=Limit.SPAWNED,
            note=f"{unfinished} spawned subagents are not finished; at most {max_spawned} may be"
            " (subagents.maxSpawned)",
        )
    return None


def unfinished(runs: Iterable[Run]) -> int:
    """How many of some runs still go on."""
    return sum(run.status is RunStatus.RUNNING for run in runs)


def _tokens(run: Run) -> int:
    return run.prompt_tokens + run.completion_tokens
