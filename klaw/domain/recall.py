"""What recall found and why it was kept or cut: the values that a receipt accounts for."""

import enum
from datetime import date

import attrs

from klaw.domain.message import Message


class Decision(enum.StrEnum):
    """What became of a candidate."""

    NEAR = "near"
    """Passed: its vector is within the relevance threshold."""
    WORDS = "words"
    """Passed: it shares enough of the query's content words."""
    RANKED = "ranked"
    """Passed by its rank: others show that the conversation has something on the query."""
    NO_CONTENT = "no_content"
    """Cut: the query is small talk."""
    TOO_FAR = "too_far"
    """Cut by the relevance gate."""
    OVER_TOP_K = "over_top_k"
    """Passed the gate, but ``autoRag.topK`` better ones did too."""
    OVER_BUDGET = "over_budget"
    """Passed the gate, but does not fit into ``autoRag.maxTokens``."""
    REPEATED = "repeated"
    """Passed the gate, but a newer candidate of the same role says the same."""
    IN_WINDOW = "in_window"
    """Dropped: the window, once it got the unused reserve back, shows it."""
    IN_TOPIC = "in_topic"
    """Dropped: a topic in the prompt shows it in full."""


PASSED = frozenset({Decision.NEAR, Decision.WORDS, Decision.RANKED})


@attrs.frozen(kw_only=True)
class Candidate:
    """One message that a search brought up."""

    message: Message
    vector_rank: int | None
    distance: float | None
    """Calibrated: 0 = identical, 1 = as far as random pairs of the model."""
    text_rank: int | None
    bm25: float | None
    score: float
    """Fused score (weighted RRF, times what the boosts and the length make of it)."""
    decision: Decision
    text: str
    """What goes into the context: the message or an excerpt of it."""
    tokens: int
    """Estimated tokens of the line that shows ``text``."""
    boosts: tuple[str, ...] = ()
    """Why its score was raised: ``speaker`` (the question names who said it), ``date`` (or when)."""
    dated_rank: int | None = None
    """By vector among what was said in the days that the question names."""
    shared_words: int = 0
    """How many of the question's content words it has."""
    left_tokens: int | None = None
    """Of one that did not fit: what was left of ``autoRag.maxTokens``."""
    repeated_by: int | None = None
    """Of a repeated one: the seq of the newer message."""

    @property
    def passed(self) -> bool:
        return self.decision in PASSED


@attrs.frozen(kw_only=True)
class RecallSettings:
    """The keys of ``autoRag`` that decided on a recall."""

    top_k: int
    max_tokens: int
    relevance_threshold: float
    time_budget_ms: int


@attrs.frozen(kw_only=True)
class Recalled:
    """Outcome of one recall."""

    candidates: tuple[Candidate, ...]
    """Every candidate, the best fused score first; the newest of those that say the same stands in the place of the
    best of them."""
    query_words: int
    """How many content words the query has."""
    found: int
    """How many messages the searches brought up; the candidates are the best of them."""
    degraded: tuple[str, ...]
    """Codes of what was missing: ``no_vectors``, ``embedding_late``, ``vectors_incomplete``, ``search_failed`` …"""
    timings_ms: dict[str, float]
    """By step; those of the search's parts are in that of ``search``."""
    command: bool = False
    """The query tells the model to do something: the gate asks for more."""
    days: tuple[tuple[date, date], ...] = ()
    """First and last days that the query names."""
    first_seq: int | None = None
    """Where the search began; None when there was none."""
    end_seq: int | None = None
    """The first seq that it left out: the window's first message."""
    settings: RecallSettings | None = None
    vector: bytes | None = attrs.field(default=None, repr=False, eq=False)
    """Of the query, for whoever searches for the same; None when there was none in time."""

    @property
    def kept(self) -> tuple[Candidate, ...]:
        """The candidates that go into the context, oldest first."""
        return tuple(sorted((c for c in self.candidates if c.passed), key=lambda c: c.message.rowid))


NOTHING = Recalled(candidates=(), query_words=0, found=0, degraded=(), timings_ms={})
