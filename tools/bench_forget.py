"""How long others wait while a long chat is deleted: acknowledgements of a client that says something each 100 ms.

    python tools/bench_forget.py [--messages 50000] [--alone 20] [--at-most 900] [--slow MS] [--json]

A server of its own with a stub model; all messages of the chat are of one day, so they stand in one log. The chat is
deleted over REST. ``--slow`` names what held the writer for longer than so many milliseconds.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import trio

sys.path.insert(0, str(Path(__file__).parents[1]))

from klaw.domain.message import Role
from klaw.store.kinds import messages
from tests.support.llm_server import serve_llm
from tests.support.server import Server, served, write_home
from tests.support.stores import new, running_store
from tools.lean_client import LeanClient

CHAT = "длинный"
EVERY_S = 0.1
MOST_WAITING = 30
DAY = 1_760_000_000 // 86_400 * 86_400
WORDS = ("The peas came up early this year, said Anna", "Картошку окучивали дважды, в июне и в июле")
WATCHED = """
import sys, time
from klaw.store.engine import transaction, writer

def timed(function):
    def work(*args, **kwargs):
        begin = time.monotonic()
        try:
            return function(*args, **kwargs)
        finally:
            took = time.monotonic() - begin
            if took * 1000 > {slow}:
                print("HELD", round(took, 3), getattr(function, "__name__", function), flush=True, file=sys.stderr)
    work.__name__ = function.__name__
    return work

class Request(transaction.WriteRequest):
    def __init__(self, function, *rest, **more):
        super().__init__(timed(function), *rest, **more)

writer.WriteRequest = Request
writer.commit_group = timed(writer.commit_group)
from klaw.__main__ import main
sys.exit(main())
"""


async def write_chat(home: Path, count: int) -> None:
    """A chat of so many messages of one day, through the store."""
    async with running_store(home / "data") as store:
        for begin in range(0, count, 1000):
            batch = [
                new(f"{WORDS[number % 2]}, number {number}. Und Reihe {number // 7} auch.", chat=CHAT,
                    role=(Role.USER, Role.ASSISTANT)[number % 2], at=DAY + number)
                for number in range(begin, min(count, begin + 1000))
            ]  # fmt: skip
            await store.writer.run(messages.append, batch)


async def say(server: Server, waits: list[float], until: trio.Event, most: float) -> None:
    """Say something each 100 ms, also while an acknowledgement is awaited: those wait in a row."""
    client = await LeanClient.connect(server.url)
    sent: dict[str, float] = {}

    async def hear() -> None:
        while True:
            frame = await client.receive("ack")
            waits.append(trio.current_time() - sent.pop(frame["id"]))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(hear)
        with trio.move_on_after(most):
            while not until.is_set():
                if len(sent) >= MOST_WAITING:  # the server refuses more
                    await trio.sleep(EVERY_S)
                    continue
                name = f"b{time.monotonic_ns()}"
                sent[name] = trio.current_time()
                await client.send({"type": "send", "chat": "main", "id": name, "text": f"Und noch etwas {name}"})
                await trio.sleep(EVERY_S)
        with trio.fail_after(120):
            await drained(sent)
        nursery.cancel_scope.cancel()
    await client.aclose()


async def drained(sent: dict[str, float]) -> None:
    while sent:  # noqa: ASYNC110 - a benchmark's end
        await trio.sleep(0.05)


def figures(waits: list[float]) -> dict[str, float]:
    ms = sorted(1000 * each for each in waits)
    cuts = statistics.quantiles(ms, n=100)
    return {
        "p50_ms": round(cuts[49], 1),
        "p99_ms": round(cuts[98], 1),
        "longest_ms": round(ms[-1], 1),
        "count": len(ms),
    }


def peak(server: Server) -> int:
    status = Path(f"/proc/{server.process.pid}/status").read_text() if server.process else ""
    return int(status.partition("VmHWM:")[2].split()[0]) // 1024


async def measure(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    await write_chat(home, options.messages)
    (day,) = (home / "data" / "conversations").rglob("2*.jsonl")
    found: dict[str, Any] = {"messages": options.messages, "log_mb": round(day.stat().st_size / 1e6, 1)}
    async with serve_llm() as llm, served(write_home(home, llm=llm.url), start=False) as server:
        if options.slow is not None:
            script = home / "watched.py"
            script.write_text(WATCHED.format(slow=options.slow))
            server.program = (sys.executable, str(script))
        await server.start()
        alone: list[float] = []
        await say(server, alone, trio.Event(), options.alone)
        found["alone"] = figures(alone)
        waits: list[float] = []
        over = trio.Event()

        async def delete() -> None:
            base = server.url.replace("ws:", "http:").removesuffix("/ws")
            begin = trio.current_time()
            async with httpx2.AsyncClient(timeout=options.at_most) as client:
                answer = await client.delete(f"{base}/api/v1/chats/{quote(CHAT)}", params={"dry_run": "false"})
            found["status"], found["seconds"] = answer.status_code, round(trio.current_time() - begin, 1)
            if answer.status_code != 200:
                print(answer.text[:2000], file=sys.stderr)
            over.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(delete)
            await say(server, waits, over, options.at_most)
        found["meanwhile"] = figures(waits)
        found["peak_rss_mib"] = peak(server)
        if options.slow is not None:
            held = [line.split() for line in server.stderr.splitlines() if line.startswith("HELD")]
            most: dict[str, list[float]] = {}
            for _, seconds, name in held:
                most.setdefault(name, []).append(float(seconds))
            found["held"] = {name: [len(each), max(each)] for name, each in most.items()}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=50_000)
    parser.add_argument("--alone", type=float, default=20, help="seconds")
    parser.add_argument("--at-most", type=float, default=900, help="seconds")
    parser.add_argument("--slow", type=float, help="milliseconds")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = trio.run(measure, options, Path(folder))
    if options.json:
        print(json.dumps(found, ensure_ascii=False))
    else:
        for name, value in found.items():
            print(f"{name}: {value}")


if __name__ == "__main__":
    main()
