"""How long to wait before something that failed is tried again. Pure; times are those of a monotonic clock."""

from collections.abc import Hashable
from typing import Generic, TypeVar

import attrs

K = TypeVar("K", bound=Hashable)


@attrs.frozen
class Backoff:
    """Pauses that double."""

    first_s: float
    most_s: float = float("inf")

    def pause_s(self, failures: int) -> float:
        """The pause after so many failures in a row, from 1."""
        return min(self.most_s, self.first_s * 2.0 ** min(max(failures, 1) - 1, 60))


SLOW = Backoff(300.0, 6 * 3600.0)
"""For work in the background that costs money or tells of a lasting fault."""


@attrs.frozen
class _Failure:
    attempts: int
    not_before: float


class Pauses(Generic[K]):
    """A backoff for each thing by itself."""

    def __init__(self, backoff: Backoff = SLOW) -> None:
        self._backoff = backoff
        self._failures: dict[K, _Failure] = {}

    def fail(self, key: K, now: float) -> float:
        """Count a failure. Returns the pause in seconds."""
        before = self._failures.get(key)
        attempts = before.attempts + 1 if before is not None else 1
        pause = self._backoff.pause_s(attempts)
        self._failures[key] = _Failure(attempts, now + pause)
        return pause

    def succeed(self, key: K) -> None:
        """Forget the failures."""
        self._failures.pop(key, None)

    def waits(self, key: K, now: float) -> bool:
        """Whether it is too early to try it again."""
        failure = self._failures.get(key)
        return failure is not None and now < failure.not_before

    def next(self, now: float) -> float | None:
        """When the first of those that wait may be tried again; None when nothing waits."""
        return min((each.not_before for each in self._failures.values() if each.not_before > now), default=None)

    def count(self) -> int:
        """How many things have failed and not succeeded since."""
        return len(self._failures)
