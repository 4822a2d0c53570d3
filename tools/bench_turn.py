"""What Klaw adds to a turn: from the message's acknowledgement to the request that reaches the LLM, without the
debounce.

    python tools/bench_turn.py [--messages 10000] [--turns 100] [--archive N] [--topics N] [--home DIR] [--json]

The server runs in a process of its own, with the real embedding model, on one chat of so many messages that all have a
vector. The LLM is a stub in this process, which also holds the client; the time is taken between the ack that the
client gets and the request that the stub gets. Recall runs in every measured turn. Needs the pulled embedding model
(`klaw models pull multilingual-e5-small`); also prints the server's resident memory when idle.

With `--archive` there are also so many messages of 19 other users, and the same turns are measured twice: with topics
off, and while the archivist makes topics of those messages with the same LLM.

With `--topics` the user also has so many topics of another chat, and the same turns are measured twice: with
`topics.inject` = `tool` and = `auto`, without a model that chooses.
"""

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import apsw
import attrs
import numpy as np
import trio

sys.path.insert(0, str(Path(__file__).parents[1]))

from klaw.actor.clock import iso
from klaw.config.paths import Paths
from klaw.domain import tokens
from klaw.domain.message import MessageKind, NewMessage, Role
from klaw.domain.names import LOCAL_USER, UserId, chat_id
from klaw.memory.embed.model import EmbeddingModel
from klaw.memory.embed.passage import passage, vectors_id
from klaw.store.kinds import messages, topic_edits
from klaw.store.kinds.topic_edits import TopicDraft
from klaw.store.search import vectors as stored_vectors
from tests.support.llm_server import LlmServer, Recorded, Reply, serve_llm, text_reply
from tests.support.server import UNLIMITED
from tests.support.stores import running_store
from tests.support.turns import record
from tools.lean_client import LeanClient

MODEL = "multilingual-e5-small"
CHAT = "bench"
EMBEDDED = 500
"""So many texts are embedded for real; the other messages get one of these vectors with noise."""
PLACES = [
    "Kazan",
    "Berlin",
    "Lisbon",
    "Osaka",
    "Tbilisi",
    "Oslo",
    "Казань",
    "Самара",
    "Тула",
    "Minsk",
    "Quito",
    "Perth",
]
THINGS = [
    "bicycle",
    "garden",
    "piano",
    "novel",
    "printer",
    "kettle",
    "велосипед",
    "рояль",
    "чайник",
    "greenhouse",
    "drone",
    "telescope",
]
PEOPLE = ["Olga", "Marcus", "Ines", "Kenji", "Нина", "Пётр", "Laura", "Samuel", "Ирина", "Tom", "Aisha", "Pavel"]
LINES = (
    "{person} bought a {thing} in {place} last week and is very happy with it, number {n}.",
    "I promised {person} to repair the {thing} before we travel to {place}, number {n}.",
    "{person} рассказывает, что {thing} из города {place} сломался, номер {n}.",
    "Remember the meeting with {person} about the {thing}; it was moved to {place}, number {n}.",
)
OTHER_USERS, A_DAY_S = 19, 86_400
TOPIC_LINES = 20
"""Of the stub's topics."""
OLD_LINES = 6
"""Messages of each of the user's topics."""
QUESTIONS = (
    "What did {person} buy in {place}?",
    "Where did I want to repair the {thing} for {person}?",
    "Что {person} рассказывает про {thing}?",
)


def text(pick: random.Random, lines: tuple[str, ...], number: int) -> str:
    return pick.choice(lines).format(
        person=pick.choice(PEOPLE), thing=pick.choice(THINGS), place=pick.choice(PLACES), n=number
    )


def messages_of(user: UserId, count: int, begin: float, pick: random.Random) -> list[NewMessage]:
    """A chat of a user, a message a second."""
    return [
        NewMessage(
            id=f"{user}{number}",
            chat=chat_id(user, CHAT),
            user=user,
            channel="bench",
            role=Role.ASSISTANT if number % 2 else Role.USER,
            type=MessageKind.TEXT,
            content=(content := text(pick, LINES, number)),
            tokens=tokens.estimate(content),
            created_at=iso(begin + number),
        )
        for number in range(count)
    ]


async def fill(home: Path, models: Path, count: int, others: int, old: int) -> None:
    """Make the chat, those of the other users, and their vectors; and so many topics of an old chat."""
    pick = random.Random(7)
    made = messages_of(LOCAL_USER, count, time.time() - count, pick)
    talk = messages_of(LOCAL_USER, old * OLD_LINES, time.time() - count - old * OLD_LINES - A_DAY_S, pick)
    made += [attrs.evolve(each, id=f"old{each.id}", chat=chat_id(LOCAL_USER, "old")) for each in talk]
    for number in range(OTHER_USERS):
        each = others // OTHER_USERS
        made += messages_of(UserId(f"user{number}"), each, time.time() - each - A_DAY_S, pick)
    model = EmbeddingModel.load(models / MODEL, threads=2)
    before = [None, *(message.content for message in made)]
    passages = [passage(message.content, before[at]) for at, message in enumerate(made[:EMBEDDED])]
    known = model.read(passages, kind="passage")
    noise = np.random.default_rng(7)
    async with running_store(Paths.resolve(home).data_dir) as store:
        await stored_vectors.prepare(store.writer, vectors_id(model.model_id), model.dimension)
        if model.coder is not None:
            await stored_vectors.prepare_codes(store.writer, model.coder.id)
        for start in range(0, len(made), 500):
            stored = await store.writer.run(messages.append, made[start : start + 500])
            vectors, codes = [], {}
            for appended in stored:
                reading = known[appended.message.seq % len(known)]
                vector = np.frombuffer(reading.vector, "<f4") + noise.normal(0, 0.01, model.dimension)
                vector /= np.linalg.norm(vector)
                vectors.append((appended.message.rowid, vector.astype("<f4").tobytes()))
                codes[appended.message.rowid] = reading.codes
            for last in {each.message.chat: each.message for each in stored}.values():
                await store.writer.run(messages.append, [], record(last))  # nothing is left to answer
            await store.writer.run(stored_vectors.store, vectors_id(model.model_id), vectors, codes=codes)
            near = dict(vectors)
            mine = [each.message for each in stored if each.message.chat == chat_id(LOCAL_USER, "old")]
            drafts = [
                TopicDraft(
                    summary=" ".join(each.content for each in part[:2]),
                    general=False,
                    members=tuple(each.rowid for each in part),
                    consolidated=True,
                    facts=True,
                    vector=near[part[0].rowid],
                )
                for part in (mine[at : at + OLD_LINES] for at in range(0, len(mine), OLD_LINES))
            ]
            if drafts:
                await store.writer.run(
                    topic_edits.store,
                    LOCAL_USER,
                    mine[0].chat,
                    drafts,
                    mine[-1].created_at,
                    model_id=vectors_id(model.model_id),
                )
        while await store.writer.run(stored_vectors.encode):
            pass
    model.close()


async def measure(llm: LlmServer, url: str, turns: int) -> list[float]:
    """Seconds from ack to request, for each turn."""
    client = await LeanClient.connect(url)
    pick = random.Random(11)
    spent = []
    for number in range(turns + 5):
        asked = text(pick, QUESTIONS, number)
        arrived: list[float] = []
        async with trio.open_nursery() as nursery:

            async def watch(asked: str = asked, arrived: list[float] = arrived) -> None:
                # By its words: work in the background asks the same model.
                wanted = len(llm.requests) + 1
                while not arrived:
                    await llm.wait_for_requests(wanted)
                    if llm.requests[wanted - 1].last_user == asked:
                        arrived.append(time.perf_counter())
                    wanted += 1

            nursery.start_soon(watch)
            await client.send({"type": "send", "id": f"q{number}-{time.time_ns()}", "chat": CHAT, "text": asked})
            await client.receive("ack")
            accepted = time.perf_counter()
        while (await client.receive("message"))["role"] != "assistant":
            pass
        if number >= 5:  # the first ones warm caches up
            spent.append(arrived[0] - accepted)
    await client.aclose()
    return spent


def resident_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) / 1024


def answer(request: Recorded) -> Reply:
    """The stub's: topics of so many lines each, nothing to merge, no facts, and "ok" to people."""
    schema = request.body.get("response_format", {}).get("json_schema", {})
    if not schema:
        return text_reply("ok")
    if "topics" in schema["schema"]["properties"]:
        lines = [line for line in str(request.messages[1]["content"]).split("\n") if line.startswith("#")]
        found = [
            {"summary": lines[at].split(": ", 1)[1][:150], "start_msg_id": at + 1, "end_msg_id": at + TOPIC_LINES}
            for at in range(0, len(lines), TOPIC_LINES)
        ]
        return text_reply(json.dumps({"topics": found}))
    empty: dict[str, Any] = {"array": [], "boolean": False, "string": "", "integer": 0}
    wanted = schema["schema"]["properties"].items()
    return text_reply(json.dumps({name: empty.get(str(each.get("type"))) for name, each in wanted}))


async def run(home: Path, models: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    await fill(home, models, arguments.messages, arguments.archive, arguments.topics)
    result = await serve_and_measure(home, models, arguments, {"enabled": False})
    if arguments.topics:
        found = await serve_and_measure(home, models, arguments, {"enabled": False, "inject": "auto"})
        result.update({f"inject auto: {name}": value for name, value in found.items()})
    if arguments.archive:
        found = await serve_and_measure(home, models, arguments, {"enabled": True})
        result.update({f"while archiving: {name}": value for name, value in found.items()})
    return result


def archived(home: Path) -> int:
    """How many messages have a topic."""
    connection = apsw.Connection(str(Paths.resolve(home).database), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return int(connection.execute("SELECT count(topic_id) FROM messages").get)
    finally:
        connection.close()


async def serve_and_measure(
    home: Path, models: Path, arguments: argparse.Namespace, topics: dict[str, Any]
) -> dict[str, Any]:
    async with serve_llm() as llm:
        llm.respond = answer
        config = {
            "gateway": {"port": 0, "messagesPerSecond": 1000, "burst": 1000, **UNLIMITED},
            "processing": {"debounceMs": 0},
            "embedding": {"path": str(models / MODEL)},
            "providers": {"stub": {"baseUrl": llm.url}},
            "routing": {"default": "stub/model"},
            "logging": {"level": "warning"},
            "topics": topics,
        }
        paths = Paths.resolve(home)
        paths.config_dir.mkdir(parents=True, exist_ok=True)
        paths.config_file.write_text(json.dumps(config))
        server = await trio.lowlevel.open_process(
            [sys.executable, "-m", "klaw", "serve", "--home", str(home)],
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[1],
        )
        try:
            assert server.stdout is not None
            line = b""
            while not line.endswith(b"\n"):
                if not (byte := await server.stdout.receive_some(1)):
                    sys.exit("the server did not start")
                line += byte
            url = "ws" + line.decode().split("http")[1].split()[0] + "ws"
            await trio.sleep(5)  # the model loads; nothing else runs
            idle_mib = resident_mib(server.pid)
            if topics["enabled"]:
                await llm.wait_for_requests(1)
            begin, before = time.monotonic(), archived(home)
            spent = await measure(llm, url, arguments.turns)
            meanwhile, seconds = archived(home) - before, time.monotonic() - begin
            receipts = paths.data_dir / "turns"
            turns = [json.loads(line) for file in receipts.iterdir() for line in file.read_text().splitlines()]
            turns = [turn for turn in turns if "recall" in turn["receipt"]][-len(spent) :]
        finally:
            server.terminate()
            await server.wait()
    quantiles = statistics.quantiles(spent, n=100)
    return {
        "messages": arguments.messages,
        "turns": len(spent),
        "overhead_p50_ms": round(quantiles[49] * 1000, 1),
        "overhead_p95_ms": round(quantiles[94] * 1000, 1),
        "recalled_in": sum(bool(turn["receipt"]["recall"]["kept"]) for turn in turns),
        "degraded_in": sum(bool(turn["receipt"]["recall"]["degraded"]) for turn in turns),
        "embed_p50_ms": round(statistics.median(turn["receipt"]["recall"]["timings_ms"]["embed"] for turn in turns), 1),
        "search_p50_ms": round(
            statistics.median(turn["receipt"]["recall"]["timings_ms"]["search"] for turn in turns), 1
        ),
        **_of_topics([turn["receipt"]["topics"] for turn in turns if "topics" in turn["receipt"]]),
        "idle_rss_mib": round(idle_mib, 1),
        "archived_a_second": round(meanwhile / seconds, 1),
    }


def _of_topics(told: list[dict[str, Any]]) -> dict[str, Any]:
    """What receipts tell of topics."""
    if not told:
        return {}
    steps = {name: [each["timings_ms"].get(name, 0.0) for each in told] for name in ("search", "read")}
    return {
        "topics_in": sum(bool(each["tokens"]) for each in told),
        **{f"topics_{name}_p50_ms": round(statistics.median(spent), 1) for name, spent in steps.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--turns", type=int, default=100)
    parser.add_argument("--archive", type=int, default=0, help="messages of other users that become topics meanwhile")
    parser.add_argument("--topics", type=int, default=0, help="topics that the user has")
    parser.add_argument("--home", help="where to make the chat (default: a temporary folder)")
    parser.add_argument("--models", type=Path, help="folder of pulled models (default: the one of klaw)")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    models = (arguments.models or Paths.resolve().models_dir).absolute()
    if not (models / MODEL / "model.onnx").exists():
        sys.exit(f"needs the embedding model: run `klaw models pull {MODEL}`")
    with tempfile.TemporaryDirectory() as scratch:
        result = trio.run(run, Path(arguments.home or scratch), models, arguments)
    if arguments.json:
        print(json.dumps(result))
    else:
        print("\n".join(f"{name:<40} {value}" for name, value in result.items()))


if __name__ == "__main__":
    main()
