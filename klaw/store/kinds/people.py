"""People that a user talks about; only ``klaw.memory.facts.people`` changes them."""

import json
from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias

import apsw
import attrs

from klaw.domain.fact import Fact, Origin
from klaw.domain.names import UserId
from klaw.domain.person import Finder, Mention, Person, PersonId, check, normal_name, words_of
from klaw.domain.search import NamedFact, PersonResult
from klaw.domain.topic import TopicId
from klaw.errors import InvalidValue, NoSuchPerson, StorageError
from klaw.store import rows
from klaw.store.changes import Change, Kind, keep
from klaw.store.engine import tables
from klaw.store.engine.connect import snapshot
from klaw.store.engine.transaction import Transaction
from klaw.store.kinds import facts

_PEOPLE = rows.Rows(Person, "people", "p")
_SIZE = len(attrs.fields(Person))


def resolve(connection: apsw.Connection, user: UserId, person: PersonId) -> Person | None:
    """A user's person, or who it turned out to be. None when that one is gone."""
    seen: set[PersonId] = set()
    while person not in seen:
        seen.add(person)
        found = get(connection, user, person)
        if found is None or found.merged_into is None:
            return found
        person = found.merged_into
    return None


def by_names(connection: apsw.Connection, user: UserId, names: Sequence[str]) -> list[Person]:
    """A user's people who have one of these names or aliases, the first known first."""
    query = f"""
    SELECT DISTINCT {_PEOPLE.columns} FROM person_names AS n JOIN people AS p ON p.rowid = n.person
    WHERE n.user_id = ?1 AND p.user_id = ?1 AND n.normal IN (SELECT value FROM json_each(?2)) ORDER BY p.rowid
    """  # noqa: S608 - constant columns
    wanted = json.dumps([normal_name(name) for name in names])
    return [_PEOPLE.read(row) for row in connection.execute(query, (user, wanted))]


@attrs.frozen
class KnownPerson:
    person: Person
    topics: int
    """How many topics name it, and days from whose talk it was drawn."""
    last_at: str | None


def of_user(
    connection: apsw.Connection, user: UserId, *, only: PersonId | None = None, limit: int = 1_000, offset: int = 0
) -> list[KnownPerson]:
    """A user's people, those named in the most topics first; ``only`` one of them."""
    query = f"""
    WITH RECURSIVE heir (id, now) AS ( -- from each person up: an index finds who it was merged into, and not the others
        SELECT id, id FROM people WHERE user_id = ?1
        UNION SELECT h.id, p.merged_into FROM heir AS h JOIN people AS p ON p.user_id = ?1 AND p.id = h.now
            WHERE p.merged_into IS NOT NULL),
    home (topic, now) AS (
        SELECT topic, CAST(topic AS INTEGER) FROM person_mentions WHERE user_id = ?1 AND topic NOT LIKE 'day %'
        UNION SELECT h.topic, e.into_id FROM home AS h JOIN topic_ends AS e ON e.id = h.now AND e.user_id = ?1
            WHERE e.into_id IS NOT NULL),
    spoken (id, topics, last_at) AS (
        SELECT heir.now, count(DISTINCT coalesce(t.id, m.topic)), max(m.at) FROM person_mentions AS m
        JOIN heir ON heir.id = m.person_id LEFT JOIN home ON home.topic = m.topic
        LEFT JOIN topics AS t ON t.id = home.now AND t.user_id = ?1
        WHERE m.user_id = ?1 AND (t.id IS NOT NULL OR m.topic LIKE 'day %') GROUP BY heir.now)
    SELECT {_PEOPLE.columns}, coalesce(s.topics, 0), s.last_at FROM people AS p LEFT JOIN spoken AS s ON s.id = p.id
    WHERE p.user_id = ?1 AND p.merged_into IS NULL AND (?2 IS NULL OR p.id = ?2)
    ORDER BY coalesce(s.topics, 0) DESC, p.updated_at DESC, p.id LIMIT ?3 OFFSET ?4
    """  # noqa: S608 - constant columns
    return [
        KnownPerson(_PEOPLE.read(row[:_SIZE]), row[_SIZE], row[_SIZE + 1])
        for row in connection.execute(query, (user, only, limit, offset))
    ]


_MOST_LOOKED_AT = 10_000


def named_first(connection: apsw.Connection, user: UserId, text: str, limit: int) -> list[KnownPerson]:
    """A user's people, those first of whose names a word stands in a text, then those named in the most topics."""
    said = words_of(text)
    known = of_user(connection, user, limit=_MOST_LOOKED_AT)
    return sorted(known, key=lambda each: not said.name(each.person.names))[:limit]


def count(connection: apsw.Connection, user: UserId) -> int:
    return int(connection.execute("SELECT count(*) FROM people WHERE user_id = ? AND merged_into IS NULL", (user,)).get)


def merged_into(connection: apsw.Connection, user: UserId, person: PersonId, *, after: int = 0) -> list[Person]:
    """Who was merged into a user's person, also by way of others. ``after``: only what changed after this entry."""
    merged = f"""
    WITH RECURSIVE into_it (id) AS (
        VALUES (?2) UNION SELECT p.id FROM people AS p JOIN into_it ON p.merged_into = into_it.id WHERE p.user_id = ?1)
    SELECT {_PEOPLE.columns} FROM people AS p WHERE p.user_id = ?1 AND p.id IN into_it AND p.id <> ?2 ORDER BY p.rowid
    """  # noqa: S608 - constant columns
    entry = "SELECT entry FROM people WHERE user_id = ? AND id = ?"
    found = [_PEOPLE.read(row) for row in connection.execute(merged, (user, person))]
    return [each for each in found if connection.execute(entry, (user, each.id)).get > after]


@attrs.frozen
class PlacedMention:
    """A mention, and where it is now."""

    mention: Mention
    topic: TopicId | None
    """The topic that has it now."""

    @property
    def day(self) -> str | None:
        """The day from whose talk it was drawn; None: it was drawn from a topic."""
        return self.mention.topic.removeprefix("day ") if self.mention.topic.startswith("day ") else None


_MENTIONS = """
WITH RECURSIVE mine (id) AS (
    VALUES (?2) UNION SELECT p.id FROM people AS p JOIN mine ON p.merged_into = mine.id WHERE p.user_id = ?1),
home (topic, now) AS (
    SELECT topic, CAST(topic AS INTEGER) FROM person_mentions WHERE user_id = ?1 AND person_id IN mine
    UNION SELECT h.topic, e.into_id FROM home AS h JOIN topic_ends AS e ON e.id = h.now AND e.user_id = ?1
        WHERE e.into_id IS NOT NULL)
SELECT m.topic, m.message_id, m.at, (
    SELECT home.now FROM home JOIN topics AS t ON t.id = home.now AND t.user_id = ?1 WHERE home.topic = m.topic)
FROM person_mentions AS m WHERE m.user_id = ?1 AND m.person_id IN mine ORDER BY m.at DESC, m.entry DESC LIMIT ?3
"""


def mentions(connection: apsw.Connection, user: UserId, person: PersonId, *, limit: int = 100) -> list[PlacedMention]:
    """Where a user's person was named, and those who turned out to be the same; the newest first."""
    return [
        PlacedMention(Mention(topic=topic, message=message, at=at), TopicId(now) if now is not None else None)
        for topic, message, at, now in connection.execute(_MENTIONS, (user, person, limit))
    ]


def is_mentioned(connection: apsw.Connection, user: UserId, person: PersonId, topic: str) -> bool:
    """Whether it is noted that a topic names a person."""
    query = "SELECT 1 FROM person_mentions WHERE user_id = ? AND person_id = ? AND topic = ?"
    return connection.execute(query, (user, person, topic)).get is not None


_NAMES = """
SELECT p.id, json_group_array(n.normal) FROM (SELECT person, normal FROM person_names WHERE user_id = ?1 LIMIT ?2) AS n
JOIN people AS p ON p.rowid = n.person WHERE p.user_id = ?1 GROUP BY p.rowid ORDER BY p.updated_at DESC, p.rowid
"""
_MOST_NAMES, _MOST_FACTS = 5_000, 500
"""Names and aliases of a user, and facts (the most important first), that are looked at."""
ChoosePeople: TypeAlias = Callable[[Sequence[tuple[PersonId, Sequence[str]]]], Sequence[PersonId]]
"""Given the ids with the normal forms of their names, those that changed last first."""


def find_named(
    connection: apsw.Connection, user: UserId, choose: ChoosePeople, facts_each: int
) -> tuple[PersonResult, ...]:
    """The chosen people with the most important facts that name them, none of others' words."""
    with snapshot(connection):
        rows = connection.execute(_NAMES, (user, _MOST_NAMES))
        chosen = choose([(PersonId(person), json.loads(names)) for person, names in rows])
        known = [person for each in chosen if (person := get(connection, user, each)) is not None]
        kept = facts.of_user(connection, user, limit=_MOST_FACTS) if known and facts_each else []
        return tuple(_result(connection, person, kept, facts_each) for person in known)


def _result(connection: apsw.Connection, person: Person, kept: Sequence[Fact], facts_each: int) -> PersonResult:
    finder = Finder(person.names)
    said = mentions(connection, person.user, person.id, limit=1)
    naming = [fact for fact in kept if fact.origin is not Origin.TOOL and finder.finds(fact.text)]
    return PersonResult(
        id=person.id,
        name=person.name,
        aliases=person.aliases,
        relation=person.relation,
        last_at=said[0].mention.at if said else None,
        facts=tuple(NamedFact(id=each.id, text=" ".join(each.text.split())) for each in naming[:facts_each]),
    )


# -- writing -----------------------------------------------------------------------------------------------------------

_ROWID = "SELECT rowid FROM people WHERE user_id = ? AND id = ?"
_NAME = "INSERT OR IGNORE INTO person_names (person, user_id, normal) VALUES (?, ?, ?)"
_MENTION = """
INSERT OR IGNORE INTO person_mentions (entry, user_id, person_id, topic, message_id, at) VALUES (?, ?, ?, ?, ?, ?)
"""


def _apply_mention(connection: apsw.Connection, entry: Change[Mention]) -> None:
    assert entry.value is not None
    mention = entry.value
    connection.execute(_MENTION, (entry.entry, entry.user, entry.key, mention.topic, mention.message, mention.at))


def _apply(connection: apsw.Connection, entry: Change[Person]) -> None:
    keep(connection, entry)
    person = entry.value
    if person is None:  # its names went with it
        return
    rowid = connection.execute(_ROWID, (entry.user, entry.key)).get
    connection.execute("DELETE FROM person_names WHERE person = ?", (rowid,))
    for name in person.names if person.active else ():
        connection.execute(_NAME, (rowid, person.user, normal_name(name)))


def forget_mentions(
    connection: apsw.Connection,
    user: UserId,
    people: Sequence[PersonId],
    topics: Sequence[TopicId],
    messages: Sequence[str],
) -> None:
    """Remove the mentions of people, in topics, and by messages (ids) that are forgotten."""
    query = """
    DELETE FROM person_mentions WHERE user_id = ?1 AND (person_id IN (SELECT value FROM json_each(?4))
        OR topic IN (SELECT CAST(value AS TEXT) FROM json_each(?2)) OR message_id IN (SELECT value FROM json_each(?3)))
    """
    connection.execute(query, (user, *(json.dumps(list(each)) for each in (topics, messages, people))))


# One and the same are all who were merged into somebody, with that one; a removed person stands alone.
_ONLY_SPOKEN_OF_IN = """
WITH RECURSIVE heir (id, now) AS (
    SELECT id, id FROM people WHERE user_id = ?1
    UNION SELECT h.id, p.merged_into FROM heir AS h JOIN people AS p ON p.user_id = ?1 AND p.id = h.now
        WHERE p.merged_into IS NOT NULL),
same (id, now) AS (
    SELECT h.id, h.now FROM heir AS h JOIN people AS p ON p.user_id = ?1 AND p.id = h.now WHERE p.merged_into IS NULL
    UNION SELECT person_id, person_id FROM person_changes AS c WHERE user_id = ?1 AND value IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM people WHERE user_id = ?1 AND id = c.person_id)),
gone (id) AS (SELECT id FROM messages WHERE +user_id = ?1 AND rowid IN (SELECT value FROM json_each(?2)))
SELECT id FROM same WHERE now IN (
    SELECT s.now FROM same AS s LEFT JOIN people AS p ON p.user_id = ?1 AND p.id = s.id
        LEFT JOIN person_mentions AS m ON m.user_id = ?1 AND m.person_id = s.id
    GROUP BY s.now HAVING count(m.entry) > 0 AND count(m.entry) = count(iif(m.message_id IN gone, 1, NULL))
        AND min(coalesce(p.source, 'archivist')) = 'archivist' AND max(coalesce(p.source, 'archivist')) = 'archivist')
"""


def only_spoken_of_in(connection: apsw.Connection, user: UserId, rowids: Sequence[int]) -> set[str]:
    """People that a model noted and that are spoken of in some messages only."""
    return {str(row[0]) for row in connection.execute(_ONLY_SPOKEN_OF_IN, (user, json.dumps(list(rowids))))}


# The columns of a person's row are those of its last change, which is compared as a whole: they are not told again.
_CONTENT = """entry, rowid, aliases, merged_into, (SELECT group_concat(normal, char(10)) FROM (
    SELECT normal FROM person_names WHERE person = people.rowid ORDER BY normal))"""
_FLAWS = {
    "people are not found by a name": """
        SELECT count(*) FROM people AS p WHERE merged_into IS NULL
            AND NOT EXISTS (SELECT 1 FROM person_names WHERE person = p.rowid AND user_id = p.user_id)
    """,
    "names are of nobody": """
        SELECT count(*) FROM person_names AS n LEFT JOIN people AS p ON p.rowid = n.person
        WHERE p.rowid IS NULL OR p.user_id <> n.user_id OR p.merged_into IS NOT NULL
    """,
    "mentions are of nobody": """
        SELECT count(*) FROM person_mentions AS m WHERE NOT EXISTS (
            SELECT 1 FROM person_changes
            WHERE user_id = m.user_id AND person_id = m.person_id AND value IS NOT NULL)
    """,
    "mentions are by no message of their user": """
        SELECT count(*) FROM person_mentions AS m
        WHERE NOT EXISTS (SELECT 1 FROM messages WHERE id = m.message_id AND user_id = m.user_id)
    """,
}
PERSON: Kind[Person] = Kind(
    what="person",
    plural="people",
    cls=Person,
    table="people",
    holds="merged_into IS NULL",
    past="person_changes",
    flaws=_FLAWS,
    on_purpose=True,
    ops={"put": Person, "remove": None},
    beside=("user_id", "id"),
    made_of=only_spoken_of_in,
    rule=check,
    moves=lambda given: given,
    apply=_apply,
    clear=("DELETE FROM person_names",),
    tables=tables.with_history("people", "person", _CONTENT),
)
get, history = PERSON.get, PERSON.history
MENTION: Kind[Mention] = Kind(
    what="mention",
    plural="mentions",
    cls=Mention,
    table="person_mentions",
    id="entry",
    counted="people",
    ops={"put": Mention},
    apply=_apply_mention,
    tables=(
        tables.entries("mentions of people", "person_mentions", "entry, user_id, person_id, topic, message_id, at"),
    ),
)


def change(
    tx: Transaction,
    user: UserId,
    at: str,
    *,
    put: Sequence[Person] = (),
    removed: Sequence[PersonId] = (),
    mentions: Sequence[tuple[PersonId, Mention]] = (),
    as_of: int | None = None,
) -> None:
    """Change a user's people; what is so already is left out.

    Args:
        put: new and changed people.
        removed: people who go; their history stays.
        mentions: topics that name them.
        as_of: the memory journal's last entry before what it is made of was read.

    Raises SourceForgotten: the user has forgotten something since ``as_of``; NoSuchPerson: one that is removed, named,
    or merged into is not there; StorageError: a value breaks its rule.
    """
    connection = tx.connection
    tx.check_nothing_forgotten(user, as_of)
    for person in put:
        if person.user != user:
            raise StorageError("the person is another user's")
        try:
            check(person)
        except InvalidValue as error:
            raise StorageError(f"the person cannot be stored: {error}") from None
        if get(connection, user, person.id) != person:
            tx.journal(PERSON.put(user, person.id, person, at))
    for gone in removed:
        if get(connection, user, gone) is None:
            raise NoSuchPerson
        tx.journal(PERSON.removed(user, gone, at))
    for person in put:
        into = get(connection, user, person.merged_into) if person.merged_into is not None else None
        if person.merged_into is not None and (into is None or not into.active):
            raise NoSuchPerson
    for named, mention in mentions:
        if get(connection, user, named) is None:
            raise NoSuchPerson
        if not is_mentioned(connection, user, named, mention.topic):
            tx.journal(MENTION.put(user, named, mention, at))


def part(tx: Transaction, user: UserId, going: Collection[PersonId], at: str) -> None:
    """Make those who stay, and were merged into people who go, people of their own again."""
    merged = {each.id: each for person in going for each in merged_into(tx.connection, user, person)}
    for each in merged.values():
        if each.id not in going and each.merged_into in going:
            tx.journal(PERSON.put(user, each.id, attrs.evolve(each, merged_into=None, updated_at=at), at))
