"""Cutting texts' tokens into windows that the encoder can read, and planning the batches of a run. Pure."""

from collections.abc import Iterator, Sequence

import attrs


@attrs.frozen
class Window:
    """A slice of one text's content tokens, without special tokens."""

    text: int
    """Index of the text."""
    ids: Sequence[int]
    head: Sequence[int] = ()
    """Tokens that are read before them and are not part of what is pooled; empty: everything is pooled."""
    start: int = 0
    """Index of the first of its ids among the text's."""

    @property
    def width(self) -> int:
        """Tokens that are read, without special ones."""
        return len(self.head) + len(self.ids)

    @property
    def weight(self) -> int:
        """Its share in the text's vector; 1 for a text without tokens."""
        return max(1, len(self.ids))


def cut_windows(contents: Sequence[tuple[Sequence[int], Sequence[int]]], size: int) -> list[Window]:
    """Cuts each text's content tokens into windows of at most ``size``; a text without tokens gets one empty window.

    Args:
        contents: head (see ``Window``) and content tokens of each text. Each of its windows has the head, of which the
            end is kept where it takes more than half of a window.
        size: of a window, with its head.
    """
    windows: list[Window] = []
    for text, (head, ids) in enumerate(contents):
        kept = head[-(size // 2) :] if head else head
        room = size - len(kept)
        starts = range(0, len(ids), room) or range(1)
        windows.extend(Window(text, ids[start : start + room], kept, start) for start in starts)
    return windows


def plan_batches(windows: Sequence[Window], max_tokens: int, special: int) -> Iterator[list[Window]]:
    """Groups windows, longest first, so that rows times the longest row stays within ``max_tokens``.

    Args:
        windows: in any order.
        max_tokens: padded tokens of one batch. A single longer window is a batch of its own.
        special: special tokens that are added to each window.

    Longest first, because the allocator then sees its largest request at the beginning and can reuse it.
    """
    batch: list[Window] = []
    width = 0
    for window in sorted(windows, key=lambda w: w.width, reverse=True):
        if batch and (len(batch) + 1) * width > max_tokens:
            yield batch
            batch = []
        if not batch:
            width = window.width + special
        batch.append(window)
    if batch:
        yield batch
