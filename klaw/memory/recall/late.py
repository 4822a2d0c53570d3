"""Late interaction: how well the words of a question are met by the words of a message, one by one. Pure."""

from collections.abc import Iterator, Sequence

import numpy as np

from klaw.memory.embed.token_coder import CODE_BYTES, Floats

GROUP_BYTES = 1_024 * CODE_BYTES


def max_sim(query: Floats, codes: Sequence[bytes]) -> list[float | None]:
    """MaxSim of a question and some messages: over the question's tokens, the weighted mean of the similarity of the
    most similar token of the message. About 0 for what has nothing in common.

    Args:
        query: ``Reading.tokens`` of the question.
        codes: ``Reading.codes`` of each message.

    Returns:
        In the order of ``codes``; None for what has no tokens.
    """
    found: list[float | None] = [None] * len(codes)
    filled = [at for at, each in enumerate(codes) if each]
    if not filled or not len(query):
        return found
    for group in _groups(codes, filled):
        similar = similarities(query, b"".join(codes[at] for at in group))
        starts = np.cumsum([0, *(len(codes[at]) // CODE_BYTES for at in group[:-1])])
        for at, score in zip(group, np.maximum.reduceat(similar, starts).sum(axis=1).tolist(), strict=True):
            found[at] = score
    return found


def _groups(codes: Sequence[bytes], filled: Sequence[int]) -> Iterator[list[int]]:
    """Messages that are compared at once: 200 long ones together would take 50 MB, and twice the time."""
    group: list[int] = []
    size = 0
    for at in filled:
        group.append(at)
        size += len(codes[at])
        if size >= GROUP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def similarities(query: Floats, codes: bytes) -> Floats:
    """Of each token that has a code (rows) to each of a question's (columns)."""
    bits = np.unpackbits(np.frombuffer(codes, np.uint8).reshape(-1, CODE_BYTES), axis=1).astype(np.float32)
    similar: Floats = 2 * (bits @ query.T) - query.sum(axis=1)  # a bit is +1 or -1
    return similar
