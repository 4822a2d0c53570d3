"""What the writer can be asked of memory: facts, core memory, pieces of memory files."""

from typing import Literal, TypeAlias

import attrs

from klaw.actor.reply import Reply
from klaw.domain.core_memory import Document
from klaw.domain.fact import Fact, FactId
from klaw.domain.names import UserId
from klaw.domain.summary import NewSummary, Summary, ToolNote
from klaw.store.sql.chunks import Chunk, MemoryFile
from klaw.store.sql.passages import PassageVector
from klaw.store.sql.summaries import Failure


@attrs.frozen(kw_only=True)
class FactVector:
    """The vector of a fact's text, if the caller has it already."""

    model_id: str
    vector: bytes


@attrs.frozen(kw_only=True)
class PutFact:
    """Store a fact, a new one or in place of the one of its id. Answers it."""

    fact: Fact
    expected: Literal["new", "existing"]
    supersedes: FactId | None
    """The older statement in whose place this one comes."""
    vector: FactVector | None
    as_of: int | None
    """The memory journal's last entry before what it is made of was read: refused when the user has forgotten something
    since."""
    reply: Reply[Fact]


@attrs.frozen(kw_only=True)
class RemoveFact:
    """Remove a fact; its history stays. Answers what it was."""

    user: UserId
    id: FactId
    at: str
    reply: Reply[Fact]


@attrs.frozen(kw_only=True)
class ChangeCore:
    """Change a user's core memory: set a value, or delete one (``value`` None) or a whole section (``key`` None)."""

    user: UserId
    section: str
    key: str | None
    value: str | None
    at: str
    reply: Reply[Document]


@attrs.frozen(kw_only=True)
class StorePassageVectors:
    """Store vectors of facts and chunks. Answers how many fitted what is there now."""

    model_id: str
    vectors: tuple[PassageVector, ...]
    reply: Reply[int]


@attrs.frozen(kw_only=True)
class PutMemoryFile:
    """Store the pieces of a memory file in place of those before; none and no stamp: the file is gone."""

    file: MemoryFile
    chunks: tuple[Chunk, ...]
    gone: bool
    reply: Reply[None]


@attrs.frozen(kw_only=True)
class PutSummary:
    """Store a summary of the current segment's oldest uncovered part. Answers it with its number."""

    summary: NewSummary
    supersedes: tuple[int, ...]
    """Numbers of live summaries whose ranges it holds too."""
    evicts: tuple[int, ...]
    """Numbers of live summaries that make room for it."""
    notes: tuple[ToolNote, ...]
    as_of: int | None
    """The memory journal's last entry when the messages were read: refused when the user has forgotten something
    since."""
    reply: Reply[Summary]


@attrs.frozen(kw_only=True)
class NoteFailure:
    """Remember that a chat's summary failed and when it may be tried again."""

    failure: Failure
    reply: Reply[None]


OfSummaries: TypeAlias = PutSummary | NoteFailure
OfMemory: TypeAlias = PutFact | RemoveFact | ChangeCore | StorePassageVectors | PutMemoryFile | OfSummaries
