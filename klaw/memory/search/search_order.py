"""The order for somebody who looks for something, and the names of pages: ``3``, or ``3-f4240-6925a3b0``. Pure.

A search looks no further than the newest message that there was when it was first asked, and counts "yesterday" from
that moment. Both are in the name of the next page, so that all pages are of one list, also after a restart.
"""

import re
import unicodedata
from collections.abc import Sequence
from typing import TypeAlias

import attrs

from klaw.errors import InvalidValue
from klaw.memory.recall.ranker import RankedEntry
from klaw.store.engine.tokenizer import words
from klaw.store.search.ranked_lists import HEAD_CHARACTERS, MessagePlace

RankedMessage: TypeAlias = RankedEntry[MessagePlace]


def matches_first(ranked: Sequence[RankedMessage]) -> list[RankedMessage]:
    """Put what is found only because it stands beside a match behind that match, unless its own vector is nearer. Pure.

    For the context of a reply the answer to a question is worth more than the question; somebody who searches for words
    wants to see them first.
    """
    there = {each.rowid: each for each in ranked}
    limits: dict[int, float] = {}
    for each in ranked:
        if each.bm25 is None:
            continue
        for rowid in (each.item.previous, each.item.next):
            other = there.get(rowid) if rowid is not None else None
            if other is not None and other.bm25 is None and not _is_nearer(other, each):
                limits[other.rowid] = min(each.score, limits.get(other.rowid, other.score))
    limited = [attrs.evolve(each, score=limits.get(each.rowid, each.score)) for each in ranked]
    return sorted(limited, key=lambda each: (-each.score, each.rowid in limits, -each.rowid))


def _is_nearer(one: RankedMessage, other: RankedMessage) -> bool:
    return one.vector_rank is not None and (other.vector_rank is None or one.vector_rank < other.vector_rank)


def newer_first(ranked: Sequence[RankedMessage]) -> list[RankedMessage]:
    """Let the messages that say the same change places among themselves, so that the newest of them comes first. Pure.

    Those are of one role, with the same words, as far as the beginning and the length of a longer one tell.
    """
    groups: dict[tuple[str, str, int], list[int]] = {}
    for at, each in enumerate(ranked):
        place = each.item
        is_whole = len(place.head) < HEAD_CHARACTERS
        said = unicodedata.normalize("NFKC", " ".join(words(place.head))).casefold() or place.head
        groups.setdefault((place.role, said, 0 if is_whole else place.tokens), []).append(at)
    ordered = list(ranked)
    for group in groups.values():
        newest = sorted(group, key=lambda at: -ranked[at].rowid)
        for at, other in zip(group, newest, strict=True):
            ordered[at] = attrs.evolve(ranked[other], score=ranked[at].score)
    return ordered


MAX_PAGE = 1_000
_CURSOR = re.compile(r"([0-9]{1,4})(?:-([0-9a-f]{1,16})-([0-9a-f]{1,9}))?")


@attrs.frozen(kw_only=True)
class Cursor:
    """A page of a list that was begun before, at a time in Unix seconds, when ``last_rowid`` was the newest message."""

    page: int
    last_rowid: int
    asked_at: int

    def __str__(self) -> str:
        return f"{self.page}-{self.last_rowid:x}-{self.asked_at:x}"


def read_cursor(text: str) -> Cursor | int:
    """A page, or of a list that is begun again its number alone. Raises InvalidValue."""
    match = _CURSOR.fullmatch(text)
    if match is None or not 1 <= int(match[1]) <= MAX_PAGE or (match[2] and int(match[2], 16) >= 1 << 63):
        raise InvalidValue(f"must be a number from 1 to {MAX_PAGE}, or the name of a next page as a search gave it")
    if match[2] is None:
        return int(match[1])
    return Cursor(page=int(match[1]), last_rowid=int(match[2], 16), asked_at=int(match[3], 16))
