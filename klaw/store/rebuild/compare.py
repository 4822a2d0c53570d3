"""Content digests of two databases, table by table, and what differs; no content leaves this module.

Two rows are the same when all their values are. A vector cannot be held to that: another batch gives other last bits.
So of vectors the rows are compared (which message, which chat, which place in it), and of a sample the direction. A
vector that only one side has is no difference: it is work that is done or still to be done, and the embedder does it.
"""

import hashlib
from collections.abc import Callable, Generator, Iterator
from typing import Self

import apsw
import attrs

from klaw.store.rebuild import content
from klaw.store.rebuild.tables import END, Row, Table
from klaw.store.rebuild.values import Committed, Progress, Side, TableComparison
from klaw.store.rows import dumps
from klaw.store.search import vectors

EXAMPLES = 5
"""Keys that are shown of a table's differing rows."""
SAMPLE = 500
"""About so many vectors are compared by their direction."""
MIN_COSINE = 0.999
"""Two vectors of one text by one model."""
_REPORT_EVERY = 100
"""Rows between two reports."""

Steps = Generator[Progress, None, TableComparison]


class _Table:
    """Counts and digests of one table while its rows come in."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rows = [0, 0]
        self.hashes = [hashlib.sha256(), hashlib.sha256()]
        self.only = [0, 0]
        self.differing = 0
        self.examples: list[str] = []

    def take(self, side: int, row: Row) -> None:
        self.rows[side] += 1
        self.hashes[side].update(_canonical(row))

    def take_both(self, row: Row) -> None:
        data = _canonical(row)
        for side in (0, 1):
            self.rows[side] += 1
            self.hashes[side].update(data)

    def example(self, key: object) -> None:
        if len(self.examples) < EXAMPLES:
            self.examples.append(str(key))

    def result(self, *, missing_is_fine: bool = False, show_keys: bool = True) -> TableComparison:
        sides = [Side(rows=rows, digest=hash_.hexdigest()) for rows, hash_ in zip(self.rows, self.hashes, strict=True)]
        same = self.differing == 0 if missing_is_fine else sides[0] == sides[1]
        return TableComparison(
            name=self.name,
            live=sides[0],
            built=sides[1],
            only_live=self.only[0],
            only_built=self.only[1],
            differing=self.differing,
            examples=tuple(self.examples) if show_keys else (),
            same=same,
        )


def _canonical(row: Row) -> bytes:
    return dumps(list(row)).encode("utf-8", "surrogatepass") + b"\n"


@attrs.frozen(kw_only=True)
class Bounds:
    """What of the live database counts; the other one has what the logs had then."""

    rowid: int = END
    turn: int = END
    change: int = END
    entry: int = END

    @classmethod
    def up_to(cls, mark: Committed) -> Self:
        return cls(rowid=mark.last_rowid, turn=mark.last_turn, change=mark.last_change, entry=mark.last_entry)

    def of(self, table: Table) -> int:
        """The last number of a table's rows that counts."""
        return getattr(self, table.bound) if table.bound is not None else END


def compare(
    live: apsw.Connection, built: apsw.Connection, bounds: Bounds, *, whole: bool
) -> "Generator[Progress, None, list[TableComparison]]":
    """Compare all tables.

    Args:
        live: the database in use.
        built: the new one.
        bounds: what of the live one counts.
        whole: nobody writes to the live one: also what cannot be read in pieces or up to a row is compared.

    Raises:
        apsw.Error: one of them cannot be read.
    """
    found = []
    for table in content.TABLES:
        if whole or table.bound is not None:
            comparison = yield from _compare(table, live, built, bounds.of(table))
            found.append(comparison)
    if whole:
        found.append((yield from _merge(_Table("words"), content.words(live), content.words(built), show_keys=False)))
    found.append((yield from _compare_vectors(live, built, bounds.rowid)))
    return found


def compare_tail(live: apsw.Connection, built: apsw.Connection, bounds: Bounds, *, small: bool) -> bool:
    """Whether what came after the bounds is the same in both. Quick: for the moment of the swap.

    Args:
        live: the database in use, to which nobody writes now.
        built: the new one.
        bounds: up to here all was compared.
        small: also the small tables, whose rows change and are in no order: chats, tasks and core memory.

    Raises:
        apsw.Error: one of them cannot be read.
    """
    return all(
        _same_tail(table, live, built, bounds.of(table))
        for table in content.TABLES
        if table.bound is not None or (table.small and small)
    )


def _same_tail(table: Table, live: apsw.Connection, built: apsw.Connection, end: int) -> bool:
    if table.changed is not None:
        keys = table.changed_after(live, end) | table.changed_after(built, end)
        return all(table.row(live, key) == table.row(built, key) for key in keys)
    after = end if table.bound is not None else None
    return list(table.rows(live, after=after)) == list(table.rows(built, after=after))


def _compare(table: Table, live: apsw.Connection, built: apsw.Connection, end: int) -> Steps:
    """A row that changed beyond the end, or went, is in the new database as it was: that is compared at the swap. It
    may do so at any moment, so whether it did is asked for each row that seems to be in the new one only."""

    def goes_on(row: Row) -> bool:
        return table.goes_on(live, row[0], end)

    return (yield from _merge(_Table(table.name), table.rows(live, end=end), table.rows(built), excused=goes_on))


def _merge(
    state: _Table,
    live: Iterator[Row],
    built: Iterator[Row],
    *,
    also: Callable[[Row], bool] = lambda _row: True,
    excused: Callable[[Row], bool] = lambda _row: False,
    missing_is_fine: bool = False,
    show_keys: bool = True,
) -> Steps:
    """Walk two ordered lists of rows side by side. ``also`` is asked about rows that are equal, ``excused`` about those
    that only the new database has: they are left out."""
    seen = 0
    left, right = next(live, None), next(built, None)
    while left is not None or right is not None:
        seen += 1
        if seen % _REPORT_EVERY == 1:
            yield Progress("compare", seen)
        if right is None or (left is not None and left[0] < right[0]):
            assert left is not None
            state.take(0, left)
            state.only[0] += 1
            if not missing_is_fine:
                state.example(left[0])
            left = next(live, None)
        elif left is None or right[0] < left[0]:
            if not excused(right):
                state.take(1, right)
                state.only[1] += 1
                if not missing_is_fine:
                    state.example(right[0])
            right = next(built, None)
        else:
            if left == right and also(left):
                state.take_both(left)
            else:
                state.take(0, left)
                state.take(1, right)
                state.differing += 1
                state.example(left[0])
            left, right = next(live, None), next(built, None)
    return state.result(missing_is_fine=missing_is_fine, show_keys=show_keys)


def _compare_vectors(live: apsw.Connection, built: apsw.Connection, end: int) -> Steps:
    if vectors.model(live) != vectors.model(built):
        # Another model's: nothing can be compared, and nothing has to be the same.
        yield Progress("compare")
        return _Table("vectors").result(missing_is_fine=True)
    stride = max(1, vectors.count_embedded(built) // SAMPLE)

    def same_direction(row: Row) -> bool:
        if row[0] % stride:
            return True
        one, other = vectors.read(live, row[0]), vectors.read(built, row[0])
        if one is None or other is None:
            return one is None and other is not None  # damaged in the live database, made again in the new one
        return one == other or vectors.distance(built, one, other) <= 1 - MIN_COSINE

    rows = content.vector_rows
    state = _Table("vectors")
    return (yield from _merge(state, rows(live, end=end), rows(built), also=same_direction, missing_is_fine=True))


def digests(connection: apsw.Connection) -> dict[str, str]:
    """The content digest of each table of a database that nobody writes to."""
    found = {}
    tables = {table.name: table.rows(connection) for table in content.TABLES}
    for name, rows in {
        **tables,
        "vectors": content.vector_rows(connection),
        "words": content.words(connection),
    }.items():
        state = _Table(name)
        for row in rows:
            state.take(0, row)
        found[name] = state.hashes[0].hexdigest()
    return found
