"""Windows and batches of token ids: pure arithmetic, no model.

A text longer than the model's limit is cut into windows without overlap; its vector is the mean of the windows'
pooled vectors, weighted by their tokens. Windows of similar length run together, so that little padding is computed.
"""

from collections.abc import Iterator, Sequence

import attrs


@attrs.frozen
class Window:
    """A slice of one text's content tokens, without special tokens."""

    text: int
    """Index of the text."""
    ids: Sequence[int]

    @property
    def weight(self) -> int:
        """Its share in the text's vector; 1 for a text without tokens."""
        return max(1, len(self.ids))


def cut_windows(contents: Sequence[Sequence[int]], size: int) -> list[Window]:
    """Cuts each text's content tokens into windows of at most ``size``; a text without tokens gets one empty window."""
    windows: list[Window] = []
    for text, ids in enumerate(contents):
        starts = range(0, len(ids), size) or range(1)
        windows.extend(Window(text, ids[start : start + size]) for start in starts)
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
    for window in sorted(windows, key=lambda w: len(w.ids), reverse=True):
        if batch and (len(batch) + 1) * width > max_tokens:
            yield batch
            batch = []
        if not batch:
            width = len(window.ids) + special
        batch.append(window)
    if batch:
        yield batch
