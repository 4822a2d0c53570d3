"""Spending limits in tokens, limits of spawning, and the ledger of what is spent.

A limit of 0 means no limit. A run is checked before each call of the model: what was used, and what the call may well
need, must stay within every limit. So a run is refused before it begins, or ended before the call that would pass one.
The ledger is loaded from the store when a day begins for it, and counted in memory from then on.
"""

import enum
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeAlias

import attrs

from klaw.agent.conversation import ModelCall
from klaw.domain.names import UserId
from klaw.domain.task import Run, Task, TaskName
from klaw.errors import LimitReached
from klaw.llm.types import Usage
from klaw.store.engine.database import Readers
from klaw.store.kinds import runs


class RunLimit(enum.StrEnum):
    """Which limit refused; also the ``error`` of the run's record."""

    RUN = "limit_run_tokens"
    """``maxTokens`` of the task, or ``subagents.maxTokens``."""
    TASK_DAY = "limit_task_tokens"
    """``dailyTokens`` of the task."""
    USER_DAY = "limit_user_tokens"
    """``subagents.dailyTokens``."""


@attrs.frozen(kw_only=True)
class TokenLimits:
    """Limits in tokens, prompts and answers together; 0 = none."""

    run: int
    task_day: int
    user_day: int


@attrs.frozen(kw_only=True)
class TokensUsed:
    """Tokens used, those of runs that go on included."""

    run: int = 0
    task_day: int = 0
    """By the task's runs that started on this UTC day."""
    user_day: int = 0
    """By all of the user's runs that started on this UTC day."""


@attrs.frozen(kw_only=True)
class Refusal:
    limit: RunLimit
    note: str
    """For the run's record and for the user."""


def tokens_of(task: Task | None, *, max_tokens: int, daily_tokens: int) -> TokenLimits:
    """The limits that hold for a run: the task's own, else those of the configuration."""
    own = None if task is None else task.max_tokens
    return TokenLimits(
        run=max_tokens if own is None else own,
        task_day=(None if task is None else task.daily_tokens) or 0,
        user_day=daily_tokens,
    )


def day_of(moment: str) -> str:
    """The UTC day that a run's ``started_at`` counts for: ``2026-11-22``."""
    return moment[:10]


def refusal(limits: TokenLimits, used: TokensUsed, needed: int) -> Refusal | None:
    """Say why a call of the model must not be made; None when it may. ``needed``: estimated tokens of its prompt and of
    the shortest useful answer."""
    for limit, most, so_far, words in (
        (RunLimit.USER_DAY, limits.user_day, used.user_day, "of all subagents for one day (UTC)"),
        (RunLimit.TASK_DAY, limits.task_day, used.task_day, "of this task for one day (UTC)"),
        (RunLimit.RUN, limits.run, used.run, "of one run"),
    ):
        if most and so_far + needed > most:
            note = f"the limit {words} is {most} tokens; {so_far} are used and the next step needs about {needed}"
            return Refusal(limit=limit, note=note)
    return None


def left_of(limits: TokenLimits, used: TokensUsed) -> int | None:
    """Tokens that may still be used; below 0 when a limit is passed, None for no limit."""
    each = ((limits.run, used.run), (limits.task_day, used.task_day), (limits.user_day, used.user_day))
    return min((most - so_far for most, so_far in each if most), default=None)


def answer_tokens(limits: TokenLimits, used: TokensUsed, prompt: int, most: int) -> int:
    """How many tokens an answer may have, at least 1, so that a call whose prompt takes ``prompt`` stays within all
    limits. ``most`` is the longest answer without limits. Ask ``refusal`` before."""
    left = left_of(limits, used)
    return max(1, most if left is None else min(most, left - prompt))


def tells_user(refused: Refusal, run: Run, earlier: Iterable[Run]) -> bool:
    """Whether the user is to be notified of a refusal: once a UTC day for each limit, and for each task where the limit
    is the task's own. ``earlier``: the user's other runs of that day; ``details["told"]`` marks those that notified."""
    return not any(
        other.id != run.id
        and other.user == run.user
        and other.error == refused.limit
        and other.details.get("told") is True
        and day_of(other.started_at) == day_of(run.started_at)
        and (refused.limit is RunLimit.USER_DAY or other.task == run.task)
        for other in earlier
    )


def spawn_refusal(*, depth: int, unfinished: int, max_depth: int, max_spawned: int) -> str | None:
    """Say why a subagent must not be spawned at this depth, while so many spawned runs are unfinished; None when it
    may."""
    if depth > max_depth:
        return f"subagents may be nested {max_depth} deep (subagents.maxDepth); this one would be at depth {depth}"
    if unfinished >= max_spawned:
        return f"{unfinished} spawned subagents are not finished; at most {max_spawned} may be (subagents.maxSpawned)"
    return None


Key: TypeAlias = tuple[UserId, TaskName]

LEAST_ANSWER_TOKENS = 64
"""A call is refused when not even so short an answer to its prompt is left."""


class Ledger:
    """Tokens of each user and task by UTC day; the scheduler's, shared by its runs."""

    def __init__(self, readers: Readers) -> None:
        self._readers = readers
        self._days: dict[str, Counter[Key]] = {}
        self._reserved: Counter[str] = Counter()
        """Tokens set aside, by run."""
        self._of_run: dict[str, tuple[str, Key]] = {}

    async def open(self, run: Run) -> None:
        """Make the run's day known; call it before the run's first call."""
        day = day_of(run.started_at)
        if day not in self._days:
            used: Mapping[Key, int] = await self._readers.run(runs.tokens_by_task, day)
            # Another run may have opened the day meanwhile, and what it spent since is newer.
            self._days.setdefault(day, Counter(used))
        self._of_run[run.id] = day, (run.user, run.task)
        # A run may go on into the next day, and a clock that was set back brings an old one again.
        needed = {open_day for open_day, _ in self._of_run.values()}
        for old in self._days.keys() - needed:
            del self._days[old]

    def close(self, run: Run) -> None:
        """The run has ended."""
        self._of_run.pop(run.id, None)
        self._reserved.pop(run.id, None)

    def used(self, run: Run) -> TokensUsed:
        """What counts against the limits of an open run, with what is set aside for others."""
        day, (user, task) = self._of_run[run.id]
        spent = Counter(self._days.get(day, Counter()))
        for other, tokens in self._reserved.items():
            other_day, key = self._of_run[other]
            if other_day == day:
                spent[key] += tokens
        return TokensUsed(
            run=run.prompt_tokens + run.completion_tokens + self._reserved[run.id],
            task_day=spent[user, task],
            user_day=sum(tokens for (owner, _), tokens in spent.items() if owner == user),
        )

    def left(self, run: Run, limits: TokenLimits) -> int | None:
        """Tokens that an open run may still use; None for no limit."""
        left = left_of(limits, self.used(run))
        return None if left is None else max(0, left)

    @contextmanager
    def call(self, run: Run, limits: TokenLimits, prompt: int, most: int) -> Iterator[ModelCall]:
        """Set tokens aside for one call of a model, with a prompt of so many tokens; the body counts what the call
        used. ``most`` is the longest answer without limits. Raises LimitReached: nothing was set aside."""
        used = self.used(run)
        refused = refusal(limits, used, prompt + min(most, LEAST_ANSWER_TOKENS))
        if refused is not None:
            raise LimitReached(refused.limit, refused.note)
        answer = answer_tokens(limits, used, prompt, most)
        self._reserved[run.id] += prompt + answer
        try:
            yield ModelCall(answer_tokens=answer, count=lambda usage: self._count(run, usage))
        finally:
            self._reserved[run.id] -= prompt + answer

    def _count(self, run: Run, usage: Usage) -> None:
        day, key = self._of_run[run.id]
        self._days[day][key] += usage.prompt_tokens + usage.completion_tokens
