"""From what the splitter says to a home for every message: clamp, overlap, coverage, size. Pure.

Messages are counted 1 … n within their chunk. Whatever the pieces are, each number ends in exactly one group.
"""

from collections.abc import Sequence

import attrs


@attrs.frozen
class Piece:
    """A topic as the splitter named it."""

    summary: str
    first: int
    last: int
    """Included."""


@attrs.frozen
class Group:
    """Messages that become one topic."""

    summary: str | None
    """None: what no piece claimed."""
    members: tuple[int, ...]
    """Ascending, never empty."""


@attrs.frozen(kw_only=True)
class Placement:
    """A home for every message."""

    groups: tuple[Group, ...]
    """In the order of their first messages."""
    uncovered: int
    """Messages that no piece claimed."""


def place(pieces: Sequence[Piece], count: int) -> Placement:
    """Give each of ``count`` messages its group.

    Numbers beyond the chunk are clamped to it; a piece that lies wholly outside is left out. Where pieces overlap, the
    one that begins earlier wins (of two that begin together the one named first), and the other keeps its rest.
    """
    inside = []
    for piece in pieces:
        low, high = sorted((piece.first, piece.last))
        if high >= 1 and low <= count:
            inside.append((max(low, 1), min(high, count), piece.summary))
    groups: list[Group] = []
    free: list[int] = []
    upto = 0
    for low, high, summary in sorted(inside, key=lambda each: each[0]):  # stable
        first = max(low, upto + 1)
        if first > high:
            continue
        free += range(upto + 1, first)
        groups.append(Group(summary, tuple(range(first, high + 1))))
        upto = high
    free += range(upto + 1, count + 1)
    if free:
        groups.append(Group(None, tuple(free)))
    return Placement(groups=tuple(sorted(groups, key=lambda group: group.members[0])), uncovered=len(free))


def by_size(members: Sequence[int], sizes: Sequence[int], limit: int) -> list[tuple[int, ...]]:
    """Cut a group into parts of about the same size, none over a limit unless it is one message.

    Args:
        members: numbers from 1.
        sizes: of all messages, by number - 1.
        limit: most of one part.
    """
    total = sum(sizes[member - 1] for member in members)
    target = total / max(1, -(-total // limit))
    parts: list[list[int]] = []
    filled = 0
    for member in members:
        size = sizes[member - 1]
        if not parts or filled + size > limit or filled >= target:
            parts.append([])
            filled = 0
        parts[-1].append(member)
        filled += size
    return [tuple(part) for part in parts]
