"""A text that must not be printed, and that is looked up when it is used."""

from collections.abc import Callable
from typing import final

from klaw.config.environment import Reference
from klaw.errors import ConfigError, Problem


@final
class Secret:
    """Holds a key or a header value, or the reference to one; every way of printing it shows ``***``.

    Not an attrs class on purpose: ``attrs.asdict`` would open it.

    Args:
        source: the text itself, or where it comes from.
        broken_by: says which rule of its key a text breaks; None when it breaks none.
    """

    __slots__ = ("_broken_by", "_source")

    def __init__(self, source: str | Reference, broken_by: Callable[[str], str | None] | None = None) -> None:
        self._source = source
        self._broken_by = broken_by

    @property
    def literal(self) -> str | None:
        """The text if the file itself holds it."""
        return self._source if isinstance(self._source, str) else None

    def under(self, broken_by: Callable[[str], str | None]) -> "Secret":
        """The same with a rule that is checked when it is looked up."""
        return Secret(self._source, broken_by)

    def reveal(self, key: str) -> str:
        """Give the text itself, to be handed to the network library and to nothing else. May read a file.

        Args:
            key: key path of it, for errors.

        Raises:
            ConfigError: what it refers to is not there, or breaks the rule of its key; the text names both.
        """
        if isinstance(self._source, str):
            return self._source
        try:
            text = self._source.text()
        except ValueError as exc:
            raise ConfigError([Problem(path=key, message=str(exc))]) from None
        broken = self._broken_by(text) if self._broken_by is not None else None
        if broken is not None:
            raise ConfigError([Problem(path=key, message=f"{broken}, and what it refers to is not")])
        return text

    def __repr__(self) -> str:
        return "Secret(***)"

    def __str__(self) -> str:
        return "***"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._source == self._source

    def __hash__(self) -> int:
        return hash((Secret, self._source if isinstance(self._source, str) else self._source.pieces))

    def __reduce__(self) -> str:
        raise TypeError("a Secret is not written to a file or sent to another process")
