"""When something that failed may be tried again. Pure."""

from collections.abc import Hashable
from typing import Generic, TypeVar

import attrs

FIRST_S = 300.0
LAST_S = 6 * 3600.0

K = TypeVar("K", bound=Hashable)


@attrs.frozen
class _Failure:
    attempts: int
    not_before: float


class Backoff(Generic[K]):
    """Pauses that double, from 5 minutes to 6 hours, for each thing by itself.

    Times are of a clock that never goes back.
    """

    def __init__(self) -> None:
        self._failures: dict[K, _Failure] = {}

    def fail(self, key: K, now: float) -> float:
        """Count a failure. Returns the pause in seconds."""
        before = self._failures.get(key)
        attempts = before.attempts + 1 if before is not None else 1
        pause = min(LAST_S, FIRST_S * float(2 ** min(attempts - 1, 30)))
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
