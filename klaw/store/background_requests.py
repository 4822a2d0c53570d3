"""What the writer can be asked about work in the background, and how it is carried out in its transaction."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import apsw
import attrs

from klaw.actor.mailbox import Mailbox
from klaw.actor.reply import Reply
from klaw.domain.names import ChatId, UserId
from klaw.store import background_records as records
from klaw.store.background_records import DayEntry, SpentEntry
from klaw.store.journal import Entry
from klaw.store.memory_commit import journal


@attrs.frozen(kw_only=True)
class NoteDay:
    """Remember which messages of a user's day were drawn into facts, and whether that was all."""

    entry: DayEntry
    reply: Reply[None]


@attrs.frozen(kw_only=True)
class NoteSpent:
    """Remember what a piece of work used of models."""

    entry: SpentEntry
    reply: Reply[None]


OfBackground: TypeAlias = NoteDay | NoteSpent


def execute_of_background(connection: apsw.Connection, request: OfBackground, entries: list[Entry]) -> None:
    """Carry out a request inside a savepoint; it adds one line to the memory journal.

    Raises:
        ValueError, TypeError, apsw.ConstraintError: a value cannot be stored; the caller takes back what was done.
    """
    match request:
        case NoteDay():
            records.date(request.entry.day)
        case NoteSpent():
            records.source(request.entry.source)
    journal(connection, entries, request.entry)


class BackgroundWrites:
    """The part of the writer's handle for work in the background. Each is durable when it returns, and may raise
    StorageFull, StorageError and ActorStopped.

    Cancellation: what was asked for may be stored or not.
    """

    mailbox: Mailbox[Any]

    async def note_day(self, user: UserId, day: str, messages: Sequence[int], at: str, *, done: bool) -> None:
        """Remember that messages of a day were drawn into facts. To say it again is safe.

        Args:
            user: whose.
            day: the date, YYYY-MM-DD.
            messages: their row ids, ascending.
            at: the time now, ISO-8601 UTC with milliseconds.
            done: nothing is left of the day: it is never drawn again.
        """
        entry = DayEntry(entry=0, time=at, user=user, day=day, messages=tuple(messages), done=done)

        def request(reply: Reply[None]) -> NoteDay:
            return NoteDay(entry=entry, reply=reply)

        await self.mailbox.ask(request)

    async def note_spent(
        self, source: str, user: UserId, chat: ChatId | None, parts: Sequence[Mapping[str, Any]], at: str
    ) -> None:
        """Remember what a piece of work in the background used, for usage and the daily limits.

        Args:
            source: what it was for, 1 to 32 characters: ``topics``, ``facts``, ``reranker`` …
            user, chat: whose it was; a chat where there is one.
            parts: of ``Meter.record()["models"]``.
            at: the time now, ISO-8601 UTC with milliseconds.
        """
        entry = SpentEntry(entry=0, time=at, user=user, source=source, chat=chat, parts=tuple(parts))

        def request(reply: Reply[None]) -> NoteSpent:
            return NoteSpent(entry=entry, reply=reply)

        await self.mailbox.ask(request)
