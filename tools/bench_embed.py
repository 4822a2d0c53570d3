"""How fast messages and questions become vectors: through the real embedder actor, writer and store.

    python tools/bench_embed.py DIR [--messages N] [--runs N] [--json] [--models DIR]

DIR holds conversations (tools/bench_recall.py describes the format). Their messages are stored in a new database, one
chat each, and the embedder works them off; the clock runs from the loaded model to the last stored vector. Then the
questions are embedded one by one. Printed: the best and the median of the runs, the same per second of processor time
(which other jobs on the machine disturb less), and the time of a question.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import attrs
import trio

sys.path.insert(0, str(Path(__file__).parents[1]))

from klaw.actor.clock import SystemClock, from_iso, iso
from klaw.actor.log import configure as quiet
from klaw.actor.supervisor import Supervisor
from klaw.config.memory import AutoRagConfig, EmbeddingConfig
from klaw.config.paths import Paths
from klaw.domain import tokens
from klaw.domain.message import MessageKind, NewMessage, Role
from klaw.domain.names import LOCAL_USER, chat_id
from klaw.memory.embed.embedder import Embedder, EmbedderState
from klaw.memory.embed.worker import Worker
from klaw.store.kinds import messages as stored_messages
from klaw.store.store import Store
from tests.support.stores import running_store

MODEL = "multilingual-e5-small"
GROUP = 256
"""Messages of one append."""


@attrs.frozen(kw_only=True)
class Run:
    """One pass over all messages, and the questions after it."""

    messages: int
    wall_s: float
    cpu_s: float
    queries_ms: list[float]


def read(folder: Path, limit: int) -> tuple[list[NewMessage], list[str]]:
    """The first messages of each conversation, about ``limit`` in all, and questions."""
    paths = sorted(folder.glob("*.json"))
    made: list[NewMessage] = []
    questions: list[str] = []
    for path in paths:
        conversation = json.loads(path.read_text(encoding="utf-8"))
        chat = chat_id(LOCAL_USER, conversation["name"].replace("_", "-"))
        for message in conversation["messages"][: max(1, limit // len(paths))]:
            text = message["content"]
            made.append(
                NewMessage(
                    id=f"{conversation['name']}/{message['id']}",
                    chat=chat,
                    user=LOCAL_USER,
                    channel="bench",
                    role=Role(message["role"]),
                    type=MessageKind.TEXT,
                    content=text,
                    tokens=tokens.estimate(text),
                    created_at=iso(from_iso(message["ts"])),
                )
            )
        questions += [question["query"] for question in conversation["questions"][: 100 // len(paths) + 1]]
    return made, questions


async def measure(
    messages: Sequence[NewMessage], questions: Sequence[str], folder: Path, config: EmbeddingConfig
) -> Run:
    """Store everything, let the embedder work, then ask."""
    embedder = Embedder(SystemClock(), enabled=True)
    with tempfile.TemporaryDirectory() as scratch:
        async with AsyncExitStack() as stack:
            store: Store = await stack.enter_async_context(running_store(Path(scratch)))
            for start in range(0, len(messages), GROUP):
                await store.writer.run(stored_messages.append, messages[start : start + GROUP])
            nursery = await stack.enter_async_context(trio.open_nursery())
            supervisor = Supervisor(nursery, SystemClock())
            worker = Worker(
                embedder=embedder,
                config=config,
                folder=folder,
                min_tokens=AutoRagConfig().min_message_tokens,
                writer=store.writer,
                readers=store.readers,
            )
            await supervisor.start(worker.spec())
            while embedder.status.state is not EmbedderState.READY:  # noqa: ASYNC110 - it is asked once a run
                await trio.sleep(0.005)
            begin, cpu = time.perf_counter(), time.process_time()
            await embedder.wait_idle()
            wall_s, cpu_s = time.perf_counter() - begin, time.process_time() - cpu
            spent = []
            for question in questions:
                begin = time.perf_counter()
                await embedder.query(question)
                spent.append(1000 * (time.perf_counter() - begin))
            await supervisor.stop(worker.spec().name, "the benchmark is over")
    return Run(messages=embedder.status.embedded, wall_s=wall_s, cpu_s=cpu_s, queries_ms=spent)


def summary(runs: Sequence[Run]) -> dict[str, Any]:
    rates = [run.messages / run.wall_s for run in runs]
    queries = [statistics.median(run.queries_ms) for run in runs]
    return {
        "messages": runs[0].messages,
        "runs": len(runs),
        "messages_per_s_best": round(max(rates), 1),
        "messages_per_s_median": round(statistics.median(rates), 1),
        "messages_per_cpu_s_best": round(max(run.messages / run.cpu_s for run in runs), 1),
        "query_p50_ms_best": round(min(queries), 1),
        "query_p50_ms_median": round(statistics.median(queries), 1),
        "query_p95_ms_best": round(min(statistics.quantiles(run.queries_ms, n=20)[18] for run in runs), 1),
    }


def main() -> None:
    quiet("warning", "console")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder of conversations")
    parser.add_argument("--messages", type=int, default=500, help="about how many messages (default: 500)")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--batch-tokens", type=int, default=EmbeddingConfig().batch_tokens)
    parser.add_argument("--threads", type=int, default=EmbeddingConfig().threads)
    parser.add_argument("--models", type=Path, help="folder of pulled models (default: the one of klaw)")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    folder = (arguments.models or Paths.resolve().models_dir).absolute() / MODEL
    if not (folder / "model.onnx").exists():
        sys.exit(f"needs the embedding model: run `klaw models pull {MODEL}`")
    messages, questions = read(arguments.folder, arguments.messages)
    if not messages:
        sys.exit(f"no conversations (*.json) in {arguments.folder}")
    config = EmbeddingConfig(batch_tokens=arguments.batch_tokens, threads=arguments.threads)
    load = round(os.getloadavg()[0], 1)
    runs = [trio.run(measure, messages, questions, folder, config) for _ in range(arguments.runs)]
    result = summary(runs)
    if arguments.json:
        print(json.dumps({"load_average": load, **result}))
        return
    print(f"load average before: {load}")
    print("\n".join(f"  {key:<24} {value}" for key, value in result.items()))


if __name__ == "__main__":
    main()
