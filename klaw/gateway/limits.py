"""Token bucket: how much of something may come. Pure: the time is an argument."""


class TokenBucket:
    """Holds up to ``burst`` tokens and gains ``rate`` a second.

    Args:
        rate: tokens a second.
        burst: tokens at the start and at most.
        now: seconds of any clock that only goes forward.
    """

    def __init__(self, rate: float, burst: int, now: float) -> None:
        self._rate = rate
        self._burst = float(burst)
        self._tokens = self._burst
        self._filled_at = now

    def take(self, now: float, count: float = 1.0) -> float:
        """Take so many tokens, of more than ``burst`` all that fit. Returns 0, or how many seconds to wait for them;
        then nothing was taken."""
        count = min(count, self._burst)
        self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._rate)
        self._filled_at = now
        if self._tokens >= count:
            self._tokens -= count
            return 0.0
        return (count - self._tokens) / self._rate
