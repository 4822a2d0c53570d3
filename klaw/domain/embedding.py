"""What the rest of Klaw may know of the embedder's state."""

import enum

import attrs


class EmbedderState(enum.StrEnum):
    """Whether there are vectors to search with. The values are the codes that status, receipts and frames show."""

    OFF = "off"
    """Switched off in the configuration."""
    LOADING = "loading"
    NO_MODEL = "no_model"
    """The model is missing or unusable; recall is full-text only."""
    READY = "ready"


@attrs.frozen(kw_only=True)
class EmbedderStatus:
    """A snapshot."""

    state: EmbedderState
    reason: str | None
    """Why there is no model: names files, never content."""
    since: float
    """Unix seconds."""
    embedded: int
    """Messages with a vector."""
    waiting: int
    """Messages that still wait for one."""
