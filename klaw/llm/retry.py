"""When to repeat a failed LLM call, and after how long. Pure; ``now`` and randomness are arguments."""

import datetime as dt
import email.utils
import math

from klaw.errors import ProviderError, ProviderNetworkError, ProviderRefused, ProviderTimeout

FIRST_PAUSE_S = 1.0
MAX_PAUSE_S = 8.0
MAX_RETRY_AFTER_S = 30.0
"""A provider that wants a longer pause is not waited for: somebody looks at the screen."""


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
    pause = min(MAX_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(attempt, 16)) * chance
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
