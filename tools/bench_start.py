"""What a server costs that has nothing to do: time to start with many messages, memory, CPU and wake-ups.

    python tools/bench_start.py [--messages 100000] [--runs 3] [--idle 60] [--small] [--home DIR] [--models DIR]

A home is filled by the store's own functions: half of the messages are one chat, the others belong to 19 users, and all
have a vector. A real server is then started on it with the real embedding model: after a clean stop, and after a
SIGKILL in the middle of messages. The times are those from the start of the process until it says that it listens, and
until a message is acknowledged; CPU is that of the whole process. Then the memory before and after 24 long messages,
and what the server does in so many idle seconds, alone and with a client that only listens. `--small`: with the
configuration of `klaw init --small`. With `--home` a filled home is kept there and used again.
"""

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import trio

sys.path.insert(0, str(Path(__file__).parents[1]))

from klaw.config.paths import Paths
from klaw.setup.make import SMALL
from tests.support.llm_server import serve_llm, text_reply
from tests.support.server import Server, served, write_home
from tools.bench_turn import CHAT, fill, resident_mib
from tools.lean_client import LeanClient

TICKS = os.sysconf("SC_CLK_TCK")
SETTLE_S = 70
"""Longer than a few messages wait for more before they get their vectors."""
LONG = ("What do you think of the old apple tree? " * 10, "A long answer about gardens, trees and rivers. " * 60)


def cpu_s(server: Server) -> float:
    """CPU of the process so far, of all its threads."""
    assert server.process is not None
    fields = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def wake_ups(server: Server) -> Counter[str]:
    """How often each thread of the process waited so far."""
    assert server.process is not None
    found: Counter[str] = Counter()
    for path in Path(f"/proc/{server.process.pid}/task").glob("*/status"):
        found[path.parent.name] = int(path.read_text().partition("\nvoluntary_ctxt_switches:")[2].split()[0])
    return found


async def say(client: LeanClient, number: int) -> None:
    await client.send({"type": "send", "id": f"{time.time_ns()}-{number}", "chat": CHAT, "text": f"{LONG[0]} {number}"})
    await client.receive("ack")


async def start(server: Server, what: str) -> None:
    begin = time.perf_counter()
    await server.start()
    ready_s, ready_cpu_s = time.perf_counter() - begin, cpu_s(server)
    client = await LeanClient.connect(server.url)
    await say(client, 0)
    acknowledged_s = time.perf_counter() - begin
    for number in range(1, 20):
        await say(client, number)
    print(
        f"{what}: listens after {ready_s:.2f} s ({ready_cpu_s:.2f} s of CPU), acknowledges after {acknowledged_s:.2f} s"
    )
    await client.aclose()


async def settled(server: Server) -> None:
    await server.status_when(
        lambda status: status["embedder"]["state"] == "ready" and not status["embedder"]["waiting"]
    )
    await trio.sleep(SETTLE_S)


async def memory(server: Server) -> None:
    assert server.process is not None
    await settled(server)
    before = resident_mib(server.process.pid)
    client = await LeanClient.connect(server.url)
    for number in range(12):
        await say(client, number)
        await client.receive("delta")
        while (await client.receive("message"))["role"] != "assistant":
            pass
    await client.aclose()
    await settled(server)
    print(f"memory: {before:.0f} MiB, after 24 long messages {resident_mib(server.process.pid):.0f} MiB")


async def idle(server: Server, seconds: float, what: str) -> None:
    cpu, woken, begin = cpu_s(server), wake_ups(server), time.perf_counter()
    await trio.sleep(seconds)
    took_s = time.perf_counter() - begin
    used, often = (cpu_s(server) - cpu) / took_s, (wake_ups(server) - woken).total() / took_s
    print(f"idle {what}: {used * 100:.2f} % of a core, {often:.1f} wake-ups a second")


async def run(home: Path, models: Path, arguments: argparse.Namespace) -> None:
    if arguments.messages and not Paths.resolve(home).database.exists():
        await fill(home, models, arguments.messages // 2, arguments.messages // 2, 0)
    async with serve_llm() as llm:
        llm.respond = lambda _request: text_reply(LONG[1])
        sections = SMALL if arguments.small else {}
        write_home(home, llm=llm.url, models=models, **sections)
        async with served(home, start=False) as server:
            await start(server, "first start")
            for number in range(arguments.runs):
                await server.terminate()
                await start(server, f"after a clean stop {number + 1}")
            for number in range(arguments.runs):
                await server.kill()
                await start(server, f"after a kill {number + 1}")
            await server.terminate()
            await server.start()
            await memory(server)
            await idle(server, arguments.idle, "without a client")
            client = await LeanClient.connect(server.url)
            await idle(server, arguments.idle, "with a client")
            await client.aclose()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--idle", type=float, default=60.0, help="seconds")
    parser.add_argument("--small", action="store_true", help="as `klaw init --small` configures it")
    parser.add_argument("--home", type=Path, help="where the filled home is kept (default: a temporary folder)")
    parser.add_argument("--models", type=Path, help="folder of pulled models (default: the one of klaw)")
    arguments = parser.parse_args()
    models = (arguments.models or Paths.resolve().models_dir).absolute()
    with tempfile.TemporaryDirectory() as folder:
        trio.run(run, arguments.home or Path(folder), models, arguments)


if __name__ == "__main__":
    main()
