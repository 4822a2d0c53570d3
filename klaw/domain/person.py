"""People whom a user speaks of: what may be one, when two names are the same, and whether a text names somebody. Pure.

Names are found as whole words in any case, in the cases of Russian grammar too. The forms of a Russian name are
declined by rule, not found by its stem: «люб» would find every sentence with «люблю». A few forms are other words as
well («Люба», «любой»): who forgets somebody sees first what would go."""

import enum
import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Annotated, NewType, TypedDict

import attrs

from klaw.convert import OMIT, Bounds, Check, Wire
from klaw.domain.imported import ORIGIN, ImportId
from klaw.domain.names import UserId
from klaw.domain.notes import Column, Edit, MadeFrom, Quotes, unprefixed
from klaw.domain.text import HAS_LETTER, clean_output, folded, normalized, one_line
from klaw.errors import InvalidValue

PersonId = NewType("PersonId", str)

MAX_NAME = 80
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


class PersonSource(enum.StrEnum):
    ARCHIVIST = "archivist"
    USER = "user"


def person_name(text: str, field: str = "name") -> str:
    """A name as it is kept: one line, without control characters. Raises InvalidValue, also for nobody's name."""
    kept = one_line(clean_output(text))
    if len(kept) > MAX_NAME:
        raise InvalidValue(f"{field}: has at most {MAX_NAME} characters")
    if not any(character.isalpha() for character in kept):
        raise InvalidValue(f"{field}: is empty, or has no letter")
    if normal_name(kept) in _NOBODY:
        raise InvalidValue(f"{field}: is not the name of another person")
    return kept


def relation_text(text: str) -> str:
    """A relation as it is kept; may be empty. Raises InvalidValue."""
    kept = one_line(clean_output(text))
    if len(kept) > MAX_RELATION:
        raise InvalidValue(f"relation: has at most {MAX_RELATION} characters")
    return kept


def normal_name(name: str) -> str:
    """What two ways to write one name have in common: case, width, ё or е, punctuation and space do not count."""
    return one_line("".join(each if each.isalnum() else " " for each in folded(name)))


PersonName = Annotated[str, Check(unprefixed(person_name), Bounds(1, MAX_NAME, HAS_LETTER))]
_Relation = Annotated[str, Check(unprefixed(relation_text), Bounds(0, MAX_RELATION))]


@attrs.frozen(kw_only=True)
class Person:
    """Somebody a user speaks of. Times are ISO-8601 UTC."""

    id: Annotated[PersonId, Column("person")]
    user: Annotated[UserId, Wire("user_id")]
    name: Annotated[
        str,
        Quotes(),
        Edit("what you call the person; a former name stays as an alias", title="Name", given=PersonName),
        Column(wide=True),
    ]
    aliases: Annotated[
        tuple[str, ...],
        Quotes(),
        Edit("another name; may be repeated", option="--alias", title="Other names", given=tuple[PersonName, ...]),
        Column("also", wide=True),
    ] = ()
    """Other names; no two of all have the same normal form."""
    relation: Annotated[
        str,
        Quotes(),
        Edit("who the person is to the user, for instance sister", title="Who it is to you", given=_Relation),
        Column(wide=True),
    ] = ""
    source: Annotated[PersonSource, Column(alone=True)]
    said_at: str
    """When the user said what name and relation say: an older message does not change them."""
    created_at: str
    updated_at: Annotated[str, Column("changed", alone=True)]
    merged_into: Annotated[PersonId | None, Column("now", alone=True)] = None
    """The person who it turned out to be: then no list shows it."""
    imported: Annotated[ImportId | None, OMIT, MadeFrom("import"), Column("from", alone=True, shown=ORIGIN.__add__)] = (
        None
    )

    @property
    def active(self) -> bool:
        return self.merged_into is None

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.aliases)


@attrs.frozen(kw_only=True)
class SpokenOf(Person):
    """A person with how often it is spoken of."""

    topics: Annotated[int, Column(right=True)]
    last_at: Annotated[str | None, Column("last named")]


class MentionedIn(TypedDict):
    topic: str | int | None
    day: str | None
    message: str
    at: str


@attrs.frozen(kw_only=True)
class Mention:
    """A topic that names a person, or a day's talk."""

    topic: Annotated[str, MadeFrom("topic")]
    """Its id when it was read (it may be a part of another one since), or ``day`` and the date."""
    message: Annotated[str, MadeFrom("message")]
    at: str


def check(person: Person) -> None:
    if not 1 <= len(person.id) <= 64 or not person.id.isascii() or not person.id.isprintable() or " " in person.id:
        raise InvalidValue("id: has 1 to 64 printable ASCII characters without a space")
    if person.name != person_name(person.name):
        raise InvalidValue("name: is not one line without space around it")
    if person.aliases != aliases_of(person.name, person.aliases):
        raise InvalidValue("aliases: one of them is the name or another one, or is not one line")
    if person.relation != relation_text(person.relation):
        raise InvalidValue("relation: is not one line without space around it")
    if person.merged_into == person.id:
        raise InvalidValue("merged_into: is the person itself")


def aliases_of(name: str, given: Iterable[str]) -> tuple[str, ...]:
    """Aliases as they are kept: each once, in order, without the name itself. Raises InvalidValue."""
    found = _others(name, [person_name(alias, "aliases") for alias in given])
    if len(found) > MAX_ALIASES:
        raise InvalidValue(f"aliases: at most {MAX_ALIASES}")
    return found


def _others(name: str, names: Iterable[str]) -> tuple[str, ...]:
    found: dict[str, str] = {}
    for each in names:
        found.setdefault(normal_name(each), each)
    found.pop(normal_name(name), None)
    return tuple(found.values())


def adds_nothing(new: Person, known: Person) -> bool:
    """Whether a known person has each name of somebody, and the same relation if one is given."""
    names = {normal_name(name) for name in known.names}
    return all(normal_name(name) in names for name in new.names) and (
        not new.relation or normal_name(new.relation) == normal_name(known.relation)
    )


def merged(keeper: Person, loser: Person) -> Person:
    """A person with the names of another one who it turned out to be; the first of too many aliases are kept."""
    aliases = _others(keeper.name, (*keeper.aliases, *loser.names))[:MAX_ALIASES]
    return attrs.evolve(keeper, aliases=aliases, relation=keeper.relation or loser.relation)


_VOWELS = frozenset("аеиоуыэюя")
_CYRILLIC = re.compile(r"[а-я]+")
_ADJECTIVE = {
    "ий": ("ого", "его", "ому", "ему", "ым", "им", "ом", "ем"),
    "ый": ("ого", "ому", "ым", "ом"),
    "ая": ("ой", "ую", "ою"),
    "яя": ("ей", "юю", "ею"),
}
_FLEETING = ("ел", "ек", "ок", "ец", "ен")
"""Ends that may lose their vowel: «Павел», «Павла»."""


def word_forms(word: str) -> frozenset[str]:
    if len(word) < 3 or not _CYRILLIC.fullmatch(word):
        return frozenset((word,))
    ends: dict[str, tuple[str, ...]] = {}
    stem, last = word[:-1], word[-1]
    if last == "а":
        ends[stem] = ("ы", "и", "е", "у", "ой", "ою", "ей", "ею")
    elif last == "я":
        ends[stem] = ("и", "е", "ю", "ей", "ею")
    elif last == "й":
        ends[stem] = ("я", "ю", "ем", "е", "и")
    elif last == "ь":
        ends[stem] = ("я", "ю", "ем", "е", "и", "ью")
    elif last not in _VOWELS:
        ends[word] = ("а", "у", "ом", "ем", "е", "ым")
        if word[-2:] in _FLEETING and len(word) > 3:
            ends[word[:-2] + last] = ("а", "у", "ом", "ем", "е")
    if word[-2:] in _ADJECTIVE and len(word) > 4:
        ends[word[:-2]] = _ADJECTIVE[word[-2:]]
    return frozenset((word, *(stem + end for stem, found in ends.items() for end in found)))


@attrs.frozen
class Finder:
    """Looks for names in texts, each as a whole, its words in their order."""

    names: tuple[str, ...]

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        wanted = [pattern for name in self.names if (pattern := _pattern_of(name))]
        return re.compile(rf"(?<!\w)(?:{'|'.join(sorted(wanted))})(?!\w)" if wanted else r"(?!)")

    def finds(self, text: str) -> bool:
        return self._pattern.search(folded(text)) is not None

    def without(self, text: str, mark: str) -> str:
        if not self.finds(text.replace("\\n", " ").replace("\\t", " ").replace("\\r", " ")):
            return text
        text = normalized("NFC", text)
        words = [(*found.span(1), folded(found[1])) for found in _WORDS.finditer(text) if found[1]]
        longest = sorted(([word_forms(word) for word in _words(name)] for name in self.names), key=len, reverse=True)
        kept, end, place = [], 0, 0
        while place < len(words):
            size = next((len(forms) for forms in longest if _stands(forms, words[place : place + len(forms)])), 0)
            if size:
                kept += [text[end : words[place][0]], mark]
                end = words[place + size - 1][1]
            place += size or 1
        return "".join([*kept, text[end:]])


@attrs.frozen
class Words:
    """The words of a text, for telling who may be meant in it; many people cost little."""

    said: frozenset[str]

    def name(self, names: Iterable[str]) -> bool:
        """Whether they have a single word of one of the names, in any form. Words of one letter do not count."""
        words = (word for name in names for word in _words(name) if len(word) > 1)
        return any(not self.said.isdisjoint(word_forms(word)) for word in words)


def words_of(text: str) -> Words:
    return Words(frozenset(_words(text)))


_WORDS = re.compile(r"\\[ntr]|(\w+)")
"""JSON inside a text has the ends of lines as letters, which belong to no word."""


def _stands(forms: Sequence[frozenset[str]], words: Sequence[tuple[int, int, str]]) -> bool:
    pairs = list(zip(forms, words, strict=False))
    return 0 < len(pairs) == len(forms) and all(word[2] in form for form, word in pairs)


def _words(name: str) -> list[str]:
    return re.findall(r"\w+", folded(name))


def _pattern_of(name: str) -> str:
    return r"\W+".join(f"(?:{'|'.join(map(re.escape, sorted(word_forms(word))))})" for word in _words(name))
