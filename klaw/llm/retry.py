"""When a failed call is repeated, and when a provider that keeps failing is asked again. Pure; ``now`` and
randomness are arguments.

The breaker: closed, calls go through. Open, they are refused until a time that grows with every failed try. Half-open,
one call goes through, and its outcome decides.
"""

import datetime as dt
import email.utils
import enum
import math

import attrs

from klaw.actor.backoff import Backoff
from klaw.errors import ProviderError, ProviderNetworkError, ProviderRefused, ProviderTimeout

BACKOFF = Backoff(1.0, 8.0)
"""Between the attempts of one call."""
MAX_RETRY_AFTER_S = 30.0
"""A provider that wants a longer pause is not waited for: somebody looks at the screen."""
FAILURES_TO_OPEN = 3
BREAK = Backoff(10.0, 300.0)
"""A provider that failed so often in a row is left alone for so long."""


def pause_before_retry(error: ProviderError, attempt: int, chance: float) -> float | None:
    """Decide on a retry.

    Args:
        error: why the call failed, before its first delta.
        attempt: how many attempts have failed before this one, from 0.
        chance: uniform in [0, 1), spreads the callers.

    Returns:
        Seconds to wait, or None when a repetition is pointless.
    """
    if not error.retryable or not isinstance(error, ProviderRefused | ProviderTimeout | ProviderNetworkError):
        return None
    # Full jitter: callers that failed together spread over the whole pause, and on average over half of it.
    pause = BACKOFF.pause_s(attempt + 1) * chance
    asked = error.retry_after_s if isinstance(error, ProviderRefused) else None
    if asked is not None:
        return None if asked > MAX_RETRY_AFTER_S else asked + pause
    return pause


def parse_retry_after(value: str | None, now: float) -> float | None:
    """Read a ``Retry-After`` header: seconds or an HTTP date. None when absent or unreadable.

    Args:
        value: the header.
        now: Unix seconds.
    """
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        return _until(value, now)
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _until(date: str, now: float) -> float | None:
    try:
        moment = email.utils.parsedate_to_datetime(date)
    except (ValueError, OverflowError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    return max(0.0, moment.timestamp() - now)


class BreakerState(enum.StrEnum):
    """Where the breaker stands."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@attrs.frozen
class Permit:
    """Leave to make one call. Its outcome is told with it, so that a late one does not count for a later state."""

    generation: int


@attrs.frozen(kw_only=True)
class BreakerReport:
    """What status and the admin socket show."""

    state: BreakerState
    failures: int
    """Failed calls in a row."""
    retry_in_s: float
    """Seconds until the next call may go through; 0 when one may now."""


class Breaker:
    """The state of one provider. Starts closed."""

    def __init__(self) -> None:
        self._state = BreakerState.CLOSED
        self._generation = 0
        self._failures = 0
        self._openings = 0
        self._until = 0.0

    def admit(self, now: float) -> Permit | None:
        """Ask to make a call. None: not now. After leave, one of the methods below is called exactly once.

        Args:
            now: ``trio.current_time``.
        """
        if self._state is BreakerState.OPEN and now >= self._until:
            self._move(BreakerState.HALF_OPEN)
            return Permit(self._generation)
        return Permit(self._generation) if self._state is BreakerState.CLOSED else None

    def succeeded(self, permit: Permit) -> None:
        """The provider answered, be it with a refusal that shows that it lives."""
        if permit.generation == self._generation:
            self._failures = self._openings = 0
            if self._state is not BreakerState.CLOSED:
                self._move(BreakerState.CLOSED)

    def failed(self, permit: Permit, now: float, asked_s: float = 0.0) -> None:
        """The provider did not answer. ``asked_s`` is the pause that it asks for."""
        if permit.generation != self._generation:
            return
        self._failures += 1
        if self._state is BreakerState.HALF_OPEN or self._failures >= FAILURES_TO_OPEN:
            self._openings += 1
            self._until = now + max(BREAK.pause_s(self._openings), min(asked_s, BREAK.most_s))
            self._move(BreakerState.OPEN)

    def abandoned(self, permit: Permit) -> None:
        """The call was cancelled: nothing is known. If it was the one that should tell, the next one is."""
        if permit.generation == self._generation and self._state is BreakerState.HALF_OPEN:
            self._move(BreakerState.OPEN)

    def report(self, now: float) -> BreakerReport:
        waiting = max(0.0, self._until - now) if self._state is BreakerState.OPEN else 0.0
        return BreakerReport(state=self._state, failures=self._failures, retry_in_s=waiting)

    def _move(self, state: BreakerState) -> None:
        self._state = state
        self._generation += 1
