"""Spending limits in tokens, limits of spawning, and the ledger of what is spent. Before each call of a model, what was
used and what the call may need must stay within every limit."""

import enum
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TypeAlias

from klaw.agent.conversation import ModelCall
from klaw.config.schema import SubagentsConfig
from klaw.domain.task import Run, Task, TaskKey
from klaw.errors import LimitReached
from klaw.llm.types import Usage
from klaw.store.engine.database import Readers
from klaw.store.kinds import runs

LEAST_ANSWER_TOKENS = 64
"""A call is refused when not even so short an answer to its prompt is left."""
KEPT_DAYS = 8
"""A run may go on into the next day, and a clock that was set back brings an old one again."""


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
    """Why a call must not be made; None: it may. ``needed``: tokens of its prompt and the shortest useful answer."""
    for limit, most in limits.items():
        if used[limit] + needed > most:
            so_far = f"{used[limit]} are used and the next step needs about {needed}"
            return LimitReached(limit.value, f"the limit {_WORDS[limit]} is {most} tokens; {so_far}")
    return None


def left_of(limits: TokenCounts, used: TokenCounts) -> int | None:
    """Tokens that may still be used; below 0 when a limit is passed, None for no limit."""
    return min((most - used[limit] for limit, most in limits.items()), default=None)


def answer_tokens(limits: TokenCounts, used: TokenCounts, prompt: int, most: int) -> int:
    """How many tokens (1 to ``most``) an answer may have, so that an allowed call stays within all limits."""
    left = left_of(limits, used)
    return max(1, most if left is None else min(most, left - prompt))


async def was_told(readers: Readers, run: Run, limit: str) -> bool:
    """Whether the user was told of the limit on the UTC day of the run; if it is the task's own, of this task."""
    task = None if limit == RunLimit.USER_DAY else run.task
    return await readers.run(runs.told, run.user, task, day_of(run.started_at), limit)


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
    """Tokens of each user and task by UTC day, with those that are set aside for calls of models; shared by all runs.
    A day is loaded from the store with its first run, and counted in memory from then on."""

    def __init__(self, readers: Readers) -> None:
        self._readers = readers
        self._days: dict[str, Counter[TaskKey]] = {}

    async def open(self, run: Run) -> None:
        """Load the run's day; call it before anything else with the run."""
        day = day_of(run.started_at)
        if day not in self._days:
            used: Mapping[TaskKey, int] = await self._readers.run(runs.tokens_by_task, day)
            # Another run may have opened the day meanwhile, and what it spent since is newer.
            self._days.setdefault(day, Counter(used))
            for old in [*self._days][:-KEPT_DAYS]:
                del self._days[old]

    def used(self, run: Run) -> TokenCounts:
        spent = self._days[day_of(run.started_at)]
        return {
            RunLimit.USER_DAY: sum(tokens for (user, _), tokens in spent.items() if user == run.user),
            RunLimit.TASK_DAY: spent[run.user, run.task],
            RunLimit.RUN: run.prompt_tokens + run.completion_tokens,
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
        spent, key = self._days[day_of(run.started_at)], (run.user, run.task)

        def count(usage: Usage) -> None:
            spent[key] += usage.prompt_tokens + usage.completion_tokens

        spent[key] += prompt + answer
        try:
            yield ModelCall(answer_tokens=answer, count=count)
        finally:
            spent[key] -= prompt + answer
