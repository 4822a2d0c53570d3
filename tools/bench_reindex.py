"""How long a reindex takes, step by step, and what a client of a running server notices of it.

python tools/bench_reindex.py [--messages 20000] [--live 10000] [--missing 0]
"""

import argparse
import logging
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import structlog
import trio

sys.path.insert(0, str(Path(__file__).parents[1]))

from klaw.store.kinds import messages
from klaw.store.rebuild.actor import Reindexer
from klaw.store.rebuild.offline import reindex
from klaw.store.rebuild.values import ReindexOptions
from klaw.store.search import vectors as stored_vectors
from klaw.store.store import Store
from tests.support.reindexing import ended, reindexing_store
from tests.support.stores import new

CHATS = 50
DIMENSION = 384


async def fill(store: Store, count: int) -> None:
    """Messages of a usual length with random unit vectors."""
    await stored_vectors.prepare(store.writer, "bench", DIMENSION)
    random = np.random.default_rng(1)
    for first in range(0, count, 100):
        numbers = range(first, min(count, first + 100))
        words = [" ".join(map(str, random.integers(0, 5000, 12))) for _ in numbers]
        texts = [f"message {number}, some words, привет {more}" for number, more in zip(numbers, words, strict=True)]
        made = [new(text, chat=f"chat {number % CHATS}") for number, text in zip(numbers, texts, strict=True)]
        appended = await store.writer.run(messages.append, made)
        vectors = random.standard_normal((len(made), DIMENSION)).astype("<f4")
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        rows = [(each.message.rowid, vector.tobytes()) for each, vector in zip(appended, vectors, strict=True)]
        await store.writer.run(stored_vectors.store, "bench", rows)


async def stopped(root: Path, count: int) -> None:
    async with reindexing_store(root) as (store, _):
        await fill(store, count)
    begins: dict[str, float] = {}
    begin = time.perf_counter()
    for step in reindex(root / "klaw.db", ReindexOptions(), 1):
        begins.setdefault(step.phase, time.perf_counter() - begin)
    total = time.perf_counter() - begin
    print(f"stopped, {count} messages: {total:.1f} s")
    print("  steps end their first slice at: " + ", ".join(f"{name} {at:.2f} s" for name, at in begins.items()))


async def missing(root: Path, count: int) -> None:
    """A start without a database beside a reindex without one: time, and bytes that reach the disk."""
    async with reindexing_store(root) as (store, _):
        await stored_vectors.prepare(store.writer, "bench", DIMENSION)
        for first in range(0, count, 200):
            numbers = range(first, min(count, first + 200))
            texts = [f"message {number} of {number % 977} and {number % 5003} words, привет" for number in numbers]
            made = [new(text, chat=f"chat {number % CHATS}") for number, text in zip(numbers, texts, strict=True)]
            await store.writer.run(messages.append, made)
    for how in ("start", "klaw reindex"):
        for name in ("klaw.db", "klaw.db-wal", "klaw.db-shm", "klaw.db.old"):
            (root / name).unlink(missing_ok=True)
        written, begin = _written(), time.perf_counter()
        if how == "start":
            async with reindexing_store(root):
                seconds = time.perf_counter() - begin
        else:
            for _step in reindex(root / "klaw.db", ReindexOptions(), 1):
                pass
            seconds = time.perf_counter() - begin
        size = (root / "klaw.db").stat().st_size
        print(
            f"no database, {count} messages, {how}: {seconds:.1f} s, {(_written() - written) / 1e6:.0f} MB written"
            f" for a database of {size / 1e6:.0f} MB"
        )


def _written() -> int:
    """Bytes that this process had written to disks."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("write_bytes")).split()[1])


async def appending(store: Store, found: list[float]) -> None:
    while True:
        begin = time.perf_counter()
        await store.writer.run(messages.append, [new("a short message", chat="live")])
        found.append((time.perf_counter() - begin) * 1000)
        await trio.sleep(0.005)


async def lag(found: list[float]) -> None:
    while True:
        begin = time.perf_counter()
        await trio.sleep(0.002)
        found.append((time.perf_counter() - begin) * 1000 - 2)


async def running(root: Path, count: int) -> None:
    async with reindexing_store(root) as (store, reindexer):
        await fill(store, count)
        before: list[float] = []
        with trio.move_on_after(4):
            await appending(store, before)
        during, late = [], []
        begin = time.perf_counter()
        await _reindex_beside(store, reindexer, during, late)
        print(f"running, {count} messages: {time.perf_counter() - begin:.1f} s")
        for name, times in (("append before", before), ("append during", during), ("event loop late by", late)):
            print(f"  {name}: {_spread(times)}")


async def _reindex_beside(store: Store, reindexer: Reindexer, during: list[float], late: list[float]) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(appending, store, during)
        nursery.start_soon(lag, late)
        await reindexer.start(ReindexOptions())
        status = await ended(reindexer)
        assert status.report is not None, status.error
        assert status.report.swapped
        nursery.cancel_scope.cancel()


def _spread(times: list[float]) -> str:
    ordered = sorted(times)
    at = {share: ordered[int(len(ordered) * share / 100)] for share in (50, 95, 99)}
    return ", ".join(f"p{share} {value:.1f} ms" for share, value in at.items()) + f", most {ordered[-1]:.1f} ms"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--messages", type=int, default=20_000, help="of the stopped server")
    arguments.add_argument("--live", type=int, default=10_000, help="of the running server")
    arguments.add_argument("--missing", type=int, default=0, help="of a start without a database")
    arguments.add_argument("--folder", help="where to work; on the disk that is to be measured")
    chosen = arguments.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
        if chosen.messages:
            trio.run(stopped, Path(folder, "stopped"), chosen.messages)
        if chosen.live:
            trio.run(running, Path(folder, "running"), chosen.live)
        if chosen.missing:
            trio.run(missing, Path(folder, "missing"), chosen.missing)


if __name__ == "__main__":
    main()
