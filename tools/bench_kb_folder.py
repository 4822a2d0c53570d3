"""A watched folder of many files: read for the first time, looked at again, changed, and read through kills.

    python tools/bench_kb_folder.py [--files 5000] [--kills 50] [--home DIR] [--seed 1] [--json]

The tool makes a folder of Markdown, text, HTML, DOCX and PDF files in Russian and English, and starts real servers on
homes of their own; embedding is off, so only reading and storing is measured.

1. One server: acknowledgements of a chat client while nothing else is done; the first run over the folder with the same
   client at work; looks after nothing has changed, of the same process and after a start; 10 changes and 10 deletions
   until they are stored. Memory of the server.
2. Another server, killed again and again (SIGKILL) at random moments of its first run. In the end it must have exactly
   the documents and passages of the first one: every passage once, in the full text too.

Exit code 0: all of that holds.
"""

import argparse
import hashlib
import json
import random
import shutil
import statistics
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import trio

sys.path.insert(0, str(Path(__file__).parents[1]))

from klaw.cli.admin_call import call
from klaw.config.paths import Paths
from tests.support.documents import pdf
from tests.support.llm_server import serve_llm
from tests.support.server import Server, served, write_home
from tools.lean_client import LeanClient

RUSSIAN = "договор аренда срок оплата город река школа завод погода письмо книга поезд мост хлеб закон вода"
ENGLISH = "contract rent period payment city river school factory weather letter book train bridge bread law water"
WORDS = {"ru": RUSSIAN.split(), "en": ENGLISH.split()}
IDLE_S = 20.0
QUIET = {"debounceMs": 600_000, "debounceMaxMs": 600_000}
"""Next to nothing is answered: storing and acknowledging is measured."""


# -- the folder --------------------------------------------------------------------------------------------------------


def write_file(folder: Path, number: int, chance: random.Random) -> None:
    """Of 100 files: 50 md, 30 txt, 16 html, 2 docx, 2 pdf; 50 to a folder."""
    words = WORDS["ru" if number % 2 else "en"]
    paragraphs = [
        " ".join(chance.choice(words) for _ in range(chance.randrange(20, 80))).capitalize() + f" {number}-{part}."
        for part in range(chance.randrange(3, 14))
    ]
    kind = number % 100
    path = folder / f"{number // 50:03}" / f"{'файл' if number % 2 else 'file'} {number}"
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind < 50:
        text = "\n\n".join(f"## {words[part % len(words)]}\n\n{each}" for part, each in enumerate(paragraphs))
        path.with_suffix(".md").write_text(f"# {words[0]} {number}\n\n{text}\n")
    elif kind < 80:
        path.with_suffix(".txt").write_text("\n\n".join(paragraphs))
    elif kind < 96:
        body = "".join(f"<h2>{words[part % len(words)]}</h2><p>{each}</p>" for part, each in enumerate(paragraphs))
        path.with_suffix(".html").write_text(f"<!doctype html><title>{words[0]} {number}</title>{body}")
    elif kind < 98:
        import docx

        made = docx.Document()
        for each in paragraphs:
            made.add_paragraph(each)
        made.save(str(path.with_suffix(".docx")))
    else:
        path.with_suffix(".pdf").write_bytes(pdf([[each[:90]] for each in paragraphs]))


# -- the server --------------------------------------------------------------------------------------------------------


def new_home(folder: Path, scan_s: float, llm: str | None = None) -> Path:
    return write_home(
        folder,
        llm=llm,
        processing=QUIET,
        kb={"scanSeconds": scan_s},
        shutdown={"graceSeconds": 0},
        logging={"level": "debug"},
    )


async def ask(server: Server, command: str, **arguments: Any) -> Any:
    return await trio.to_thread.run_sync(lambda: call(Paths.resolve(server.home, {}), command, **arguments))


async def watch_folder(server: Server, folder: Path) -> str:
    """Make a base with the folder. Returns the source's id."""
    base = (await ask(server, "kb_create", fields={"name": "bench"}))["base"]
    return str((await ask(server, "kb_add", base=base["id"], what=str(folder)))["source"]["id"])


def rows(home: Path, query: str) -> list[Any]:
    with closing(apsw.Connection(str(home / "data" / "klaw.db"), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
        return connection.execute(query).fetchall()


async def read_all(home: Path, files: int) -> None:
    """Until every file of the folder is a document that was read."""
    while True:
        now = dict(await trio.to_thread.run_sync(rows, home, "SELECT state, count(*) FROM kb_documents GROUP BY state"))
        if sum(now.values()) == files and not now.get("waiting"):
            return
        await trio.sleep(0.5)


async def acks(server: Server, stop: trio.Event) -> dict[str, float]:
    """Milliseconds to each acknowledgement: a message every 50 ms."""
    client = await LeanClient.connect(server.url)
    taken: list[float] = []
    while not stop.is_set():
        begun = time.perf_counter()
        await client.send({"type": "send", "chat": "main", "id": f"b{time.time_ns()}", "text": "How are you today?"})
        await client.receive("ack")
        taken.append(1000 * (time.perf_counter() - begun))
        await trio.sleep(0.05)
    await client.aclose()
    found = statistics.quantiles(taken, n=100)
    return {"count": len(taken), "p50": round(found[49], 1), "p99": round(found[98], 1), "max": round(max(taken), 1)}


def memory(pid: int) -> dict[str, int]:
    """MiB of a process: now, and at most so far."""
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return {name: int(lines[key].split()[0]) // 1024 for name, key in (("now", "VmRSS"), ("most", "VmHWM"))}


async def next_look(server: Server) -> float:
    """Seconds of the next look at the folder that finds nothing new."""
    seen = len(server.events("folder_looked_at"))
    while True:
        for event in server.events("folder_looked_at")[seen:]:
            if not event["count"]:
                return float(event["seconds"])
        await trio.sleep(0.1)


# -- the runs ----------------------------------------------------------------------------------------------------------


async def undisturbed(home: Path, folder: Path, files: int, chance: random.Random) -> dict[str, Any]:
    out: dict[str, Any] = {}
    async with (
        serve_llm() as llm,
        served(new_home(home, scan_s=20, llm=llm.url)) as server,
        trio.open_nursery() as nursery,
    ):
        assert server.process is not None
        pid = server.process.pid
        out["memory_before_mib"] = memory(pid)["now"]

        async def during(name: str, stop: trio.Event) -> None:
            out[name] = await acks(server, stop)

        idle, busy = trio.Event(), trio.Event()
        async with trio.open_nursery() as measuring:
            measuring.start_soon(during, "acks_idle_ms", idle)
            await trio.sleep(IDLE_S)
            idle.set()
        nursery.start_soon(during, "acks_first_run_ms", busy)
        begun = time.monotonic()
        await watch_folder(server, folder)
        await read_all(home, files)
        out["first_run_s"] = round(time.monotonic() - begun, 1)
        busy.set()
        out["memory_mib"] = memory(pid)
        out["passages"] = rows(home, "SELECT count(*) FROM kb_passages")[0][0]
        out["look_unchanged_s"] = await next_look(server)
        await server.kill()
        await server.start()
        out["look_after_start_s"] = await next_look(server)
        out["digests"] = digests(home)
        chosen = [folder / name for name in chance.sample(sorted(out["digests"]), 20)]
        begun = time.monotonic()
        for path in chosen[:10]:
            with path.open("ab") as file:
                file.write(b"\nchanged\n")
        for path in chosen[10:]:
            path.unlink()
        changed = {str(path.relative_to(folder)) for path in chosen[:10]}
        while {name for name, sha in shas(home).items() if out["digests"][name][0] != sha} != changed:  # noqa: ASYNC110
            await trio.sleep(0.2)
        await read_all(home, files - 10)
        out["changes_s"] = round(time.monotonic() - begun, 1)
    return out


async def killed(home: Path, folder: Path, files: int, kills: int, chance: random.Random) -> dict[str, Any]:
    waiting = []
    async with served(new_home(home, scan_s=300)) as server:
        await watch_folder(server, folder)
        for _ in range(kills):
            await trio.sleep(chance.uniform(0.1, 4.0))
            await server.kill()
            waiting.append(rows(home, "SELECT count(*) FROM kb_documents WHERE state = 'waiting'")[0][0])
            await server.spawn()
            if chance.random() < 0.8:  # else in the middle of the start
                await server.ready()
        if not server.running:
            await server.start()
        await server.ready()
        await read_all(home, files)
    return {"kills": kills, "kills_while_reading": sum(count > 0 for count in waiting), "digests": digests(home)}


def shas(home: Path) -> dict[str, str]:
    return dict(rows(home, "SELECT name, sha256 FROM kb_documents WHERE state <> 'waiting'"))


def digests(home: Path) -> dict[str, tuple[str, str]]:
    """SHA-256 of each document and of its passages as they stand in the database, by its name."""
    found: dict[str, Any] = {}
    sha: dict[str, str] = {}
    for name, of_file, *passage in rows(
        home,
        "SELECT d.name, d.sha256, p.ordinal, p.text, p.heading, p.first_page, p.last_page, p.start, p.end, p.tokens"
        " FROM kb_documents d LEFT JOIN kb_passages p ON p.document_id = d.id ORDER BY d.name, p.ordinal",
    ):
        sha[name] = of_file
        found.setdefault(name, hashlib.sha256()).update(repr(passage).encode())
    return {name: (sha[name], each.hexdigest()) for name, each in found.items()}


def check(home: Path, before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """What is wrong in the home of the server that was killed."""
    wrong = []
    if before != after:
        wrong.append(f"{sum(before.get(name) != after.get(name) for name in before | after)} documents differ")
    words = rows(home, "SELECT count(*) FROM kb_passages_fts_docsize")[0][0]
    passages = rows(home, "SELECT count(*) FROM kb_passages")[0][0]
    if words != passages:
        wrong.append(f"{words} passages in the full text, {passages} in all")
    return wrong


async def main(files: int, kills: int, home: Path, seed: int, as_json: bool) -> int:
    chance = random.Random(seed)
    folder = home / "folder"
    for number in range(files):
        write_file(folder, number, chance)
    copy = home / "copy"
    shutil.copytree(folder, copy)
    out = await undisturbed(home / "one", folder, files, chance)
    before = out.pop("digests")
    if kills:
        out |= await killed(home / "two", copy, files, kills, chance)
        out["wrong"] = check(home / "two", before, out.pop("digests"))
    print(json.dumps(out) if as_json else "\n".join(f"{name}: {value}" for name, value in out.items()))
    return bool(out.get("wrong"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=5_000)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--home", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        sys.exit(trio.run(main, given.files, given.kills, given.home or Path(scratch), given.seed, given.json))
