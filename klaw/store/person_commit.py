"""The request that changes people, carried out in the writer's transaction; its lines join the group's."""

import apsw

from klaw.domain.person import InvalidPerson, check
from klaw.errors import NoSuchPerson, StorageError
from klaw.store.journal import Entry
from klaw.store.memory_commit import check_nothing_forgotten, journal
from klaw.store.person_records import MentionEntry, PersonEntry
from klaw.store.person_requests import ChangePeople
from klaw.store.sql import people


def execute_of_people(connection: apsw.Connection, request: ChangePeople, entries: list[Entry]) -> None:
    """Carry out a request inside a savepoint. To ask again for what is so already writes nothing.

    Raises:
        KlawError: it is refused; the caller takes back what was done.
    """
    user = request.user
    check_nothing_forgotten(connection, user, request.as_of)
    for person in request.put:
        if person.user != user:
            raise StorageError("the person is another user's")
        try:
            check(person)
        except InvalidPerson as error:
            raise StorageError(f"the person cannot be stored: {error}") from None
        if people.get(connection, user, person.id) != person:
            put = PersonEntry(entry=0, time=request.at, user=user, id=person.id, person=person)
            journal(connection, entries, put)
    for gone in request.removed:
        if people.get(connection, user, gone) is None:
            raise NoSuchPerson
        journal(connection, entries, PersonEntry(entry=0, time=request.at, user=user, id=gone, person=None))
    for person in request.put:
        into = people.get(connection, user, person.merged_into) if person.merged_into is not None else None
        if person.merged_into is not None and (into is None or not into.active):
            raise NoSuchPerson
    for named, mention in request.mentions:
        if people.get(connection, user, named) is None:
            raise NoSuchPerson
        if not people.is_mentioned(connection, user, named, mention.topic):
            noted = MentionEntry(entry=0, time=request.at, user=user, id=named, mention=mention)
            journal(connection, entries, noted)
