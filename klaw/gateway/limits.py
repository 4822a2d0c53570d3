"""Token bucket: how many frames a connection may send. Pure: the time is an argument."""


class TokenBucket:
    """Holds up to ``burst`` tokens and gains ``rate`` a second; every frame takes one.

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

    def take(self, now: float) -> float:
        """Take a token. Returns 0, or how many seconds to wait for one; then nothing was taken."""
        self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._rate)
        self._filled_at = now
        if self._tokens >= 1.0:
            self._tokens -= 1.0
            return 0.0
        return (1.0 - self._tokens) / self._rate
