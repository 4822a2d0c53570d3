"""Wall clock and ids, injected so that tests decide both. Durations come from ``trio.current_time``."""

import datetime as dt
import secrets
import time
from collections.abc import Callable
from typing import Protocol

NewId = Callable[[], str]
"""Makes a unique id: 20 lower-case hexadecimal digits, its first 11 the time in milliseconds, so ids sort by age."""


EARLIEST = dt.datetime(2025, 1, 1, tzinfo=dt.UTC).timestamp()
"""Klaw did not exist before, in Unix seconds; a clock that says so was never set."""


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since the Unix epoch."""
        ...


class SystemClock:
    def now(self) -> float:
        return time.time()


class FixedClock:
    """A clock that stands still: for what is done again as it was then."""

    def __init__(self, now: float) -> None:
        self._now = now

    def now(self) -> float:
        return self._now


def new_id() -> str:
    return f"{time.time_ns() // 1_000_000:011x}{secrets.token_hex(5)[:9]}"


def iso(seconds: float) -> str:
    """Unix seconds as ISO-8601 UTC with milliseconds: ``2026-11-21T12:00:00.000Z``. Sorts as text."""
    return dt.datetime.fromtimestamp(seconds, dt.UTC).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def from_iso(text: str) -> float:
    """Unix seconds of an ISO-8601 text. Raises ValueError."""
    return dt.datetime.fromisoformat(text).timestamp()
