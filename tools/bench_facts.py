"""How long searches over a user's facts take: random vectors, two users with as many facts each.

Usage: python tools/bench_facts.py [FACTS]
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import apsw
import attrs
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from klaw.actor.clock import iso
from klaw.domain.fact import Fact, FactId, FactSource, Origin
from klaw.domain.names import UserId
from klaw.store import migrations
from klaw.store.engine import connect
from klaw.store.kinds import facts
from klaw.store.search import passages, vectors
from klaw.store.search.passages import PassageVector

MODEL, DIMENSION, RUNS = "bench", 384, 40


def fill(connection: apsw.Connection, count: int) -> bytes:
    """Both users' facts; returns a vector to search with."""
    chance = np.random.default_rng(1)
    vector = b""
    with connection:
        vectors.prepare_at_once(connection, MODEL, DIMENSION)
        for number in range(1, 2 * count + 1):
            now = iso(1_790_000_000 + number)
            fact = Fact(
                id=FactId(f"f{number}"),
                user=UserId("local" if number % 2 else "anna"),
                text=f"Fact number {number} is about thing {chance.integers(count)}.",
                category="other",
                source=FactSource.TOOL,
                origin=Origin.ASSISTANT,
                created_at=now,
                updated_at=now,
            )
            put = attrs.evolve(facts.FACT.put(fact.user, fact.id, fact, now), entry=number)
            facts.FACT.apply(connection, put)
            made = chance.normal(size=DIMENSION)
            vector = (made / np.linalg.norm(made)).astype("<f4").tobytes()
            passages.store(connection, MODEL, [PassageVector("fact", number, fact.text, vector)])
    return vector


def show(name: str, step: Callable[[], object]) -> None:
    spent = []
    for _ in range(RUNS):
        begin = time.perf_counter()
        step()
        spent.append((time.perf_counter() - begin) * 1000)
    print(f"{name:<28} p50 {statistics.median(spent):6.2f} ms, p95 {sorted(spent)[int(RUNS * 0.95)]:6.2f} ms")


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 5_000
    with tempfile.TemporaryDirectory() as folder:
        connection = apsw.Connection(str(Path(folder) / "klaw.db"))
        connect.prepare_writer(connection)
        migrations.migrate(connection)
        vector = fill(connection, count)
        user = UserId("local")
        print(f"{count:,} facts of one user, as many of another")
        show("by vector", lambda: passages.nearest(connection, "fact", user, vector, 50))
        show("by three words", lambda: passages.matching(connection, "fact", user, ["fact", "thing", "450"], 50))
        show("what has no vector", lambda: passages.unembedded(connection, MODEL, 16))
        connection.close()


if __name__ == "__main__":
    main()
