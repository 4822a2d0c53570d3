"""Counters and histograms of what runs in the background: one registry, read by ``klaw status``. No I/O.

Each is declared once, with its help text; values are only numbers.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import trio

SECONDS = (0.005, 0.02, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
CHARS = (250, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000)
COUNTS = (0, 1, 2, 3, 5, 10, 20, 50)


class Counter:
    """A number that only grows."""

    def __init__(self, name: str, text: str) -> None:
        self.name, self.text = name, text
        self.value = 0

    def add(self, count: int = 1) -> None:
        """Count so many more."""
        self.value += count

    def report(self) -> dict[str, Any]:
        return {"type": "counter", "help": self.text, "value": self.value}


class Histogram:
    """How many values were how large."""

    def __init__(self, name: str, text: str, bounds: Sequence[float]) -> None:
        self.name, self.text = name, text
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    @property
    def count(self) -> int:
        return sum(self.counts)

    def observe(self, value: float) -> None:
        """Note a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Note how many seconds the body takes, however it ends."""
        begin = trio.current_time()
        try:
            yield
        finally:
            self.observe(trio.current_time() - begin)

    def report(self) -> dict[str, Any]:
        buckets = {str(bound): count for bound, count in zip((*self.bounds, "inf"), self.counts, strict=True)}
        return {"type": "histogram", "help": self.text, "count": self.count, "sum": self.sum, "buckets": buckets}


class Metrics:
    """All metrics of a process."""

    def __init__(self) -> None:
        self._all: dict[str, Counter | Histogram] = {}

    def counter(self, name: str, text: str) -> Counter:
        """Declare a counter. Raises ValueError for a name that is taken."""
        made = Counter(name, text)
        self._add(made)
        return made

    def histogram(self, name: str, text: str, bounds: Sequence[float]) -> Histogram:
        """Declare a histogram with ascending upper bounds. Raises ValueError for a name that is taken."""
        made = Histogram(name, text, bounds)
        self._add(made)
        return made

    def report(self) -> dict[str, dict[str, Any]]:
        """All of them, as plain JSON values."""
        return {name: self._all[name].report() for name in sorted(self._all)}

    def _add(self, made: Counter | Histogram) -> None:
        if made.name in self._all:
            raise ValueError(f"there is a metric {made.name} already")
        self._all[made.name] = made
