"""Counters and histograms of what runs in the background: one registry, read by ``klaw status`` and Prometheus."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import attrs
import trio

SECONDS = (0.005, 0.02, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
CHARS = (250, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000)
COUNTS = (0, 1, 2, 3, 5, 10, 20, 50)


@attrs.define
class Counter:
    text: str
    value: int = 0

    def add(self, count: int = 1) -> None:
        self.value += count

    def report(self) -> dict[str, Any]:
        return {"type": "counter", "help": self.text, "value": self.value}


@attrs.define
class Histogram:
    text: str
    bounds: tuple[float, ...]
    counts: list[int] = attrs.field(init=False)
    sum: float = 0.0

    @counts.default
    def _none(self) -> list[int]:
        return [0] * (len(self.bounds) + 1)

    def observe(self, value: float) -> None:
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
        return {"type": "histogram", "help": self.text, "count": sum(self.counts), "sum": self.sum, "buckets": buckets}


M = TypeVar("M", Counter, Histogram)


class Metrics:
    """All metrics of a process by their names. Each is declared once: ValueError for a name that is taken."""

    def __init__(self) -> None:
        self._all: dict[str, Counter | Histogram] = {}

    def counter(self, name: str, text: str) -> Counter:
        return self._added(name, Counter(text))

    def histogram(self, name: str, text: str, bounds: Sequence[float]) -> Histogram:
        """Bounds are upper ones, ascending."""
        return self._added(name, Histogram(text, tuple(bounds)))

    def report(self) -> dict[str, dict[str, Any]]:
        return {name: self._all[name].report() for name in sorted(self._all)}

    def _added(self, name: str, made: M) -> M:
        if name in self._all:
            raise ValueError(f"there is a metric {name} already")
        self._all[name] = made
        return made
