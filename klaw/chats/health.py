"""What is degraded now, in words for users: gathered from the parts on demand, so it can never be stale."""

from collections.abc import Callable, Mapping
from typing import Protocol


class Health(Protocol):
    """Says what does not work."""

    def problems(self) -> Mapping[str, str]:
        """Code to text of each degraded part; empty when all works."""
        ...


class GatheredHealth:
    """Asks each part. A source answers with code -> text of its own problems."""

    def __init__(self, sources: list[Callable[[], Mapping[str, str]]]) -> None:
        self._sources = sources

    def problems(self) -> Mapping[str, str]:
        return {code: text for source in self._sources for code, text in source().items()}
