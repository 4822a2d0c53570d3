"""Which of a user's rows quote what is forgotten, and which name a forgotten person: the columns that are noted with
``Quotes``. Every question names the user and reads all their texts, each table once: not for a turn.

A quote stands behind what it quotes: what was said before the forgotten message goes back to something else, and so do
sentences that stood there already ("Is there anything else?"). What a user says again, and nothing else with it, is no
quote either; it is reported. Nothing comes out of a temporary chat, so what stands in others, too, is no quote of it.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import apsw
import attrs

from klaw.domain.forget import PieceFinder, fragments, most_pieces
from klaw.domain.message import Message, Role
from klaw.domain.names import UserId
from klaw.domain.person import Finder, PersonId
from klaw.domain.topic import TopicId
from klaw.store.changes import Kind
from klaw.store.engine.connect import snapshot
from klaw.store.engine.tables import END, index_row
from klaw.store.kinds import forgotten, messages, people
from klaw.store.kinds.chats import CHAT, TEMPORARY
from klaw.store.kinds.facts import FACT
from klaw.store.kinds.messages import MESSAGE
from klaw.store.kinds.people import PERSON
from klaw.store.kinds.records import KINDS
from klaw.store.kinds.runs import RUN
from klaw.store.kinds.summaries import NOTE, SUMMARY, having_notes, read_key
from klaw.store.kinds.topic_changes import TOPIC, TOPIC_CHANGE
from klaw.store.kinds.turns import TURN
from klaw.store.rows import dumps
from klaw.store.search import vector_codes

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
    """Look in all rows of a user for quotes of texts that are forgotten. ``own`` are the row ids of the messages that
    go, ``asked`` of those that say the texts."""
    finder = PieceFinder.of(fragments(texts, most_pieces(len(asked))))
    kinds = redacted()
    last = {kind.table: f"SELECT coalesce(max({kind.changed}), 0) FROM {kind.table}" for kind in kinds}  # noqa: S608
    up_to = {table: int(connection.execute(query).get) for table, query in last.items()}
    if not finder:
        return QuotesFound(up_to=up_to)
    whole = {text.strip() for text in texts}
    first, mine = first_quote(connection, asked), frozenset(own)
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


def first_quote(connection: apsw.Connection, asked: Sequence[int]) -> int:
    """From which row id on messages may quote those that are forgotten."""
    first = min(asked, default=0)
    query = f"SELECT chat_id IN {TEMPORARY} FROM {MESSAGE.table} WHERE rowid = ?"  # noqa: S608 - constants
    return END if connection.execute(query, (first,)).get else first


def _quoting_messages(
    connection: apsw.Connection, user: UserId, finder: PieceFinder, since: int, own: Collection[int]
) -> Iterator[tuple[int, bool, list[str]]]:
    """Row ids of messages that stay, whether it is the user who says a piece again, and the pieces."""
    statement = (
        f"SELECT rowid, role, content, metadata FROM {MESSAGE.whole}"  # noqa: S608 - a constant
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
    statement = f"SELECT {kind.id}, {', '.join(kind.quotes)} FROM {kind.whole} WHERE user_id = ?{newer}"  # noqa: S608
    for key, *values in connection.execute(statement, (user, since)[: 1 + bool(newer)]):
        if any(
            _says(finder, value, column in kind.documents) for column, value in zip(kind.quotes, values, strict=True)
        ):
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


# -- taking them out ---------------------------------------------------------------------------------------------------


def redact(
    connection: apsw.Connection, user: UserId, found: QuotesFound, own: Sequence[int], asked: Sequence[int]
) -> None:
    """Put MARK in place of each piece in the rows that a look found, and in those that were written since. For ``own``
    and ``asked`` see ``look``."""
    finder = found.finder
    first, mine = first_quote(connection, asked), frozenset(own)
    for kind in redacted() if finder else ():
        since = found.up_to.get(kind.table, 0)
        newer: Iterable[Key] = quoting(connection, user, kind, finder, since)
        if kind is MESSAGE:
            said = _quoting_messages(connection, user, finder, max(since, first), mine)
            newer = [rowid for rowid, says_again, _ in said if not says_again]
        for key in dict.fromkeys((*found.rows.get(kind.table, ()), *newer)):
            _redact_row(connection, user, kind, key, finder)
        if kind.past:
            rows = f"SELECT value, entry FROM {kind.past} WHERE user_id = ? AND value IS NOT NULL"  # noqa: S608
            for value, number in connection.execute(rows, (user,)).fetchall():
                new = _redacted(str(value), finder, document=True)
                connection.execute(f"UPDATE {kind.past} SET value = ? WHERE entry = ?", (new, number))  # noqa: S608


def _redact_row(connection: apsw.Connection, user: UserId, kind: Kind[Any], key: Key, finder: PieceFinder) -> None:
    columns = [column for column, note in kind.quotes.items() if not note.stays]
    which = f"WHERE {kind.id} = ? AND +user_id = ?"
    values = connection.execute(f"SELECT {', '.join(columns)} FROM {kind.whole} {which}", (key, user)).fetchone()  # noqa: S608
    if values is None:
        return
    new = [
        _redacted(value, finder, document=column in kind.documents)
        for column, value in zip(columns, values, strict=True)
    ]
    if new == list(values):
        return
    if kind is MESSAGE and forgotten.replaced(connection, int(key)):
        forgotten.rewrite_replaced(connection, int(key), new)
        return
    if kind is MESSAGE:
        drop_vectors(connection, messages.by_rowids(connection, [int(key)]))
    if kind.full_text or kind.vectors:
        kind.unindex(connection, int(key))
    write = f"UPDATE {kind.table} SET {', '.join(f'{column} = ?' for column in columns)} {which}"  # noqa: S608
    connection.execute(write, (*new, key, user))
    if kind.full_text:
        index_row(connection, kind.table, int(key))
    if kind is MESSAGE:
        forgotten.text_changed(connection, int(key))


def _redacted(value: str | None, finder: PieceFinder, *, document: bool) -> str | None:
    if value is None or not document:
        return value and str(finder.taken_out(value))
    found = json.loads(value)
    cut = finder.taken_out(found)
    return value if cut == found else dumps(cut)


def drop_vectors(connection: apsw.Connection, own: Sequence[Message]) -> None:
    """Overwrite the vectors of messages, and of those behind them, and their codes, and remove the vectors: vec0 leaves
    the bytes of a removed one."""
    going = [*own, *forgotten.embed_following(connection, own)]
    for chat, found in forgotten.by_chat(going).items():
        session = messages.session(connection, chat)
        if session is not None:
            vector_codes.erase(connection, session.key, [each.rowid for each in found])
    for message in going:
        messages.drop_vector(connection, message.rowid)


# -- who is named ------------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class PersonTraces:
    """What names a person."""

    names: tuple[str, ...] = ()
    people: tuple[PersonId, ...] = ()
    """The person, those who were merged into it, and those of its names who were removed."""
    namesakes: tuple[PersonId, ...] = ()
    """Others with one of the names: what names them is found too."""
    found: Mapping[str, Mapping[Any, str]] = attrs.field(factory=dict)
    """Keys of what names it, or once did, with the last texts; by the words of kinds."""
    with_messages: bool = False
    """The messages, topics and summaries go too, and titles, receipts and runs lose the names."""

    def keys(self, kind: Kind[Any]) -> tuple[Any, ...]:
        return tuple(self.found.get(kind.what, ()))

    @property
    def topics(self) -> tuple[TopicId, ...]:
        return self.keys(TOPIC)

    @property
    def messages(self) -> tuple[int, ...]:
        return self.keys(MESSAGE)

    @property
    def counts(self) -> dict[str, int]:
        """How many things of each kind name it, by what people call them."""
        return {kind.plural: len(self.keys(kind)) for kind in KINDS if self.keys(kind)}

    @property
    def others(self) -> dict[str, int]:
        """How many name it that are not listed one by one, and keep the name."""
        listed = [FACT, MESSAGE, TOPIC, SUMMARY, *((TURN, RUN, CHAT) if self.with_messages else ())]
        plurals = {kind.plural for kind in listed}
        return {plural: count for plural, count in self.counts.items() if plural not in plurals}


def look_for_person(connection: apsw.Connection, user: UserId, person: PersonId) -> PersonTraces | None:
    """What names a user's person, by any name that it ever had; None when there never was one of this id."""
    with snapshot(connection):
        names, same = forgotten.all_names(connection, user, person)
    return look_for_names(connection, user, names, same) if same else None


def look_for_names(
    connection: apsw.Connection, user: UserId, names: Sequence[str], same: Sequence[PersonId] = ()
) -> PersonTraces:
    """What names somebody; ``same``: all people who are that one."""
    finder = Finder(tuple(names))
    with snapshot(connection):
        found = {kind.what: dict(_naming(connection, user, kind, finder)) for kind in KINDS if kind.quotes}
        namesakes = people.by_names(connection, user, names) if names else []
        notes, changes = found.pop(NOTE.what), found.pop(TOPIC_CHANGE.what)
        summaries: dict[Any, str] = {read_key(key): text for key, text in found[SUMMARY.what].items()}
        summaries |= dict.fromkeys(having_notes(connection, user, list(notes)), "")
    states = [state for each in changes.values() for state in json.loads(each) if finder.finds(state["summary"])]
    topics = found[TOPIC.what] | {state["id"]: state["summary"] for state in states}
    others = {key: text for key, text in found[PERSON.what].items() if key not in same}
    found |= {
        TOPIC.what: dict(sorted(topics.items())),
        SUMMARY.what: dict(sorted(summaries.items())),
        PERSON.what: others,
    }
    return PersonTraces(
        names=tuple(names),
        people=tuple(same),
        namesakes=tuple(each.id for each in namesakes if each.id not in same),
        found=found,
    )


def _naming(connection: apsw.Connection, user: UserId, kind: Kind[Any], finder: Finder) -> Iterator[tuple[Key, str]]:
    """Keys of a user's things, with their last texts, that name somebody, or once did."""
    texts = " || ' ' || ".join(f"coalesce({column}, '')" for column in kind.quotes)
    statement = f"SELECT {kind.id}, {texts} FROM {kind.whole} WHERE user_id = ? ORDER BY 1"  # noqa: S608 - constants
    by_past = kind.past and not kind.forgets_past
    if by_past:
        statement = f"SELECT {kind.what}_id, value FROM {kind.past} WHERE user_id = ? AND value <> '' ORDER BY entry"  # noqa: S608
    for key, value in connection.execute(statement, (user,)):
        text = " ".join(kind.said(json.loads(value))) if by_past else value
        # JSON's escaped line ends would be letters of the word behind them.
        if finder.finds(text.replace("\\n", " ").replace("\\t", " ").replace("\\r", " ")):
            yield key, text
