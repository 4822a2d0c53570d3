"""Which of a user's rows quote what is forgotten, and which name a forgotten person: the columns that are noted with
``Quotes``. Every question names the user and reads all their texts, each table once: not for a turn.

A quote stands behind what it quotes: what was said before the forgotten message goes back to something else, and so do
sentences that stood there already ("Is there anything else?"). What a user says again, and nothing else with it, is no
quote either; it is reported.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import apsw
import attrs

from klaw.domain.fact import FactId
from klaw.domain.forget import PieceFinder, fragments, most_pieces
from klaw.domain.message import Role
from klaw.domain.names import ChatId, UserId
from klaw.domain.person import Finder, PersonId
from klaw.domain.topic import TopicId
from klaw.store.changes import Kind
from klaw.store.engine.connect import snapshot
from klaw.store.kinds import forgotten, people
from klaw.store.kinds.chats import CHAT
from klaw.store.kinds.facts import FACT
from klaw.store.kinds.messages import MESSAGE
from klaw.store.kinds.people import PERSON
from klaw.store.kinds.records import KINDS
from klaw.store.kinds.runs import RUN
from klaw.store.kinds.summaries import NOTE, SUMMARY, having_notes, read_key
from klaw.store.kinds.topic_changes import TOPIC, TOPIC_CHANGE
from klaw.store.kinds.turns import TURN

Key: TypeAlias = int | str


def redacted() -> list[Kind[Any]]:
    """The kinds whose rows lose the words that they quote."""
    return [kind for kind in KINDS if kind.quotes and not kind.on_purpose]


@attrs.frozen(kw_only=True)
class QuotesFound:
    finder: PieceFinder = attrs.field(factory=lambda: PieceFinder.of(()))
    """Finds the pieces that point to the forgotten. Content: never logged."""
    rows: Mapping[str, tuple[Key, ...]] = attrs.field(factory=dict)
    """Keys of the rows that quote them, by table."""
    up_to: Mapping[str, int] = attrs.field(factory=dict)
    """The last change of each table that was read."""
    again: tuple[int, ...] = ()
    """Row ids of messages that say it too and stay."""
    kept: Mapping[str, int] = attrs.field(factory=dict)
    """How many things that are kept on purpose say it, by what people call them."""


def look(
    connection: apsw.Connection, user: UserId, texts: Sequence[str], own: Sequence[int], asked: Sequence[int]
) -> QuotesFound:
    """Look for quotes of texts in all rows of a user.

    Args:
        texts: what is forgotten.
        own: row ids of the messages that go.
        asked: row ids of those that say the texts.
    """
    finder = PieceFinder.of(fragments(texts, most_pieces(len(asked))))
    kinds = redacted()
    last = {kind.table: f"SELECT coalesce(max({kind.changed}), 0) FROM {kind.table}" for kind in kinds}  # noqa: S608
    up_to = {table: int(connection.execute(query).get) for table, query in last.items()}
    if not finder:
        return QuotesFound(up_to=up_to)
    whole = {text.strip() for text in texts}
    first, mine = min(asked, default=0), frozenset(own)
    stock: set[str] = set()
    found: dict[int, list[str]] = {}
    again: dict[int, list[str]] = {}
    for rowid, says_again, pieces in _quoting_messages(connection, user, finder, 0, mine):
        if rowid < first:
            stock.update(set(pieces) - whole if says_again else pieces)
            if not whole.isdisjoint(pieces):
                again[rowid] = pieces
        else:
            (again if says_again else found)[rowid] = pieces
    telling = PieceFinder.of([piece for piece in finder.pieces if piece not in stock])
    rows = {kind.table: tuple(quoting(connection, user, kind, telling)) for kind in kinds if kind is not MESSAGE}
    rows[MESSAGE.table] = tuple(rowid for rowid, pieces in found.items() if not stock.issuperset(pieces))
    return QuotesFound(
        finder=telling,
        rows=rows,
        up_to=up_to,
        again=tuple(sorted(rowid for rowid, pieces in again.items() if rowid < first or not stock.issuperset(pieces))),
        kept={
            kind.plural: len({*quoting(connection, user, kind, finder), *once_quoting(connection, user, kind, finder)})
            for kind in KINDS
            if kind.on_purpose
        },
    )


def rows_with(
    connection: apsw.Connection, user: UserId, found: QuotesFound, own: Sequence[int], asked: Sequence[int]
) -> Iterator[tuple[Kind[Any], Key]]:
    """Rows that quote the pieces now: those that a look found, and those that were written since."""
    first, mine = min(asked, default=0), frozenset(own)
    for kind in redacted():
        since = found.up_to.get(kind.table, 0)
        newer: Iterable[Key]
        if kind is MESSAGE:
            said = _quoting_messages(connection, user, found.finder, max(since, first), mine)
            newer = [rowid for rowid, says_again, _ in said if not says_again]
        else:
            newer = list(quoting(connection, user, kind, found.finder, since))
        for key in dict.fromkeys((*found.rows.get(kind.table, ()), *newer)):
            yield kind, key


def _quoting_messages(
    connection: apsw.Connection, user: UserId, finder: PieceFinder, since: int, own: Collection[int]
) -> Iterator[tuple[int, bool, list[str]]]:
    """Row ids of messages that stay, whether it is the user who says a piece again, and the pieces."""
    statement = (
        f"SELECT rowid, role, content, metadata FROM {MESSAGE.table}"  # noqa: S608 - a constant
        " WHERE user_id = ? AND rowid > ? ORDER BY rowid"
    )
    for rowid, role, content, metadata in connection.execute(statement, (user, since)):
        if rowid in own:
            continue
        inner = finder.texts_with(json.loads(metadata)) if finder.may_stand_in(metadata) else ()
        found = [piece for text in (content, *inner) for piece in finder.found_in(text)]
        if found:
            yield rowid, is_said_again(role, content, finder), found


def is_said_again(role: str, content: str, finder: PieceFinder) -> bool:
    """Whether a message is one of the pieces, repeated by the user."""
    return role == Role.USER and content.strip() in finder.pieces


def quoting(
    connection: apsw.Connection, user: UserId, kind: Kind[Any], finder: PieceFinder, since: int = 0
) -> Iterator[Key]:
    """Keys of a user's rows that quote one of the pieces; only of those that changed after a number."""
    if not finder or not kind.quotes or not kind.table:
        return
    newer = f" AND {kind.changed} > ?" if kind.changed else ""
    statement = f"SELECT {kind.id}, {', '.join(kind.quotes)} FROM {kind.table} WHERE user_id = ?{newer}"  # noqa: S608
    documents = [column in kind.documents for column in kind.quotes]
    for key, *values in connection.execute(statement, (user, since)[: 1 + bool(newer)]):
        if any(_says(finder, value, document) for value, document in zip(values, documents, strict=True)):
            yield key


def once_quoting(
    connection: apsw.Connection, user: UserId, kind: Kind[Any], finder: PieceFinder, *, gone: bool = False
) -> Iterator[Key]:
    """Keys of a user's things that once said one of the pieces; ``gone``: only of those that were removed."""
    if not finder or not kind.past or kind.forgets_past:
        return
    statement = f"SELECT {kind.what}_id, value FROM {kind.past} WHERE user_id = ? AND value IS NOT NULL"  # noqa: S608
    if gone:
        statement += f" AND {kind.what}_id NOT IN (SELECT {kind.id} FROM {kind.table} WHERE user_id = ?1)"  # noqa: S608
    for found, value in connection.execute(statement, (user,)):
        if finder.may_stand_in(value) and any(map(finder.found_in, kind.said(json.loads(value)))):
            yield found


def _says(finder: PieceFinder, value: str | None, document: bool) -> bool:
    if value is None or not document:
        return value is not None and bool(finder.found_in(value))
    return finder.may_stand_in(value) and any(True for _ in finder.texts_with(json.loads(value)))


# -- who is named -----------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class PersonTraces:
    """What names a person."""

    names: tuple[str, ...] = ()
    people: tuple[PersonId, ...] = ()
    """The person, those who were merged into it, and those of its names who were removed."""
    namesakes: tuple[PersonId, ...] = ()
    """Others with one of the names: what names them is found too."""
    facts: Mapping[FactId, str] = attrs.field(factory=dict)
    """With their last texts; also history."""
    messages: tuple[int, ...] = ()
    """Row ids."""
    topics: tuple[TopicId, ...] = ()
    """Those whose summary names it, or once did."""
    summaries: tuple[tuple[ChatId, int], ...] = ()
    """Those that name it, also in their notes on tool calls."""
    turns: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    titles: tuple[ChatId, ...] = ()
    others: Mapping[str, int] = attrs.field(factory=dict)
    """How many rows of anything else."""


def look_for_person(connection: apsw.Connection, user: UserId, person: PersonId) -> PersonTraces | None:
    """What names a user's person, by any name that it ever had; None when there never was one of this id."""
    with snapshot(connection):
        names, same = forgotten.all_names(connection, user, person)
        return _named(connection, user, names, same) if same else None


def count_naming(connection: apsw.Connection, user: UserId, names: Sequence[str]) -> dict[str, int]:
    """How many rows of each kind name somebody now."""
    with snapshot(connection):
        found = _named(connection, user, tuple(names), ())
    kinds = {"facts": found.facts, "messages": found.messages, "topics": found.topics, "summaries": found.summaries}
    return {kind: len(each) for kind, each in kinds.items() if each} | dict(found.others)


def _named(
    connection: apsw.Connection, user: UserId, names: tuple[str, ...], same: tuple[PersonId, ...]
) -> PersonTraces:
    finder = Finder(names)
    found = {kind.what: dict(_naming(connection, user, kind, finder)) for kind in KINDS if kind.quotes}
    topics = set(found[TOPIC.what])
    for states in found[TOPIC_CHANGE.what].values():
        topics |= {state["id"] for state in json.loads(states) if finder.finds(state["summary"])}
    summaries = {read_key(each) for each in found[SUMMARY.what]}
    listed = (FACT, MESSAGE, TOPIC, TOPIC_CHANGE, SUMMARY, NOTE)
    others = {kind.plural: len(found[kind.what]) for kind in KINDS if kind.quotes and kind not in listed}
    others[PERSON.plural] = len(found[PERSON.what].keys() - set(same))
    namesakes = people.by_names(connection, user, names) if names else []
    return PersonTraces(
        names=names,
        people=same,
        namesakes=tuple(each.id for each in namesakes if each.id not in same),
        facts={FactId(str(fact)): text for fact, text in found[FACT.what].items()},
        messages=tuple(map(int, found[MESSAGE.what])),
        topics=tuple(TopicId(int(each)) for each in sorted(topics)),
        summaries=tuple(sorted(summaries | having_notes(connection, user, list(found[NOTE.what])))),
        turns=tuple(map(str, found[TURN.what])),
        runs=tuple(map(str, found[RUN.what])),
        titles=tuple(ChatId(str(each)) for each in found[CHAT.what]),
        others={kind: number for kind, number in others.items() if number},
    )


def _naming(connection: apsw.Connection, user: UserId, kind: Kind[Any], finder: Finder) -> Iterator[tuple[Key, str]]:
    """Keys of a user's things, with their last texts, that name somebody, or once did."""
    texts = " || ' ' || ".join(f"coalesce({column}, '')" for column in kind.quotes)
    statement = f"SELECT {kind.id}, {texts} FROM {kind.table} WHERE user_id = ? ORDER BY 1"  # noqa: S608 - constants
    by_past = kind.past and not kind.forgets_past
    if by_past:
        statement = f"SELECT {kind.what}_id, value FROM {kind.past} WHERE user_id = ? AND value <> '' ORDER BY entry"  # noqa: S608
    for key, value in connection.execute(statement, (user,)):
        text = " ".join(kind.said(json.loads(value))) if by_past else value
        # JSON's escaped line ends would be letters of the word behind them.
        if finder.finds(text.replace("\\n", " ").replace("\\t", " ").replace("\\r", " ")):
            yield key, text
