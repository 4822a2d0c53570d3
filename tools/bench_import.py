"""What moving in costs: memory and time of `klaw import claude`, and how long another client waits meanwhile.

    python tools/bench_import.py [--mb 500] [--offline | --dry-run] [--alone 20] [--at-most 3600] [--slow MS] [--undo]

An export of so many megabytes, half of it Russian, in chats of 40 messages. It goes to a server of its own with a stub
model, to which a client says something each 100 ms; with ``--offline`` into a store without a server. The memory is the
largest resident set of the command. ``--undo`` takes the import back then, also beside the client. ``--slow`` names
what held the writer for longer than so many milliseconds, ``--json`` is for programs.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import trio

sys.path.insert(0, str(Path(__file__).parents[1]))

from klaw.actor.clock import iso
from tests.support.llm_server import serve_llm
from tests.support.server import clean_environ, klaw_command, served, write_home
from tests.support.stores import running_store
from tools.bench_forget import WATCHED, figures, peak, say

WORDS = (
    "The peas came up early this year, said Anna, and the beans late. ",
    "Картошку окучивали дважды, в июне и в июле. ",
)
OF_CHAT = 40
BEGIN = 1_600_000_000


def write_export(path: Path, size: int) -> int:
    """An export of about so many bytes. Returns how many messages it has."""
    count = 0
    with path.open("w", encoding="utf-8") as file:
        file.write("[")
        chat = 0
        while file.tell() < size:
            messages = []
            for number in range(OF_CHAT):
                text = WORDS[chat % 2] * (number % 20 + 1) + f"{chat} {number}"
                at = iso(BEGIN + 40_000 * chat + 30 * number)
                sender = ("human", "assistant")[number % 2]
                said = {"uuid": f"m{chat}-{number}", "sender": sender, "created_at": at, "text": text}
                messages.append({**said, "content": [{"type": "text", "text": text}], "attachments": [], "files": []})
            about = {"uuid": f"c{chat}", "name": f"Garden, сад {chat}", "created_at": messages[0]["created_at"]}
            file.write(("," if chat else "") + json.dumps({**about, "chat_messages": messages}, ensure_ascii=False))
            chat, count = chat + 1, count + OF_CHAT
        file.write("]")
    return count


def run_import(home: Path, *what: str) -> dict[str, Any]:
    """Run the command to its end."""
    command = klaw_command("import", *what, "--json", "--home", str(home))
    begin = time.monotonic()
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(command, stdout=out, env=clean_environ())
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        answer = json.loads(out.read() or b"{}")
    took = time.monotonic() - begin
    told = {name: answer.get(name) for name in ("import", "chats", "messages", "added", "known", "unread_count")}
    return {"exit": process.returncode, "s": round(took, 1), "peak_mib": used.ru_maxrss // 1024, **told}


async def measure(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    export = home / "export.json"
    written = await trio.to_thread.run_sync(write_export, export, options.mb << 20)
    found: dict[str, Any] = {"messages": written, "load": os.getloadavg()[0]}
    if options.offline or options.dry_run:
        write_home(home)
        async with running_store(home / "data"):
            pass
        more = ["--dry-run"] if options.dry_run else []
        return {**found, "import": await trio.to_thread.run_sync(run_import, home, "claude", str(export), *more)}
    async with serve_llm() as llm, served(write_home(home, llm=llm.url), start=False) as server:
        if options.slow is not None:
            script = home / "watched.py"
            script.write_text(WATCHED.format(slow=options.slow))
            server.program = (sys.executable, str(script))
        await server.start()
        alone: list[float] = []
        await say(server, alone, trio.Event(), options.alone)
        found["alone"] = figures(alone)

        async def beside(name: str, *what: str) -> None:
            waits: list[float] = []
            over = trio.Event()

            async def run() -> None:
                found[name] = await trio.to_thread.run_sync(run_import, home, *what)
                over.set()

            async with trio.open_nursery() as nursery:
                nursery.start_soon(run)
                await say(server, waits, over, options.at_most)
            found[f"beside {name}"] = {**figures(waits), "server_peak_mib": peak(server)}

        await beside("import", "claude", str(export))
        found["again"] = await trio.to_thread.run_sync(run_import, home, "claude", str(export))
        if options.undo:
            await beside("undo", "undo", found["import"]["import"], "--yes")
        if options.slow is not None:
            found["held"] = [line for line in server.stderr.splitlines() if line.startswith("HELD")]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=int, default=500)
    parser.add_argument("--offline", action="store_true")
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--alone", type=float, default=20)
    parser.add_argument("--at-most", type=float, default=3600)
    parser.add_argument("--slow", type=float)
    parser.add_argument("--undo", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="klaw-import-") as folder:
        found = trio.run(measure, options, Path(folder))
    print(json.dumps(found, indent=None if options.json else 1, ensure_ascii=False))


if __name__ == "__main__":
    main()
