"""The part of the writer's handle that changes people. ``klaw.memory.people.people`` is the only one who calls it."""

from collections.abc import Sequence

from klaw.actor.mailbox import Mailbox
from klaw.actor.reply import Reply
from klaw.domain.names import UserId
from klaw.domain.person import Mention, Person, PersonId
from klaw.store.person_requests import ChangePeople
from klaw.store.requests import Request


class PersonWrites:
    """May raise StorageFull and ActorStopped.

    Cancellation: what was asked for may be stored or not.
    """

    mailbox: Mailbox[Request]

    async def change_people(
        self,
        user: UserId,
        at: str,
        *,
        put: Sequence[Person] = (),
        removed: Sequence[PersonId] = (),
        mentions: Sequence[tuple[PersonId, Mention]] = (),
        as_of: int | None = None,
    ) -> None:
        """Change a user's people; durable when it returns, and all or nothing.

        Args:
            user: whose.
            at: the time now, ISO-8601 UTC with milliseconds.
            put: people as they are to be, new ones or in place of those of their ids.
            removed: ids of people who go; their history stays.
            mentions: topics that name them; what is noted already is left out.
            as_of: the memory journal's last entry before what it is made of was read.

        Raises:
            SourceForgotten: the user has forgotten something since ``as_of``; nothing was stored.
            NoSuchPerson: one that is removed, named, or merged into is not there.
            StorageError: a value breaks its rule.
        """

        def request(reply: Reply[None]) -> ChangePeople:
            return ChangePeople(
                user=user,
                put=tuple(put),
                removed=tuple(removed),
                mentions=tuple(mentions),
                as_of=as_of,
                at=at,
                reply=reply,
            )

        await self.mailbox.ask(request)
