"""Kinds of things that Klaw keeps, and the memory journal ``memory/<month>.jsonl``: every change of most of them.

A line says what kind of thing was changed, whose, and under which key; a put has the whole value. Entries are numbered
over all months and kinds, whatever the clock says. ``kinds.records`` has the table of all kinds.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, Generic, TypeAlias, TypeVar

import apsw
import attrs

from klaw.convert import JOURNAL, Form, Wire, wire_names
from klaw.domain.forget import MARK, texts_of
from klaw.domain.names import UserId
from klaw.domain.notes import MadeFrom, Quotes, notes
from klaw.errors import BadValue, CannotUndo, InvalidValue
from klaw.store.engine import meta
from klaw.store.engine.tables import ContentTable, index_row, unindex_row
from klaw.store.rows import Rows, columns, documents, dumps, upsert, values

MEMORY = "memory"
MAX_MEMBERS = 1_000_000
PUT, REMOVE = "put", "remove"

V = TypeVar("V")
N = TypeVar("N")


def ranges(rowids: Sequence[int]) -> list[list[int]]:
    """Ascending row ids as ranges, first and last: those of a conversation are mostly neighbours."""
    found: list[list[int]] = []
    for rowid in rowids:
        if found and rowid == found[-1][1] + 1:
            found[-1][1] = rowid
        else:
            found.append([rowid, rowid])
    return found


def members(value: Any) -> tuple[int, ...]:
    """The row ids of ranges. Raises TypeError or ValueError."""
    found: list[int] = []
    for first, last in JOURNAL.read(value, list[list[int]]):
        if not 0 <= last - first < MAX_MEMBERS - len(found):
            raise ValueError("must be ranges of row ids")
        found += range(first, last + 1)
    return tuple(found)


RowIds: TypeAlias = Annotated[tuple[int, ...], Form(members, ranges)]
"""Row ids of messages, ascending."""


@attrs.frozen(kw_only=True)
class Change(Generic[V]):
    kind: "Kind[V]"
    entry: int = 0
    """1, 2, 3 … over the whole journal; 0: not given yet."""
    time: str
    user: UserId
    op: str = PUT
    key: Any
    value: V | None
    """None: it was removed."""


@attrs.frozen(kw_only=True)
class _JournalLine:
    entry: int
    time: str
    user: Annotated[UserId, Wire("user_id")]
    op: str
    what: str
    key: str


def keep(connection: apsw.Connection, change: Change[Any], **own: Any) -> None:
    """Carry out a change of a kind with a row for each thing: the row, its full text and the history. The table has
    ``rowid``, which is the entry that made the row, ``entry``, a column for each field, and the columns ``own``."""
    kind = change.kind
    if kind.past:
        kind.note(connection, change)
    which = f"FROM {kind.table} WHERE user_id = ? AND {kind.id} = ?"
    rowid = connection.execute(f"SELECT rowid {which}", (change.user, change.key)).get or change.entry
    if kind.full_text:
        unindex_row(connection, kind.table, rowid)
    if change.value is None:
        connection.execute(f"DELETE {which}", (change.user, change.key))
        return
    own = {"rowid": rowid, "entry": change.entry, **own}
    statement = upsert(kind.table, kind.cls, *own)
    connection.execute(statement, {**values(change.value), **own})
    if kind.full_text:
        index_row(connection, kind.table, rowid)


@attrs.frozen(kw_only=True, eq=False)
class Kind(Generic[V]):
    """What the store, forgetting, the doctor, export and the operations have to know of one kind of thing, beside the
    notes on the fields of its class (``domain.notes``)."""

    what: str
    """The word in the journal's line."""
    plural: str

    # -- its rows ------------------------------------------------------------------------------------------------------

    cls: type[Any]
    """The class of a value; its fields are the table's columns."""
    table: str = ""
    """The table with a row for each present value and the column ``user_id``; empty: there is none."""
    id: str = "id"
    """The column, or expression, that tells a user's rows apart."""
    ids: str = ""
    """Query of the ids by which a user names them, up to the condition of the id, if these are not ``id``."""
    holds: str = "true"
    """Condition of the rows that hold; others were replaced."""
    whole: str = attrs.field(default=attrs.Factory(lambda self: self.table, takes_self=True))
    """The table, or the view that has its rows as they were before a variant replaced them."""
    changed: str = "entry"
    """The column that grows with each change of a row; may be empty."""
    full_text: bool = False
    """``TABLE_fts`` has the full text of what the view ``TABLE_search`` shows."""
    vectors: str = ""
    """Table of its vectors, by row id."""
    vector_mark: str = ""
    """The column that names the model which made a row's vector."""
    past: str = ""
    """Table of what it was before: ``entry``, ``user_id``, ``WHAT_id``, ``at``, ``value``."""
    forgets_past: bool = False
    """What it said before goes with any forgetting."""
    flaws: Mapping[str, str] = attrs.field(factory=dict)
    """What must never be, beside what ``kinds.inventory`` derives: a phrase behind a number, and the query of that."""
    made_of: Callable[[apsw.Connection, UserId, Sequence[int]], set[Any]] | None = None
    """Keys of what was made of a user's messages (row ids) in a way that no ``MadeFrom`` says."""
    on_purpose: bool = False
    """People keep it on purpose: where it quotes something forgotten that is reported, and it goes only if they want.
    Everything else loses the quoting words."""

    # -- its lines in the memory journal -------------------------------------------------------------------------------

    ops: Mapping[str, type[Any] | None] = attrs.field(factory=dict)
    """What can be done, and the class of the line's value, if it has one. Empty: its changes are not in the journal."""
    counted: str = attrs.field(default=attrs.Factory(lambda self: self.plural, takes_self=True))
    """Name of ``Tally`` for its changes."""
    apply: Callable[[apsw.Connection, Change[V]], object] = keep
    """Carries out a new change. Raises apsw.ConstraintError: the value breaks a rule of the table."""
    clear: Sequence[str] = ()
    """Statements that remove what its changes made beside ``table`` and its history."""
    tables: Sequence[ContentTable] = ()
    key: Form = attrs.field(default=Form(str, str))
    key_of: Callable[[Any], str] = str
    """The key in the journal of what is in ``id``."""
    beside: tuple[str, ...] = ()
    """Fields that the line has elsewhere: the user, then the key's parts."""
    rule: Callable[[Any], object] = lambda _value: None
    """Raises ValueError for a value whose fields do not go together, or break a rule that the notes do not say."""
    moves: Callable[[Any], Any] | str = ""
    """How it comes out of an export of another Klaw: as what the function makes of it, or not at all for the reason
    given here. Empty: no export has it."""

    # -- what the notes on its fields say ------------------------------------------------------------------------------

    @cached_property
    def quotes(self) -> dict[str, Quotes]:
        return self._noted(Quotes)

    @cached_property
    def made_from(self) -> dict[str, MadeFrom]:
        return self._noted(MadeFrom)

    @cached_property
    def documents(self) -> set[str]:
        return documents(self.cls)

    @cached_property
    def rows(self) -> Rows[Any]:
        return Rows(self.cls, self.table)

    @property
    def source(self) -> tuple[str, str, str]:
        """Where all that there ever was is found: the table, the column of the key, and how SQL names a field."""
        if not self.past:
            return self.table, self.id, "{}"
        return self.past, f"{self.what}_id", "value ->> '$.{}'"

    def _noted(self, note: type[N]) -> dict[str, N]:
        wires = dict(zip(attrs.fields_dict(self.cls), wire_names(self.cls), strict=True))
        return {wires[name]: each for name, each in notes(self.cls, note).items()}

    def said(self, fields: Mapping[str, Any]) -> list[str]:
        """The words of a value that may repeat what somebody said."""
        return [text for column in self.quotes for text in texts_of(fields.get(column))]

    def get(self, connection: apsw.Connection, user: UserId, key: Any) -> V | None:
        found: V | None = self.rows.one(connection, f"WHERE user_id = ? AND {self.id} = ?", user, key)
        return found

    def by_rowids(self, connection: apsw.Connection, user: UserId, rowids: Sequence[int]) -> dict[int, V]:
        """A user's things that hold, by their row ids, in the given order; others are left out."""
        found = connection.execute(self._by_rowids, (user, json.dumps(list(rowids))))
        return {rowid: self.rows.read(row) for rowid, *row in found}

    @cached_property
    def _by_rowids(self) -> str:
        return f"""
        SELECT t.rowid, {columns(self.cls, "t")} FROM json_each(?2) AS r CROSS JOIN {self.table} AS t
            ON t.rowid = r.value WHERE t.user_id = ?1 AND {self.holds} ORDER BY r.key
        """  # noqa: S608 - constants

    def texts(self, connection: apsw.Connection, user: UserId, key: Any) -> list[str]:
        """All that a user's thing ever said, the oldest first."""
        columns = [f"'{name}', {f'json({name})' if name in self.documents else name}" for name in self.quotes]
        source = f"SELECT json_object({', '.join(columns)}) FROM {self.table} WHERE user_id = ? AND {self.id} = ?"  # noqa: S608
        if self.past:
            which = f"user_id = ? AND {self.what}_id = ? AND value IS NOT NULL ORDER BY entry"
            source = f"SELECT value FROM {self.past} WHERE {which}"  # noqa: S608
        return [text for (value,) in connection.execute(source, (user, key)) for text in self.said(json.loads(value))]

    def is_there(self, connection: apsw.Connection, user: UserId, key: Any) -> bool:
        query = f"SELECT count(*) FROM {self.table} WHERE user_id = ? AND {self.id} = ?"  # noqa: S608 - constants
        return bool(connection.execute(query, (user, key)).get)

    def remove(self, connection: apsw.Connection, user: UserId, key: Any, *, dates: bool) -> None:
        """Remove a user's thing with full text, vector and history; with ``dates`` those of the history stay."""
        if self.past:
            self.forget_history(connection, user, key, dates=dates)
        which = f"FROM {self.table} WHERE user_id = ? AND {self.id} = ?"
        rows = connection.execute(f"SELECT rowid {which}", (user, key)) if self.full_text or self.vectors else ()
        for (rowid,) in list(rows):
            self.unindex(connection, rowid)
        connection.execute(f"DELETE {which}", (user, key))

    def unindex(self, connection: apsw.Connection, rowid: int) -> None:
        """Take the full text and the vector of a row out, before it is changed or removed."""
        if self.full_text and self.has_text(connection, rowid):
            unindex_row(connection, self.table, rowid)
        if self.vectors:
            connection.execute(f"DELETE FROM {self.vectors} WHERE rowid = ?", (rowid,))  # noqa: S608 - constants
        if self.vector_mark:
            connection.execute(f"UPDATE {self.table} SET {self.vector_mark} = NULL WHERE rowid = ?", (rowid,))  # noqa: S608

    def has_text(self, connection: apsw.Connection, rowid: int) -> bool:
        query = f"SELECT count(*) FROM {self.table}_fts_docsize WHERE id = ?"  # noqa: S608 - constants
        return bool(connection.execute(query, (rowid,)).get)

    def empty(self, connection: apsw.Connection) -> None:
        """Remove everything of all users."""
        own = [f"DELETE FROM {each}" for each in (self.vectors, self.table, self.past) if each]  # noqa: S608 - constants
        if self.full_text:
            own.append(f"INSERT INTO {self.table}_fts ({self.table}_fts) VALUES ('rebuild')")  # noqa: S608
        for statement in (*self.clear, *own):
            connection.execute(statement)

    # -- writing and reading lines -------------------------------------------------------------------------------------

    def put(self, user: UserId, key: Any, value: V, at: str, op: str = PUT) -> Change[V]:
        return Change(kind=self, time=at, user=user, op=op, key=key, value=value)

    def removed(self, user: UserId, key: Any, at: str) -> Change[V]:
        return Change(kind=self, time=at, user=user, op=REMOVE, key=key, value=None)

    def check(self, value: V) -> None:
        """Raises InvalidValue for a value that could not be read from its line again."""
        try:
            self.rule(JOURNAL.read(JOURNAL.write(value), type(value)))
        except BadValue as error:
            raise InvalidValue(str(error)) from None

    def fields(self, value: V) -> dict[str, Any]:
        """A value as its line has it."""
        return {name: each for name, each in JOURNAL.write(value).items() if name not in self.beside}

    def value(self, user: UserId, key: Any, fields: Mapping[str, Any], op: str = PUT) -> V:
        """The value of a line. Raises ValueError or TypeError."""
        own = dict(zip(self.beside, (user, *(key if isinstance(key, tuple) else (key,))), strict=False))
        cls: Any = self.ops[op]
        found: V = JOURNAL.read({**fields, **own}, cls)
        self.rule(found)
        return found

    # -- the history of kinds that keep one ----------------------------------------------------------------------------

    def history(self, connection: apsw.Connection, user: UserId, key: Any) -> list[Change[V]]:
        """All that a user's thing was, the oldest first; it may be removed."""
        made = self.removed(user, key, "")
        query = f"SELECT entry, at, value FROM {self.past} WHERE user_id = ? AND {self.what}_id = ? ORDER BY entry"  # noqa: S608
        return [
            attrs.evolve(made, entry=entry, time=at, value=value and self.value(user, key, json.loads(value)))
            for entry, at, value in connection.execute(query, (user, key))
        ]

    def note(self, connection: apsw.Connection, change: Change[V]) -> None:
        value = None if change.value is None else dumps(self.fields(change.value))
        connection.execute(
            f"INSERT INTO {self.past} (entry, user_id, {self.what}_id, at, value) VALUES (?, ?, ?, ?, ?)",  # noqa: S608
            (change.entry, change.user, change.key, change.time, value),
        )

    def forget_history(self, connection: apsw.Connection, user: UserId, key: Any, *, dates: bool) -> None:
        """Leave nothing of it but the dates, or not even those."""
        change = f"UPDATE {self.past} SET value = NULL" if dates else f"DELETE FROM {self.past}"  # noqa: S608
        connection.execute(f"{change} WHERE user_id = ? AND {self.what}_id = ?", (user, key))

    def read(self, record: Mapping[str, Any]) -> Change[V]:
        """The change of a line. Raises KeyError, TypeError or ValueError for a malformed one."""
        line = JOURNAL.read(record, _JournalLine)
        key, cls = self.key.read(line.key), self.ops[line.op]
        value = self.value(line.user, key, record["value"], line.op) if cls is not None else None
        return Change(kind=self, entry=line.entry, time=line.time, user=line.user, op=line.op, key=key, value=value)


def earlier(past: Sequence[Change[V]], to: int | None) -> Change[V] | None:
    """The state before the newest change of a history, or by the entry ``to``; None: before the first one. Raises
    CannotUndo: there is no such entry, it is so already, or forgotten."""
    place = len(past) - 2
    if to is not None:
        place = next((at for at, change in enumerate(past) if change.entry == to), -1)
        if place < 0:
            raise CannotUndo("entry: the history has none of this number")
    found = past[place] if place >= 0 else None
    if (found and found.value) == past[-1].value:
        raise CannotUndo("it is so already" if past[-1].value is not None else "it is gone already")
    if found is not None and found.value is not None and MARK in found.kind.said(found.kind.fields(found.value)):
        raise CannotUndo("what it was then is forgotten")
    return found


def path(change: Change[Any]) -> str:
    """Log of a change: one file a month."""
    return f"{MEMORY}/{change.time[:7]}.jsonl"


def record(change: Change[Any]) -> dict[str, Any]:
    kind = change.kind
    head = _JournalLine(
        entry=change.entry,
        time=change.time,
        user=change.user,
        op=change.op,
        what=kind.what,
        key=kind.key.write(change.key),
    )
    value = {} if change.value is None else {"value": kind.fields(change.value)}
    return {**JOURNAL.write(head), **value}


def line(change: Change[Any]) -> str:
    return dumps(record(change))


def is_known(connection: apsw.Connection, change: Change[Any]) -> bool:
    return change.entry <= meta.last_entry(connection)


def apply(connection: apsw.Connection, change: Change[Any]) -> bool:
    """Carry out a change. False: it was carried out before. Raises apsw.ConstraintError: its value breaks a rule."""
    if is_known(connection, change):
        return False
    change.kind.apply(connection, change)
    meta.put(connection, meta.MEMORY_ENTRY, str(change.entry))
    return True
