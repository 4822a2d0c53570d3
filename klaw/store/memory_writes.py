"""The part of the writer's handle that memory uses: facts, core memory, memory files."""

from collections.abc import Sequence
from typing import Literal

from klaw.actor.mailbox import Mailbox
from klaw.actor.reply import Reply
from klaw.domain.core_memory import Document
from klaw.domain.fact import Fact, FactId
from klaw.domain.names import UserId
from klaw.domain.summary import NewSummary, Summary, ToolNote
from klaw.store.memory_requests import (
    ChangeCore,
    FactVector,
    NoteFailure,
    PutFact,
    PutMemoryFile,
    PutSummary,
    RemoveFact,
    StorePassageVectors,
)
from klaw.store.requests import Request
from klaw.store.sql.chunks import Chunk, MemoryFile
from klaw.store.sql.passages import PassageVector
from klaw.store.sql.summaries import Failure


class MemoryWrites:
    """Each is durable when it returns, and all or nothing. Each may raise StorageFull and ActorStopped.

    Cancellation: what was asked for may be stored or not.
    """

    mailbox: Mailbox[Request]

    async def put_fact(
        self,
        fact: Fact,
        expected: Literal["new", "existing"],
        *,
        supersedes: FactId | None = None,
        vector: FactVector | None = None,
        as_of: int | None = None,
    ) -> Fact:
        """Store a fact. To put the same new one again is safe.

        Args:
            fact: as it is to be.
            expected: whether the user has one of its id.
            supersedes: an active fact of the user that becomes history by it.
            vector: of its text, if it is known; else the embedder makes it.
            as_of: the memory journal's last entry before what it is made of was read.

        Raises:
            SourceForgotten: the user has forgotten something since ``as_of``; nothing was stored.
            FactExists: another active fact of the user has the same text, or a new one's id is taken; ``fact`` of the
                error is that one's id.
            NoSuchFact: the one to change, or to supersede, is not there.
            StorageError: a value breaks its rule.
        """

        def request(reply: Reply[Fact]) -> PutFact:
            return PutFact(fact=fact, expected=expected, supersedes=supersedes, vector=vector, as_of=as_of, reply=reply)

        return await self.mailbox.ask(request)

    async def remove_fact(self, user: UserId, fact: FactId, at: str) -> Fact:
        """Remove a fact and return what it was; its history stays.

        Args:
            user: whose it is.
            fact: its id.
            at: the time now, ISO-8601 UTC with milliseconds.

        Raises:
            NoSuchFact: the user has none of this id.
        """

        def request(reply: Reply[Fact]) -> RemoveFact:
            return RemoveFact(user=user, id=fact, at=at, reply=reply)

        return await self.mailbox.ask(request)

    async def update_core(self, user: UserId, section: str, key: str, value: str, at: str) -> Document:
        """Set a value of a user's core memory and return what it has become. See ``domain.core_memory.updated``.

        Raises:
            CoreNotChanged: a name or the value breaks its rule, or there is no room.
            CoreUnreadable: the file is no core memory.
            StorageError: it is kept, but the file could not be written; the next start does it.
        """

        def request(reply: Reply[Document]) -> ChangeCore:
            return ChangeCore(user=user, section=section, key=key, value=value, at=at, reply=reply)

        return await self.mailbox.ask(request)

    async def delete_core(self, user: UserId, section: str, key: str | None, at: str) -> Document:
        """Delete a value of a user's core memory, or (``key`` None) a section. Raises like ``update_core``."""

        def request(reply: Reply[Document]) -> ChangeCore:
            return ChangeCore(user=user, section=section, key=key, value=None, at=at, reply=reply)

        return await self.mailbox.ask(request)

    async def store_passage_vectors(self, model_id: str, vectors: Sequence[PassageVector]) -> int:
        """Store vectors of facts and chunks; returns how many. What has another text meanwhile is left out."""

        def request(reply: Reply[int]) -> StorePassageVectors:
            return StorePassageVectors(model_id=model_id, vectors=tuple(vectors), reply=reply)

        return await self.mailbox.ask(request)

    async def put_memory_file(self, file: MemoryFile, chunks: Sequence[Chunk]) -> None:
        """Store the pieces of a memory file in place of those before."""

        def request(reply: Reply[None]) -> PutMemoryFile:
            return PutMemoryFile(file=file, chunks=tuple(chunks), gone=False, reply=reply)

        await self.mailbox.ask(request)

    async def remove_memory_file(self, file: MemoryFile) -> None:
        """Forget the pieces of a memory file that is gone."""

        def request(reply: Reply[None]) -> PutMemoryFile:
            return PutMemoryFile(file=file, chunks=(), gone=True, reply=reply)

        await self.mailbox.ask(request)

    async def put_summary(
        self,
        summary: NewSummary,
        *,
        supersedes: Sequence[int] = (),
        evicts: Sequence[int] = (),
        notes: Sequence[ToolNote] = (),
        as_of: int | None = None,
    ) -> Summary:
        """Store a summary of the oldest uncovered part of a chat's current segment, and forget the chat's failures.

        Args:
            summary: its range begins after all summaries that it does not supersede.
            supersedes: numbers of live summaries whose ranges it holds too.
            evicts: numbers of live summaries that make room for it.
            notes: on the tool calls of its range.
            as_of: the memory journal's last entry when the messages were read.

        Raises:
            SourceForgotten: the user has forgotten something since ``as_of``; nothing is stored.
            SummaryOutdated: the segment is over, or other summaries are there than it was made from; nothing is stored.
            StorageError: a value breaks its rule.
        """

        def request(reply: Reply[Summary]) -> PutSummary:
            return PutSummary(
                summary=summary,
                supersedes=tuple(supersedes),
                evicts=tuple(evicts),
                notes=tuple(notes),
                as_of=as_of,
                reply=reply,
            )

        return await self.mailbox.ask(request)

    async def note_summary_failure(self, failure: Failure) -> None:
        """Remember that a chat's summary failed, also over a restart. It is no part of the logs."""

        def request(reply: Reply[None]) -> NoteFailure:
            return NoteFailure(failure=failure, reply=reply)

        await self.mailbox.ask(request)
