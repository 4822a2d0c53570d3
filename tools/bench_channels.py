"""What messengers cost: memory and CPU of a server that has answered as many questions without one, with Telegram (the
strict emulator of the tests), then with Matrix too (a real Synapse, if ``make test-matrix`` has made it).

    python tools/bench_channels.py [--idle 60] [--people 3]
"""

import argparse
import os
import random
import re
import sys
import tempfile
from contextlib import AsyncExitStack
from itertools import product
from pathlib import Path

import trio

sys.path.insert(0, str(Path(__file__).parents[1]))

from klaw.cli.admin_call import call
from klaw.config.paths import Paths
from tests.support import llm_server
from tests.support.server import Server, served, write_home
from tests.support.services import synapse
from tests.support.talking import talking
from tools.channel_drill import Drill, matrix, telegram

QUESTIONS = 5
SETTLE_S = 5.0


def memory_mib(pid: int) -> float:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def measured(server: Server, what: str, idle_s: float) -> None:
    assert server.process is not None
    pid = server.process.pid
    await trio.sleep(SETTLE_S)
    memory, before = memory_mib(pid), cpu_s(pid)
    await trio.sleep(idle_s)
    share = (cpu_s(pid) - before) / idle_s * 100
    print(f"{what:<20} {memory:6.1f} MiB, idle {share:.3f} % of a core", flush=True)


async def run(arguments: argparse.Namespace, home: Path) -> None:
    async with llm_server.serve_llm() as llm, AsyncExitStack() as stack:
        llm.respond = llm_server.echo_reply
        server = await stack.enter_async_context(served(write_home(home, llm=llm.url)))
        async with talking(server.url) as talk:
            for chat, number in product(range(arguments.people), range(QUESTIONS)):
                await talk.ask(f"question {number}, with **some** `code` in it", f"chat-{chat}")
        await trio.to_thread.run_sync(call, Paths.resolve(home, {}), "channels_list")  # loads the HTTP API
        await measured(server, "no messenger", arguments.idle)
        for name, messenger in (("telegram", telegram), ("matrix", matrix)):
            if name == "matrix" and synapse.environment() is None:
                print(synapse.MISSING)
                return
            there = await stack.enter_async_context(messenger(arguments.people))
            drill = Drill(server=server, messenger=there, kills=0, random=random.Random(1))
            await drill.pair()
            for person in there.people:
                for number in range(QUESTIONS):
                    await person.says(f"question {number}, with **some** `code` in it")
                    await drill.sees(person, re.compile(f"question {number},.* it$"))
            await measured(server, f"and {name}", arguments.idle)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0], allow_abbrev=False)
    parser.add_argument("--idle", type=float, default=60.0)
    parser.add_argument("--people", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="klaw-bench-") as folder:
        trio.run(run, arguments, Path(folder))


if __name__ == "__main__":
    main()
