"""Spending limits in tokens, limits of spawning, and the ledger of what is spent.

A run is checked before each call of the model: what was used, and what the call may need, must stay within every limit.
The ledger is loaded from the store when a day begins for it, and counted in memory from then on."""

import enum
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeAlias

from klaw.agent.conversation import ModelCall
from klaw.config.schema import SubagentsConfig
from klaw.domain.names import UserId
from klaw.domain.task import Run, Task, TaskName
from klaw.errors import LimitReached
from klaw.llm.types import Usage
from klaw.store.engine.database import Readers
from klaw.store.kinds import runs

LEAST_ANSWER_TOKENS = 64
"""A call is refused when not even so short an answer to its prompt is left."""


class RunLimit(enum.StrEnum):
    """What a limit is about; also the ``error`` of a run that it refused or ended."""

    USER_DAY = "limit_user_tokens"
    TASK_DAY = "limit_task_tokens"
    RUN = "limit_run_tokens"


_WORDS = {
    RunLimit.USER_DAY: "of all subagents for one day (UTC)",
    RunLimit.TASK_DAY: "of this task for one day (UTC)",
    RunLimit.RUN: "of one run",
}
TokenCounts: TypeAlias = Mapping[RunLimit, int]
"""Tokens, prompts and answers together: the limits that hold, or what is used of them."""
Key: TypeAlias = tuple[UserId, TaskName]


def limits_of(task: Task | None, config: SubagentsConfig) -> TokenCounts:
    """The limits that hold for a run: the task's own, else those of the configuration, where 0 means none."""
    run, task_day = (None, None) if task is None else (task.max_tokens, task.daily_tokens)
    limits = {
        RunLimit.USER_DAY: config.daily_tokens,
        RunLimit.TASK_DAY: task_day or 0,
        RunLimit.RUN: config.max_tokens if run is None else run,
    }
    return {limit: most for limit, most in limits.items() if most}


def day_of(moment: str) -> str:
    return moment[:10]


def refusal(limits: TokenCounts, used: TokenCounts, needed: int) -> LimitReached | None:
    """Why a call of the model must not be made; None when it may. ``needed``: estimated tokens of its prompt and of the
    shortest useful answer."""
    for limit, most in limits.items():
        if used[limit] + needed > most:
            so_far = f"{used[limit]} are used and the next step needs about {needed}"
            return LimitReached(limit.value, f"the limit {_WORDS[limit]} is {most} tokens; {so_far}")
    return None


def left_of(limits: TokenCounts, used: TokenCounts) -> int | None:
    """Tokens that may still be used; below 0 when a limit is passed, None for no limit."""
    return min((most - used[limit] for limit, most in limits.items()), default=None)


def answer_tokens(limits: TokenCounts, used: TokenCounts, prompt: int, most: int) -> int:
    """How many tokens an answer may have, at least 1 and at most ``most``, so that a call whose prompt takes ``prompt``
    stays within all limits. Ask ``refusal`` before."""
    left = left_of(limits, used)
    return max(1, most if left is None else min(most, left - prompt))


def tells_user(limit: str, run: Run, earlier: Iterable[Run]) -> bool:
    """Whether the user is to be notified of a refusal: once a UTC day for each limit, and for each task where the limit
    is the task's own. ``earlier``: the user's other runs of that day; ``details["told"]`` marks those that notified."""
    return not any(
        other.id != run.id
        and other.user == run.user
        and other.error == limit
        and other.details.get("told") is True
        and day_of(other.started_at) == day_of(run.started_at)
        and (limit == RunLimit.USER_DAY or other.task == run.task)
        for other in earlier
    )


def spawn_refusal(*, depth: int, unfinished: int, config: SubagentsConfig) -> str | None:
    """Why a subagent must not be spawned at this depth, while so many spawned runs are unfinished; None when it may."""
    if depth > config.max_depth:
        most = f"subagents may be nested {config.max_depth} deep (subagents.maxDepth)"
        return f"{most}; this one would be at depth {depth}"
    if unfinished >= config.max_spawned:
        most = f"at most {config.max_spawned} may be (subagents.maxSpawned)"
        return f"{unfinished} spawned subagents are not finished; {most}"
    return None


class Ledger:
    """Tokens of each user and task by UTC day; the scheduler's, shared by its runs."""

    def __init__(self, readers: Readers) -> None:
        self._readers = readers
        self._days: dict[str, Counter[Key]] = {}
        self._reserved: Counter[str] = Counter()
        self._of_run: dict[str, tuple[str, Key]] = {}

    async def open(self, run: Run) -> None:
        """Load the run's day; call it before the run's first call."""
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
        self._of_run.pop(run.id, None)
        self._reserved.pop(run.id, None)

    def used(self, run: Run) -> TokenCounts:
        """What counts against the limits of an open run, with what is set aside for others."""
        day, (user, task) = self._of_run[run.id]
        spent = Counter(self._days.get(day, Counter()))
        for other, tokens in self._reserved.items():
            other_day, key = self._of_run[other]
            if other_day == day:
                spent[key] += tokens
        return {
            RunLimit.USER_DAY: sum(tokens for (owner, _), tokens in spent.items() if owner == user),
            RunLimit.TASK_DAY: spent[user, task],
            RunLimit.RUN: run.prompt_tokens + run.completion_tokens + self._reserved[run.id],
        }

    def left(self, run: Run, limits: TokenCounts) -> int | None:
        left = left_of(limits, self.used(run))
        return None if left is None else max(0, left)

    @contextmanager
    def call(self, run: Run, limits: TokenCounts, prompt: int, most: int) -> Iterator[ModelCall]:
        """Set tokens aside for one call of a model, with a prompt of so many tokens; the body counts what the call
        used. ``most`` is the longest answer without limits. Raises LimitReached: nothing was set aside."""
        used = self.used(run)
        refused = refusal(limits, used, prompt + min(most, LEAST_ANSWER_TOKENS))
        if refused is not None:
            raise refused
        answer = answer_tokens(limits, used, prompt, most)
        self._reserved[run.id] += prompt + answer
        try:
            yield ModelCall(answer_tokens=answer, count=lambda usage: self._count(run, usage))
        finally:
            self._reserved[run.id] -= prompt + answer

    def _count(self, run: Run, usage: Usage) -> None:
        day, key = self._of_run[run.id]
        self._days[day][key] += usage.prompt_tokens + usage.completion_tokens
