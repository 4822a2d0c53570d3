"""A text that must not be printed."""

from typing import final


@final
class Secret:
    """Holds a key or a header value; every way of printing it shows ``***``.

    Not an attrs class on purpose: ``attrs.asdict`` would open it.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Give the text itself, to be handed to the network library and to nothing else."""
        return self._text

    def __repr__(self) -> str:
        return "Secret(***)"

    def __str__(self) -> str:
        return "***"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash((Secret, self._text))

    def __reduce__(self) -> str:
        raise TypeError("a Secret is not written to a file or sent to another process")
