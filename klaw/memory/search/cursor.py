"""Which page of which list of results: ``3``, or ``3-f4240-6925a3b0``. Pure.

A search looks no further than the newest message that there was when it was first asked, and counts "yesterday" from
that moment. Both go along in the name of the next page, so that all pages are of one list, also after a restart.
"""

import re

import attrs

MAX_PAGE = 1_000
_CURSOR = re.compile(r"([0-9]{1,4})(?:-([0-9a-f]{1,16})-([0-9a-f]{1,9}))?")


class BadCursor(ValueError):
    """A text that names no page."""

    def __init__(self) -> None:
        super().__init__(f"must be a number from 1 to {MAX_PAGE}, or the name of a next page as a search gave it")


@attrs.frozen(kw_only=True)
class Cursor:
    """A page of a list that was begun before."""

    page: int
    last_rowid: int
    """The newest message that counts."""
    asked_at: int
    """Unix seconds."""

    def __str__(self) -> str:
        return f"{self.page}-{self.last_rowid:x}-{self.asked_at:x}"


def read_cursor(text: str) -> Cursor | int:
    """A page, or of a list that is begun anew its number alone. Raises BadCursor."""
    match = _CURSOR.fullmatch(text)
    if match is None or not 1 <= int(match[1]) <= MAX_PAGE:
        raise BadCursor
    if match[2] is None:
        return int(match[1])
    last_rowid = int(match[2], 16)
    if last_rowid >= 1 << 63:
        raise BadCursor
    return Cursor(page=int(match[1]), last_rowid=last_rowid, asked_at=int(match[3], 16))
