"""Attack a real server for some minutes, and tell what the other clients noticed.

    python tools/attack.py [--minutes 5] [--kills N] [--seed N] [--home DIR] [--json] [--no-wait-limits]

A server in a home of its own, attackers and other clients in processes of their own (the ``websockets`` package and raw
sockets, nothing of Klaw's client). First, for two thirds of the time, one server is told broken frames of every kind,
flooded (silent sockets, connections, slow senders, clients that do not read, pings, pieces without end), kept busy over
HTTP (short connections, HTTP/2, large lists at every door, texts and sheets that take long) and asked for what other
users said; then it is killed with SIGKILL under load, again and again.

The other clients write all the time. It fails (exit code 1) when a message that was acknowledged is not in the logs
exactly once with its seq, when an attacker is told another user's text, when the server's memory grows, when its log
has an error, or when another client waits too long while the server is up: 250 ms for 99 of 100, 1 s at most.
"""

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs
import trio

sys.path.insert(0, str(Path(__file__).parents[1]))

from klaw.actor import log
from klaw.gateway.tokens import add_token
from tests.support.llm_server import serve_llm, text_reply
from tests.support.server import UNLIMITED, DidNotStart, Server, served, write_home
from tools import drill_checks as checks
from tools.attack_doors import doors
from tools.drill_checks import Acked

HONEST, HOSTILE = 4, 6
"""Clients of each kind; every one is a user with a token and a chat."""
P99_MS, MOST_MS = 250.0, 1000.0
ROUND = (("frames", 0.5), ("floods", 0.2), ("doors", 0.2), ("oracles", 0.1))
"""What attackers do in turn, with their shares of the time."""
ROUND_S = 60.0
UP_SHARE = 0.65
"""Of the time before the kills."""
LOAD_S = 0.4
CHECK_EVERY = 20
"""After so many kills the logs are compared with what was acknowledged, and in the end."""
GROWTH, GROWTH_MB = 1.15, 24.0
"""So much may the last third of the time take more memory than the third before it."""
HANG_S = 180.0


@attrs.define
class Child:
    """A process that is told lines and answers with lines of JSON."""

    process: trio.Process
    _read: bytes = b""

    async def say(self, line: str) -> None:
        assert self.process.stdin is not None
        await self.process.stdin.send_all(line.encode() + b"\n")

    async def hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        while b"\n" not in self._read:
            data = await self.process.stdout.receive_some()
            if not data:
                raise SystemExit(f"{self.process.args!r} ended")
            self._read += data
        line, _, self._read = self._read.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found


@asynccontextmanager
async def child(module: str, **given: Any) -> AsyncIterator[Child]:
    """A process of one of the two modules, killed in the end."""
    process = await trio.lowlevel.open_process(
        [sys.executable, "-m", f"tools.{module}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[1],
    )  # fmt: skip
    try:
        made = Child(process)
        await made.say(json.dumps(given))
        yield made
    finally:
        process.kill()
        with trio.CancelScope(shield=True, deadline=trio.current_time() + 10):
            await process.wait()


@attrs.define
class Attack:
    """One run."""

    server: Server
    honest: Child
    hostile: Child
    tokens: list[str]
    """Of the attackers."""
    chance: random.Random
    acked_file: Path
    say_progress: bool
    problems: list[str] = attrs.Factory(list)
    counts: Counter[str] = attrs.Factory(Counter)
    memory_mb: list[tuple[float, float]] = attrs.Factory(list)
    """Seconds since the begin and resident memory of the server of the first part."""

    def say(self, text: str) -> None:
        if self.say_progress:
            print(text, flush=True)

    async def run(self, seconds: float, kills: int | None) -> dict[str, Any]:
        await self.server.start()
        await self._attack(trio.current_time() + seconds * UP_SHARE)
        await self._kill(trio.current_time() + seconds * (1 - UP_SHARE), kills)
        await self.honest.say("end")
        with trio.fail_after(HANG_S):
            report = await self.honest.hear()
        self.problems += report.pop("problems")
        if await self.server.terminate() != 0:
            self.problems.append("the server did not end well after SIGTERM")
        found = self._check()
        disk = checks.read_logs(self.server.data)
        found += checks.check_database(self.server.database, disk) + checks.check_log(self.server.events())
        self.problems += found
        self._judge_memory()
        return report

    async def _attack(self, deadline: float) -> None:
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch_memory, began)
            while (left := deadline - trio.current_time()) > 1:
                for kind, share in ROUND:
                    await self.honest.say(kind)
                    await self._order(kind, min(ROUND_S, left) * share)
            nursery.cancel_scope.cancel(reason="the first part is over")

    async def _order(self, kind: str, seconds: float) -> None:
        with trio.fail_after(seconds + HANG_S):
            if kind == "doors":
                counts = await doors(self.server, self.tokens, self.chance, trio.current_time() + seconds)
                found = {"counts": counts, "problems": [name for name in counts if name.startswith("wrong")]}
            else:
                await self.hostile.say(json.dumps({"do": kind, "seconds": seconds}))
                found = await self.hostile.hear()
        self.counts.update(found["counts"])
        self.problems += found["problems"]
        size_mb = self.memory_mb[-1][1] if self.memory_mb else 0
        self.say(f"{kind:8} {found['counts']}  {size_mb:.0f} MB  {found['problems'] or ''}")
        if not self.server.running:
            raise SystemExit(f"the server has ended:\n{self.server.stderr[-3000:]}")

    async def _watch_memory(self, began: float) -> None:
        assert self.server.process is not None
        status = Path(f"/proc/{self.server.process.pid}/status")
        while True:
            with suppress(OSError, StopIteration):
                text = status.read_text()  # noqa: ASYNC240 - of the kernel, at once
                line = next(line for line in text.splitlines() if line.startswith("VmRSS"))
                self.memory_mb.append((trio.current_time() - began, int(line.split()[1]) / 1024))
            await trio.sleep(0.5)

    async def _kill(self, deadline: float, kills: int | None) -> None:
        await self.honest.say("kills")
        while trio.current_time() < deadline if kills is None else self.counts["kills"] < kills:
            if not self.server.running:
                await self.server.spawn()
            in_start = self.chance.random() < 0.15
            if not in_start:
                await self.server.ready()
            await trio.sleep(self.chance.uniform(0, LOAD_S))
            await self.server.kill()
            self.counts["kills"] += 1
            if self.counts["kills"] % CHECK_EVERY == 0:
                found = self._check()
                self.problems += found
                self.say(f"{self.counts['kills']} kills  {found or 'nothing lost'}")
        with suppress(DidNotStart):
            await self.server.start()

    def _check(self) -> list[str]:
        """Compare the logs of a server that does not run with what was acknowledged."""
        lines = self.acked_file.read_text().split("\n")[:-1]
        acked = [Acked(*json.loads(line)) for line in lines]
        disk = checks.read_logs(self.server.data)
        self.counts["acknowledged"] = len(acked)
        self.counts["stored"] = len(disk.messages)
        honest = [message for message in disk.messages if message.user.startswith("honest-")]  # ids are a user's own
        return checks.check_acked(attrs.evolve(disk, messages=honest), acked) + checks.check_order(disk)

    def _judge_memory(self) -> None:
        sizes = [size for _, size in self.memory_mb]
        third = len(sizes) // 3
        if self.memory_mb and self.memory_mb[-1][0] > 2 * ROUND_S:  # in less each third does other things
            before, after = (statistics.median(part) for part in (sizes[third : 2 * third], sizes[-third:]))
            if after > before * GROWTH + GROWTH_MB:
                self.problems.append(f"the server's memory grew from {before:.0f} to {after:.0f} MB")


def too_long(waits: dict[str, dict[str, float]]) -> list[str]:
    """What other clients waited too long for, while the server was up."""
    wrong = []
    for name, found in waits.items():
        if name.split()[0] in dict(ROUND) and (found["p99"] > P99_MS or found["max"] > MOST_MS):
            wrong.append(f"{name}: 99 of 100 waited up to {found['p99']} ms, one {found['max']} ms")
    return wrong


async def attack(options: argparse.Namespace, home: Path) -> int:
    seed = options.seed if options.seed is not None else random.randrange(1_000_000)
    began = time.monotonic()
    limits = {
        **UNLIMITED,
        "connectsPerSecond": 200,
        "messagesPerSecond": 1_000,
        "burst": 2_000,
        "userMessagesPerSecond": 1_000,
    }
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    async with serve_llm() as llm:
        llm.respond = lambda _: text_reply("ok")
        write_home(
            home, llm=llm.url, gateway=limits, logging={"level": "warning"},
            processing={"debounceMs": 200, "debounceMaxMs": 2_000},
        )  # fmt: skip
        tokens = home / "config" / "tokens.json"
        good = [add_token(tokens, f"honest-{number}", now)[1] for number in range(HONEST)]
        bad = [add_token(tokens, f"hostile-{number}", now)[1] for number in range(HOSTILE)]
        acked = home / "acked.jsonl"
        acked.touch()
        async with (
            served(home, start=False) as server,
            child("attack_honest", url=server.url, tokens=good, seed=seed, acked=str(acked)) as honest,
            child("attack_hostile", url=server.url, tokens=bad, seed=seed) as hostile,
        ):
            run = Attack(server, honest, hostile, bad, random.Random(seed), acked, not options.json)
            report = await run.run(options.minutes * 60, options.kills)
    slow = too_long(report["waits_ms"])
    if options.wait_limits:
        run.problems += slow
    sizes = [round(size) for _, size in run.memory_mb]
    found = {
        "seed": seed,
        "seconds": round(time.monotonic() - began, 1),
        **run.counts,
        "waits_ms": report["waits_ms"],
        "waited_too_long": slow,
        "memory_mb": sizes[:: max(1, len(sizes) // 30)],
        "problems": dict(Counter(run.problems)),
    }
    if options.json:
        print(json.dumps(found, indent=1, ensure_ascii=False))
    else:
        for name, value in found.items():
            print(f"{name:16} {value}")
        print("FAILED" if run.problems else "Nothing was lost or told, and nobody had to wait.")
    return 1 if run.problems else 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Attack a real server, and tell what the other clients noticed.")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--kills", type=int, help="so many, however long they take (default: what the time allows)")
    parser.add_argument("--seed", type=int, help="of what is sent and when it is killed; timing adds its own")
    parser.add_argument("--home", type=Path, help="an empty folder, which is kept (default: a temporary one)")
    parser.add_argument("--json", action="store_true", help="print one JSON object in the end, and no progress")
    parser.add_argument(
        "--no-wait-limits", dest="wait_limits", action="store_false", help="only report how long others waited"
    )
    options = parser.parse_args()
    log.configure("error", "json")
    if options.home is not None:
        if options.home.exists() and any(options.home.iterdir()):
            parser.error(f"{options.home} is not empty")
        return trio.run(attack, options, options.home.absolute())
    with tempfile.TemporaryDirectory(prefix="klaw-attack-") as home:
        return trio.run(attack, options, Path(home))


if __name__ == "__main__":
    sys.exit(main())
