"""Correcting the token estimate by what providers report. Pure state, one number a model."""

SMOOTHING = 0.3
LOWEST, HIGHEST = 0.5, 4.0
OVERFLOW_FACTOR = 1.5


class TokenCorrection:
    """Provider's tokens per estimated token, an exponential moving average for each model."""

    def __init__(self) -> None:
        self._ratios: dict[str, float] = {}

    def of(self, model: str) -> float:
        return self._ratios.get(model, 1.0)

    def learn(self, model: str, *, estimated: int, reported: int) -> None:
        """Take in one call's estimate and the provider's own count of its prompt."""
        if estimated > 0 and reported > 0:
            ratio = _bounded(reported / estimated)
            known = self._ratios.get(model)
            self._ratios[model] = ratio if known is None else known + SMOOTHING * (ratio - known)

    def overflowed(self, model: str) -> None:
        """The provider said that the prompt was too long: plan for more tokens from now on."""
        self._ratios[model] = _bounded(self.of(model) * OVERFLOW_FACTOR)


def _bounded(ratio: float) -> float:
    return min(HIGHEST, max(LOWEST, ratio))
