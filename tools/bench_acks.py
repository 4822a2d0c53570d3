"""How many acknowledgements a second the server gives: N clients over real WebSockets, one message outstanding each.

    python tools/bench_acks.py [--clients 20] [--seconds 5] [--rounds 3] [--fsync-ms 0 10] [--one-chat] [--json]

The server runs in a process of its own. ``--fsync-ms`` makes each of the journal's fsyncs take at least so long, as
an SD card would; the delay is injected below the journal. Replies are kept away by a long debounce, and embedding is
off, so only storing and acknowledging is measured.

The ceiling is measured in the same minutes: an echo of bare trio-websocket for the same clients, in turns with the
server. So is the floor: an echo that stores each message too (row, full text, line of a log, fsync). ``--rounds`` says
how many turns each has; what is printed is the median of them, and ``share_of_echo`` the median of Klaw's rate by the
rate of the echo just before it. On a busy machine compare the CPU.
``--profile FILE`` writes where the event loop's time went
(cProfile; the figures of such a run are no measurement).
"""

import argparse
import cProfile
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import apsw
import trio
from trio_websocket import ConnectionClosed, WebSocketRequest, serve_websocket

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.support.server import UNLIMITED
from tools.lean_client import LeanClient

DEBOUNCE_MS = 600_000


def run_server(home: str, fsync_ms: float, profile: str | None) -> None:
    """The server's process: prints its address when it listens."""
    from klaw.actor import log
    from klaw.app.serve import serve
    from klaw.config.load import parse
    from klaw.config.paths import Paths

    def slow_fsync(descriptor: int) -> None:
        end = time.monotonic() + fsync_ms / 1000
        os.fsync(descriptor)
        time.sleep(max(0.0, end - time.monotonic()))

    log.configure("error", "json")
    config, _ = parse(
        json.dumps(
            {
                "gateway": {"port": 0, "messagesPerSecond": 100_000, "burst": 100_000, "maxPending": 64, **UNLIMITED},
                "processing": {"debounceMs": DEBOUNCE_MS, "debounceMaxMs": DEBOUNCE_MS},
                "embedding": {"enabled": False},
                "providers": {"none": {"baseUrl": "http://127.0.0.1:9/v1"}},
                "routing": {"default": "none/none"},
                "shutdown": {"graceSeconds": 0},
            }
        )
    )

    async def main() -> None:
        fsync = slow_fsync if fsync_ms else os.fsync
        await serve(config, Paths.resolve(home), on_ready=lambda url: print(url, flush=True), fsync=fsync)

    if profile is None:
        trio.run(main)
        return
    profiler = cProfile.Profile()
    profiler.runcall(trio.run, main)
    profiler.dump_stats(profile)


def run_echo() -> None:
    """The echo's process: prints its address, sends every message back."""

    async def echo(request: WebSocketRequest) -> None:
        connection = await request.accept()
        try:
            while True:
                await connection.send_message(await connection.get_message())
        except ConnectionClosed:
            pass

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            server = await nursery.start(serve_websocket, echo, "127.0.0.1", 0, None)
            print(f"ws://127.0.0.1:{server.port}/", flush=True)

    trio.run(main)


def run_floor(home: str) -> None:
    """The floor's process: the echo of bare trio-websocket, but each message comes back when it is a row, in the full
    text, and an fsynced line of a log; in groups, with one hop to the database's thread for each. Klaw's schema,
    connection and journal, and nothing else of it."""
    from klaw.actor import log
    from klaw.actor.clock import iso, new_id
    from klaw.domain.message import MessageKind, NewMessage, Role
    from klaw.domain.names import ChatId, UserId
    from klaw.store.engine.commit_log import LogEntry
    from klaw.store.engine.journal import Journal
    from klaw.store.kinds import messages
    from klaw.store.store import open_store

    log.configure("error", "json")
    waiting: list[tuple[NewMessage, trio.Event]] = []
    there = trio.Event()

    def commit(connection: apsw.Connection, journal: Journal, group: list[NewMessage]) -> None:
        connection.execute("BEGIN IMMEDIATE")
        stored = [messages.insert(connection, new) for new in group]
        journal.append([LogEntry(messages.message_path(each), messages.message_line(each)) for each in stored])
        connection.execute("COMMIT")
        journal.keep()

    async def echo(request: WebSocketRequest) -> None:
        connection, chat = await request.accept(), ChatId(f"local:{new_id()}")
        try:
            while True:
                text = await connection.get_message()
                new = NewMessage(
                    id=new_id(),
                    user=UserId("local"),
                    channel="websocket",
                    chat=chat,
                    role=Role.USER,
                    type=MessageKind.TEXT,
                    content=json.loads(text)["text"],
                    metadata={},
                    tokens=6,
                    created_at=iso(time.time()),
                )
                waiting.append((new, done := trio.Event()))
                there.set()
                await done.wait()
                await connection.send_message(text)
        except ConnectionClosed:
            pass

    async def main() -> None:
        nonlocal there
        journal = Journal(Path(home), checkpoint_bytes=1 << 20)
        async with open_store(Path(home) / "klaw.db", journal, readers=1) as store, trio.open_nursery() as nursery:
            server = await nursery.start(serve_websocket, echo, "127.0.0.1", 0, None)
            print(f"ws://127.0.0.1:{server.port}/", flush=True)
            while True:
                await there.wait()
                await trio.lowlevel.checkpoint()
                there = trio.Event()
                group, waiting[:] = waiting[:], []
                await store.database.run(commit, journal, [new for new, _ in group])
                for _, done in group:
                    done.set()

    trio.run(main)


async def run_clients(url: str, arguments: argparse.Namespace, answer: str) -> list[float]:
    """Latencies, in seconds, of all answers within the time."""
    latencies: list[float] = []

    async def client(number: int) -> None:
        chat = "bench" if arguments.one_chat else f"bench{number}"
        connection = await (LeanClient.connect(url) if answer == "ack" else LeanClient.open(url))
        end = trio.current_time() + arguments.seconds
        count = 0
        while (begin := trio.current_time()) < end:
            count += 1
            text = f"message {count} of {number}"
            await connection.send({"type": "send", "id": f"{number}-{count}", "chat": chat, "text": text})
            await connection.receive(answer)
            latencies.append(trio.current_time() - begin)
        await connection.aclose()

    async with trio.open_nursery() as nursery:
        for number in range(arguments.clients):
            nursery.start_soon(client, number)
    return latencies


def cpu_s(pid: int) -> tuple[float, float]:
    """Seconds of CPU that a process has used: all of its threads, and the first alone, which runs the event loop."""
    spent = {
        task.name: int((task / "schedstat").read_text().split()[0]) for task in Path(f"/proc/{pid}/task").iterdir()
    }
    return sum(spent.values()) / 1e9, spent[str(pid)] / 1e9


def measure_one(command: list[str], arguments: argparse.Namespace, answer: str) -> dict[str, float]:
    with subprocess.Popen([sys.executable, __file__, *command], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            url = server.stdout.readline().strip()
            before = cpu_s(server.pid)
            latencies = trio.run(run_clients, url, arguments, answer)
            spent, in_loop = (after - earlier for after, earlier in zip(cpu_s(server.pid), before, strict=True))
        finally:
            (server.terminate if arguments.profile else server.kill)()
    quantiles = statistics.quantiles(latencies, n=100)
    return {
        "per_second": round(len(latencies) / arguments.seconds),
        "p50_ms": round(quantiles[49] * 1000, 2),
        "p95_ms": round(quantiles[94] * 1000, 2),
        "p99_ms": round(quantiles[98] * 1000, 2),
        "cpu_us": round(spent / len(latencies) * 1e6),
        "loop_us": round(in_loop / len(latencies) * 1e6),
    }


def measure(fsync_ms: float, arguments: argparse.Namespace) -> dict[str, object]:
    echoes, floors, rounds = [], [], []
    for _ in range(arguments.rounds):
        echoes.append(measure_one(["--echo"], arguments, "send"))
        with tempfile.TemporaryDirectory() as home:
            floors.append(measure_one(["--floor", home], arguments, "send"))
        with tempfile.TemporaryDirectory() as home:
            command = ["--serve", home, "--fsync-ms", str(fsync_ms)]
            if arguments.profile:
                command += ["--profile", arguments.profile]
            rounds.append(measure_one(command, arguments, "ack"))
    middle = {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}
    pairs = zip(rounds, echoes, strict=True)
    return {
        "fsync_ms": fsync_ms,
        "clients": arguments.clients,
        "one_chat": arguments.one_chat,
        "acks_per_second": middle["per_second"],
        "p50_ms": middle["p50_ms"],
        "p95_ms": middle["p95_ms"],
        "p99_ms": middle["p99_ms"],
        "server_cpu_us_per_ack": middle["cpu_us"],
        "of_it_event_loop_us": middle["loop_us"],
        "echoes_per_second": statistics.median(each["per_second"] for each in echoes),
        "echo_cpu_us": statistics.median(each["cpu_us"] for each in echoes),
        "floors_per_second": statistics.median(each["per_second"] for each in floors),
        "floor_cpu_us": statistics.median(each["cpu_us"] for each in floors),
        "share_of_echo": round(statistics.median(one["per_second"] / echo["per_second"] for one, echo in pairs), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--fsync-ms", type=float, nargs="+", default=[0.0, 10.0])
    parser.add_argument("--one-chat", action="store_true", help="all clients write to one chat")
    parser.add_argument("--profile", metavar="FILE", help="write the profile of the server's event loop")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--serve", metavar="HOME", help=argparse.SUPPRESS)
    parser.add_argument("--echo", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--floor", metavar="HOME", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        run_server(arguments.serve, arguments.fsync_ms[0], arguments.profile)
        return
    if arguments.echo:
        run_echo()
        return
    if arguments.floor:
        run_floor(arguments.floor)
        return
    results = [measure(fsync_ms, arguments) for fsync_ms in arguments.fsync_ms]
    for result in results:
        if arguments.json:
            print(json.dumps(result))
        else:
            print("  ".join(f"{name} {value}" for name, value in result.items()))


if __name__ == "__main__":
    main()
