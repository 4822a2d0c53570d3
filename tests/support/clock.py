"""A clock for tests with Trio's MockClock."""

import trio


class TrioClock:
    """A wall clock that follows Trio's clock from a given start: under MockClock both move together. It can be set."""

    def __init__(self, start: float) -> None:
        self._start = start
        self._zero = trio.current_time()

    def now(self) -> float:
        return self._start + trio.current_time() - self._zero

    def set_by(self, seconds: float) -> None:
        self._start += seconds
