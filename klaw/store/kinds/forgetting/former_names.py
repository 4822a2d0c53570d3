"""Names that people had: for forgetting somebody, by all of them. Every question names the user."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import apsw

from klaw.domain.names import UserId
from klaw.domain.person import Finder, PersonId, normal_name
from klaw.store.kinds.people import by_names, history, merged_into


def own_names(connection: apsw.Connection, user: UserId, persons: Iterable[PersonId]) -> dict[str, str]:
    """The names that some people have or had, by their normal form; without those that they had for a time only, and
    that are somebody else's: a merge that was taken back makes nobody another one.

    Args:
        persons: all who are one.
    """
    mine = set(persons)
    ever: dict[str, str] = {}
    last: set[str] = set()
    for person in sorted(mine):
        states = [change.value for change in history(connection, user, person) if change.value is not None]
        for name in (name for state in states for name in state.names):
            ever.setdefault(normal_name(name), name)
        last |= {normal_name(name) for state in states[-1:] for name in state.names}
    others = [each for each in by_names(connection, user, list(ever.values())) if each.id not in mine]
    theirs = {normal_name(name) for each in others for name in each.names} - last
    return {normal: name for normal, name in ever.items() if normal not in theirs}


# Only the last state of each counts: a merge that was taken back made nobody somebody else.
_DEAD = """
SELECT c.person_id, c.value FROM person_changes AS c WHERE c.user_id = ?1 AND c.value IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM people AS p WHERE p.user_id = c.user_id AND p.id = c.person_id)
    AND c.entry = (SELECT max(entry) FROM person_changes
        WHERE user_id = c.user_id AND person_id = c.person_id AND value IS NOT NULL)
"""


def all_names(
    connection: apsw.Connection, user: UserId, person: PersonId
) -> tuple[tuple[str, ...], tuple[PersonId, ...]]:
    """The names that a user's person has or had, and all who are that one: those who were merged into it, and those of
    its names who were removed. Of an unknown id nothing."""
    merged = [each.id for each in merged_into(connection, user, person)]
    same = dict.fromkeys(each for each in (person, *merged) if history(connection, user, each))
    names = own_names(connection, user, same)
    for gone, value in connection.execute(_DEAD, (user,)):
        past = json.loads(value)
        if names and any(normal_name(name) in names for name in (past["name"], *past["aliases"])):
            same[PersonId(gone)] = None
    return tuple(names.values()), tuple(same)


def past_of_others(connection: apsw.Connection, user: UserId, gone: Collection[PersonId]) -> tuple[int, ...]:
    """Entries of the memory journal by which what was known of somebody else named these people, and does no more.
    Namesakes are left alone."""
    query = "SELECT entry, person_id, value FROM person_changes WHERE user_id = ? AND value IS NOT NULL ORDER BY entry"
    finders = [Finder((name,)) for name in own_names(connection, user, gone).values()] if gone else []
    states: dict[str, list[tuple[int, dict[str, Any]]]] = {}
    for entry, person, value in connection.execute(query, (user,)) if finders else ():
        if person not in gone:
            states.setdefault(person, []).append((entry, json.loads(value)))
    return tuple(sorted(entry for past in states.values() for entry in _naming(past, finders)))


def _naming(past: Sequence[tuple[int, Mapping[str, Any]]], finders: Sequence[Finder]) -> list[int]:
    now = past[-1][1]
    others = [each for each in finders if not any(map(each.finds, (now["name"], *now["aliases"])))]
    left = _texts(now)
    return [entry for entry, was in past if any(each.finds(text) for text in _texts(was) - left for each in others)]


def _texts(value: Mapping[str, Any]) -> set[str]:
    return {value["name"], *value["aliases"], value["relation"]}


def forget_past(connection: apsw.Connection, user: UserId, entries: Sequence[int]) -> None:
    """Let people have been at some time what they are, or were last."""
    query = """
    UPDATE person_changes AS c SET value = (
        SELECT value FROM person_changes WHERE user_id = c.user_id AND person_id = c.person_id AND value IS NOT NULL
        ORDER BY entry DESC LIMIT 1)
    WHERE user_id = ?1 AND value IS NOT NULL AND entry IN (SELECT value FROM json_each(?2))
    """
    connection.execute(query, (user, json.dumps(list(entries))))


def past_values(connection: apsw.Connection, user: UserId, entries: Sequence[int]) -> dict[int, Any]:
    """What the journal's lines of these entries are to say."""
    query = """
    SELECT entry, value FROM person_changes
    WHERE user_id = ?1 AND value IS NOT NULL AND entry IN (SELECT value FROM json_each(?2))
    """
    return {entry: json.loads(value) for entry, value in connection.execute(query, (user, json.dumps(list(entries))))}
