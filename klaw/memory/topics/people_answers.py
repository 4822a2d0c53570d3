"""What a model says about people in its answer on a topic, read strictly: each entry by itself, so that one that cannot
be used takes none of the others with it. Pure.

Known people are named by their numbers in the list that the model was shown. So no answer can name a person of another
user, nor one that it did not see.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

import attrs

from klaw.domain.person import InvalidPerson, aliases_of, person_name, relation_text

MAX_PEOPLE = 20
"""Most entries that one question may bring; of more the first ones count."""
_MOST_READ = 1_000

Action = Literal["add", "update", "merge"]


@attrs.frozen(kw_only=True)
class PersonChange:
    """One entry."""

    action: Action
    person: int
    """Number of the known person, from 1; 0 with ``add``."""
    into: int
    """With ``merge``: the number of the one who it turned out to be; else 0."""
    name: str
    """May be empty but with ``add``."""
    aliases: tuple[str, ...]
    relation: str
    message: int
    """Number of the user's message that says it."""


@attrs.frozen
class PeopleChanges:
    """What an answer brought."""

    wanted: tuple[PersonChange, ...] = ()
    refused: Mapping[str, int] = attrs.field(factory=dict)
    """How many entries were refused, by a word that says why."""


class _Refused(Exception):
    """One entry cannot be used; the text is one word that says why."""


def read_people(items: Any, *, known: int, said: Collection[int]) -> PeopleChanges:
    """The usable entries of an answer, in its order.

    Args:
        items: what stands under ``people``; None when there is nothing.
        known: how many known people the model was shown.
        said: numbers of the user's messages.
    """
    if items is None:
        return PeopleChanges()
    if not isinstance(items, list):
        return PeopleChanges((), {"no_list": 1})
    refused: Counter[str] = Counter()
    wanted: list[PersonChange] = []
    for item in items[:_MOST_READ]:
        try:
            change = _change(item, known, said)
        except _Refused as reason:
            refused[str(reason)] += 1
            continue
        if change in wanted:
            refused["twice"] += 1
        elif len(wanted) == MAX_PEOPLE:
            refused["too_many"] += 1
        else:
            wanted.append(change)
    refused["too_many"] += max(0, len(items) - _MOST_READ)
    return PeopleChanges(tuple(wanted), {reason: count for reason, count in refused.items() if count})


def _change(item: Any, known: int, said: Collection[int]) -> PersonChange:
    if not isinstance(item, dict):
        raise _Refused("no_entry")
    action, person, into = item.get("action"), _number(item.get("person", 0)), _number(item.get("into", 0))
    if action not in ("add", "update", "merge"):
        raise _Refused("unknown_action")
    message = _number(item.get("message"))
    if message not in said:
        raise _Refused("no_message")
    if action != "add" and not 1 <= person <= known:
        raise _Refused("unknown_person")
    if action == "merge" and (not 1 <= into <= known or into == person):
        raise _Refused("unknown_person")
    if action == "merge":
        return PersonChange(action="merge", person=person, into=into, name="", aliases=(), relation="", message=message)
    name = _text(item.get("name"))
    try:
        name = person_name(name) if name or action == "add" else ""
        aliases = aliases_of(name, _aliases(item.get("aliases")))
        relation = relation_text(_text(item.get("relation")))
    except InvalidPerson as error:
        raise _Refused(f"bad_{str(error).partition(':')[0]}") from None
    return PersonChange(
        action="add" if action == "add" else "update",
        person=0 if action == "add" else person,
        into=0,
        name=name,
        aliases=aliases,
        relation=relation,
        message=message,
    )


def _aliases(value: Any) -> Sequence[str]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise _Refused("bad_aliases")
    return [text for each in value if (text := _text(each))]


def _text(value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, str) or len(value) > 1_000:
        raise _Refused("no_text")
    return value.strip()


def _number(value: Any) -> int:
    """A number of a list; -1 for what is none."""
    if isinstance(value, bool):
        return -1
    if isinstance(value, int):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and value.strip().lstrip("#").isdecimal() and len(value) < 10:
        return int(value.strip().lstrip("#"))
    return -1


_ITEM: dict[str, Any] = {
    "action": {"type": "string", "enum": ["add", "update", "merge"]},
    "person": {"type": "integer"},
    "into": {"type": "integer"},
    "name": {"type": "string"},
    "aliases": {"type": "array", "items": {"type": "string"}},
    "relation": {"type": "string"},
    "message": {"type": "integer"},
}
PEOPLE_SCHEMA: dict[str, Any] = {
    "type": "array",
    "items": {"type": "object", "properties": _ITEM, "required": [*_ITEM], "additionalProperties": False},
}
