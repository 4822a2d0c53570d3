"""What a check says. Pure."""

import enum
from collections.abc import Sequence

import attrs


class Level(enum.StrEnum):
    """How bad it is."""

    OK = "ok"
    WARNING = "warning"
    """Worth knowing; Klaw works."""
    PROBLEM = "problem"
    """Something is wrong and somebody has to do something."""


@attrs.frozen(kw_only=True)
class Finding:
    """The outcome of one check."""

    name: str
    level: Level
    text: str
    todo: str | None = None
    """What to do; None when there is nothing."""


def ok(name: str, text: str) -> Finding:
    return Finding(name=name, level=Level.OK, text=text)


def warning(name: str, text: str, todo: str | None = None) -> Finding:
    return Finding(name=name, level=Level.WARNING, text=text, todo=todo)


def problem(name: str, text: str, todo: str) -> Finding:
    return Finding(name=name, level=Level.PROBLEM, text=text, todo=todo)


def listed(names: Sequence[str], limit: int = 5) -> str:
    """The first few names, and how many more there are."""
    more = len(names) - limit
    return ", ".join(names[:limit]) + (f" and {more} more" if more > 0 else "")
