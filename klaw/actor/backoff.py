"""How long to wait before something that failed is tried again. Pure; times are those of a monotonic clock."""

from collections.abc import Hashable
from typing import Generic, TypeVar

import attrs

K = TypeVar("K", bound=Hashable)


@attrs.frozen
class Backoff:
    first_s: float
    most_s: float = float("inf")

    def pause_s(self, failures: int) -> float:
        """The pause after so many failures in a row, from 1."""
        return min(self.most_s, self.first_s * 2.0 ** min(max(failures, 1) - 1, 60))


SLOW = Backoff(300.0, 6 * 3600.0)
"""For work in the background that costs money or tells of a lasting fault."""


class Pauses(Generic[K]):
    def __init__(self, backoff: Backoff = SLOW) -> None:
        self._backoff = backoff
        self._failures: dict[K, tuple[int, float]] = {}
        """How often each failed in a row, and until when it waits."""

    def fail(self, key: K, now: float) -> float:
        """Count a failure. Returns the pause in seconds."""
        attempts = self._failures.get(key, (0, now))[0] + 1
        pause = self._backoff.pause_s(attempts)
        self._failures[key] = attempts, now + pause
        return pause

    def succeed(self, key: K) -> None:
        self._failures.pop(key, None)

    def waits(self, key: K, now: float) -> bool:
        """Whether it is too early to try it again."""
        return key in self._failures and now < self._failures[key][1]

    def next(self, now: float) -> float | None:
        """When the first of those that wait may be tried again; None when nothing waits."""
        return min((until for _, until in self._failures.values() if until > now), default=None)

    def count(self) -> int:
        """How many things have failed and not succeeded since."""
        return len(self._failures)
