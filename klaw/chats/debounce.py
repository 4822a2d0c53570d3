"""Debounce: when the messages that have come in become a turn. Pure; times are the caller's clock in seconds."""

import attrs


@attrs.frozen(kw_only=True)
class Debounce:
    """The state of one chat's buffer; each event gives a new state. A turn is due ``quiet_s`` after the last message,
    but at the latest ``longest_s`` after the first."""

    quiet_s: float
    longest_s: float
    first_at: float | None = None
    last_at: float | None = None

    def add(self, now: float) -> "Debounce":
        first_at = now if self.first_at is None else self.first_at
        return Debounce(quiet_s=self.quiet_s, longest_s=self.longest_s, first_at=first_at, last_at=now)

    def hurry(self, now: float) -> "Debounce":
        """Make the turn due at once (``/retry``, recovery, shutdown)."""
        return attrs.evolve(self, first_at=now - self.longest_s, last_at=now - self.quiet_s)

    def clear(self) -> "Debounce":
        return attrs.evolve(self, first_at=None, last_at=None)

    @property
    def due(self) -> float | None:
        if self.first_at is None or self.last_at is None:
            return None
        return min(self.last_at + self.quiet_s, self.first_at + self.longest_s)
