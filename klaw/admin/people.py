"""People by the admin socket: what the ``person_…`` commands answer.

The answers hold names: they go to the terminal of whoever asks, who is the server's own user, and never into a log.
"""

from itertools import pairwise
from typing import Any, assert_never

from klaw.admin.answers import check_user
from klaw.admin.fields import problems_in
from klaw.admin.people_requests import (
    OfPeople,
    PersonAdd,
    PersonDelete,
    PersonEdit,
    PersonHistory,
    PersonList,
    PersonMerge,
    PersonShow,
    PersonUndo,
)
from klaw.admin.requests import BadRequest
from klaw.domain.names import LOCAL_USER, UserId
from klaw.domain.person import InvalidPerson, Person, PersonId, PersonSource, normal_name, person_name
from klaw.errors import NoSuchPerson, Problem
from klaw.memory.people.people import CannotUndoPerson, People, SamePerson
from klaw.store.readers import Readers
from klaw.store.sql import people as sql
from klaw.store.sql.people import Known

DEFAULT_LIMIT = 50
MOST_MENTIONS = 100
_ADDED = ("name", "aliases", "relation")
_EDITED = ("name", "relation", "add_aliases", "remove_aliases")


async def run_on_people(people: People, readers: Readers, request: OfPeople) -> dict[str, Any]:
    """Carry out a request.

    Raises:
        BadRequest: ``bad_args``; ``bad_person`` with every wrong field; ``unknown_person``, ``several_people``,
            ``same_person``, ``cannot_undo``.
        StorageError: the store refused or failed.
        ActorStopped: the store is gone.

    Cancellation: a change may or may not be made.
    """
    user = check_user(request.user) if request.user is not None else UserId(LOCAL_USER)
    try:
        match request:
            case PersonList():
                return await list_people(readers, user, request)
            case PersonAdd():
                return await _add(people, readers, user, _read(request.fields, _ADDED, needed="name"))
            case PersonMerge():
                one, into = await _one(people, user, request.person), await _one(people, user, request.into, "into")
                return {"merged": one, "person": await _told(readers, await people.merge(user, one, into))}
            case _:
                return await _on_one(people, readers, user, request)
    except NoSuchPerson:
        raise BadRequest("unknown_person", "person: there is none of this id or name, or it was merged") from None
    except SamePerson as error:
        raise BadRequest("same_person", str(error)) from None
    except CannotUndoPerson as error:
        raise BadRequest("cannot_undo", str(error)) from None
    except InvalidPerson as error:
        field, _, text = str(error).partition(": ")
        raise _bad([Problem(field, text)]) from None


async def _on_one(
    people: People,
    readers: Readers,
    user: UserId,
    request: PersonShow | PersonEdit | PersonDelete | PersonHistory | PersonUndo,
) -> dict[str, Any]:
    person = await _one(people, user, request.person)
    match request:
        case PersonShow():
            return await _show(readers, user, person)
        case PersonEdit():
            return {"person": await _told(readers, await _edit(people, readers, user, person, request))}
        case PersonDelete():
            return {"removed": person_json(await people.remove(user, person))}
        case PersonHistory():
            return await _history(readers, user, person)
        case PersonUndo():
            undone = await people.undo(user, person, to=request.entry)
            return {
                "id": person,
                "person": person_json(undone.person) if undone.person is not None else None,
                "revived": [person_json(each) for each in undone.revived],
            }
        case _:
            assert_never(request)


def person_json(person: Person) -> dict[str, Any]:
    """A person as plain JSON values."""
    return {
        "id": person.id,
        "name": person.name,
        "aliases": list(person.aliases),
        "relation": person.relation,
        "source": person.source.value,
        "said_at": person.said_at,
        "created_at": person.created_at,
        "updated_at": person.updated_at,
        "merged_into": person.merged_into,
    }


def what_happened(before: Person | None, now: Person | None) -> str:
    """What a change of a person was, in words. Pure."""
    if now is None:
        return "removed"
    if before is None:
        return "added"
    if now.merged_into != before.merged_into:
        return f"turned out to be {now.merged_into}" if now.merged_into else "somebody of their own again"
    fields = [
        ("name", now.name != before.name),
        ("other names", now.aliases != before.aliases),
        ("relation", now.relation != before.relation),
    ]
    changed = [field for field, differs in fields if differs]
    return f"{', '.join(changed)} changed" if changed else "said again"


def _known_json(known: Known) -> dict[str, Any]:
    return {**person_json(known.person), "topics": known.topics, "last_at": known.last_at}


async def _told(readers: Readers, person: Person) -> dict[str, Any]:
    found = await readers.run(sql.of_user, person.user, only=person.id)
    return _known_json(found[0] if found else Known(person, 0, None))


async def list_people(readers: Readers, user: UserId, request: PersonList) -> dict[str, Any]:
    """A page of a user's people. Raises StorageError."""
    limit, page = request.limit or DEFAULT_LIMIT, request.page or 1
    found = await readers.run(sql.of_user, user, limit=limit, offset=min(limit * (page - 1), 2**53))
    total = await readers.run(sql.count, user)
    return {
        "user": user,
        "count": total,
        "people": [_known_json(each) for each in found],
        "next": page + 1 if limit * page < total else None,
    }


async def _show(readers: Readers, user: UserId, person: PersonId) -> dict[str, Any]:
    found = await readers.run(sql.get, user, person)
    if found is None:
        raise NoSuchPerson
    spoken = await readers.run(sql.mentions, user, person, limit=MOST_MENTIONS)
    return {
        "person": await _told(readers, found),
        "was": [person_json(each) for each in await readers.run(sql.merged_into, user, person)],
        "mentions": [
            {"topic": each.topic, "day": each.day, "message": each.mention.message, "at": each.mention.at}
            for each in spoken
            if each.topic is not None or each.day
        ],
    }


async def _history(readers: Readers, user: UserId, person: PersonId) -> dict[str, Any]:
    past = await readers.run(sql.history, user, person)
    if not past:
        raise NoSuchPerson
    changes = [
        {
            "entry": now.entry,
            "at": now.at,
            "what": what_happened(before.person if before is not None else None, now.person),
            "person": person_json(now.person) if now.person else None,
        }
        for before, now in pairwise((None, *past))
        if now is not None
    ]
    return {"user": user, "id": person, "changes": changes}


async def _add(people: People, readers: Readers, user: UserId, fields: dict[str, Any]) -> dict[str, Any]:
    aliases, relation = fields.get("aliases", []), fields.get("relation", "")
    await _check_another(readers, user, fields["name"], aliases, relation)
    person = await people.add(user, fields["name"], aliases=aliases, relation=relation, source=PersonSource.USER)
    same = [each.id for each in await readers.run(sql.by_names, user, person.names) if each.id != person.id]
    return {"person": await _told(readers, person), "namesakes": same}


async def _check_another(readers: Readers, user: UserId, name: str, aliases: list[str], relation: str) -> None:
    """Two of one name whom nothing tells apart are one, added twice. Raises BadRequest."""
    if aliases or not normal_name(name):
        return
    for known in await readers.run(sql.by_names, user, [name]):
        told_apart = relation and normal_name(relation) != normal_name(known.relation)
        if normal_name(known.name) == normal_name(name) and not told_apart:
            raise BadRequest(
                "person_exists",
                f"{_described(known)} is known already; if this is another one, say who: --relation TEXT; to change"
                f" what is known: klaw people edit {known.id}",
            )


def _described(person: Person) -> str:
    """Whom an id means, in a few words."""
    return f"{person.name} ({', '.join(filter(None, (person.relation, person.id)))})"


async def _edit(people: People, readers: Readers, user: UserId, person: PersonId, request: PersonEdit) -> Person:
    fields = _read(request.fields, _EDITED)
    present = await readers.run(sql.get, user, person)
    if present is None:
        raise NoSuchPerson
    gone = {normal_name(each) for each in fields.get("remove_aliases", [])}
    if unknown := gone - {normal_name(each) for each in present.aliases}:
        raise _bad([Problem("remove_aliases", f"{len(unknown)} of them are no aliases of this person")])
    former = [present.name] if "name" in fields else []
    aliases = [each for each in (*former, *present.aliases) if normal_name(each) not in gone]
    return await people.edit(
        user,
        person,
        name=fields.get("name"),
        aliases=[*aliases, *fields.get("add_aliases", [])],
        relation=fields.get("relation"),
    )


async def _one(people: People, user: UserId, text: str, field: str = "person") -> PersonId:
    """The person that is meant; one that was removed only by its id. Raises BadRequest."""
    found = await people.find(user, text)
    if len(found) > 1:
        ids = ", ".join(map(_described, found))
        raise BadRequest("several_people", f"{field}: several people have this name; name one by its id: {ids}")
    return found[0].id if found else PersonId(text)


# -- fields ------------------------------------------------------------------------------------------------------------


def _read(fields: dict[str, Any], known: tuple[str, ...], *, needed: str | None = None) -> dict[str, Any]:
    """Check the forms of raw fields. Raises BadRequest (``bad_person``) that names every wrong one."""
    if problems := problems_in(fields, known, _wrong, needed=needed):
        raise _bad(problems)
    return fields


def _wrong(field: str, value: Any) -> str | None:
    if field in ("name", "relation"):
        return None if isinstance(value, str) else "must be a text"
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        return "must be a list of texts"
    if field == "remove_aliases":
        return None
    try:
        for each in value:
            person_name(each)
    except InvalidPerson as error:
        return str(error).removeprefix("name: ")
    return None


def _bad(problems: list[Problem]) -> BadRequest:
    return BadRequest("bad_person", problems=problems)
