"""Correcting the token estimate by what providers report. Pure state, one number a model."""

from collections.abc import Mapping

SMOOTHING = 0.3
LOWEST, HIGHEST = 0.5, 16.0
OVERFLOW_SHARE = 0.7
"""After a refusal the next prompt has at most this share of the refused one."""


class TokenCorrection:
    """Provider's tokens per estimated token, an exponential moving average for each model."""

    def __init__(self) -> None:
        self._ratios: dict[str, float] = {}

    def of(self, model: str) -> float:
        return self._ratios.get(model, 1.0)

    def seed(self, ratios: Mapping[str, float]) -> None:
        """Begin with what was known before a restart; what was learned since then counts more."""
        self._ratios = {model: _bounded(ratio) for model, ratio in ratios.items()} | self._ratios

    def learn(self, model: str, *, estimated: int, reported: int) -> None:
        """Take in one call's estimate and the provider's own count of its prompt."""
        if estimated > 0 and reported > 0:
            ratio = _bounded(reported / estimated)
            known = self._ratios.get(model)
            self._ratios[model] = ratio if known is None else known + SMOOTHING * (ratio - known)

    def overflowed(self, model: str, *, refused: int, usable: int) -> None:
        """The provider said that a prompt was too long: make the next one shorter.

        Args:
            model: which.
            refused: estimated tokens of the refused prompt.
            usable: estimated tokens that were planned for it (``Budget.usable``).
        """
        shorter = max(1.0, refused * OVERFLOW_SHARE)
        self._ratios[model] = _bounded(self.of(model) * max(1.0, usable / shorter))


def _bounded(ratio: float) -> float:
    return min(HIGHEST, max(LOWEST, ratio))
