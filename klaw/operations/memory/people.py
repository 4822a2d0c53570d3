"""People a user speaks of. The answers hold names, so they never go into a log."""

from typing import Any, NotRequired, TypedDict

import attrs

from klaw.domain.names import UserId
from klaw.domain.person import MentionedIn, Person, PersonId, PersonName, PersonSource, SpokenOf, normal_name
from klaw.domain.search import PersonResult
from klaw.errors import NoSuchPerson, Problem
from klaw.operations import operation as op
from klaw.operations import stored
from klaw.operations.handler import Caller, DatabaseParts, Parts
from klaw.operations.lines import Lines, Table, minute
from klaw.operations.record_fields import changes, own_fields, typed
from klaw.operations.records import Records

MOST_MENTIONS = 100
FOUND = 5
IN_CHATS = 20

NOUN = op.Noun(
    "people", "list, change, merge and remove the people a user speaks of (docs/topics.md)", invalid="bad_person"
)


@attrs.frozen(kw_only=True)
class PersonFind(op.OfUser):
    text: op.Query = op.required("a text with names in it, such as: who is Anna", words=True)


@attrs.frozen(kw_only=True)
class ChangedAliases:
    add_aliases: tuple[PersonName, ...] | None = op.argument(
        "another name; may be repeated", metavar="NAME", option="--alias", title="Other names"
    )
    remove_aliases: tuple[str, ...] | None = op.argument(
        "remove this alias; may be repeated", metavar="NAME", option="--no-alias"
    )


def what_happened(before: Person | None, now: Person | None) -> str:
    if now is None:
        return "removed"
    if before is None:
        return "added"
    if now.merged_into != before.merged_into:
        return f"turned out to be {now.merged_into}" if now.merged_into else "restored as a separate person"
    fields = [
        ("name", now.name != before.name),
        ("other names", now.aliases != before.aliases),
        ("relation", now.relation != before.relation),
    ]
    changed = [field for field, differs in fields if differs]
    return f"{', '.join(changed)} changed" if changed else "said again"


async def _meant(named: str, caller: Caller, parts: Parts, field: str = "person") -> PersonId:
    """The person that is meant; one that was removed only by its id. Raises OperationError."""
    found = await parts.memory.people.find(caller.user, named)
    if len(found) > 1:
        ids = ", ".join(map(_described, found))
        raise op.OperationError(
            "several_people", f"several people have this name; use one of the ids: {ids}", field=field
        )
    return found[0].id if found else PersonId(named)


def _described(person: Person) -> str:
    return f"{person.name} ({', '.join(filter(None, (person.relation, person.id)))})"


PEOPLE = Records(
    NOUN,
    Person,
    "person",
    "people",
    kind=lambda: stored.people.PERSON,
    id_help="the id, a name or an alias",
    shown=SpokenOf,
    editing=ChangedAliases,
    unknown=NoSuchPerson,
    meant=_meant,
    what_happened=what_happened,
)
OfPerson: Any = PEOPLE.of_one()


def _in_chat(answer: dict[str, Any]) -> Lines:
    if not answer["people"]:
        return ["No people are known yet. `klaw people add NAME` adds one; topics.enabled finds them in your talk."]
    rows = [[*told(each)[:-1], f"named in {each['topics']}" if each["topics"] else ""] for each in answer["people"]]
    head = "People you speak of, those named most often first:"
    return [head, Table(rows), *op.also(answer, "people", "klaw people list")]


def _found(answer: dict[str, Any]) -> Lines:
    """Facts are shown whole: of a part, forgetting would not know what it is."""
    lines = []
    for each in answer["people"]:
        lines.append("  ".join(filter(None, [*told(each), f"person:{each['id']}"])))
        lines += [f"  {fact['text']}" for fact in each["facts"]]
    return lines or ["Nobody of that name is known."]


def told(person: dict[str, Any]) -> list[str]:
    """Who a person is, in a few words; some may be empty."""
    aliases = f"also {', '.join(person['aliases'])}" if person["aliases"] else ""
    named = f"last named {minute(person['last_at'])[:10]}" if person["last_at"] else ""
    return [person["name"], person["relation"], aliases, named]


def _person(answer: dict[str, Any]) -> Lines:
    same = ", ".join(answer.get("namesakes", ()))
    return [*PEOPLE.one_lines(answer), *([f"others have one of these names: {same}"] if same else [])]


def with_topics(answer: dict[str, Any]) -> Lines:
    was = [f"was also known as {each['id']}: {each['name']}" for each in answer["was"]]
    topics = [
        [minute(each["at"]), f"day {each['day']}" if each["day"] else f"topic {each['topic']}"]
        for each in answer["mentions"]
    ]
    return [*PEOPLE.one_lines(answer), *was, Table(topics)]


def _removed(answer: dict[str, Any]) -> Lines:
    forever = f"to take the person out of everything: klaw forget person:{answer['removed']['id']}"
    return [*PEOPLE.removed_lines(answer), forever]


def _known(known: "stored.people.KnownPerson") -> SpokenOf:
    return SpokenOf(**attrs.asdict(known.person), topics=known.topics, last_at=known.last_at)


async def _with_counts(person: Person, parts: Parts) -> SpokenOf:
    found = await parts.readers.run(stored.people.of_user, person.user, only=person.id)
    return _known(found[0] if found else stored.people.KnownPerson(person, 0, None))


_SLASH = op.Slash(
    word="/people",
    help="list the people you speak of; /people NAME tells who one is",
    given={"limit": IN_CHATS},
    show=_in_chat,
)


@PEOPLE.handler("list", offline=True, slash=_SLASH, mcp="people")
async def list_people(asked: op.PagedArguments, caller: Caller, parts: DatabaseParts) -> dict[str, Any]:
    """List the people, those named most often first.

    Who the user speaks of, with other names and who they are to the user; fetch person:ID shows what is known of one.
    """
    found = await parts.readers.run(stored.people.of_user, caller.user, limit=asked.limit, offset=asked.offset)
    total = await parts.readers.run(stored.people.count, caller.user)
    return {"user": caller.user, "count": total, "people": list(map(_known, found)), "next": asked.following(total)}


class PeopleFound(TypedDict):
    user: str
    people: tuple[PersonResult, ...]


@NOUN.operation(
    "person_find", PersonFind, cli="find", show=_found, offline=True, slash=op.Slash(word="/people", rest="text")
)
async def find(asked: PersonFind, caller: Caller, parts: DatabaseParts) -> PeopleFound:
    """Tell who is named in a text, and what is known of them."""
    from klaw.memory.search.named_people import find_people

    found = await find_people(parts.readers, asked.text, caller.user, limit=FOUND)
    return {"user": caller.user, "people": found}


@PEOPLE.handler("show", show=with_topics, more={"was": list[Person], "mentions": list[MentionedIn]})
async def show(asked: Any, caller: Caller, parts: Parts) -> dict[str, Any]:
    """Show a person with the topics that name it."""
    person = await _meant(asked.person, caller, parts)
    found = await parts.readers.run(stored.people.get, caller.user, person)
    if found is None:
        raise NoSuchPerson
    spoken = await parts.readers.run(stored.people.mentions, caller.user, person, limit=MOST_MENTIONS)
    return {
        "person": await _with_counts(found, parts),
        "was": await parts.readers.run(stored.people.merged_into, caller.user, person),
        "mentions": [
            {"topic": each.topic, "day": each.day, "message": each.mention.message, "at": each.mention.at}
            for each in spoken
            if each.topic is not None or each.day
        ],
    }


@PEOPLE.handler("add", show=_person, more={"namesakes": NotRequired[list[str]]})
async def add(asked: Any, caller: Caller, parts: Parts) -> dict[str, Any]:
    """Add a person."""
    await _check_another(asked.fields, caller.user, parts)
    new = own_fields(Person, asked.fields)
    person = await parts.memory.people.add(caller.user, **new, source=PersonSource.USER)
    known = await parts.readers.run(stored.people.by_names, caller.user, person.names)
    same = [str(each.id) for each in known if each.id != person.id]
    return {"person": await _with_counts(person, parts), "namesakes": same}


async def _check_another(new: Any, user: UserId, parts: Parts) -> None:
    """Two of one name whom nothing tells apart are one, added twice. Raises OperationError."""
    if new.aliases or not normal_name(new.name):
        return
    for known in await parts.readers.run(stored.people.by_names, user, [new.name]):
        told_apart = new.relation and normal_name(new.relation) != normal_name(known.relation)
        if normal_name(known.name) == normal_name(new.name) and not told_apart:
            raise op.OperationError(
                "person_exists",
                f"{_described(known)} is known already; if this is somebody else, say who: --relation TEXT; to change"
                f" what is known: klaw people edit {known.id}",
            )


@PEOPLE.handler("edit", show=_person, mcp="correct_person")
async def edit(asked: Any, caller: Caller, parts: Parts) -> dict[str, Any]:
    """Change a person; what is not given stays as it is.

    For what is wrong or out of date: the name, other names, or who they are to the user. search and people tell the id.
    """
    person, fields = await _meant(asked.person, caller, parts), asked.fields
    present = await parts.readers.run(stored.people.get, caller.user, person)
    if present is None:
        raise NoSuchPerson
    gone = {normal_name(each) for each in fields.remove_aliases or ()}
    if unknown := gone - {normal_name(each) for each in present.aliases}:
        problem = Problem("remove_aliases", f"{len(unknown)} of them are no aliases of this person")
        raise op.OperationError("bad_person", problems=[problem])
    former = [present.name] if fields.name is not None else []
    aliases = [each for each in (*former, *present.aliases) if normal_name(each) not in gone]
    aliases += fields.add_aliases or ()
    changed = await parts.memory.people.edit(caller.user, person, aliases=aliases, **changes(Person, fields))
    return {"person": await _with_counts(changed, parts)}


@NOUN.operation(
    "person_merge",
    PEOPLE.of_one("Merge", into=typed(op.Name, op.required("the other one, whose name stays", id_of="person"))),
    cli="merge",
    show=lambda answer: [*_person(answer), f"to undo this: klaw people undo {answer['merged']}"],
    answers=PEOPLE.answer("MergedPerson", merged=str),
    changes=True,
)
async def merge(asked: Any, caller: Caller, parts: Parts) -> dict[str, Any]:
    """Say that a person is the same as another one, who gets all names."""
    one, into = await _meant(asked.person, caller, parts), await _meant(asked.into, caller, parts, "into")
    both = await parts.memory.people.merge(caller.user, one, into)
    return {"merged": one, "person": await _with_counts(both, parts)}


@PEOPLE.handler("delete", show=_removed)
async def delete(asked: Any, caller: Caller, parts: Parts) -> dict[str, Any]:
    """Remove a person; the history stays, so that this can be undone."""
    person = await _meant(asked.person, caller, parts)
    return {"removed": await parts.memory.people.remove(caller.user, person)}


PEOPLE.declare("history")


@PEOPLE.handler("undo")
async def undo(asked: Any, caller: Caller, parts: Parts) -> dict[str, Any]:
    """Undo the newest change of a person, also a merge, a removal or the creation."""
    person = await _meant(asked.person, caller, parts)
    now, revived = await parts.memory.people.undo(caller.user, person, to=asked.entry)
    return {"id": person, "person": now, "revived": revived}
