"""SQL of forgetting: which of a user's rows quote what is forgotten, and which name a forgotten person. Every question
names the user and reads all their texts: not for a turn.

A quote stands behind what it quotes: what was said before the forgotten message goes back to something else, and so do
sentences that stood there already ("Is there anything else?"). What a user says again, and nothing else with it, is no
quote either; it is told.
Each table is read once, however many pieces there are.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import apsw
import attrs

from klaw.domain.fact import FactId
from klaw.domain.forget import Quotes, fragments, most_pieces
from klaw.domain.message import Role
from klaw.domain.names import ChatId, UserId
from klaw.domain.person import Finder, PersonId, normal_name
from klaw.domain.topic import TopicId
from klaw.store.engine.connect import snapshot
from klaw.store.kinds import people


@attrs.frozen
class Place:
    """Where a text may be quoted: a table, its key, what grows with each change of a row, and the columns."""

    table: str
    key: str
    change: str
    columns: tuple[str, ...]


PLACES = (
    Place("messages", "rowid", "rowid", ("content", "metadata")),
    Place("turns", "turn_id", "rowid", ("receipt",)),
    Place("runs", "change", "change", ("message", "result", "note", "error", "details")),
    Place("summaries", "rowid", "rowid", ("text",)),
    Place("tool_notes", "rowid", "rowid", ("text",)),
    Place("topics", "id", "entry", ("summary",)),
    Place("topic_changes", "entry", "changed", ("before",)),
    Place("chats", "chat_id", "entry", ("title",)),
)
JSON_COLUMNS = frozenset({"metadata", "receipt", "details", "document", "before", "value"})
KEPT = (
    ("facts", "facts", "text"),
    ("people", "person_changes", "value"),
    ("core memory", "core_memory", "document"),
    ("tasks", "tasks", "name || ' ' || message"),
    ("bases", "kb_bases", "name || ' ' || description"),
    ("memory files", "chunks", "heading || ' ' || text"),
)
"""What a person keeps on purpose: it is told, and goes only when that is asked for."""
_NAMES = (("chats", "sessions", "name"), ("sources", "kb_sources", "name || ' ' || place"))
"""Where else somebody may be named, and nothing else is looked for."""


@attrs.frozen(kw_only=True)
class Looked:
    """What a look for quotes found."""

    quotes: Quotes = attrs.field(factory=lambda: Quotes.of(()))
    """Finds the pieces that point to the forgotten. Content: never logged."""
    rows: Mapping[str, tuple[int | str, ...]] = attrs.field(factory=dict)
    """Keys of the rows that quote them, by table."""
    up_to: Mapping[str, int] = attrs.field(factory=dict)
    """The last change of each table that was read."""
    again: tuple[int, ...] = ()
    """Row ids of messages that say it too and stay."""
    kept: Mapping[str, int] = attrs.field(factory=dict)
    """How many rows hold it of what is kept on purpose."""

    @property
    def pieces(self) -> tuple[str, ...]:
        """Content: never logged."""
        return self.quotes.pieces


def look(
    connection: apsw.Connection, user: UserId, texts: Sequence[str], own: Sequence[int], asked: Sequence[int]
) -> Looked:
    """Look for quotes of texts in all rows of a user.

    Args:
        texts: that are forgotten.
        own: row ids of the messages that go.
        asked: of those of them that say the texts.
    """
    quotes = Quotes.of(fragments(texts, most_pieces(len(asked))))
    last = {place.table: f"SELECT coalesce(max({place.change}), 0) FROM {place.table}" for place in PLACES}  # noqa: S608
    up_to = {table: int(connection.execute(query).get) for table, query in last.items()}
    if not quotes:
        return Looked(up_to=up_to)
    whole = {text.strip() for text in texts}
    first, mine = min(asked, default=0), frozenset(own)
    stock: set[str] = set()
    found: dict[int, list[str]] = {}
    again: dict[int, list[str]] = {}
    for rowid, says_again, pieces in _quoting_messages(connection, user, quotes, 0, mine):
        if rowid < first:
            stock.update(set(pieces) - whole if says_again else pieces)
            if not whole.isdisjoint(pieces):
                again[rowid] = pieces
        else:
            (again if says_again else found)[rowid] = pieces
    telling = Quotes.of([piece for piece in quotes.pieces if piece not in stock])
    rows: dict[str, tuple[int | str, ...]] = {
        place.table: tuple(_rows_with(connection, user, telling, place, 0)) for place in PLACES[1:]
    }
    rows["messages"] = tuple(rowid for rowid, pieces in found.items() if not stock.issuperset(pieces))
    return Looked(
        quotes=telling,
        rows=rows,
        up_to=up_to,
        again=tuple(sorted(rowid for rowid, pieces in again.items() if rowid < first or not stock.issuperset(pieces))),
        kept={name: sum(1 for _ in _kept(connection, user, quotes, table, column)) for name, table, column in KEPT},
    )


def rows_with(
    connection: apsw.Connection, user: UserId, quotes: Quotes, looked: Looked, own: Sequence[int], asked: Sequence[int]
) -> dict[str, list[int | str]]:
    """Rows that quote the pieces now, by table: those that a look found, and those that were written since."""
    found: dict[str, list[int | str]] = {}
    first, mine = min(asked, default=0), frozenset(own)
    for place in PLACES:
        since = looked.up_to.get(place.table, 0)
        newer: Iterable[int | str]
        if place.table == "messages":
            said = _quoting_messages(connection, user, quotes, max(since, first), mine)
            newer = (rowid for rowid, says_again, _ in said if not says_again)
        else:
            newer = _rows_with(connection, user, quotes, place, since)
        found[place.table] = list(dict.fromkeys((*looked.rows.get(place.table, ()), *newer)))
    return found


def _quoting_messages(
    connection: apsw.Connection, user: UserId, quotes: Quotes, since: int, own: Collection[int]
) -> Iterator[tuple[int, bool, list[str]]]:
    """Row ids, but those of the messages that go, whether it is the user who says a piece again, and the pieces."""
    statement = "SELECT rowid, role, content, metadata FROM messages WHERE user_id = ? AND rowid > ? ORDER BY rowid"
    for rowid, role, content, metadata in connection.execute(statement, (user, since)):
        if rowid in own:
            continue
        inner = quotes.texts_with(json.loads(metadata)) if quotes.may_stand_in(metadata) else ()
        texts = (content, *inner)
        found = [piece for text in texts for piece in quotes.found_in(text)]
        if found:
            yield rowid, is_said_again(role, content, quotes), found


def is_said_again(role: str, content: str, quotes: Quotes) -> bool:
    """Whether a message is one of the pieces, in the user's own words once more."""
    return role == Role.USER and content.strip() in quotes.pieces


def _rows_with(
    connection: apsw.Connection, user: UserId, quotes: Quotes, place: Place, since: int
) -> Iterator[int | str]:
    if not quotes:
        return
    statement = (
        f"SELECT {place.key}, {', '.join(place.columns)} FROM {place.table}"  # noqa: S608 - constants
        f" WHERE user_id = ? AND {place.change} > ?"
    )
    for key, *values in connection.execute(statement, (user, since)):
        if any(_quotes(quotes, name, value) for name, value in zip(place.columns, values, strict=True)):
            yield key


def _kept(connection: apsw.Connection, user: UserId, quotes: Quotes, table: str, column: str) -> Iterator[str]:
    statement = f"SELECT {column} FROM {table} WHERE user_id = ? AND {column} IS NOT NULL"  # noqa: S608 - constants
    return (text for (text,) in connection.execute(statement, (user,)) if _quotes(quotes, column, text))


def _quotes(quotes: Quotes, column: str, value: Any) -> bool:
    if value is None:
        return False
    if column not in JSON_COLUMNS:
        return bool(quotes.found_in(value))
    return quotes.may_stand_in(value) and any(True for _ in quotes.texts_with(json.loads(value)))


# -- who is named -----------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Named:
    """What names a person."""

    names: tuple[str, ...]
    """That were looked for."""
    people: tuple[PersonId, ...]
    """The person, those who were merged into it, and those of its names who were removed."""
    namesakes: tuple[PersonId, ...]
    """Others with one of the names: what names them is found too."""
    facts: Mapping[FactId, str]
    """With their last texts; also history."""
    messages: tuple[int, ...]
    """Row ids."""
    topics: tuple[TopicId, ...]
    """By their summaries, also those that they once had."""
    summaries: tuple[tuple[ChatId, int], ...]
    """Also by their notes on tool calls."""
    turns: tuple[str, ...]
    """By their receipts."""
    runs: tuple[str, ...]
    titles: tuple[ChatId, ...]
    """Chats, by their titles."""
    others: Mapping[str, int]
    """How many rows of anything else."""


_FACTS = "SELECT fact_id, value ->> '$.text' FROM fact_changes WHERE user_id = ? AND value IS NOT NULL ORDER BY entry"
_MESSAGES = "SELECT rowid, content || ' ' || metadata FROM messages WHERE user_id = ? ORDER BY rowid"
_TOPICS = "SELECT id, summary FROM topics WHERE user_id = ? ORDER BY id"
_PAST_TOPICS = """
SELECT s.value ->> '$.id', s.value ->> '$.summary' FROM topic_changes AS c, json_each(c.before) AS s
WHERE c.user_id = ? ORDER BY 1
"""
_RECEIPTS = "SELECT turn_id, receipt FROM turns WHERE user_id = ? ORDER BY turn_id"
_RUNS = """
SELECT id, task || ' ' || message || ' ' || result || ' ' || coalesce(note, '') || ' ' || coalesce(error, '') || ' '
    || details
FROM runs WHERE user_id = ? ORDER BY id
"""
_TITLES = "SELECT chat_id, title FROM chats WHERE user_id = ? ORDER BY chat_id"
_SUMMARIES = """
SELECT chat_id, number, text FROM summaries WHERE user_id = ?1
UNION ALL SELECT chat_id, number, text FROM tool_notes WHERE user_id = ?1
"""


def look_for_person(connection: apsw.Connection, user: UserId, person: PersonId) -> Named | None:
    """What names a user's person, by any name that it ever had; None when there never was one of this id."""
    with snapshot(connection):
        names, same = _names(connection, user, person)
        return _named(connection, user, names, same) if same else None


def count_naming(connection: apsw.Connection, user: UserId, names: Sequence[str]) -> dict[str, int]:
    """How many rows of each kind name somebody now."""
    with snapshot(connection):
        found = _named(connection, user, tuple(names), ())
    kinds = {"facts": found.facts, "messages": found.messages, "topics": found.topics, "summaries": found.summaries}
    return {kind: len(each) for kind, each in kinds.items() if each} | dict(found.others)


def _named(connection: apsw.Connection, user: UserId, names: tuple[str, ...], same: tuple[PersonId, ...]) -> Named:
    finder = Finder(names)
    facts = {FactId(fact): text for fact, text in _naming(connection, finder, _FACTS, user)}
    summaries = {(ChatId(chat), int(number)) for chat, number, _ in _naming(connection, finder, _SUMMARIES, user)}
    topics = {TopicId(row[0]) for each in (_TOPICS, _PAST_TOPICS) for row in _naming(connection, finder, each, user)}
    turns, runs, titles = (
        tuple(row[0] for row in _naming(connection, finder, each, user)) for each in (_RECEIPTS, _RUNS, _TITLES)
    )
    others = {
        "people": len({row[0] for row in _naming(connection, finder, _PEOPLE, user)} - set(same)),
        "receipts": len(turns),
        "runs": len(runs),
        "titles": len(titles),
    }
    for kind, table, column in (*KEPT[2:], *_NAMES):
        statement = f"SELECT {column} FROM {table} WHERE user_id = ?"  # noqa: S608 - constants
        others[kind] = sum(1 for _ in _naming(connection, finder, statement, user))
    return Named(
        names=names,
        people=same,
        namesakes=tuple(each.id for each in people.by_names(connection, user, names) if names and each.id not in same),
        facts=facts,
        messages=tuple(row[0] for row in _naming(connection, finder, _MESSAGES, user)),
        topics=tuple(sorted(topics)),
        summaries=tuple(sorted(summaries)),
        turns=turns,
        runs=runs,
        titles=tuple(map(ChatId, titles)),
        others={kind: number for kind, number in others.items() if number},
    )


# What they were last: who was somebody else for a time, by a merge that was taken back, is none of these.
_DEAD = """
SELECT c.person_id, c.value FROM person_changes AS c WHERE c.user_id = ?1 AND c.value IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM people AS p WHERE p.user_id = c.user_id AND p.id = c.person_id)
    AND c.entry = (SELECT max(entry) FROM person_changes
        WHERE user_id = c.user_id AND person_id = c.person_id AND value IS NOT NULL)
"""


def _names(connection: apsw.Connection, user: UserId, person: PersonId) -> tuple[tuple[str, ...], tuple[PersonId, ...]]:
    merged = [each.id for each in people.merged_into(connection, user, person)]
    same = dict.fromkeys(each for each in (person, *merged) if people.history(connection, user, each))
    names = people.own_names(connection, user, same)
    for gone, value in connection.execute(_DEAD, (user,)):
        past = json.loads(value)
        if names and any(normal_name(name) in names for name in (past["name"], *past["aliases"])):
            same[PersonId(gone)] = None
    return tuple(names.values()), tuple(same)


def _naming(connection: apsw.Connection, finder: Finder, statement: str, user: UserId) -> Iterator[Any]:
    """Rows whose last column names somebody."""
    return (row for row in connection.execute(statement, (user,)) if row[-1] and finder.finds(_plain(row[-1])))


_PEOPLE = """
SELECT person_id, value ->> '$.name' || ' ' || (value ->> '$.aliases') || ' ' || (value ->> '$.relation')
FROM person_changes WHERE user_id = ? AND value IS NOT NULL
"""


def _plain(text: str) -> str:
    """JSON's line ends are letters to whoever looks for whole words."""
    return text.replace("\\n", " ").replace("\\t", " ").replace("\\r", " ")
