"""What searches find, in recall, knowledge bases and a user's whole history, with why it was kept or cut."""

import abc
import enum
from collections.abc import Mapping
from datetime import date
from typing import Any, Generic, Literal, TypeAlias, TypeVar

import attrs

from klaw.domain.fact import FactId, FactSource, Origin
from klaw.domain.knowledge import BaseId, DocumentId, Passage, Place, SourceId
from klaw.domain.message import Message, Role
from klaw.domain.names import ChatId
from klaw.domain.person import PersonId

Kind: TypeAlias = Literal["message", "fact", "file", "note", "document"]
"""A message, a saved fact, a piece of MEMORY.md or memory/*.md, a note on a tool call."""


def fields_of(value: object, cls: type[Any]) -> dict[str, Any]:
    """Those of a value's fields that a class has too."""
    return {field.name: getattr(value, field.name) for field in attrs.fields(cls) if hasattr(value, field.name)}


@attrs.frozen(kw_only=True)
class Ranks:
    score: float
    """Larger is better. Comparable within one query and kind only."""
    vector_rank: int | None
    distance: float | None
    """Cosine distance. Calibrated where it is shown: 0 = identical, 1 = as far as random pairs of the model."""
    text_rank: int | None
    """Rank by words; a message's includes its neighbours' shares."""
    bm25: float | None
    """None when it has none of the words."""


@attrs.frozen(kw_only=True)
class RankDetails(Ranks):
    shared_words: int = 0
    added_words: int = 0
    """How many words it has of those that a model added to the question."""
    parts: Mapping[str, float] = attrs.field(factory=dict)
    """Parts of the score: ``meaning``, ``words``, ``neighbours``, ``session``, ``speaker``, ``days``, ``answer`` …"""
    boosts: tuple[str, ...] = ()
    """What the query says of a message: ``speaker`` (who said it), ``date`` (when)."""
    dated_rank: int | None = None
    """Rank by vector among the messages of the days that the query names."""
    token_score: float | None = None
    """How well its words meet the query's, one by one; None without codes of them."""


@attrs.frozen(kw_only=True)
class ResultMatch(Ranks):
    words: tuple[str, ...]
    """The query's words that it has, as the query writes them."""
    snippet: str
    """One line: the text, or the part of it with the most of the words."""
    marks: tuple[tuple[int, int], ...]
    """Matches in the snippet: first character and the one after the last, in order, not overlapping."""


@attrs.frozen(kw_only=True)
class SearchResult(ResultMatch):
    kind: Literal["message"] = attrs.field(default="message", init=False)
    chat: ChatId
    seq: int
    id: str
    rowid: int
    role: Role
    created_at: str
    boosts: tuple[str, ...]


@attrs.frozen(kw_only=True)
class TopicResult:
    id: int
    chat: ChatId
    summary: str
    first_at: str
    last_at: str
    messages: int
    score: float


@attrs.frozen(kw_only=True)
class FactResult(ResultMatch):
    kind: Literal["fact"] = attrs.field(default="fact", init=False)
    id: FactId
    category: str
    importance: int
    source: FactSource
    origin: Origin
    created_at: str
    updated_at: str


@attrs.frozen(kw_only=True)
class FileResult(ResultMatch):
    kind: Literal["file"] = attrs.field(default="file", init=False)
    path: str
    """Relative to the user's workspace."""
    line: int
    heading: str
    """The headings that it stands under, outermost first; may be empty."""


@attrs.frozen(kw_only=True)
class NoteResult(ResultMatch):
    """A note on a tool call, which is in the message ``seq``."""

    kind: Literal["note"] = attrs.field(default="note", init=False)
    chat: ChatId
    seq: int
    tool: str
    created_at: str


@attrs.frozen(kw_only=True)
class DocumentResult(ResultMatch):
    """A passage of a file, which is in the message ``seq``."""

    kind: Literal["document"] = attrs.field(default="document", init=False)
    chat: ChatId
    seq: int
    created_at: str
    """Of the message."""
    name: str
    document: DocumentId
    page: int | None
    heading: str


@attrs.frozen(kw_only=True)
class NamedFact:
    id: FactId
    text: str


@attrs.frozen(kw_only=True)
class PersonResult:
    id: PersonId
    name: str
    aliases: tuple[str, ...]
    relation: str
    last_at: str | None
    facts: tuple[NamedFact, ...]


AnyResult: TypeAlias = SearchResult | FactResult | FileResult | NoteResult | DocumentResult


@attrs.frozen(kw_only=True)
class SearchPage:
    """A page of results of all kinds, fused by rank."""

    results: tuple[AnyResult, ...]
    page: int
    first: int
    next: str | None
    """Names the next page of the same list; None on the last one."""
    total: int
    total_is_exact: bool
    """False when there are more messages that match worse than all of these."""
    words: tuple[str, ...]
    """What full text looked for; empty for a query without any word, for which nothing is searched."""
    words_left_out: tuple[str, ...]
    """Words so frequent that only the rarer ones were looked for."""
    degraded: tuple[str, ...]
    """Codes of what was missing: ``embedding_no_model``, ``reembedding:37%``, ``text_search_failed`` …"""
    timings_ms: dict[str, float]
    topics: tuple[TopicResult, ...] = ()
    """The topics that fit best; on the first page only, like ``people``."""
    people: tuple[PersonResult, ...] = ()


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
    """Passed the gate, but a newer candidate of the same role, or a better passage, says the same."""
    IN_WINDOW = "in_window"
    """Dropped: the window, once it got the unused reserve back, shows it."""
    UNWANTED = "unwanted"
    """Dropped: the user said that it is never to be recalled."""
    IN_TOPIC = "in_topic"
    """Dropped: a topic in the prompt shows it in full."""


PASSED = frozenset({Decision.NEAR, Decision.WORDS, Decision.RANKED})


@attrs.frozen(kw_only=True)
class JudgedCandidate(RankDetails, abc.ABC):
    """What a search brought up for a prompt, and what became of it."""

    decision: Decision
    text: str
    tokens: int
    """Estimated, of the lines that show ``text``."""
    left_tokens: int | None = None
    """What was left of the budget, if it did not fit."""

    @property
    @abc.abstractmethod
    def content(self) -> str:
        """The whole text."""

    @property
    def passed(self) -> bool:
        return self.decision in PASSED


@attrs.frozen(kw_only=True)
class Candidate(JudgedCandidate):
    message: Message
    repeated_by: int | None = None
    rerank: float | None = None
    """The score of ``autoRag.rerank``'s model, on its own scale; the higher one goes first."""

    @property
    def content(self) -> str:
        return self.message.content


@attrs.frozen(kw_only=True)
class RecallSettings:
    top_k: int
    max_tokens: int
    relevance_threshold: float
    time_budget_ms: int


C = TypeVar("C", bound=JudgedCandidate)


@attrs.frozen(kw_only=True)
class SearchOutcome(Generic[C]):
    candidates: tuple[C, ...] = ()
    """Every candidate, the best first."""
    query_words: int = 0
    found: int = 0
    """How many the searches brought up; the candidates are the best of them."""
    degraded: tuple[str, ...] = ()
    """Codes of what was missing: ``no_vectors``, ``embedding_late``, ``vectors_incomplete``, ``search_failed`` …"""
    timings_ms: Mapping[str, float] = attrs.Factory(dict)
    """By step; those of the search's parts are in that of ``search``."""
    command: bool = False
    """The query tells the model to do something: the gate asks for more."""
    settings: RecallSettings | None = None

    @property
    def kept(self) -> tuple[C, ...]:
        """The candidates that go into the context."""
        return tuple(each for each in self.candidates if each.passed)


@attrs.frozen(kw_only=True)
class RecallOutcome(SearchOutcome[Candidate]):
    """Outcome of one recall. Those that ``autoRag.rerank`` scored come first; the newest of those that say the same
    stands in the place of the best of them."""

    days: tuple[tuple[date, date], ...] = ()
    first_seq: int | None = None
    """Where the search began; None when there was none."""
    end_seq: int | None = None
    """The first seq that it left out: the window's first message."""
    vector: bytes | None = attrs.field(default=None, repr=False, eq=False)
    """The query's vector, for other searches with the same query; None when there was none in time."""
    expansion: tuple[str, ...] = ()
    """Words that a model added to the query (``autoRag.expansion``)."""

    @property
    def kept(self) -> tuple[Candidate, ...]:
        """Oldest first."""
        return tuple(sorted(super().kept, key=lambda each: each.message.rowid))


NOTHING = RecallOutcome()


@attrs.frozen(kw_only=True)
class FoundPassage(Passage):
    """A passage with what it is a part of. ``name``: the document's."""

    rowid: int
    base: BaseId
    source: SourceId
    document: DocumentId
    name: str
    title: str

    @property
    def place(self) -> Place:
        return Place(**fields_of(self, Place))

    @property
    def lead(self) -> str:
        """What it stands under: what a question may name that the text does not."""
        return f"{self.name}\n{self.title}\n{self.heading}"


@attrs.frozen(kw_only=True)
class PassageCandidate(JudgedCandidate):
    passage: FoundPassage
    also: tuple[FoundPassage, ...] = ()

    @property
    def content(self) -> str:
        return self.passage.text


WEAK = 0.85
"""From so much ``lack`` on nothing fits well: docs/benchmarks.md has how many questions with and without an answer."""


@attrs.frozen(kw_only=True)
class PassageOutcome(SearchOutcome[PassageCandidate]):
    lack: float | None = None
    """How much of the question its best passages lack, in meaning and numbers: 0.3 (little) to 1.4; None: unknown."""

    @property
    def weak(self) -> bool:
        """Whether no passage fits the question well: perhaps none has the answer."""
        return bool(self.kept) and self.lack is not None and self.lack >= WEAK

    @property
    def why_nothing(self) -> str:
        """Why nothing is kept, as a code; empty where something is: ``no_content`` (small talk), ``search_failed``,
        ``no_passages`` (none has a word of it or is near it), ``too_far`` (none is near enough), ``over_budget``."""
        if self.kept:
            return ""
        if not self.query_words:
            return "no_content"
        if not self.candidates:
            failed = {"search_failed", "search_late"}.intersection(self.degraded)
            return "search_failed" if failed else "no_passages"
        return "too_far" if all(each.decision is Decision.TOO_FAR for each in self.candidates) else "over_budget"
