"""How many acknowledgements a second the server gives: N clients over real WebSockets, one message outstanding each.

    python tools/bench_acks.py [--clients 20] [--seconds 5] [--fsync-ms 0 10] [--one-chat] [--json]

The server runs in a process of its own. ``--fsync-ms`` makes each of the journal's fsyncs take at least so long, as
an SD card would; the delay is injected below the journal. Replies are kept away by a long debounce, and embedding is
off, so only storing and acknowledging is measured.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import trio

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.support.server import UNLIMITED
from tools.lean_client import LeanClient

DEBOUNCE_MS = 600_000


def run_server(home: str, fsync_ms: float) -> None:
    """The server's process: prints its address when it listens."""
    from klaw.actor import log
    from klaw.config.load import parse
    from klaw.config.paths import Paths
    from klaw.serve import serve

    def slow_fsync(descriptor: int) -> None:
        end = time.monotonic() + fsync_ms / 1000
        os.fsync(descriptor)
        time.sleep(max(0.0, end - time.monotonic()))

    log.configure("error", "json")
    config, _ = parse(
        json.dumps(
            {
                "gateway": {"port": 0, "messagesPerSecond": 100_000, "burst": 100_000, **UNLIMITED},
                "processing": {"debounceMs": DEBOUNCE_MS, "debounceMaxMs": DEBOUNCE_MS},
                "embedding": {"enabled": False},
                "providers": {"none": {"baseUrl": "http://127.0.0.1:9/v1"}},
                "routing": {"default": "none/none"},
                "shutdown": {"graceSeconds": 0},
            }
        )
    )

    async def main() -> None:
        await serve(config, Paths.resolve(home), on_ready=lambda url: print(url, flush=True), fsync=slow_fsync)

    trio.run(main)


async def run_clients(url: str, clients: int, seconds: float, one_chat: bool) -> list[float]:
    """Latencies, in seconds, of all acknowledgements within the time."""
    latencies: list[float] = []

    async def client(number: int) -> None:
        chat = "bench" if one_chat else f"bench{number}"
        connection = await LeanClient.connect(url)
        end = trio.current_time() + seconds
        count = 0
        while (begin := trio.current_time()) < end:
            count += 1
            text = f"message {count} of {number}"
            await connection.send({"type": "send", "id": f"{number}-{count}", "chat": chat, "text": text})
            await connection.receive("ack")
            latencies.append(trio.current_time() - begin)
        await connection.aclose()

    async with trio.open_nursery() as nursery:
        for number in range(clients):
            nursery.start_soon(client, number)
    return latencies


def cpu_s(pid: int) -> float:
    """Seconds of CPU, user and system, that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(fsync_ms: float, arguments: argparse.Namespace) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as home:
        command = [sys.executable, __file__, "--serve", home, "--fsync-ms", str(fsync_ms)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            url = server.stdout.readline().strip()
            before = cpu_s(server.pid)
            latencies = trio.run(run_clients, url, arguments.clients, arguments.seconds, arguments.one_chat)
            spent = cpu_s(server.pid) - before
            server.kill()
    quantiles = statistics.quantiles(latencies, n=100)
    return {
        "fsync_ms": fsync_ms,
        "clients": arguments.clients,
        "one_chat": arguments.one_chat,
        "acks_per_second": round(len(latencies) / arguments.seconds),
        "p50_ms": round(quantiles[49] * 1000, 2),
        "p95_ms": round(quantiles[94] * 1000, 2),
        "p99_ms": round(quantiles[98] * 1000, 2),
        "server_cpu_us_per_ack": round(spent / len(latencies) * 1e6),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--fsync-ms", type=float, nargs="+", default=[0.0, 10.0])
    parser.add_argument("--one-chat", action="store_true", help="all clients write to one chat")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--serve", metavar="HOME", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        run_server(arguments.serve, arguments.fsync_ms[0])
        return
    results = [measure(fsync_ms, arguments) for fsync_ms in arguments.fsync_ms]
    for result in results:
        if arguments.json:
            print(json.dumps(result))
        else:
            print("  ".join(f"{name} {value}" for name, value in result.items()))


if __name__ == "__main__":
    main()
