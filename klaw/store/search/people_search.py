"""SQL that finds the people whom a query names, with what is known of them. Every question names the user."""

import json
from collections.abc import Callable, Sequence

import apsw
import attrs

from klaw.domain.fact import Fact, Origin
from klaw.domain.names import UserId
from klaw.domain.person import Finder, Person, PersonId
from klaw.store.engine.connect import snapshot
from klaw.store.kinds import facts, people

MOST_NAMES = 5_000
"""Names and aliases of a user that are looked at."""
MOST_FACTS = 500
"""Facts that are looked at, the most important first."""

_NAMES = """
SELECT p.id, json_group_array(n.normal) FROM (SELECT person, normal FROM person_names WHERE user_id = ?1 LIMIT ?2) AS n
JOIN people AS p ON p.rowid = n.person WHERE p.user_id = ?1 GROUP BY p.rowid ORDER BY p.updated_at DESC, p.rowid
"""


@attrs.frozen
class NamedPerson:
    """A person whom a query names."""

    person: Person
    last_at: str | None
    """When it was last named in a topic or a day's talk."""
    facts: tuple[Fact, ...]
    """Facts that name the person, the most important first, without those that may be somebody else's words."""


def find(
    connection: apsw.Connection,
    user: UserId,
    choose: Callable[[Sequence[tuple[PersonId, Sequence[str]]]], Sequence[PersonId]],
    facts_each: int,
) -> list[NamedPerson]:
    """The user's people whom ``choose`` picks by their names, of one moment.

    Args:
        choose: given the ids with their names' normal forms, those that changed last first.
        facts_each: most facts of each.
    """
    with snapshot(connection):
        rows = connection.execute(_NAMES, (user, MOST_NAMES))
        chosen = choose([(PersonId(person), json.loads(names)) for person, names in rows])
        known = [person for each in chosen if (person := people.get(connection, user, each)) is not None]
        kept = facts.of_user(connection, user, limit=MOST_FACTS) if known and facts_each else []
        return [_found(connection, person, kept, facts_each) for person in known]


def _found(connection: apsw.Connection, person: Person, kept: Sequence[Fact], facts_each: int) -> NamedPerson:
    finder = Finder(person.names)
    said = people.mentions(connection, person.user, person.id, limit=1)
    naming = [fact for fact in kept if fact.origin is not Origin.TOOL and finder.finds(fact.text)]
    return NamedPerson(person, said[0].mention.at if said else None, tuple(naming[:facts_each]))
