"""The order for somebody who looks for something, made of the ranking that suits the context of a reply. Pure."""

import unicodedata
from collections.abc import Sequence

import attrs

from klaw.memory.recall.rank import Ranked
from klaw.store.sql.candidates import HEAD_CHARACTERS
from klaw.store.tokenizer import words


def matches_first(ranked: Sequence[Ranked]) -> list[Ranked]:
    """Put what is found only because it stands beside a match behind that match, unless its own vector is nearer. Pure.

    For the context of a reply the answer to a question is worth more than the question; somebody who searches for words
    wants to see them first.
    """
    there = {each.place.rowid: each for each in ranked}
    limits: dict[int, float] = {}
    for each in ranked:
        if each.bm25 is None:
            continue
        for rowid in (each.place.previous, each.place.next):
            other = there.get(rowid) if rowid is not None else None
            if other is not None and other.bm25 is None and not _is_nearer(other, each):
                limits[other.place.rowid] = min(each.score, limits.get(other.place.rowid, other.score))
    limited = [attrs.evolve(each, score=limits.get(each.place.rowid, each.score)) for each in ranked]
    return sorted(limited, key=lambda each: (-each.score, each.place.rowid in limits, -each.place.rowid))


def _is_nearer(one: Ranked, other: Ranked) -> bool:
    return one.vector_rank is not None and (other.vector_rank is None or one.vector_rank < other.vector_rank)


def newer_first(ranked: Sequence[Ranked]) -> list[Ranked]:
    """Let the messages that say the same change places among themselves, so that the newest of them comes first. Pure.

    Those are of one role, with the same words, as far as the beginning and the length of a longer one tell.
    """
    groups: dict[tuple[str, str, int], list[int]] = {}
    for at, each in enumerate(ranked):
        place = each.place
        is_whole = len(place.head) < HEAD_CHARACTERS
        said = unicodedata.normalize("NFKC", " ".join(words(place.head))).casefold() or place.head
        groups.setdefault((place.role, said, 0 if is_whole else place.tokens), []).append(at)
    ordered = list(ranked)
    for group in groups.values():
        newest = sorted(group, key=lambda at: -ranked[at].place.rowid)
        for at, other in zip(group, newest, strict=True):
            ordered[at] = attrs.evolve(ranked[other], score=ranked[at].score)
    return ordered
