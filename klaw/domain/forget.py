"""Forgetting: which pieces of a text give it away elsewhere, and taking them out of JSON values. Pure."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from klaw.domain.fact import FactId

MARK = "[forgotten]"
"""Stands where a forgotten text stood inside something that stays."""
MIN_CHARS = 12
"""Shorter pieces are not looked for elsewhere: they stand in too much that has nothing to do with the forgotten."""
FORGOTTEN = "forgotten"
"""In the metadata of the row that keeps a forgotten message's number: when it was forgotten."""

_SENTENCE = re.compile(r"(?<=[.!?…])\s+|\n+")


def fragments(texts: Iterable[str]) -> tuple[str, ...]:
    """What is looked for of forgotten texts: each as a whole, as one line, and its sentences; the longest first."""
    found: set[str] = set()
    for text in texts:
        pieces = [text.strip(), " ".join(text.split()), *(piece.strip() for piece in _SENTENCE.split(text))]
        found.update(piece for piece in pieces if len(piece) >= MIN_CHARS and piece != MARK)
    return tuple(sorted(found, key=lambda piece: (-len(piece), piece)))


def redacted(value: Any, pieces: Sequence[str]) -> Any:
    """A JSON value with MARK in place of each piece in its texts. Keys stay."""
    if isinstance(value, str):
        for piece in pieces:
            value = value.replace(piece, MARK)
        return value
    if isinstance(value, list):
        return [redacted(each, pieces) for each in value]
    if isinstance(value, dict):
        return {key: redacted(each, pieces) for key, each in value.items()}
    return value


def fact_ids(ids: Iterable[str]) -> tuple[FactId, ...]:
    return tuple(FactId(each) for each in sorted(set(ids)))
