"""When messages become a turn. Pure."""

import attrs


@attrs.define(kw_only=True)
class Debounce:
    """When messages become a turn: ``quiet_s`` after the last one, at the latest ``longest_s`` after the first."""

    quiet_s: float
    longest_s: float
    first_at: float | None = None
    due: float | None = None

    def add(self, now: float) -> None:
        self.first_at = now if self.first_at is None else self.first_at
        self.due = min(now + self.quiet_s, self.first_at + self.longest_s)

    def hurry(self, now: float) -> None:
        """Make the turn due at once (``/retry``, recovery, shutdown)."""
        self.first_at, self.due = now - self.longest_s, now

    def clear(self) -> None:
        self.first_at = self.due = None
