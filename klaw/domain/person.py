"""People whom a user speaks of: what may be one, and when two names are the same. Pure."""

import enum
from collections.abc import Iterable
from typing import Annotated, NewType

import attrs

from klaw.convert import Wire
from klaw.domain.names import UserId
from klaw.domain.text import clean_output, normalized

PersonId = NewType("PersonId", str)

MAX_NAME = 80
"""Characters of a name or an alias."""
MAX_ALIASES = 20
MAX_RELATION = 120
"""Characters: ``sister``, ``коллега, ведёт склад``; a fact has room for more."""

_NOBODY = frozenset(
    (
        *("user", "the user", "me", "myself", "i", "you", "self", "assistant", "the assistant", "ai", "bot", "klaw"),
        *("я", "меня", "ты", "вы", "пользователь", "пользовательница", "ассистент", "ассистентка", "помощник"),
        *("бот", "модель", "unknown", "nobody", "someone", "неизвестно", "никто", "кто то"),
    )
)
"""Normal forms that name the user, the assistant, or nobody."""


class InvalidPerson(ValueError):
    """A value of a person breaks its rule; names the field and never quotes the value."""


class PersonSource(enum.StrEnum):
    """Whose word the name and the relation are."""

    ARCHIVIST = "archivist"
    """Drawn from a topic, in the background."""
    USER = "user"
    """The user gave a command."""


@attrs.frozen(kw_only=True)
class Person:
    """Somebody a user speaks of. Times are ISO-8601 UTC."""

    id: PersonId
    user: Annotated[UserId, Wire("user_id")]
    name: str
    aliases: tuple[str, ...] = ()
    """Other names, none of them the name itself or another's normal form."""
    relation: str = ""
    """Who it is to the user, in the user's language."""
    source: PersonSource
    said_at: str
    """When the user said what name and relation say: an older message does not change them."""
    created_at: str
    updated_at: str
    merged_into: PersonId | None = None
    """The person who it turned out to be. Then it is history: no list shows it."""

    @property
    def active(self) -> bool:
        return self.merged_into is None

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.aliases)


@attrs.frozen(kw_only=True)
class Mention:
    """A topic that names a person, or a day's talk."""

    topic: str
    """Its id when it was read, it may be a part of another one since; or ``day`` and the date."""
    message: str
    """Id of the user's message."""
    at: str
    """When that was said."""


def check(person: Person) -> None:
    """Raises InvalidPerson when a value breaks its rule."""
    if not 1 <= len(person.id) <= 64 or not person.id.isascii() or not person.id.isprintable() or " " in person.id:
        raise InvalidPerson("id: has 1 to 64 printable ASCII characters without a space")
    if person.name != person_name(person.name):
        raise InvalidPerson("name: is not one line without space around it")
    if person.aliases != aliases_of(person.name, person.aliases):
        raise InvalidPerson("aliases: one of them is the name or another one, or is not one line")
    if person.relation != relation_text(person.relation):
        raise InvalidPerson("relation: is not one line without space around it")
    if person.merged_into == person.id:
        raise InvalidPerson("merged_into: is the person itself")


def person_name(text: str, field: str = "name") -> str:
    """A name as it is kept: one line, without control characters.

    Raises:
        InvalidPerson: nothing is left, it is too long, or it names the user, the assistant or nobody.
    """
    kept = " ".join(clean_output(text).split())
    if len(kept) > MAX_NAME:
        raise InvalidPerson(f"{field}: has at most {MAX_NAME} characters")
    if not any(character.isalpha() for character in kept):
        raise InvalidPerson(f"{field}: is empty, or has no letter")
    if normal_name(kept) in _NOBODY:
        raise InvalidPerson(f"{field}: is not the name of another person")
    return kept


def relation_text(text: str) -> str:
    """A relation as it is kept; may be empty. Raises InvalidPerson when it is too long."""
    kept = " ".join(clean_output(text).split())
    if len(kept) > MAX_RELATION:
        raise InvalidPerson(f"relation: has at most {MAX_RELATION} characters")
    return kept


def aliases_of(name: str, given: Iterable[str]) -> tuple[str, ...]:
    """Aliases as they are kept: each once, in their order, without the name itself.

    Raises:
        InvalidPerson: one is no name, or there are too many.
    """
    found: dict[str, str] = {}
    for alias in given:
        kept = person_name(alias, "aliases")
        if normal_name(kept) != normal_name(name):
            found.setdefault(normal_name(kept), kept)
    if len(found) > MAX_ALIASES:
        raise InvalidPerson(f"aliases: at most {MAX_ALIASES}")
    return tuple(found.values())


def normal_name(name: str) -> str:
    """What two ways to write one name have in common: case, width, ё or е, punctuation and space do not count."""
    folded = normalized("NFKC", name).casefold().replace("ё", "е")
    return " ".join("".join(each if each.isalnum() else " " for each in folded).split())


def merged(keeper: Person, loser: Person) -> Person:
    """A person with the names of another one who it turned out to be; of too many aliases the first are kept."""
    room: dict[str, str] = {}
    for alias in (*keeper.aliases, *loser.names):
        if normal_name(alias) != normal_name(keeper.name):
            room.setdefault(normal_name(alias), alias)
    return attrs.evolve(keeper, aliases=tuple(room.values())[:MAX_ALIASES], relation=keeper.relation or loser.relation)
