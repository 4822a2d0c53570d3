"""Whom of a user's people a text names ("who is Аня?", "Аню", "Anna's birthday")."""

import re
from collections.abc import Sequence
from functools import partial

from klaw.domain.names import UserId
from klaw.domain.person import Finder, PersonId, word_forms
from klaw.domain.search import PersonResult
from klaw.domain.text import folded
from klaw.store.engine.database import Readers
from klaw.store.kinds import people

MOST = FACTS_EACH = 3
MIN_PART = 3
"""Letters of a part of a name (first name, surname) that counts for all of it."""
MAX_CHARACTERS = 8_000
"""The beginning of a text that is looked through: it is read again for each name."""
_START = 2
"""So many letters all forms of a word have in common."""


async def find_people(readers: Readers, text: str, user: UserId, *, limit: int = MOST) -> tuple[PersonResult, ...]:
    """Those of a user's people whose name or alias stands in a text, whole names first. Raises StorageError."""
    text = text[:MAX_CHARACTERS]
    if not re.search(r"\w", text):
        return ()
    return await readers.run(people.find_named, user, partial(named, text, limit=limit), FACTS_EACH)


def named(text: str, known: Sequence[tuple[PersonId, Sequence[str]]], *, limit: int) -> list[PersonId]:
    """Whom a text names, of known people with their names' normal forms in the order in which they are shown. Pure."""
    wanted = frozenset(re.findall(r"\w+", folded(text)))
    starts = frozenset(word[:_START] for word in wanted)
    whole, partly = [], []
    for person, names in known:
        near = [name for name in names if any(word[:_START] in starts for word in name.split())]
        if not near:
            continue
        if Finder(tuple(near)).finds(text):
            whole.append(person)
        elif any(_has_part(name, wanted) for name in near):
            partly.append(person)
    return [*whole, *partly][:limit]


def _has_part(name: str, wanted: frozenset[str]) -> bool:
    words = name.split()
    return any(len(word) >= MIN_PART and not wanted.isdisjoint(word_forms(word)) for word in words)
