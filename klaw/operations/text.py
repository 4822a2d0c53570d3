"""Results as text, for terminals and chats alike. Pure.

Lines and cells may hold anything: the door that prints them makes them harmless.
"""

from collections.abc import Sequence
from typing import TypeAlias

import attrs


@attrs.frozen
class Table:
    """Rows with aligned columns; ``right`` names the columns that are flush right."""

    rows: Sequence[Sequence[str]]
    right: frozenset[int] = frozenset()


@attrs.frozen
class Marked:
    """A line whose parts ``marks`` (begin and end) are set in bold where that can be done."""

    text: str
    marks: Sequence[Sequence[int]]


Line: TypeAlias = str | Table | Marked


@attrs.frozen
class Shown:
    """Lines with more about them."""

    lines: Sequence[Line]
    notes: Sequence[str] = ()
    """What a person should know beside them; on a terminal they do not mix with the lines."""
    found: bool = True
    """Whether there was what was asked for; if not, a command's exit code is 1."""


def minute(time: str) -> str:
    """A time in UTC, to the minute."""
    return time[:16].replace("T", " ")


def size(count: int) -> str:
    """Bytes in the unit that suits them."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count / 1024:.0f} KiB"
