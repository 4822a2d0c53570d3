"""People that a user talks about. ``klaw.memory.people`` is the only one who changes them."""

from collections.abc import Sequence

from klaw.domain.names import UserId
from klaw.domain.person import InvalidPerson, Mention, Person, PersonId, check
from klaw.errors import NoSuchPerson, StorageError
from klaw.store.engine.transaction import Transaction
from klaw.store.sql import people


def change(
    tx: Transaction,
    user: UserId,
    at: str,
    *,
    put: Sequence[Person] = (),
    removed: Sequence[PersonId] = (),
    mentions: Sequence[tuple[PersonId, Mention]] = (),
    as_of: int | None = None,
) -> None:
    """Change a user's people. To ask again for what is so already writes nothing.

    Args:
        tx: the transaction.
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
    connection = tx.connection
    tx.check_nothing_forgotten(user, as_of)
    for person in put:
        if person.user != user:
            raise StorageError("the person is another user's")
        try:
            check(person)
        except InvalidPerson as error:
            raise StorageError(f"the person cannot be stored: {error}") from None
        if people.get(connection, user, person.id) != person:
            tx.journal(people.PERSON.put(user, person.id, person, at))
    for gone in removed:
        if people.get(connection, user, gone) is None:
            raise NoSuchPerson
        tx.journal(people.PERSON.removed(user, gone, at))
    for person in put:
        into = people.get(connection, user, person.merged_into) if person.merged_into is not None else None
        if person.merged_into is not None and (into is None or not into.active):
            raise NoSuchPerson
    for named, mention in mentions:
        if people.get(connection, user, named) is None:
            raise NoSuchPerson
        if not people.is_mentioned(connection, user, named, mention.topic):
            tx.journal(people.MENTION.put(user, named, mention, at))
