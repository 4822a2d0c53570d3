"""How long to wait before the next attempt. Pure."""

import attrs


@attrs.frozen(kw_only=True)
class Backoff:
    """Waits that double from ``first_s`` to ``most_s``, each taken between half of itself and all of it."""

    first_s: float = 0.2
    most_s: float = 15.0

    def delay_s(self, attempt: int, chance: float) -> float:
        """Seconds before attempt ``attempt`` (0 = the first repetition); ``chance`` is random in [0, 1)."""
        whole = min(self.first_s * 2.0 ** min(attempt, 32), self.most_s)
        return whole * (0.5 + chance / 2)
