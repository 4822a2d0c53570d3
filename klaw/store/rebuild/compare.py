"""Content digests of two databases, table by table, and what differs; no content leaves this module.

Two rows are the same when all their values are. A vector cannot be held to that: another batch gives other last bits.
So of vectors the rows are compared (which message, which chat, which place in it), and of a sample the direction. A
vector that only one side has is no difference: it is work that is done or still to be done, and the embedder does it.
"""

import hashlib
from collections.abc import Callable, Generator, Iterator, Mapping
from itertools import groupby
from operator import itemgetter

import apsw

from klaw.store.engine import vector_model
from klaw.store.engine.tables import Bound, ContentTable, Row
from klaw.store.kinds.records import KINDS
from klaw.store.rebuild.values import Progress, Side, TableComparison
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

TABLES: tuple[ContentTable, ...] = tuple(each for kind in KINDS for each in kind.tables)


def _words(connection: apsw.Connection) -> Iterator[Row]:
    """Every word of the index in order, with each column that has it, in how many messages, and how often."""
    query = "SELECT term, col, doc, cnt FROM temp.klaw_words"
    connection.execute("CREATE VIRTUAL TABLE IF NOT EXISTS temp.klaw_words USING fts5vocab (main, messages_fts, 'col')")
    for word, found in groupby(connection.execute(query), key=itemgetter(0)):
        yield word, [list(row[1:]) for row in found]


class _Table:
    """Counts and digests of one table while its rows come in."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rows = [0, 0]
        self.hashes = [hashlib.sha256(), hashlib.sha256()]
        self.only = [0, 0]
        self.differing = 0
        self.examples: list[str] = []

    def take(self, side: int, data: bytes) -> None:
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


def compare(live: apsw.Connection, built: apsw.Connection) -> "Generator[Progress, None, list[TableComparison]]":
    """Compare all tables. Raises apsw.Error: one of them cannot be read.

    Args:
        live: the database in use, which does not change: nobody writes to it, or this reads one moment of it. It
            must be allowed to make temporary tables.
        built: the new one, made from the logs as they were then.
    """
    steps = [_merge(_Table(table.name), table.rows(live), table.rows(built)) for table in TABLES]
    steps += [_merge(_Table("words"), _words(live), _words(built), show_keys=False), _compare_vectors(live, built)]
    found = []
    for each in steps:
        comparison = yield from each
        found.append(comparison)
    return found


def compare_tail(live: apsw.Connection, built: apsw.Connection, after: Mapping[Bound, int]) -> bool:
    """Whether what came after some numbers is the same in both, and the small tables, whose rows are in no order.
    Quick: for the moment of the swap, while nobody writes. Raises apsw.Error: one of them cannot be read."""
    return all(
        _same_tail(table, live, built, None if table.bound is None else after[table.bound])
        for table in TABLES
        if table.bound is not None or table.small
    )


def _same_tail(table: ContentTable, live: apsw.Connection, built: apsw.Connection, after: int | None) -> bool:
    if table.changed is not None and after is not None:
        keys = table.changed_after(live, after) | table.changed_after(built, after)
        return all(table.row(live, key) == table.row(built, key) for key in keys)
    return list(table.rows(live, after=after)) == list(table.rows(built, after=after))


def _merge(
    state: _Table,
    live: Iterator[Row],
    built: Iterator[Row],
    *,
    also: Callable[[Row], bool] = lambda _row: True,
    missing_is_fine: bool = False,
    show_keys: bool = True,
) -> Steps:
    """Walk two ordered lists of rows side by side. ``also`` is asked about rows that are equal."""
    sides = (live, built)
    rows = [next(live, None), next(built, None)]
    seen = 0
    while rows[0] is not None or rows[1] is not None:
        seen += 1
        if seen % _REPORT_EVERY == 1:
            yield Progress("compare", seen)
        left, right = rows
        if left is not None and right is not None and left[0] == right[0]:
            taken = [0, 1]
            if not (left == right and also(left)):
                state.differing += 1
                state.example(left[0])
        else:
            taken = [0] if right is None or (left is not None and left[0] < right[0]) else [1]
            state.only[taken[0]] += 1
        data, equal = b"", left == right
        for side in taken:
            row = rows[side]
            assert row is not None
            data = data if side and equal else _canonical(row)
            state.take(side, data)
            if len(taken) == 1 and not missing_is_fine:
                state.example(row[0])
            rows[side] = next(sides[side], None)
    return state.result(missing_is_fine=missing_is_fine, show_keys=show_keys)


def _compare_vectors(live: apsw.Connection, built: apsw.Connection) -> Steps:
    if vector_model.current(live) != vector_model.current(built):
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

    places = vectors.places
    return (
        yield from _merge(_Table("vectors"), places(live), places(built), also=same_direction, missing_is_fine=True)
    )


def digests(connection: apsw.Connection) -> dict[str, str]:
    """The content digest of each table of a database that nobody writes to."""
    found = {}
    tables = {table.name: table.rows(connection) for table in TABLES}
    for name, rows in {**tables, "vectors": vectors.places(connection), "words": _words(connection)}.items():
        state = _Table(name)
        for row in rows:
            state.take(0, _canonical(row))
        found[name] = state.hashes[0].hexdigest()
    return found
