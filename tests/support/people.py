"""People for tests."""

from itertools import count
from typing import Any

from klaw.actor.clock import SystemClock
from klaw.domain.names import UserId
from klaw.domain.person import Mention, Person, PersonId, PersonSource
from klaw.memory.facts.people import People
from klaw.memory.topics.people_extractor import PeopleExtractor
from klaw.store.kinds import people
from klaw.store.store import Store

_count = count(1)
AT = "2026-11-21T10:00:00.000Z"


def people_of(store: Store) -> People:
    return People(store.writer, store.readers, SystemClock(), lambda: f"p{next(_count)}")


def people_drawer(store: Store) -> PeopleExtractor:
    return PeopleExtractor(people_of(store), store.readers)


async def add(store: Store, name: str, *, user: str = "anna", mention: Mention | None = None, **values: Any) -> Person:
    return await people_of(store).add(UserId(user), name, **{"source": PersonSource.USER, "mention": mention, **values})


async def names(store: Store, user: str = "anna") -> list[str]:
    return sorted(each.person.name for each in await store.readers.run(people.of_user, UserId(user)))


async def the(store: Store, person: str, user: str = "anna") -> Person:
    found = await store.readers.run(people.get, UserId(user), PersonId(person))
    assert found is not None
    return found


def in_topic(topic: int, message: str = "m1", at: str = AT) -> Mention:
    return Mention(topic=str(topic), message=message, at=at)
