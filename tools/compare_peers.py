"""Whether others find what was said as well as Klaw does: recall of peers on the conversations of bench_recall.py.

    python tools/compare_peers.py DIR PEER... [--smalltalk FILE] [--json] [--apart FILE] [--models DIR]
                                  [--environments DIR] [--cache FILE]

DIR holds conversations (bench_recall.py describes the format); PEER is one of those below, or ``all``. Printed is a row
of a Markdown table for each peer and set: evidence recall in %, among the first 3, the first 10, and in 400 tokens,
which are filled in the peer's order (by Klaw's estimate; what does not fit is left out); silence, the share of small
talk that finds nothing; milliseconds of CPU of a question (mean) and of the clock (median).

All have the same vectors, from Klaw's multilingual-e5-small with its prefixes, made before; so times are without the
embedding of the question. A message is the unit, the question is given as it stands, 50 messages are asked for. Each
peer is used as its documentation shows for search in texts of one's own, with the hybrid search where it has one, and
told the language where it can be told:

- ``chromadb``: a persistent collection, cosine. Its hybrid search needs its cloud.
- ``lancedb``: hybrid of vectors and its full text (stems, stop words), fused by its RRFReranker.
- ``llamaindex``: QueryFusionRetriever (reciprocal_rerank) of a VectorStoreIndex and its BM25Retriever with stems; no
  questions of its own, which would need a model.
- ``langchain``: EnsembleRetriever with equal weights of a vector store and its BM25Retriever. That splits at spaces
  only, unless told otherwise; here it has words in lower case.
- ``txtai``: ``Embeddings(hybrid=True)`` with an external transform. Its environment brings PyTorch: 6 GB.
- ``mem0``: ``add(…, infer=False)``, so that no model rewrites the messages, and ``search``, which adds scores of
  BM25 (Qdrant's). Lemmas and entities need a model of spaCy that is no package, stop words are Lucene's.
- ``hermes``: the message search beneath hermes-agent's ``session_search`` (FTS5, BM25). There a model writes the query
  and is told to join words by OR for recall; here they are the question's content words. It groups what is found by
  session; here it counts message by message, which is no worse for it.
- ``nanobot``: nanobot's ``read_session`` with a text, which finds messages by a literal part, the newest 8. There a
  model chooses the text; here each content word is looked for, and what more of them find comes first.
- ``bm25``: SQLite's FTS5 as it comes, the question's content words joined by OR (all its words find less).
- ``rrf``: that and vectors, 20 of each fused by Reciprocal Rank Fusion, k = 60: what one writes oneself in an hour.
- ``klaw``: ``bench_recall.py``'s way, the whole pipeline with its gate and excerpts. ``--apart`` takes rankers that
  have not seen the conversation.

The content words are those of Klaw's query. So the silence of bm25, hermes and nanobot, which look for nothing else, is
not their own, and left out.

Each peer runs in an environment of its own, which is made when it is missing (default: ``klaw-peers`` in the user's
cache); only that needs a network. While it is compared, it has no environment variables of yours, telemetry is off, and
Python code that looks for another machine ends the run.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import attrs
import numpy as np
import trio

sys.path.insert(0, str(Path(__file__).parents[1]))

from klaw.actor import log
from klaw.actor.clock import SystemClock, from_iso
from klaw.config.memory import AutoRagConfig
from klaw.config.paths import Paths
from klaw.convert import JOURNAL
from klaw.memory.embed.passage import vectors_id
from klaw.memory.recall import ranker as ranker_module
from klaw.memory.recall.excerpt import line_tokens
from klaw.memory.recall.query import MAX_WORDS, content_words
from klaw.memory.recall.ranker import Ranker
from klaw.memory.recall.recall import Recall
from klaw.store.search import vectors as stored_vectors
from tests.support.stores import running_store
from tools.bench_recall import MODEL, CachedModel, _ranked, conversations, ids_of, load, passed_of, ready_embedder

Json: TypeAlias = dict[str, Any]

BUDGET = 400
"""Tokens."""
_NUMPY = "numpy==2.4.6"
REQUIREMENTS: dict[str, tuple[str, ...]] = {
    "chromadb": ("chromadb==1.5.9", _NUMPY),
    "lancedb": ("lancedb==0.40.0", _NUMPY),
    "llamaindex": ("llama-index-core==0.14.25", "llama-index-retrievers-bm25==0.8.0", _NUMPY),
    "langchain": ("langchain-classic==1.0.8", "langchain-community==0.4.2", "rank-bm25==0.2.2", _NUMPY),
    "txtai": ("txtai==9.14.0", _NUMPY),
    "mem0": ("mem0ai==2.2.1", "fastembed==0.9.1", _NUMPY),
    "hermes": ("hermes-agent==0.19.0", _NUMPY),
    "nanobot": ("nanobot-ai==0.3.5", _NUMPY),
    "bm25": (),
    "rrf": (),
    "klaw": (),
}
"""What each peer's environment holds, beside what that depends on; none: Klaw's own does."""
ONLY_WORDS = frozenset({"bm25", "hermes", "nanobot"})
"""Peers that get words chosen by Klaw, so that their silence is not their own."""
CHILD = Path(__file__).with_name("peer_child.py")
_INSTALLED = "installed.json"
LARGE_S = 3600


@attrs.define
class Measured:
    """What is known of one peer on one set."""

    shares: dict[str, list[float]] = attrs.Factory(lambda: {"@3": [], "@10": [], f"@{BUDGET}": []})
    silent: list[float] = attrs.Factory(list)
    cpu_ms: list[float] = attrs.Factory(list)
    clock_ms: list[float] = attrs.Factory(list)

    def add(self, question: Json, ranked: Sequence[str], packed: Sequence[str], cpu_ms: float, clock_ms: float) -> None:
        """Count the ids of the messages that a question found, and of those that fit into the budget."""
        evidence = set(question["evidence"])
        if not evidence:
            self.silent.append(float(not ranked))
            return
        for found, shares in zip((ranked[:3], ranked[:10], packed), self.shares.values(), strict=True):
            shares.append(len(evidence & set(found)) / len(evidence))
        self.cpu_ms.append(cpu_ms)
        self.clock_ms.append(clock_ms)

    def summary(self) -> Json:
        return {
            **{name: round(100 * statistics.mean(values), 1) for name, values in self.shares.items()},
            "questions": len(self.cpu_ms),
            "silence": round(100 * statistics.mean(self.silent), 1) if self.silent else None,
            "cpu_ms": round(statistics.mean(self.cpu_ms), 2),
            "p50_ms": round(statistics.median(self.clock_ms), 2),
        }


Sets: TypeAlias = dict[str, Measured]


def python_of(peer: str, environments: Path) -> Path:
    """The Python of the peer's environment, which is made if it is missing or holds something else."""
    wanted = REQUIREMENTS[peer]
    if not wanted:
        return Path(sys.executable)
    folder = environments / peer
    python, installed = folder / "bin" / "python", folder / _INSTALLED
    if installed.is_file() and json.loads(installed.read_text()) == list(wanted):
        return python
    print(f"making {folder}: {' '.join(wanted)} …", file=sys.stderr)
    venv.create(folder, with_pip=True, clear=True)
    command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        sys.exit(f"{peer}: {' '.join(wanted)} cannot be installed into {folder}:\n{done.stdout}")
    installed.write_text(json.dumps(wanted))
    return python


def surroundings(home: Path) -> dict[str, str]:
    """Environment variables of a peer: a home of its own, one thread, no telemetry, no downloads."""
    kept = {name: value for name, value in os.environ.items() if name == "PATH" or name.startswith("OPENBLAS_")}
    folders = dict.fromkeys(("HOME", "TMPDIR", "MEM0_DIR", "HERMES_HOME", "NLTK_DATA", "HF_HOME"), str(home))
    off = {"ANONYMIZED_TELEMETRY": "False", "MEM0_TELEMETRY": "False", "LANGSMITH_TRACING": "false"}
    offline = {"DO_NOT_TRACK": "1", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    return {**kept, **folders, **off, **offline, **threads, "LANG": "C.UTF-8", "TZ": "UTC"}


def asked(conversation: Json, small: Sequence[str]) -> list[Json]:
    """The questions with evidence, then small talk."""
    questions = [each for each in conversation["questions"] if each["evidence"]]
    return [*questions, *({"query": query, "evidence": []} for query in small)]


def keywords(query: str) -> list[str]:
    """The content words as a model would write them for a search: "Anna's" is Anna."""
    said = (re.split("['’]", word)[0] for word in content_words(query, MAX_WORDS))
    return list(dict.fromkeys(word for word in said if word))


def write_job(folder: Path, conversation: Json, questions: Sequence[Json], model: CachedModel) -> None:
    """What a peer gets of a conversation."""
    messages = conversation["messages"]
    job = {
        "language": conversation["language"],
        "messages": [
            {"role": each["role"], "content": each["content"], "time": from_iso(each["ts"])} for each in messages
        ],
        "questions": [{"text": each["query"], "words": keywords(each["query"])} for each in questions],
    }
    folder.mkdir()
    (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")
    vectors = {
        "passages": model.embed([each["content"] for each in messages], "passage"),
        "queries": model.embed([each["query"] for each in questions], "query"),
    }
    for name, made in vectors.items():
        np.save(folder / f"{name}.npy", np.stack([np.frombuffer(vector, "<f4") for vector in made]))


def filled(places: Sequence[int], texts: Sequence[str]) -> list[int]:
    """Those that fit into the budget, in their order."""
    left, taken = BUDGET, []
    for place in places:
        cost = line_tokens(texts[place])
        if cost <= left:
            left -= cost
            taken.append(place)
    return taken


def score(found: Json, conversation: Json, questions: Sequence[Json], measured: Measured) -> None:
    """Count what a peer found in one conversation."""
    ids = [each["id"] for each in conversation["messages"]]
    texts = [each["content"] for each in conversation["messages"]]
    answers = zip(questions, found["found"], found["cpu_ms"], found["clock_ms"], strict=True)
    for question, places, cpu_ms, clock_ms in answers:
        packed = [ids[place] for place in filled(places, texts)]
        measured.add(question, [ids[place] for place in places], packed, cpu_ms, clock_ms)


def compare(peer: str, python: Path, folder: Path, small: Sequence[str], model: CachedModel, scratch: Path) -> Sets:
    """Let a peer answer all questions in one process of its own."""
    found: Sets = defaultdict(Measured)
    jobs = []
    for conversation in conversations([folder]):
        questions = asked(conversation, small)
        job = scratch / f"{peer}-{len(jobs)}"
        write_job(job, conversation, questions, model)
        jobs.append((job, conversation, questions))
    home = scratch / f"{peer}-home"
    home.mkdir()
    done = subprocess.run(
        [python, "-I", CHILD, peer, *(job for job, _, _ in jobs)],
        env=surroundings(home),
        cwd=home,
        timeout=LARGE_S,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{peer} failed:\n{done.stderr}")
    for job, conversation, questions in jobs:
        score(json.loads((job / "found.json").read_text()), conversation, questions, found[conversation["set"]])
    if peer in ONLY_WORDS:
        for each in found.values():
            each.silent.clear()
    return found


async def klaw(folder: Path, small: Sequence[str], model: CachedModel, apart: Json, scratch: Path) -> Sets:
    """Klaw as bench_recall.py measures it."""
    found: Sets = defaultdict(Measured)
    async with running_store(scratch) as store:
        await stored_vectors.prepare(store.writer, vectors_id(model.model.model_id), model.model.dimension)
        config = AutoRagConfig(top_k=100, max_tokens=BUDGET, time_budget_ms=60_000)
        recall = Recall(store.readers, ready_embedder(model), config, SystemClock())
        for conversation in conversations([folder]):
            if apart:
                ranker = JOURNAL.read(apart[conversation["name"]], Ranker)
                ranker_module.built_in = lambda _package, ranker=ranker: ranker  # type: ignore[assignment]
            scope = await load(store, model, conversation)
            measured = found[conversation["set"]]
            for question in asked(conversation, small):
                model.embed([question["query"]], "query")
                cpu, clock = time.process_time(), time.perf_counter()
                outcome = await recall.search(question["query"], scope)
                spent = 1000 * (time.process_time() - cpu), 1000 * (time.perf_counter() - clock)
                ranked = ids_of(list(filter(_ranked, outcome.candidates)))
                measured.add(question, ranked, ids_of(passed_of(outcome.candidates)), *spent)
    return found


def rows(peer: str, sets: dict[str, Json]) -> Iterator[str]:
    for name, found in sets.items():
        silence = "–" if found["silence"] is None else found["silence"]
        cells = (found["@3"], found["@10"], found["@400"], silence, found["cpu_ms"], found["p50_ms"])
        yield f"| {name} | {peer} | " + " | ".join(map(str, cells)) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="DIR", help="folder of conversations")
    parser.add_argument("peers", nargs="+", metavar="PEER", choices=[*REQUIREMENTS, "all"])
    parser.add_argument("--smalltalk", type=Path, metavar="FILE", help='{"queries": [...]} that must recall nothing')
    parser.add_argument("--apart", type=Path, metavar="FILE", help="rankers for klaw (train_ranker.py --apart)")
    parser.add_argument("--models", type=Path, metavar="DIR", help="folder of pulled models (default: the one of klaw)")
    parser.add_argument("--environments", type=Path, metavar="DIR", help="folder of the peers' environments")
    parser.add_argument("--cache", type=Path, metavar="FILE", help="file that keeps embeddings between runs")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    log.configure("error", "json")
    if not any(arguments.folder.glob("*.json")):
        sys.exit(f"no conversations (*.json) in {arguments.folder}")
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    environments = (arguments.environments or caches / "klaw-peers").absolute()
    small = json.loads(arguments.smalltalk.read_text(encoding="utf-8"))["queries"] if arguments.smalltalk else []
    apart = json.loads(arguments.apart.read_text(encoding="utf-8")) if arguments.apart else {}
    model = CachedModel((arguments.models or Paths.resolve().models_dir).absolute() / MODEL, arguments.cache)
    result: dict[str, Json] = {}
    if not arguments.json:
        print("| set | peer | @3 | @10 | @400 | silence | CPU, ms | p50, ms |\n|---|---|---|---|---|---|---|---|")
    for peer in REQUIREMENTS if "all" in arguments.peers else arguments.peers:
        with tempfile.TemporaryDirectory() as scratch:
            if peer == "klaw":
                found = trio.run(klaw, arguments.folder, small, model, apart, Path(scratch))
            else:
                python = python_of(peer, environments)
                found = compare(peer, python, arguments.folder, small, model, Path(scratch))
        model.save()
        sets = {name: measured.summary() for name, measured in found.items()}
        result[peer] = {"packages": REQUIREMENTS[peer], "sets": sets}
        if not arguments.json:
            print("\n".join(rows(peer, sets)), flush=True)
    if arguments.json:
        print(json.dumps(result, ensure_ascii=False))


if __name__ == "__main__":
    main()
