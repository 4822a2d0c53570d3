"""Results as text, for terminals and chats alike. Pure.

Lines and cells may hold anything: the door that prints them makes them harmless.
"""

from collections.abc import Sequence

import attrs


@attrs.frozen
class Table:
    """Rows with aligned columns; ``right`` names the columns that are flush right."""

    rows: Sequence[Sequence[str]]
    right: frozenset[int] = frozenset()


def minute(time: str) -> str:
    """A time in UTC, to the minute."""
    return time[:16].replace("T", " ")
