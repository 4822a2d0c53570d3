"""The only door to worker threads outside the store: named limiters, so that one use cannot starve another.

``trio.to_thread``'s default limiter of 40 is shared by everything, DNS included; Klaw never uses it.
"""

from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

import attrs
import trio

T = TypeVar("T")
Args = TypeVarTuple("Args")


@attrs.frozen(kw_only=True)
class ThreadsReport:
    name: str
    total: int
    busy: int
    waiting: int


class Threads:
    """A named limit of threads for one kind of blocking work."""

    def __init__(self, name: str, total: int) -> None:
        self.name = name
        self._limiter = trio.CapacityLimiter(total)

    async def run(self, function: Callable[[*Args], T], *args: *Args, abandon: bool = False) -> T:
        """Run a blocking function in a thread.

        Args:
            function: what to run.
            args: its arguments.
            abandon: on cancellation leave the thread behind; only for functions without side effects.

        Cancellation: waits for the function unless ``abandon``.
        """
        return await trio.to_thread.run_sync(
            function, *args, limiter=self._limiter, abandon_on_cancel=abandon, thread_name=f"klaw {self.name}"
        )

    def report(self) -> ThreadsReport:
        statistics = self._limiter.statistics()
        return ThreadsReport(
            name=self.name,
            total=int(statistics.total_tokens),
            busy=statistics.borrowed_tokens,
            waiting=statistics.tasks_waiting,
        )
