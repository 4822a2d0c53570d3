"""What a search of knowledge bases found and why it was kept or cut."""

import attrs

from klaw.domain.knowledge import BaseId, DocumentId, Passage, Place, SourceId
from klaw.domain.search import Decision, JudgedCandidate, SearchOutcome


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
class PassageCandidate(JudgedCandidate):
    """One passage that a search brought up."""

    passage: FoundPassage
    also: tuple[FoundPassage, ...] = ()
    """Others with the same text: they are ``repeated``."""

    @property
    def content(self) -> str:
        return self.passage.text


@attrs.frozen(kw_only=True)
class PassageOutcome(SearchOutcome[PassageCandidate]):
    """Outcome of one search of knowledge bases."""

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
