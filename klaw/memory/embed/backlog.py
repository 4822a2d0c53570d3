"""Cutting the embedder's backlog into batches. Pure."""

from collections.abc import Sequence
from typing import Protocol, TypeVar


class HasSize(Protocol):
    @property
    def tokens(self) -> int: ...


Row = TypeVar("Row", bound=HasSize)


def split_batches(rows: Sequence[Row], batch_tokens: int) -> list[list[Row]]:
    """Batches of similar length: sorted by length, each of at most ``batch_tokens`` padded tokens (or one row)."""
    ordered = sorted(rows, key=lambda row: row.tokens)
    batches: list[list[Row]] = []
    for row in ordered:
        longest = row.tokens  # rows come in ascending length, so this one is the longest yet
        if batches and longest * (len(batches[-1]) + 1) <= batch_tokens:
            batches[-1].append(row)
        else:
            batches.append([row])
    return batches
