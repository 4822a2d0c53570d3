"""What subagents have spent today, kept exact while several of them ask their models at once.

Loaded from the store when a day begins for it, counted in memory from then on. What a call is expected to need is set
aside while it runs, so that two calls cannot both use the last tokens of a limit.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TypeAlias

import attrs

from klaw.agent.conversation import Call
from klaw.domain.names import UserId
from klaw.domain.task import Run, TaskName
from klaw.errors import KlawError
from klaw.llm.types import Usage
from klaw.runs.limits import Refusal, Tokens, Used, answer_tokens, day_of, refusal
from klaw.store.engine.readers import Readers
from klaw.store.sql import runs

Key: TypeAlias = tuple[UserId, TaskName]

LEAST_ANSWER_TOKENS = 64
"""A call is refused when not even so short an answer to its prompt is left."""


class LimitReached(KlawError):
    """The next call of a model would pass a spending limit."""

    def __init__(self, refused: Refusal) -> None:
        super().__init__(refused.note)
        self.refused = refused


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

    def used(self, run: Run) -> Used:
        """What counts against the limits of an open run, with what is set aside for others."""
        day, (user, task) = self._of_run[run.id]
        spent = Counter(self._days.get(day, Counter()))
        for other, tokens in self._reserved.items():
            other_day, key = self._of_run[other]
            if other_day == day:
                spent[key] += tokens
        return Used(
            run=run.prompt_tokens + run.completion_tokens + self._reserved[run.id],
            task_day=spent[user, task],
            user_day=sum(tokens for (owner, _), tokens in spent.items() if owner == user),
        )

    @contextmanager
    def call(self, run: Run, limits: Tokens, prompt: int, most: int) -> Iterator[Call]:
        """Set tokens aside for one call of a model; the body counts what the call used.

        Args:
            run: an open run, as it stands.
            limits: those of the run.
            prompt: estimated tokens of the prompt.
            most: the longest answer without limits.

        Raises:
            LimitReached: the call would pass a limit; nothing was set aside.
        """
        used = self.used(run)
        refused = refusal(limits, used, prompt + min(most, LEAST_ANSWER_TOKENS))
        if refused is not None:
            raise LimitReached(refused)
        answer = answer_tokens(limits, used, prompt, most)
        self._reserved[run.id] += prompt + answer
        try:
            yield Call(answer_tokens=answer, count=lambda usage: self._count(run, usage))
        finally:
            self._reserved[run.id] -= prompt + answer

    def _count(self, run: Run, usage: Usage) -> None:
        day, key = self._of_run[run.id]
        self._days[day][key] += usage.prompt_tokens + usage.completion_tokens


@attrs.frozen(kw_only=True)
class Allowance:
    """The limits of one run, and where what it spends is counted."""

    ledger: Ledger
    limits: Tokens

    def left(self, run: Run) -> int | None:
        """Tokens that the run may still use; None for no limit."""
        used = self.ledger.used(run)
        left = [
            limit - so_far
            for limit, so_far in (
                (self.limits.run, used.run),
                (self.limits.task_day, used.task_day),
                (self.limits.user_day, used.user_day),
            )
            if limit
        ]
        return max(0, min(left)) if left else None
