"""Messages that wait for a vector, and the batches that they are embedded in. Pure."""

from collections.abc import Sequence

import attrs

from klaw.domain import tokens
from klaw.memory.embed.passage import Passage


@attrs.frozen
class Waiting:
    """A message that gets its vector now."""

    rowid: int
    passage: Passage

    @property
    def tokens(self) -> int:
        """Estimated, of all that the model reads."""
        return tokens.estimate(self.passage.text) + tokens.estimate(self.passage.context)


def split_batches(rows: Sequence[Waiting], batch_tokens: int) -> list[list[Waiting]]:
    """Batches of similar length: sorted by length, each of at most ``batch_tokens`` padded tokens (or one row)."""
    batches: list[list[Waiting]] = []
    for row in sorted(rows, key=lambda row: row.tokens):
        if batches and row.tokens * (len(batches[-1]) + 1) <= batch_tokens:  # this one is the longest yet
            batches[-1].append(row)
        else:
            batches.append([row])
    return batches
