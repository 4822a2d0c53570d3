"""What a search over a user's whole history finds: the values that every surface shows."""

from typing import Literal, TypeAlias

import attrs

from klaw.domain.fact import FactId, FactSource, Origin
from klaw.domain.message import Role
from klaw.domain.names import ChatId
from klaw.domain.person import PersonId

Kind: TypeAlias = Literal["message", "fact", "file", "note"]
"""What a result is: a message, a saved fact, a piece of MEMORY.md or memory/*.md, a note on a tool call."""


@attrs.frozen(kw_only=True)
class Found:
    """What all results have in common: how they were found."""

    score: float
    """Fused score; larger is better. Of another kind's results it says nothing."""
    vector_rank: int | None
    distance: float | None
    """Calibrated: 0 = identical, 1 = as far as random pairs of the model."""
    text_rank: int | None
    """Rank by words; of a message its neighbours' shares included."""
    bm25: float | None
    """None when it has none of the words."""
    words: tuple[str, ...]
    """The query's words that it has, as the query writes them."""
    snippet: str
    """One line: the text, or the part of it with the most of the words."""
    marks: tuple[tuple[int, int], ...]
    """Matches in the snippet: first character and the one after the last, in order, apart from each other."""


@attrs.frozen(kw_only=True)
class SearchResult(Found):
    """One message that was found."""

    chat: ChatId
    seq: int
    id: str
    rowid: int
    role: Role
    created_at: str
    """ISO-8601 UTC."""
    boosts: tuple[str, ...]
    """Why its score was raised: ``speaker`` (the query names who said it), ``date`` (or when)."""


@attrs.frozen(kw_only=True)
class TopicResult:
    """A topic that was found: a label for a part of a chat."""

    id: int
    chat: ChatId
    summary: str
    first_at: str
    last_at: str
    """Between these times its messages were said, ISO-8601 UTC."""
    messages: int
    score: float


@attrs.frozen(kw_only=True)
class FactResult(Found):
    """A saved fact that was found."""

    id: FactId
    category: str
    importance: int
    source: FactSource
    origin: Origin
    created_at: str
    updated_at: str


@attrs.frozen(kw_only=True)
class FileResult(Found):
    """A piece of a memory file that was found."""

    path: str
    """Relative to the user's workspace."""
    line: int
    heading: str
    """The headings that it stands under, outermost first; may be empty."""


@attrs.frozen(kw_only=True)
class NoteResult(Found):
    """A note on a tool call that was found."""

    chat: ChatId
    seq: int
    """Of the message that holds the call."""
    tool: str
    created_at: str
    """When it was called, ISO-8601 UTC."""


@attrs.frozen(kw_only=True)
class NamedFact:
    """A fact that names a person."""

    id: FactId
    text: str
    """One line."""


@attrs.frozen(kw_only=True)
class PersonResult:
    """Somebody whom the query names, and what is known of them."""

    id: PersonId
    name: str
    aliases: tuple[str, ...]
    relation: str
    """Who it is to the user; may be empty."""
    last_at: str | None
    """When they were last named in a topic or a day's talk, ISO-8601 UTC."""
    facts: tuple[NamedFact, ...]


AnyResult: TypeAlias = SearchResult | FactResult | FileResult | NoteResult


def kind_of(result: AnyResult) -> Kind:
    """The word for what a result is."""
    match result:
        case SearchResult():
            return "message"
        case FactResult():
            return "fact"
        case FileResult():
            return "file"
        case NoteResult():
            return "note"


@attrs.frozen(kw_only=True)
class SearchPage:
    """A page of results: the lists of the kinds, the best of each first, fused by rank."""

    results: tuple[AnyResult, ...]
    page: int
    """1, 2, 3 …"""
    first: int
    """Place of the first result among all, from 1."""
    next: str | None
    """Names the next page of the same list; None on the last one."""
    total: int
    """Results on all pages."""
    total_is_exact: bool
    """False when there are more messages that match worse than all of these."""
    words: tuple[str, ...]
    """What full text looked for; empty for a query without any word, for which nothing is searched."""
    words_left_out: tuple[str, ...]
    """Words of the query that are so frequent that only rarer ones were looked for."""
    degraded: tuple[str, ...]
    """Codes of what was missing: ``embedding_no_model``, ``reembedding:37%``, ``text_search_failed`` …"""
    timings_ms: dict[str, float]
    topics: tuple[TopicResult, ...] = ()
    """On the first page: the topics that fit best."""
    people: tuple[PersonResult, ...] = ()
    """On the first page: those whom the query names."""
