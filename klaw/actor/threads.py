"""The only door to worker threads outside the store: named limiters, so that one use cannot starve another. The default
limiter of ``trio.to_thread`` is shared by everything, DNS included; Klaw never uses it."""

from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

import trio

ON_LOOP_BYTES = 65_536
"""Input of so many bytes is read at once; of more in a thread."""

T = TypeVar("T")
Args = TypeVarTuple("Args")


class Threads:
    """A named limit of threads for one kind of blocking work."""

    def __init__(self, name: str, total: int) -> None:
        self.name = name
        self._limiter = trio.CapacityLimiter(total)

    async def run(self, function: Callable[[*Args], T], *args: *Args, abandon: bool = False) -> T:
        """Run a blocking function in a thread. Cancelling waits for its end, unless ``abandon`` leaves it behind: only
        for functions without side effects."""
        return await trio.to_thread.run_sync(
            function, *args, limiter=self._limiter, abandon_on_cancel=abandon, thread_name=f"klaw {self.name}"
        )

    def report(self) -> dict[str, str | int]:
        """Its name, and how many threads it has, are busy, and are waited for."""
        now = self._limiter.statistics()
        counts = {"total": int(now.total_tokens), "busy": now.borrowed_tokens, "waiting": now.tasks_waiting}
        return {"name": self.name, **counts}


_INPUT = Threads("input", 2)


async def read_input(size: int, function: Callable[[*Args], T], *args: *Args) -> T:
    """What a function makes of input from outside: parsing, checks, decoding. It must change nothing."""
    return function(*args) if size <= ON_LOOP_BYTES else await _INPUT.run(function, *args, abandon=True)
