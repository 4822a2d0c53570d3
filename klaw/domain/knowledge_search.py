"""What a search of knowledge bases found and why it was kept or cut."""

from collections.abc import Mapping

import attrs

from klaw.domain.knowledge import BaseId, DocumentId, Passage, Place, SourceId
from klaw.domain.search import PASSED, Decision, Ranks, RecallSettings


@attrs.frozen(kw_only=True)
class FoundPassage(Passage):
    """A passage with what it is a part of."""

    rowid: int
    base: BaseId
    source: SourceId
    document: DocumentId
    name: str
    """Of the document."""
    title: str

    @property
    def place(self) -> Place:
        return Place(**{field.name: getattr(self, field.name) for field in attrs.fields(Place)})

    @property
    def lead(self) -> str:
        """What it stands under: what a question may name that the text does not."""
        return f"{self.name}\n{self.title}\n{self.heading}"


@attrs.frozen(kw_only=True)
class PassageCandidate(Ranks):
    """One passage that a search brought up."""

    passage: FoundPassage
    decision: Decision
    text: str
    """What goes into the context: the passage or an excerpt of it."""
    tokens: int
    """Estimated, of the lines that show ``text``."""
    parts: Mapping[str, float] = attrs.field(factory=dict)
    """What its score is made of."""
    shared_words: int = 0
    """How many of the question's content words it has."""
    also: tuple[FoundPassage, ...] = ()
    """Others with the same text: they are ``repeated``."""
    left_tokens: int | None = None
    """Of one that did not fit: what was left of the budget."""

    @property
    def content(self) -> str:
        return self.passage.text

    @property
    def passed(self) -> bool:
        return self.decision in PASSED


@attrs.frozen(kw_only=True)
class FoundPassages:
    """Outcome of one search of knowledge bases."""

    candidates: tuple[PassageCandidate, ...] = ()
    """Every candidate, the best first."""
    query_words: int = 0
    """How many content words the question has."""
    found: int = 0
    """How many passages the searches brought up; the candidates are the best of them."""
    degraded: tuple[str, ...] = ()
    """Codes of what was missing, as recall has them: ``embedding_no_model``, ``search_late`` …"""
    timings_ms: Mapping[str, float] = attrs.Factory(dict)
    command: bool = False
    """The question tells the model to do something: the gate asks for more."""
    settings: RecallSettings | None = None

    @property
    def kept(self) -> tuple[PassageCandidate, ...]:
        """The candidates that go into the context, the best first."""
        return tuple(each for each in self.candidates if each.passed)

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
