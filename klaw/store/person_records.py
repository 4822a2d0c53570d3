"""People and their mentions as entries of the memory journal. Pure."""

from typing import Any

import attrs

from klaw.domain.names import UserId
from klaw.domain.person import Mention, Person, PersonId, PersonSource, check
from klaw.store.fields import optional_text, text, whole

PERSON, MENTION = "person", "mention"
"""The words in ``what``."""


@attrs.frozen(kw_only=True)
class PersonEntry:
    """One change of a person."""

    entry: int
    time: str
    user: UserId
    id: PersonId
    person: Person | None
    """What was put; None: it was removed."""


@attrs.frozen(kw_only=True)
class MentionEntry:
    """A topic that names a person."""

    entry: int
    time: str
    user: UserId
    id: PersonId
    mention: Mention


def person_value(person: Person) -> dict[str, Any]:
    """Everything but whose it is and under which id: the journal's line has those beside it."""
    return {
        "name": person.name,
        "aliases": list(person.aliases),
        "relation": person.relation,
        "source": person.source,
        "said_at": person.said_at,
        "created_at": person.created_at,
        "updated_at": person.updated_at,
        "merged_into": person.merged_into,
    }


def read_person(user: UserId, person_id: PersonId, value: dict[str, Any]) -> Person:
    """The person of a value. Raises KeyError, TypeError or ValueError for a malformed one."""
    into = optional_text(value["merged_into"])
    if not isinstance(value["aliases"], list):
        raise TypeError("aliases are no list")
    person = Person(
        id=person_id,
        user=user,
        name=text(value["name"]),
        aliases=tuple(map(text, value["aliases"])),
        relation=text(value["relation"]),
        source=PersonSource(value["source"]),
        said_at=text(value["said_at"]),
        created_at=text(value["created_at"]),
        updated_at=text(value["updated_at"]),
        merged_into=PersonId(into) if into is not None else None,
    )
    check(person)
    return person


def mention_value(mention: Mention) -> dict[str, Any]:
    return {"topic": mention.topic, "message": mention.message, "at": mention.at}


def read_people_entry(record: dict[str, Any]) -> PersonEntry | MentionEntry:
    """The entry of a line. Raises KeyError, TypeError or ValueError for a malformed one."""
    entry, time, user = whole(record["entry"]), text(record["time"]), UserId(text(record["user_id"]))
    person, value = PersonId(text(record["key"])), record["value"] if record["op"] == "put" else None
    if record["what"] == MENTION:
        if value is None:
            raise ValueError("a mention is only put")
        mention = Mention(topic=text(value["topic"]), message=text(value["message"]), at=text(value["at"]))
        return MentionEntry(entry=entry, time=time, user=user, id=person, mention=mention)
    put = read_person(user, person, value) if value is not None else None
    return PersonEntry(entry=entry, time=time, user=user, id=person, person=put)
