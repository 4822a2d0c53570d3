"""Late interaction: how well the words of a message meet those of a question, one by one, and where. Pure."""

from collections.abc import Iterator, Sequence

import numpy as np

from klaw.memory.embed.token_coder import CODE_BYTES, MAX_TOKENS, Floats

GROUP_BYTES = 1_024 * CODE_BYTES
CHARACTERS_A_TOKEN = 4.5
"""Characters of text for each coded token, measured in English and Russian: says where the codes of a long text end."""


def max_sim(query: Floats, codes: Sequence[bytes]) -> list[float | None]:
    """MaxSim: the weighted mean, over a question's tokens, of a message's most similar token; None without codes."""
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
    """Of each coded token (rows) to each token of the question (columns)."""
    bits = np.unpackbits(np.frombuffer(codes, np.uint8).reshape(-1, CODE_BYTES), axis=1).astype(np.float32)
    similar: Floats = 2 * (bits @ query.T) - query.sum(axis=1)  # a bit is +1 or -1
    return similar


class TokenOverlap:
    """Which part of a message (its codes are not empty) meets a question. Where a token stands in the text follows from
    the number of its code: off by 2 of 500 in the median, by 20 at most, which is less than a sentence."""

    def __init__(self, query: Floats, codes: bytes) -> None:
        self._best = [similarities(query, codes)]
        """The best of 1, 2, 4, 8 … tokens from each on, for each token of the question."""
        width = 1
        while 2 * width <= len(self._best[0]):
            last = self._best[-1]
            self._best.append(np.maximum(last[:-width], last[width:]))
            width *= 2
        self._whole = float(self._best[0].max(axis=0).sum())

    def shares(self, text: str, spans: Sequence[tuple[int, int]]) -> list[float]:
        """How well each span of the message's characters meets the question: 1 is as well as the whole message."""
        count = len(self._best[0])
        read = len(text) if count < MAX_TOKENS else min(len(text), count * CHARACTERS_A_TOKEN)
        places = np.array(spans) * count / read
        begins = np.clip(places[:, 0].astype(int), 0, count - 1)
        ends = np.clip(np.round(places[:, 1]).astype(int), begins + 1, count)
        levels = np.log2(ends - begins).astype(int)
        scores = np.zeros(len(spans))
        for level in np.unique(levels):
            of = np.flatnonzero(levels == level)
            best = np.maximum(self._best[level][begins[of]], self._best[level][ends[of] - 2**level])
            scores[of] = best.sum(axis=1)
        scores[places[:, 0] >= count] = 0  # behind the last code
        return (scores / self._whole).tolist() if self._whole > 0 else [0.0] * len(spans)
