"""The part of the writer's handle that forgets. ``klaw.memory.forget.forget`` is the only one who calls it."""

from collections.abc import Sequence

from klaw.actor.mailbox import Mailbox
from klaw.actor.reply import Reply
from klaw.domain.fact import FactId
from klaw.domain.names import UserId
from klaw.store.forget_cleaner import Cleaner
from klaw.store.forget_records import Forgot
from klaw.store.forget_requests import CleanLogs, CompactDatabase, Forget, NoteForgotten
from klaw.store.requests import Request
from klaw.store.sql.forget_scope import Extra
from klaw.store.sql.quoting import Looked

NOTHING_ELSE = Extra()


class ForgetWrites:
    """Each may raise StorageError, StorageFull and ActorStopped.

    Cancellation: what was asked for may be done or not. What ``forget`` began the next start finishes.
    """

    mailbox: Mailbox[Request]

    async def forget(
        self,
        user: UserId,
        messages: Sequence[int],
        facts: Sequence[FactId],
        at: str,
        *,
        with_facts: bool,
        extra: Extra = NOTHING_ELSE,
        looked: Looked | None = None,
    ) -> Forgot:
        """Take messages (row ids), facts and what is ``extra``, and what was made of them, out of the database; durable
        when it returns. With ``looked``, a look at the very same, the writer has little left to read.

        Raises:
            StorageError: one of them is not the user's, or not there.
        """

        def request(reply: Reply[Forgot]) -> Forget:
            return Forget(
                user=user,
                messages=tuple(messages),
                facts=tuple(facts),
                extra=extra,
                with_facts=with_facts,
                looked=looked,
                at=at,
                reply=reply,
            )

        return await self.mailbox.ask(request)

    async def clean_logs(self, cleaner: Cleaner, paths: Sequence[str]) -> int:
        """Rewrite logs without what was forgotten; returns how many lines changed. Nobody can write meanwhile.

        Raises:
            StorageError: a reindex is reading the logs, or they cannot be written; the next start does it.
        """

        def request(reply: Reply[int]) -> CleanLogs:
            return CleanLogs(cleaner=cleaner, paths=tuple(paths), reply=reply)

        return await self.mailbox.ask(request)

    async def compact_database(self, *, vacuum: bool) -> None:
        """Empty the write-ahead log into the database; with ``vacuum`` make the file anew, which takes a second for
        some hundred megabytes. Nobody can write meanwhile."""

        def request(reply: Reply[None]) -> CompactDatabase:
            return CompactDatabase(vacuum=vacuum, reply=reply)

        await self.mailbox.ask(request)

    async def note_forgotten(self, user: UserId, entry: int, at: str) -> None:
        """Remember that a forgetting is finished in all logs."""

        def request(reply: Reply[None]) -> NoteForgotten:
            return NoteForgotten(user=user, entry=entry, at=at, reply=reply)

        await self.mailbox.ask(request)
