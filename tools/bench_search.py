"""How well ``memory_search`` finds what was said anywhere in a user's history.

    python tools/bench_search.py DIR [--json] [--models DIR] [--cache FILE]

Loads all conversations of a folder (see tools/bench_recall.py) into the chats of one user and asks each question over
all of them. Printed for vectors alone, full text alone, plain Reciprocal Rank Fusion of both, and the whole search: the
share of the questions' evidence among the first 3 and 10 results, averaged over questions; and the latency of the whole
search, the query's embedding excluded.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import trio

sys.path.insert(0, str(Path(__file__).parents[1]))

from klaw.actor.clock import SystemClock
from klaw.config.paths import Paths
from klaw.domain.names import LOCAL_USER
from klaw.memory.embed.passage import vectors_id
from klaw.memory.recall.query import read_search_words
from klaw.memory.recall.ranker import reciprocal_rank_fusion
from klaw.memory.search.search import DEPTH, MemorySearch
from klaw.store.engine.database import Readers
from klaw.store.search import vectors as stored_vectors
from klaw.store.search.history_search import HistoryFilters, search_history
from tests.support.stores import running_store
from tools.bench_recall import MODEL, CachedModel, load, ready_embedder

DEEPEST = 10


@attrs.frozen
class Asked:
    """A question of a set, its vector, and the ids of what answers it."""

    set: str
    text: str
    vector: bytes
    evidence: frozenset[str]


async def run(arguments: argparse.Namespace) -> dict[str, Any]:
    model = CachedModel(arguments.models / MODEL, arguments.cache)
    with tempfile.TemporaryDirectory() as scratch:
        async with running_store(Path(scratch)) as store:
            await stored_vectors.prepare(store.writer, vectors_id(model.model.model_id), model.model.dimension)
            asked: list[Asked] = []
            for path in sorted(arguments.folder.glob("*.json")):
                conversation = json.loads(path.read_text(encoding="utf-8"))
                await load(store, model, conversation)
                asked += questions(path, conversation, model)
            model.save()
            while await store.writer.run(stored_vectors.encode):
                pass
            return await measure(store.readers, asked, model)


def questions(path: Path, conversation: dict[str, Any], model: CachedModel) -> list[Asked]:
    given = [each for each in conversation["questions"] if each["evidence"]]
    vectors = model.embed([each["query"] for each in given], "query")
    return [
        Asked(
            path.stem.split("-")[0],
            each["query"],
            vector,
            frozenset(f"{conversation['name']}/{message}" for message in each["evidence"]),
        )
        for each, vector in zip(given, vectors, strict=True)
    ]


async def measure(readers: Readers, asked: Sequence[Asked], model: CachedModel) -> dict[str, Any]:
    search = MemorySearch(readers, ready_embedder(model), SystemClock())
    filters = HistoryFilters(user=LOCAL_USER)
    ids: Mapping[int, str] = dict(await readers.run(lambda c: list(c.execute("SELECT rowid, id FROM messages"))))
    found: dict[str, dict[str, dict[int, list[float]]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    spent, steps = [], defaultdict(list)
    for question in asked:
        words = read_search_words(question.text)
        lists = await readers.run(search_history, question.vector, words, filters, DEPTH)
        near, text = [each.rowid for each in lists.neighbours], [each.rowid for each in lists.hits]
        fused = reciprocal_rank_fusion([(1.0, near), (1.0, text)])
        begin = time.perf_counter()
        page = await search.search(question.text, filters, limit=DEEPEST)
        spent.append(1000 * (time.perf_counter() - begin))
        for step, took in page.timings_ms.items():
            steps[step].append(took)
        methods = {
            "vectors": near,
            "text": text,
            "rrf": sorted(fused, key=lambda rowid: (-fused[rowid], -rowid)),
            "whole": [each.rowid for each in page.results],
        }
        for method, rowids in methods.items():
            for most in (3, DEEPEST):
                there = question.evidence & {ids[rowid] for rowid in rowids[:most]}
                found[question.set][method][most].append(len(there) / len(question.evidence))
    return {
        "sets": {
            name: {
                method: {f"@{most}": round(100 * statistics.mean(shares), 1) for most, shares in at.items()}
                for method, at in methods.items()
            }
            for name, methods in found.items()
        },
        "messages": len(ids),
        "search_p50_ms": round(statistics.median(spent), 1),
        "search_p95_ms": round(sorted(spent)[int(len(spent) * 0.95)], 1),
        "steps_p50_ms": {step: round(statistics.median(took), 1) for step, took in steps.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder of conversations")
    parser.add_argument("--models", type=Path, help="folder of pulled models (default: the one of klaw)")
    parser.add_argument("--cache", type=Path, help="file that keeps embeddings between runs")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    arguments.models = (arguments.models or Paths.resolve().models_dir).absolute()
    if not any(arguments.folder.glob("*.json")):
        sys.exit(f"no conversations (*.json) in {arguments.folder}")
    result = trio.run(run, arguments)
    if arguments.json:
        print(json.dumps(result, ensure_ascii=False))
        return
    for name, methods in result["sets"].items():
        for method, shares in methods.items():
            print(f"{name:<10} {method:<8} " + "  ".join(f"{key} {value:>5}" for key, value in shares.items()))
    print(f"{result['messages']} messages; search {result['search_p50_ms']} ms p50, {result['search_p95_ms']} ms p95")
    print("steps, ms p50:", result["steps_p50_ms"])


if __name__ == "__main__":
    main()
