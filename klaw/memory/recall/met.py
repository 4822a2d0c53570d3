"""Where in a long message a question is met, token by token: for choosing what of it is shown. Pure."""

from collections.abc import Sequence

import numpy as np

from klaw.memory.embed.token_coder import MAX_TOKENS, Floats
from klaw.memory.recall.late import similarities

CHARACTERS_A_TOKEN = 4.5
"""Of text for a token that has a code, measured in English and Russian: where the codes of a longer text end."""


class Met:
    """A question and the codes of one message.

    Codes stand in the order of the text, so where a token stands follows from its number: off by 2 of 500 tokens in the
    median, by 20 at most, which is less than a sentence.

    Args:
        query: ``Reading.tokens`` of the question.
        codes: ``Reading.codes`` of the message; not empty.
    """

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
