"""Fusing the lists of several kinds of results. Pure."""

from collections.abc import Sequence
from typing import TypeVar

from klaw.memory.recall.fuse import RRF_K

T = TypeVar("T")


def mix(lists: Sequence[Sequence[T]]) -> list[T]:
    """One list out of several that have nothing in common, by Reciprocal Rank Fusion; each keeps its own order.

    Their scores cannot be compared: a vector's distance means something else for a fact than for a message in a
    dialogue. Of equal ranks the earlier list's comes first.
    """
    placed = [
        (1 / (RRF_K + rank), -number, each) for number, items in enumerate(lists) for rank, each in enumerate(items, 1)
    ]
    return [each for _, _, each in sorted(placed, key=lambda one: (-one[0], -one[1]))]
