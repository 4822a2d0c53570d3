"""A clock for tests with Trio's MockClock."""

import trio


class TrioClock:
    """A wall clock that follows Trio's clock from a given start: under MockClock both move together."""

    def __init__(self, start: float) -> None:
        self._start = start
        self._zero = trio.current_time()

    def now(self) -> float:
        return self._start + trio.current_time() - self._zero
