"""What the writer can be asked of memory: facts, core memory, pieces of memory files."""

from typing import Literal, TypeAlias

import attrs

from klaw.actor.reply import Reply
from klaw.domain.core_memory import Document
from klaw.domain.fact import Fact, FactId
from klaw.domain.names import UserId
from klaw.store.sql.chunks import Chunk, MemoryFile
from klaw.store.sql.passages import PassageVector


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


OfMemory: TypeAlias = PutFact | RemoveFact | ChangeCore | StorePassageVectors | PutMemoryFile
