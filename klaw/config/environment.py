"""References such as ``${NAME}`` in the texts of the configuration file, and the values that stand for them."""

import re
from collections.abc import Iterator, Mapping
from typing import Self

_REFERENCE = re.compile(r"\$\$|\$\{(?P<inside>[^}]*)(?P<end>\}?)")
_INSIDE = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(:-(?P<default>.*))?", re.DOTALL)


class FromEnvironment(str):
    """Text that came (in part) from an environment variable; its value is never quoted in a message."""

    __slots__ = ("whole",)

    whole: bool
    """The value is one ``${...}`` and nothing else, so it may stand for a number or a bool."""

    def __new__(cls, text: str, *, whole: bool) -> Self:
        made = super().__new__(cls, text)
        made.whole = whole
        return made


def fill_in(text: str, environ: Mapping[str, str]) -> str:
    """Put values in place of ``${NAME}`` and ``${NAME:-default}``, and ``$`` for ``$$``.

    Returns:
        ``FromEnvironment`` when there was a reference, else plain text.

    Raises:
        ValueError: a reference is malformed, or its variable is not set or holds no text.
    """
    pieces = list(_pieces(text, environ))
    if not any(isinstance(piece, FromEnvironment) for piece in pieces):
        return "".join(pieces)
    return FromEnvironment("".join(pieces), whole=len(pieces) == 1)


def _pieces(text: str, environ: Mapping[str, str]) -> Iterator[str]:
    position = 0
    for match in _REFERENCE.finditer(text):
        if match.start() > position:
            yield text[position : match.start()]
        position = match.end()
        yield "$" if match[0] == "$$" else _variable(match, environ)
    if position < len(text):
        yield text[position:]


def _variable(match: re.Match[str], environ: Mapping[str, str]) -> FromEnvironment:
    inside = _INSIDE.fullmatch(match["inside"])
    if not match["end"] or inside is None:
        raise ValueError("a reference must have the form ${NAME} or ${NAME:-default}; write $$ for a dollar sign")
    name, default = inside["name"], inside["default"]
    found = environ.get(name)
    if default is not None and not found:
        found = default
    if found is None:
        raise ValueError(f"the environment variable {name} is not set")
    try:
        check_text(found)
    except ValueError:
        raise ValueError(f"the environment variable {name} does not hold UTF-8 text") from None
    return FromEnvironment(found, whole=False)


def check_text(text: str) -> None:
    """Raise ValueError for a text that UTF-8 cannot write."""
    if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
        raise ValueError("half of a surrogate pair is not text")
