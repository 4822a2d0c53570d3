"""People a user speaks of. The answers hold names, so they never go into a log."""

from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any

import attrs

from klaw.convert import Bounds, Check
from klaw.domain.imported import ORIGIN
from klaw.domain.names import UserId
from klaw.domain.person import (
    MAX_NAME,
    MAX_RELATION,
    Person,
    PersonId,
    PersonSource,
    normal_name,
    person_name,
    relation_text,
)
from klaw.domain.text import HAS_LETTER
from klaw.errors import NoSuchPerson, Problem
from klaw.operations import operation as op
from klaw.operations.handler import Caller, DatabaseParts, Parts

if TYPE_CHECKING:
    from klaw.memory.facts.people import People
    from klaw.operations.answers.memory import (
        OnePerson,
        PeopleFound,
        PersonChange,
        PersonHistory,
        PersonPage,
        RemovedPerson,
        ShownPerson,
        UndonePerson,
    )
    from klaw.store.engine.database import Readers
    from klaw.store.kinds.people import KnownPerson

MOST_MENTIONS = 100
FOUND = 5
IN_CHATS = 20

NOUN = op.Noun(
    "people", "list, change, merge and remove the people a user speaks of (docs/topics.md)", invalid="bad_person"
)

PersonName = Annotated[str, Check(op.without_field(person_name), Bounds(1, MAX_NAME, HAS_LETTER))]
Relation = Annotated[str, Check(op.without_field(relation_text), Bounds(0, MAX_RELATION))]

_RELATION = "who the person is to the user, for instance sister"


@attrs.frozen(kw_only=True)
class OfPerson(op.OfUser):
    person: op.Name = op.required("the id, a name or an alias", id_of="person")


@attrs.frozen(kw_only=True)
class PersonFind(op.OfUser):
    text: op.Query = op.required("a text with names in it, such as: who is Anna", words=True)


@attrs.frozen(kw_only=True)
class NewPerson:
    name: PersonName = op.required("what you call the person", words=True)
    aliases: tuple[PersonName, ...] = op.argument(
        "another name; may be repeated", default=(), metavar="NAME", option="--alias"
    )
    relation: Relation = op.argument(_RELATION, default="", metavar="TEXT")


@attrs.frozen(kw_only=True)
class PersonAdd(op.OfUser):
    fields: NewPerson = op.argument("the person", default=attrs.NOTHING)


@attrs.frozen(kw_only=True)
class PersonFields:
    name: PersonName | None = op.argument("a new name; the old one stays as an alias")
    relation: Relation | None = op.argument(_RELATION, metavar="TEXT")
    add_aliases: tuple[PersonName, ...] | None = op.argument(
        "another name; may be repeated", metavar="NAME", option="--alias"
    )
    remove_aliases: tuple[str, ...] | None = op.argument(
        "remove this alias; may be repeated", metavar="NAME", option="--no-alias"
    )


@attrs.frozen(kw_only=True)
class PersonEdit(OfPerson):
    fields: Annotated[PersonFields, Check(op.something, Bounds(1))] = op.argument(
        "what to change", default=attrs.NOTHING
    )


@attrs.frozen(kw_only=True)
class PersonMerge(OfPerson):
    into: op.Name = op.required("the other one, whose name stays", id_of="person")


@attrs.frozen(kw_only=True)
class PersonUndo(OfPerson):
    entry: op.Whole | None = op.argument("go back to this entry of the history", metavar="N")


# -- how they are shown -----------------------------------------------------------------------------------------------


def _table(answer: dict[str, Any], again: Callable[..., str]) -> op.Lines:
    if not answer["people"]:
        return ["no more people" if answer["count"] else "no people: `klaw people add NAME` adds one"]
    rows = [
        [each["id"], str(each["topics"]), op.minute(each["last_at"]), each["name"], *_also(each)]
        for each in answer["people"]
    ]
    head = ["person", "topics", "last named", "name", "also", "relation"]
    return [op.Table([head, *rows], right=frozenset({1})), *op.more(answer, again)]


def _also(person: dict[str, Any]) -> list[str]:
    return [", ".join(person["aliases"]) or "-", person["relation"] or "-"]


def _in_chat(answer: dict[str, Any]) -> op.Lines:
    if not answer["people"]:
        return ["No people are known yet. `klaw people add NAME` adds one; topics.enabled finds them in your talk."]
    rows = [[*told(each)[:-1], f"named in {each['topics']}" if each["topics"] else ""] for each in answer["people"]]
    head = "People you speak of, those named most often first:"
    return [head, op.Table(rows), *op.also(answer, "people", "klaw people list")]


def _found(answer: dict[str, Any]) -> op.Lines:
    """Facts are shown whole: of a part, forgetting would not know what it is."""
    lines = []
    for each in answer["people"]:
        lines.append("  ".join(filter(None, [*told(each), f"person:{each['id']}"])))
        lines += [f"  {fact['text']}" for fact in each["facts"]]
    return lines or ["Nobody of that name is known."]


def told(person: dict[str, Any]) -> list[str]:
    """Who a person is, in a few words; some may be empty."""
    aliases = f"also {', '.join(person['aliases'])}" if person["aliases"] else ""
    named = f"last named {op.minute(person['last_at'])[:10]}" if person["last_at"] else ""
    return [person["name"], person["relation"], aliases, named]


def _person(answer: dict[str, Any]) -> op.Lines:
    person, same = answer["person"], ", ".join(answer.get("namesakes", ()))
    rows = [
        ("person", person["id"]),
        ("name", person["name"]),
        ("also", ", ".join(person["aliases"]) or None),
        ("relation", person["relation"] or None),
        ("source", person["source"]),
        ("brought by", person["imported"] and ORIGIN + person["imported"]),
        ("topics", str(person["topics"]) if "topics" in person else None),
        ("changed", op.minute(person["updated_at"])),
        ("history", f"this is {person['merged_into']}" if person["merged_into"] is not None else None),
    ]
    return [op.details(rows), *([f"others have one of these names: {same}"] if same else [])]


def with_topics(answer: dict[str, Any]) -> op.Lines:
    """A person with the topics that name it."""
    was = [f"was also known as {each['id']}: {each['name']}" for each in answer["was"]]
    topics = [
        [op.minute(each["at"]), f"day {each['day']}" if each["day"] else f"topic {each['topic']}"]
        for each in answer["mentions"]
    ]
    return [*_person(answer), *was, op.Table(topics)]


def _merged(answer: dict[str, Any]) -> op.Lines:
    return [*_person(answer), f"to undo this: klaw people undo {answer['merged']}"]


def _removed(answer: dict[str, Any]) -> op.Lines:
    person = answer["removed"]
    return [
        f"removed {person['id']}: {person['name']}",
        f"to undo this: klaw people undo {person['id']}",
        f"to take the person out of everything: klaw forget person:{person['id']}",
    ]


def _history(answer: dict[str, Any]) -> op.Lines:
    rows = []
    for each in answer["changes"]:
        person = each["person"]
        now = [person["name"], *_also(person)] if person is not None else ["-", "-", "-"]
        rows.append([str(each["entry"]), op.minute(each["at"]), each["what"], *now])
    return [op.Table([["entry", "at", "what", "name", "also", "relation"], *rows], right=frozenset({0}))]


def _undone(answer: dict[str, Any]) -> op.Lines:
    back = [f"a person again: {each['id']}: {each['name']}" for each in answer["revived"]]
    return [*(_person(answer) if answer["person"] is not None else [f"removed {answer['id']}"]), *back]


def what_happened(before: Person | None, now: Person | None) -> str:
    """What a change of a person was, in words. Pure."""
    if now is None:
        return "removed"
    if before is None:
        return "added"
    if now.merged_into != before.merged_into:
        return f"turned out to be {now.merged_into}" if now.merged_into else "a separate person again"
    fields = [
        ("name", now.name != before.name),
        ("other names", now.aliases != before.aliases),
        ("relation", now.relation != before.relation),
    ]
    changed = [field for field, differs in fields if differs]
    return f"{', '.join(changed)} changed" if changed else "said again"


# -- the operations ---------------------------------------------------------------------------------------------------


def _known(known: "KnownPerson") -> Any:  # a SpokenOf
    return {**attrs.asdict(known.person), "topics": known.topics, "last_at": known.last_at}


async def _with_counts(readers: "Readers", person: Person) -> Any:  # a SpokenOf
    from klaw.store.kinds import people as sql

    found = await readers.run(sql.of_user, person.user, only=person.id)
    return _known(found[0] if found else sql.KnownPerson(person, 0, None))


async def _meant(people: "People", user: UserId, text: str, field: str = "person") -> PersonId:
    """The person that is meant; one that was removed only by its id. Raises OperationError."""
    found = await people.find(user, text)
    if len(found) > 1:
        ids = ", ".join(map(_described, found))
        raise op.OperationError(
            "several_people", f"several people have this name; use one of the ids: {ids}", field=field
        )
    return found[0].id if found else PersonId(text)


def _described(person: Person) -> str:
    """Whom an id means, in a few words."""
    return f"{person.name} ({', '.join(filter(None, (person.relation, person.id)))})"


_SLASH = op.Slash(
    word="/people",
    help="list the people you speak of; /people NAME tells who one is",
    given={"limit": IN_CHATS},
    show=_in_chat,
)


@NOUN.operation("person_list", op.Paged, cli="list", show=_table, offline=True, slash=_SLASH, mcp="people")
async def list_people(asked: op.Paged, caller: Caller, parts: DatabaseParts) -> "PersonPage":
    """List the people, those named most often first.

    Who the user speaks of, with other names and who they are to the user; fetch person:ID shows what is known of one.
    """
    from klaw.store.kinds import people as sql

    found = await parts.readers.run(sql.of_user, caller.user, limit=asked.limit, offset=asked.offset)
    total = await parts.readers.run(sql.count, caller.user)
    return {"user": caller.user, "count": total, "people": list(map(_known, found)), "next": asked.following(total)}


@NOUN.operation(
    "person_find", PersonFind, cli="find", show=_found, offline=True, slash=op.Slash(word="/people", rest="text")
)
async def find(asked: PersonFind, caller: Caller, parts: DatabaseParts) -> "PeopleFound":
    """Tell who is named in a text, and what is known of them."""
    from klaw.memory.search.named_people import find_people

    found = await find_people(parts.readers, asked.text, caller.user, limit=FOUND)
    return {"user": caller.user, "people": found}


@NOUN.operation("person_show", OfPerson, cli="show", show=with_topics)
async def show(asked: OfPerson, caller: Caller, parts: Parts) -> "ShownPerson":
    """Show a person with the topics that name it."""
    from klaw.store.kinds import people as sql

    person = await _meant(parts.memory.people, caller.user, asked.person)
    found = await parts.readers.run(sql.get, caller.user, person)
    if found is None:
        raise NoSuchPerson
    spoken = await parts.readers.run(sql.mentions, caller.user, person, limit=MOST_MENTIONS)
    return {
        "person": await _with_counts(parts.readers, found),
        "was": await parts.readers.run(sql.merged_into, caller.user, person),
        "mentions": [
            {"topic": each.topic, "day": each.day, "message": each.mention.message, "at": each.mention.at}
            for each in spoken
            if each.topic is not None or each.day
        ],
    }


@NOUN.operation("person_add", PersonAdd, cli="add", show=_person, changes=True)
async def add(asked: PersonAdd, caller: Caller, parts: Parts) -> "OnePerson":
    """Add a person."""
    from klaw.store.kinds import people as sql

    new = asked.fields
    await _check_another(parts.readers, caller.user, new)
    person = await parts.memory.people.add(
        caller.user, new.name, aliases=new.aliases, relation=new.relation, source=PersonSource.USER
    )
    same = [
        str(each.id)
        for each in await parts.readers.run(sql.by_names, caller.user, person.names)
        if each.id != person.id
    ]
    return {"person": await _with_counts(parts.readers, person), "namesakes": same}


async def _check_another(readers: "Readers", user: UserId, new: NewPerson) -> None:
    """Two of one name whom nothing tells apart are one, added twice. Raises OperationError."""
    from klaw.store.kinds import people as sql

    if new.aliases or not normal_name(new.name):
        return
    for known in await readers.run(sql.by_names, user, [new.name]):
        told_apart = new.relation and normal_name(new.relation) != normal_name(known.relation)
        if normal_name(known.name) == normal_name(new.name) and not told_apart:
            raise op.OperationError(
                "person_exists",
                f"{_described(known)} is known already; if this is somebody else, say who: --relation TEXT; to change"
                f" what is known: klaw people edit {known.id}",
            )


@NOUN.operation("person_edit", PersonEdit, cli="edit", show=_person, changes=True)
async def edit(asked: PersonEdit, caller: Caller, parts: Parts) -> "OnePerson":
    """Change a person; what is not given stays as it is."""
    from klaw.store.kinds import people as sql

    person, fields = await _meant(parts.memory.people, caller.user, asked.person), asked.fields
    present = await parts.readers.run(sql.get, caller.user, person)
    if present is None:
        raise NoSuchPerson
    gone = {normal_name(each) for each in fields.remove_aliases or ()}
    if unknown := gone - {normal_name(each) for each in present.aliases}:
        problem = Problem("remove_aliases", f"{len(unknown)} of them are no aliases of this person")
        raise op.OperationError("bad_person", problems=[problem])
    former = [present.name] if fields.name is not None else []
    aliases = [each for each in (*former, *present.aliases) if normal_name(each) not in gone]
    aliases += fields.add_aliases or ()
    changed = await parts.memory.people.edit(
        caller.user, person, name=fields.name, aliases=aliases, relation=fields.relation
    )
    return {"person": await _with_counts(parts.readers, changed)}


@NOUN.operation("person_merge", PersonMerge, cli="merge", show=_merged, changes=True)
async def merge(asked: PersonMerge, caller: Caller, parts: Parts) -> "OnePerson":
    """Say that a person is the same as another one, who gets all names."""
    one, into = (
        await _meant(parts.memory.people, caller.user, asked.person),
        await _meant(parts.memory.people, caller.user, asked.into, "into"),
    )
    return {
        "merged": one,
        "person": await _with_counts(parts.readers, await parts.memory.people.merge(caller.user, one, into)),
    }


@NOUN.operation("person_delete", OfPerson, cli="delete", show=_removed, changes=True)
async def delete(asked: OfPerson, caller: Caller, parts: Parts) -> "RemovedPerson":
    """Remove a person; the history stays, so that this can be undone."""
    return {
        "removed": await parts.memory.people.remove(
            caller.user, await _meant(parts.memory.people, caller.user, asked.person)
        )
    }


@NOUN.operation("person_history", OfPerson, cli="history", show=_history)
async def history(asked: OfPerson, caller: Caller, parts: Parts) -> "PersonHistory":
    """Show all versions of a person, the oldest first."""
    from klaw.store.kinds import people as sql

    person = await _meant(parts.memory.people, caller.user, asked.person)
    past = await parts.readers.run(sql.history, caller.user, person)
    if not past:
        raise NoSuchPerson
    changes: list[PersonChange] = [
        {
            "entry": now.entry,
            "at": now.time,
            "what": what_happened(before.value if before is not None else None, now.value),
            "person": now.value,
        }
        for before, now in pairwise((None, *past))
        if now is not None
    ]
    return {"user": caller.user, "id": person, "changes": changes}


@NOUN.operation("person_undo", PersonUndo, cli="undo", show=_undone, changes=True)
async def undo(asked: PersonUndo, caller: Caller, parts: Parts) -> "UndonePerson":
    """Undo the newest change of a person, also a merge, a removal or the creation."""
    person = await _meant(parts.memory.people, caller.user, asked.person)
    done = await parts.memory.people.undo(caller.user, person, to=asked.entry)
    return {"id": person, "person": done.person, "revived": done.revived}
