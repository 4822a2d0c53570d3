"""The state of the embedder, for the rest of Klaw."""

import enum

import attrs


class EmbedderState(enum.StrEnum):
    """Whether there are vectors to search with: the codes that status, receipts and frames show."""

    OFF = "off"
    LOADING = "loading"
    NO_MODEL = "no_model"
    """The model is missing or unusable; recall is full-text only."""
    REEMBEDDING = "reembedding"
    """Another model than before: its vectors are being made, and until they are there recall is full-text only."""
    READY = "ready"


@attrs.frozen(kw_only=True)
class EmbedderStatus:
    state: EmbedderState
    reason: str | None
    """Why there is no model: names files, never content."""
    since: float
    embedded: int
    waiting: int
    reembedding: int = 0
    """How many messages waited when the vectors began to be made again."""

    @property
    def reembedded_percent(self) -> int:
        """How much of a re-embedding is done, 0 to 99; 100 otherwise."""
        if self.state is not EmbedderState.REEMBEDDING:
            return 100
        done = self.reembedding - self.waiting
        return max(0, min(99, 100 * done // max(1, self.reembedding)))
