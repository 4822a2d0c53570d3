"""What search costs as the history grows: latency, recall against exact search, disk and insert rate.

    python tools/bench_scale.py [DATA] [--sizes 10000 100000 1000000] [--scratch DIR] [--keep] [--json]

Grows one database of one user in 50 chats through the store's own SQL, in large transactions and without the logs, and
measures it at each size. DATA is a folder of conversations (see tools/bench_recall.py): texts are made of its
sentences, vectors are those of its messages with noise, queries are its questions. Without it, words follow Zipf's law
and vectors are made of random topics in a narrow cone, as those of real models are. ``--keep`` leaves the database in
the scratch folder and takes up one that is there.
"""

import argparse
import json
import random
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import attrs
import numpy as np
import trio

sys.path.insert(0, str(Path(__file__).parents[1]))

from klaw.actor import log
from klaw.actor.clock import SystemClock, iso
from klaw.app.serve import settle_garbage_collector
from klaw.config.memory import AutoRagConfig
from klaw.config.paths import Paths
from klaw.domain import tokens
from klaw.domain.message import MessageKind, NewMessage, Role
from klaw.domain.names import LOCAL_USER, chat_id
from klaw.memory.embed.token_coder import Reading
from klaw.memory.recall.query import MAX_WORDS, content_words
from klaw.memory.recall.recall import DEPTH, Recall
from klaw.memory.search.search import MemorySearch
from klaw.store import migrations
from klaw.store.engine import connect, meta
from klaw.store.engine.database import open_readers
from klaw.store.kinds import messages
from klaw.store.search import vector_codes, vector_search, vectors
from klaw.store.search.chat_search import ChatScope, search_chat
from klaw.store.search.history_search import HistoryFilters, search_history
from tests.support.memory.ready_embedder import ReadyEmbedder

CHATS = 50
READERS = 2
RANDOM_COSINE = 0.78
EMBED_S = 0.008
"""What the embedding of a question takes here; it is not counted."""
WARM_UP = 5
"""Recalls that are not counted."""
BURST = 40
"""Messages that go to one chat before another is taken up."""
BATCH = 10_000
DIMENSION = 384
CHUNK_SIZES = (8, 16, 32, 64, 256, 1024)
START = 1_700_000_000.0
SECONDS_APART = 60.0


@attrs.frozen(kw_only=True)
class Material:
    """What messages and queries are made of."""

    texts: Sequence[str]
    """One for each base vector."""
    sentences: Sequence[str]
    base: np.ndarray
    """(n, DIMENSION) float32, unit length."""
    queries: Sequence[tuple[str, np.ndarray]]
    noise: float
    """Length of the noise that is added to a unit vector."""
    model: Callable[[str], object] | None = None
    """Embeds a question, as the server does while it searches by words."""
    codes: Sequence[bytes] = ()
    """Of the tokens of each text; empty: there are none."""
    tokens: Mapping[str, np.ndarray] = attrs.Factory(dict)
    """… and of each query."""

    def codes_of(self, number: int) -> list[bytes]:
        """Codes of the messages number * BATCH …, those of the texts that ``batch`` makes them of."""
        chosen = np.random.default_rng(number).integers(0, len(self.base), BATCH)
        return [self.codes[each] for each in chosen] if self.codes else []

    def reading(self, text: str, vector: bytes) -> Reading:
        """Of a query."""
        return Reading(vector, tokens=self.tokens.get(text))

    def batch(self, number: int) -> tuple[list[str], np.ndarray]:
        """Texts and vectors of the messages number * BATCH …, always the same."""
        numbers = np.random.default_rng(number)
        chosen = numbers.integers(0, len(self.base), BATCH)
        made = self.base[chosen]
        made = made + (self.noise / DIMENSION**0.5) * numbers.standard_normal(made.shape, dtype=np.float32)
        made = (made / np.linalg.norm(made, axis=1, keepdims=True)).astype("<f4")
        draw = random.Random(number)
        texts = [f"{self.texts[each]} {draw.choice(self.sentences)}" for each in chosen]
        return texts, made


def real_material(folder: Path, models: Path, cache: Path | None, noise: float, queries: int) -> Material:
    from tools.bench_recall import MODEL, CachedModel

    conversations = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
    texts = [message["content"] for conversation in conversations for message in conversation["messages"]]
    # Paragraphs are no chat messages; their vectors stay in.
    short = [text[:400] for text in texts]
    asked = [question["query"] for conversation in conversations for question in conversation["questions"]]
    asked = random.Random(1).sample(asked, min(queries, len(asked)))
    model = CachedModel(models / MODEL, cache)
    read = model.read(texts, "passage")
    base = np.frombuffer(b"".join(each.vector for each in read), "<f4").reshape(-1, DIMENSION)
    questions = model.read(asked, "query")
    vectors_of_queries = [np.frombuffer(each.vector, "<f4") for each in questions]
    model.save()
    sentences = [
        each for text in short for each in re.split(r"(?<=[.!?])\s+", text.split(": ", 1)[-1]) if len(each) > 8
    ]
    return Material(
        texts=short,
        sentences=sentences,
        base=base,
        queries=list(zip(asked, vectors_of_queries, strict=True)),
        noise=noise,
        model=lambda text: model.model.read([text], kind="query"),
        codes=[each.codes for each in read],
        tokens={text: each.tokens for text, each in zip(asked, questions, strict=True) if each.tokens is not None},
    )


def made_up_material(noise: float, queries: int) -> Material:
    numbers = np.random.default_rng(0)
    vocabulary = np.array([f"w{number}" for number in range(30_000)])
    weights = 1 / np.arange(1, len(vocabulary) + 1)
    weights /= weights.sum()

    def sentence(size: int) -> str:
        return " ".join(numbers.choice(vocabulary, size, p=weights))

    cone = numbers.standard_normal(DIMENSION)
    topics = numbers.standard_normal((300, DIMENSION))
    mixed = topics[numbers.integers(0, 300, 6_500)] * 0.7 + 0.7 * numbers.standard_normal((6_500, DIMENSION))
    base = 0.88 * cone / np.linalg.norm(cone) + 0.47 * mixed / np.linalg.norm(mixed, axis=1, keepdims=True)
    base = (base / np.linalg.norm(base, axis=1, keepdims=True)).astype("<f4")
    return Material(
        texts=[sentence(12) for _ in base],
        sentences=[sentence(8) for _ in range(5_000)],
        base=base[queries:],
        queries=[(sentence(6), vector) for vector in base[:queries]],
        noise=noise,
    )


def grow(connection: apsw.Connection, material: Material, size: int) -> dict[str, float]:
    """Add messages and vectors up to a size; returns rates, of what was added."""
    before = connection.execute("SELECT count(*) FROM messages").get
    spent = {"messages": 0.0, "vectors": 0.0}
    # From the last full batch on: a run that was stopped may have left it without some of its vectors.
    for number in range(max(0, before // BATCH - 1), size // BATCH):
        texts, made = material.batch(number)
        codes = material.codes_of(number)
        first = number * BATCH
        begin = time.perf_counter()
        with connection:
            rowids = (
                list(range(first + 1, first + BATCH + 1))
                if first < before
                else [messages.insert(connection, message).rowid for message in new_messages(texts, first)]
            )
        spent["messages"] += time.perf_counter() - begin
        begin = time.perf_counter()
        for start in range(0, BATCH, vector_codes.STEP):
            with connection:
                part = slice(start, start + vector_codes.STEP)
                rows = [(rowid, row.tobytes()) for rowid, row in zip(rowids[part], made[part], strict=True)]
                vectors.put(connection, rows, None, dict(zip(rowids[part], codes[part], strict=False)))
                vector_codes.advance(connection)
        while vector_codes.advance(connection):
            pass
        spent["vectors"] += time.perf_counter() - begin
        print(f"\r{first + BATCH:,} of {size:,}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    added = size - before
    return {f"{name}_per_s": round(added / seconds) for name, seconds in spent.items() if seconds and added}


def new_messages(texts: Sequence[str], first: int) -> Iterator[NewMessage]:
    for place, text in enumerate(texts, first):
        yield NewMessage(
            id=f"m{place}",
            chat=chat_id(LOCAL_USER, f"chat{chat_of(place)}"),
            user=LOCAL_USER,
            channel="bench",
            role=Role.USER if place % 2 else Role.ASSISTANT,
            type=MessageKind.TEXT,
            content=text,
            tokens=tokens.estimate(text),
            created_at=iso(START + place * SECONDS_APART),
        )


def chat_of(place: int) -> int:
    """The chat of the message with a place; its row id is place + 1."""
    return place // BURST % CHATS


def exact(material: Material, size: int, chats: Sequence[int]) -> tuple[list[set[int]], list[set[int]]]:
    """Row ids of the 20 nearest of each query: in the whole history, and in its chat."""
    asked = np.stack([vector for _, vector in material.queries])
    everywhere: list[list[tuple[float, int]]] = [[] for _ in asked]
    inside: list[list[tuple[float, int]]] = [[] for _ in asked]
    for number in range(size // BATCH):
        _texts, made = material.batch(number)
        places = np.arange(number * BATCH, (number + 1) * BATCH)
        of_chat = places // BURST % CHATS
        near = made @ asked.T
        for query in range(len(asked)):
            for best, allowed in ((everywhere, None), (inside, of_chat == chats[query])):
                rows = np.arange(BATCH) if allowed is None else np.flatnonzero(allowed)
                top = rows[np.argsort(-near[rows, query])[:20]]
                merged = best[query] + [(float(near[row, query]), int(places[row]) + 1) for row in top]
                best[query] = sorted(merged, reverse=True)[:20]
    return [{rowid for _, rowid in each} for each in everywhere], [{rowid for _, rowid in each} for each in inside]


Spent = tuple[float, float]
"""Seconds of time and of this thread's CPU; on a busy machine only the second can be compared."""


def percentiles(spent: Sequence[Spent]) -> dict[str, float]:
    times, cpu = (sorted(1000 * each[place] for each in spent) for place in (0, 1))
    late = int(len(spent) * 0.95)
    return {
        "p50_ms": round(statistics.median(times), 1),
        "p95_ms": round(times[late], 1),
        "cpu_p50_ms": round(statistics.median(cpu), 1),
        "cpu_p95_ms": round(cpu[late], 1),
    }


def timed(function: Callable[[], Any]) -> tuple[Spent, Any]:
    begin, begin_cpu = time.perf_counter(), time.thread_time()
    result = function()
    return (time.perf_counter() - begin, time.thread_time() - begin_cpu), result


def measure(path: Path, material: Material, size: int) -> dict[str, Any]:
    """Search the database as it is."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    connect.prepare_reader(connection)
    chats = [query * 7 % CHATS for query in range(len(material.queries))]
    everywhere, inside = exact(material, size, chats)
    asked = [(content_words(text, MAX_WORDS), vector.astype("<f4").tobytes()) for text, vector in material.queries]
    texts = [(text, each) for (text, _), each in zip(material.queries, asked, strict=True)]
    result: dict[str, Any] = {}
    scopes = [ChatScope(chat=chat_id(LOCAL_USER, f"chat{chat}"), first_seq=1, end_seq=size + 1) for chat in chats]
    vectors_of = {text: vector for text, (_, vector) in texts}
    recalls = list(zip(vectors_of, scopes, strict=True))

    def read(text: str) -> Reading:
        return material.reading(text, vectors_of[text])

    ways = {"auto_rag": waiting(EMBED_S), "auto_rag, alone": waiting(0.0)}
    if material.model is not None:
        ways["auto_rag, beside the model"] = partial(trio.to_thread.run_sync, material.model)
    for name, before in ways.items():
        # One chat as people use it, whose codes stay in memory; and each question in another chat, where nothing does.
        result[name] = percentiles(trio.run(recall_all, path, read, [(text, scopes[0]) for text in vectors_of], before))
        result[f"{name}, chats in turn"] = percentiles(trio.run(recall_all, path, read, recalls, before))
    recalled = []
    for (words, vector), scope, true in zip(asked, scopes, inside, strict=True):
        near = search_chat(connection, vector, words, (), scope, DEPTH, seconds=60.0).neighbours
        recalled.append(len({each.rowid for each in near[:20]} & true) / len(true))
    result["auto_rag"]["recall@20"] = round(statistics.mean(recalled), 4)
    since, until = (iso(START + part * size * SECONDS_APART) for part in (0.6, 0.9))
    user = HistoryFilters(user=LOCAL_USER)
    narrow = attrs.evolve(user, since=since, until=until, role=Role.USER)
    for name, filters, parts in (
        ("memory_search", user, "both"),
        ("vectors alone", user, "vectors"),
        ("full text alone", user, "words"),
        ("with filters", narrow, "both"),
    ):
        runs = [
            timed(
                lambda w=words if parts != "vectors" else [], v=vector if parts != "words" else None, f=filters: (
                    search_history(connection, v, w, f, 20)
                )
            )
            for words, vector in asked
        ]
        result[name] = percentiles([each for each, _ in runs])
        if name == "memory_search":
            recalled = [
                len({n.rowid for n in found.neighbours} & true) / len(true)
                for (_, found), true in zip(runs, everywhere, strict=True)
            ]
            result[name]["recall@20"] = round(statistics.mean(recalled), 4)
    connection.close()
    result["a page"] = trio.run(pages, path, material)
    return result


async def pages(path: Path, material: Material) -> dict[str, float]:
    """The whole of ``memory_search`` up to the snippets of ten results, but for the query's embedding."""
    known = {text: vector.astype("<f4").tobytes() for text, vector in material.queries}
    clock = SystemClock()
    spent = []
    async with open_readers(path, 1) as readers:
        search = MemorySearch(
            readers, ReadyEmbedder(lambda text: material.reading(text, known[text]), 0.0, clock), clock
        )
        for text in known:
            begin = time.perf_counter()
            await search.search(text, HistoryFilters(user=LOCAL_USER))
            spent.append(1000 * (time.perf_counter() - begin))
    return {"p50_ms": round(statistics.median(spent), 1), "p95_ms": round(sorted(spent)[int(len(spent) * 0.95)], 1)}


def waiting(seconds: float) -> Callable[[str], Awaitable[object]]:
    """In place of the model: some time, in which the search by words goes on."""

    async def wait(_text: str) -> None:
        await trio.sleep(seconds)

    return wait


async def recall_all(
    path: Path,
    read: Callable[[str], Reading],
    asked: Sequence[tuple[str, ChatScope]],
    before: Callable[[str], Awaitable[object]],
) -> list[Spent]:
    """What recall adds to the embedding of the question before each reply.

    Args:
        before: what goes before a question's vector is known.
    """
    clock = SystemClock()
    spent = []
    async with open_readers(path, READERS) as readers:
        embedder = KnownQueries(read, RANDOM_COSINE, clock, before)
        recall = Recall(readers, embedder, AutoRagConfig(time_budget_ms=60_000), clock)
        for text, scope in asked[:WARM_UP]:
            await recall.search(text, scope)
        settle_garbage_collector()
        for text, scope in asked:
            begin, cpu = time.perf_counter(), time.process_time()
            found = await recall.search(text, scope)
            without = time.perf_counter() - begin - found.timings_ms["embed"] / 1000
            spent.append((without, time.process_time() - cpu))
            assert not found.degraded
    return spent


class KnownQueries(ReadyEmbedder):
    """Gives a known vector after something else; the search by words goes on meanwhile."""

    def __init__(
        self,
        read: Callable[[str], Reading],
        random_cosine: float,
        clock: SystemClock,
        before: Callable[[str], Awaitable[object]],
    ) -> None:
        super().__init__(read, random_cosine, clock)
        self._before = before

    async def read(self, text: str) -> Reading:
        await self._before(text)
        return self._read(text)


def disk(path: Path, size: int) -> dict[str, Any]:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    parts: dict[str, int] = {}
    for name, used in connection.execute("SELECT name, sum(pgsize) FROM dbstat WHERE aggregate = TRUE GROUP BY name"):
        kind = next((k for k in ("messages_fts", "vec_messages", "vec_block") if name.startswith(k)), "messages")
        parts[kind] = parts.get(kind, 0) + used
    connection.close()
    return {
        "mb": round(path.stat().st_size / 1e6, 1),
        "bytes_per_message": round(path.stat().st_size / size),
        "parts": {name: round(used / size) for name, used in sorted(parts.items())},
    }


def small_chats(folder: Path, chats: int, rows: int) -> dict[str, Any]:
    """Disk and latency of many small chats in vec0 alone, by chunk size."""
    numbers = np.random.default_rng(3)
    made = numbers.standard_normal((chats * rows, DIMENSION), dtype=np.float32)
    result = {}
    for chunk in CHUNK_SIZES:
        path = folder / f"chunk{chunk}.db"
        path.unlink(missing_ok=True)
        connection = apsw.Connection(str(path))
        connect.prepare_writer(connection)
        with connection:
            connection.execute(vectors.table(DIMENSION, chunk))
            connection.executemany(
                "INSERT INTO vec_messages (rowid, chat_key, seq, embedding) VALUES (?, ?, ?, ?)",
                ((row + 1, row % chats + 1, row // chats + 1, made[row].tobytes()) for row in range(chats * rows)),
            )
        spent = [
            timed(
                lambda d=connection, c=query % chats + 1, q=made[query]: vector_search.nearest_exact(
                    d, q.tobytes(), c, 1, 10**6, 20
                )
            )[0]
            for query in range(100)
        ]
        connection.close()
        result[chunk] = {"mb": round(path.stat().st_size / 1e6, 1), **percentiles(spent)}
        path.unlink()
    return result


def open_database(path: Path) -> apsw.Connection:
    connection = apsw.Connection(str(path))
    connect.prepare_writer(connection)
    migrations.migrate(connection)
    with connection:
        vectors.prepare_at_once(connection, "bench", DIMENSION)
    return connection


def run(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    if arguments.data is not None:
        material = real_material(arguments.data, arguments.models, arguments.cache, arguments.noise, arguments.queries)
    else:
        material = made_up_material(arguments.noise, arguments.queries)
    result: dict[str, Any] = {"sizes": {}}
    path = folder / "scale.db"
    connection = open_database(path)
    made_of = f"{arguments.data is not None} {arguments.noise}"
    if (meta.get(connection, "bench_material") or made_of) != made_of:
        sys.exit(f"{path} was made of other material: remove it")
    meta.put(connection, "bench_material", made_of)
    for size in sorted(arguments.sizes):
        rates = grow(connection, material, size)
        if connection.execute("SELECT count(*) FROM messages").get != size:
            sys.exit(f"{path} has more than {size} messages: remove it, or leave the size out")
        result["sizes"][size] = {"insert": rates, **measure(path, material, size), "disk": disk(path, size)}
        if not arguments.json:
            show({size: result["sizes"][size]})
    connection.close()
    if not arguments.no_small_chats:
        result["small_chats"] = {
            f"{chats} chats of {rows}": small_chats(folder, chats, rows) for chats, rows in ((50, 200), (1000, 10))
        }
        if not arguments.json:
            show(result["small_chats"])
    if not arguments.keep:
        path.unlink()
    return result


def show(results: dict[Any, dict[Any, Any]]) -> None:
    for title, parts in results.items():
        print(f"{title:,}" if isinstance(title, int) else title)
        for name, values in parts.items():
            print(f"  {name:<16}", "  ".join(f"{key} {value}" for key, value in values.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="?", help="folder of conversations (default: made-up words)")
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--noise", type=float, default=0.3, help="length of the noise added to a unit vector")
    parser.add_argument("--scratch", type=Path, help="folder for the database: 2.5 GB for a million messages")
    parser.add_argument("--keep", action="store_true", help="keep the database in --scratch, and take up an old one")
    parser.add_argument("--models", type=Path, help="folder of pulled models (default: the one of klaw)")
    parser.add_argument("--cache", type=Path, help="file that keeps embeddings between runs")
    parser.add_argument("--no-small-chats", action="store_true", help="leave out the comparison of chunk sizes")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    log.configure("error", "json")
    arguments.models = (arguments.models or Paths.resolve().models_dir).absolute()
    if any(size % BATCH for size in arguments.sizes):
        parser.error(f"--sizes: each must be a multiple of {BATCH}")
    if arguments.keep and arguments.scratch is None:
        parser.error("--keep needs --scratch")
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.scratch or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        result = run(arguments, folder)
    if arguments.json:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
