"""Shortening a text that is too long for its layer. Pure."""

import math

from klaw.domain import tokens

MARK = "\n[… {count} characters left out …] "
"""The tail begins behind it: its first line may be the end of one, and must not pass for a whole one."""


def shorten(text: str, max_tokens: int) -> str:
    """The text, or its head and tail with a mark between them, so that it has at most ``max_tokens`` (estimated)."""
    estimated = tokens.estimate(text)
    if estimated <= max_tokens:
        return text
    keep = math.floor(len(text) * max_tokens / estimated) - len(MARK) - 8
    if keep < 2:
        return text[: max(1, max_tokens)]
    head = math.ceil(keep * 2 / 3)
    tail = keep - head
    return text[:head] + MARK.format(count=len(text) - keep) + (text[-tail:] if tail else "")
