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


def _canonical(row: Row) -> bytes:
    return dumps(list(row)).encode("utf-8", "surrogatepass") + b"\n"


def compare(live: apsw.Connection, built: apsw.Connection) -> Generator[Progress, None, list[TableComparison]]:
    """Compare all tables of the database in use, which does not change (nobody writes to it, or this reads one
    moment of it) and allows temporary tables, and of the new one, made from the logs as they were then. Raises
    apsw.Error: one of them cannot be read."""
    steps = [_merge(table.name, table.rows(live), table.rows(built)) for table in TABLES]
    steps += [_merge("words", _words(live), _words(built), show_keys=False), _compare_vectors(live, built)]
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
    name: str,
    live: Iterator[Row],
    built: Iterator[Row],
    *,
    also: Callable[[Row], bool] = lambda _row: True,
    missing_is_fine: bool = False,
    show_keys: bool = True,
) -> Steps:
    """Walk two ordered lists of rows side by side. ``also`` is asked about rows that are equal."""
    rows = [next(live, None), next(built, None)]
    counts, hashes, only = [0, 0], [hashlib.sha256(), hashlib.sha256()], [0, 0]
    differing, seen, examples = 0, 0, list[str]()
    while rows[0] is not None or rows[1] is not None:
        seen += 1
        if seen % _REPORT_EVERY == 1:
            yield Progress("compare", seen)
        left, right = rows
        equal = left == right
        if left is not None and right is not None and left[0] == right[0]:
            taken, same = [0, 1], equal and also(left)
            differing += not same
        else:
            taken, same = [0 if right is None or (left is not None and left[0] < right[0]) else 1], missing_is_fine
            only[taken[0]] += 1
        data = b""
        for side in taken:
            row = rows[side]
            assert row is not None
            data = data if side and equal else _canonical(row)
            counts[side] += 1
            hashes[side].update(data)
            if not same and side == taken[0] and show_keys and len(examples) < EXAMPLES:
                examples.append(str(row[0]))
            rows[side] = next((live, built)[side], None)
    sides = [Side(rows=count, digest=hash_.hexdigest()) for count, hash_ in zip(counts, hashes, strict=True)]
    return TableComparison(
        name=name,
        live=sides[0],
        built=sides[1],
        only_live=only[0],
        only_built=only[1],
        differing=differing,
        examples=tuple(examples),
        same=differing == 0 if missing_is_fine else sides[0] == sides[1],
    )


def _compare_vectors(live: apsw.Connection, built: apsw.Connection) -> Steps:
    """Compare the vectors, unless they are of different models."""
    comparable = vector_model.current(live) == vector_model.current(built)
    stride = max(1, vectors.count_embedded(built) // SAMPLE) if comparable else 1

    def same_direction(row: Row) -> bool:
        if row[0] % stride:
            return True
        one, other = vectors.read(live, row[0]), vectors.read(built, row[0])
        if one is None or other is None:
            return one is None and other is not None  # damaged in the live database, made again in the new one
        return one == other or vectors.distance(built, one, other) <= 1 - MIN_COSINE

    places = [vectors.places(each) if comparable else iter(()) for each in (live, built)]
    return (yield from _merge("vectors", *places, also=same_direction, missing_is_fine=True))


def digests(connection: apsw.Connection) -> dict[str, str]:
    """The content digest of each table of a database that nobody writes to."""
    found = {}
    tables = {table.name: table.rows(connection) for table in TABLES}
    for name, rows in {**tables, "vectors": vectors.places(connection), "words": _words(connection)}.items():
        digest = hashlib.sha256()
        for row in rows:
            digest.update(_canonical(row))
        found[name] = digest.hexdigest()
    return found
