"""Which compact form of the vectors serves a search of a whole history: Klaw's own codes, or columns of sqlite-vec?

    python tools/bench_vector_formats.py [DATA] [--size 1000000] [--queries 100] [--cache FILE] [--models DIR] [--json]

One scratch database holds the same vectors (see tools/bench_scale.py for DATA and how they are made) as Klaw's table of
floats, as Klaw's own codes of two bits, and as ``bit`` and ``int8`` columns of vec0. Each query is put to all of them
in turn, so that other work on the machine hits all alike: the compact form names candidates, the floats measure them.
Printed are time, CPU and recall@20 against an exact search. A ``bit`` column holds the signs of the vectors without
their common centre: the raw signs of a model whose vectors lie in a narrow cone hardly differ.
"""

import argparse
import json
import math
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import apsw
import attrs
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from klaw.config.paths import Paths
from klaw.domain.message import Role
from klaw.domain.names import LOCAL_USER
from klaw.store import migrations
from klaw.store.engine import connect
from klaw.store.search import vector_codes, vector_quantizer, vector_search, vectors
from klaw.store.search.vector_search import Neighbour
from tools.bench_scale import (
    BATCH,
    CHATS,
    DIMENSION,
    Material,
    chat_of,
    exact,
    made_up_material,
    percentiles,
    real_material,
    timed,
)

WANTED = 20
CHUNKS = 1_024
"""Rows of a chunk of the compact columns; more is no quicker."""
_TABLES = f"""
CREATE VIRTUAL TABLE as_bits USING vec0 (user_id TEXT PARTITION KEY, signs bit[{DIMENSION}], chunk_size={CHUNKS});
CREATE VIRTUAL TABLE as_int8 USING vec0 (
    user_id TEXT PARTITION KEY, small int8[{DIMENSION}] distance_metric=cosine, chunk_size={CHUNKS});
"""
_FLOATS = "INSERT INTO vec_messages (rowid, chat_key, seq, embedding) VALUES (?, ?, ?, ?)"
_BITS = "INSERT INTO as_bits (rowid, user_id, signs) VALUES (?, ?, vec_bit(?))"
_INT8 = "INSERT INTO as_int8 (rowid, user_id, small) VALUES (?, ?, vec_int8(?))"
_NEAR_BITS = "SELECT rowid, distance FROM as_bits WHERE signs MATCH vec_bit(?) AND k = ? AND user_id = ?"
_NEAR_INT8 = "SELECT rowid, distance FROM as_int8 WHERE small MATCH vec_int8(?) AND k = ? AND user_id = ?"
_MEASURE = """
SELECT v.rowid, vec_distance_cosine(v.embedding, ?2) AS measured
FROM json_each(?1) AS r CROSS JOIN vec_messages AS v ON v.rowid = r.value
"""


def signs(rows: np.ndarray, centre: np.ndarray) -> np.ndarray:
    return np.packbits(rows - centre > 0, axis=1, bitorder="little")


def small(rows: np.ndarray) -> np.ndarray:
    return np.clip(np.rint(rows * (127 * math.sqrt(DIMENSION) / 5)), -127, 127).astype(np.int8)


def fill(connection: apsw.Connection, material: Material, size: int) -> np.ndarray:
    """Store the vectors in each form. Returns the centre."""
    connection.execute(vectors.table(DIMENSION))
    vector_codes.create(connection)
    connection.execute(_TABLES)
    centre = vector_quantizer.mean([row.tobytes() for row in material.batch(0)[1][:1_000]], DIMENSION)
    vector_codes._put_state(
        connection, vector_codes.CodesState(centre=centre, coded=0, complete=True, generation="bench")
    )
    for number in range(size // BATCH):
        made = material.batch(number)[1]
        places = range(number * BATCH, (number + 1) * BATCH)
        coded = [
            vector_quantizer.VectorItem(
                place + 1, place, 0, Role.USER, row.tobytes(), chat_key=chat_of(place), user=LOCAL_USER
            )
            for place, row in zip(places, made, strict=True)
        ]
        with connection:
            rows = zip(places, made, signs(made, centre), small(made), strict=True)
            for place, floats, bits, integers in rows:
                connection.execute(_FLOATS, (place + 1, chat_of(place), place, floats.tobytes()))
                connection.execute(_BITS, (place + 1, LOCAL_USER, bits.tobytes()))
                connection.execute(_INT8, (place + 1, LOCAL_USER, integers.tobytes()))
            vector_codes.add(connection, coded)
        print(f"\r{(number + 1) * BATCH:,} of {size:,}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    return centre


@attrs.frozen
class Formats:
    """A search of the whole history in each of the forms."""

    connection: apsw.Connection
    centre: np.ndarray

    def measured(self, rowids: Sequence[int], query: np.ndarray) -> list[Neighbour]:
        rows = self.connection.execute(_MEASURE, (json.dumps(list(rowids)), query.tobytes()))
        return sorted((Neighbour(rowid, distance) for rowid, distance in rows), key=lambda each: each.distance)

    def own_codes(self, query: np.ndarray) -> list[Neighbour]:
        now = vector_codes.state(self.connection)
        fine = max(vector_search.FINE, 4 * WANTED)
        wanted = vector_codes.Filters(user=LOCAL_USER)
        rough = max(vector_search.ROUGH, 4 * fine)
        found = vector_codes.candidates(self.connection, now, query.tobytes(), wanted, rough, fine)
        return vector_search.nearest_of(found, lambda rowids: self.measured(rowids, query), WANTED)

    def bits(self, kept: int) -> Callable[[np.ndarray], list[Neighbour]]:
        def search(query: np.ndarray) -> list[Neighbour]:
            code = signs(query[np.newaxis], self.centre).tobytes()
            near = self.connection.execute(_NEAR_BITS, (code, kept, LOCAL_USER))
            return self.measured([rowid for rowid, _ in near], query)[:WANTED]

        return search

    def int8(self, kept: int) -> Callable[[np.ndarray], list[Neighbour]]:
        def search(query: np.ndarray) -> list[Neighbour]:
            near = self.connection.execute(_NEAR_INT8, (small(query).tobytes(), kept, LOCAL_USER))
            return self.measured([rowid for rowid, _ in near], query)[:WANTED]

        return search


def measure(path: Path, material: Material, size: int, centre: np.ndarray) -> dict[str, dict[str, float]]:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    connect.prepare_reader(connection)
    formats = Formats(connection, centre)
    ways: dict[str, Callable[[np.ndarray], list[Neighbour]]] = {
        "own codes": formats.own_codes,
        **{f"bit, {kept} measured": formats.bits(kept) for kept in (128, 512, 2_048)},
        **{f"int8, {kept} measured": formats.int8(kept) for kept in (20, 64)},
    }
    truth = exact(material, size, [query % CHATS for query in range(len(material.queries))])[0]
    spent, recall = defaultdict(list), defaultdict(list)
    for (_text, vector), true in zip(material.queries, truth, strict=True):
        query = vector.astype("<f4")
        for name, search in ways.items():
            time, found = timed(lambda search=search, query=query: search(query))
            spent[name].append(time)
            recall[name].append(len({each.rowid for each in found} & true) / len(true))
    result: dict[str, dict[str, float]] = {}
    for name in ways:
        result[name] = {**percentiles(spent[name]), "recall@20": round(statistics.mean(recall[name]), 4)}
        result[name]["times own codes, p50"] = round(result[name]["cpu_p50_ms"] / result["own codes"]["cpu_p50_ms"], 2)
    connection.close()
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="?", help="folder of conversations; without it vectors are made up")
    parser.add_argument("--size", type=int, default=1_000_000)
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--noise", type=float, default=0.3)
    parser.add_argument("--models", type=Path, help="folder of pulled models (default: the one of klaw)")
    parser.add_argument("--cache", type=Path, help="file that keeps embeddings between runs")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    models = (arguments.models or Paths.resolve().models_dir).absolute()
    material = (
        real_material(arguments.data, models, arguments.cache, arguments.noise, arguments.queries)
        if arguments.data
        else made_up_material(arguments.noise, arguments.queries)
    )
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "vectors.db"
        connection = apsw.Connection(str(path))
        connect.prepare_writer(connection)
        migrations.migrate(connection)
        centre = fill(connection, material, arguments.size)
        connection.close()
        result: dict[str, Any] = measure(path, material, arguments.size, centre)
    if arguments.json:
        print(json.dumps(result))
        return
    for name, figures in result.items():
        print(f"{name:<22} " + "  ".join(f"{key} {value}" for key, value in figures.items()))


if __name__ == "__main__":
    main()
