"""Try Klaw on an emulated Raspberry Pi, from nothing: does arm64 behave as this machine does?

    python tools/arm64.py [--scratch DIR] [--release bookworm] [--models DIR] [--tests PATH …]

Makes a Debian for arm64 from this machine's own package source, installs the wheel in it as docs/operations.md says,
copies the models, chats in English and Russian with a scripted model, compares the vectors of fixed texts with those of
this machine, and runs the store's tests. Its programs run by qemu's user mode as on the Pi 5's Cortex-A76, but on this
machine's kernel. Prints a line for each step; the exit code is 1 if one fails. The emulator has a fault of its own: a
child of a process with threads may hang before it begins (qemu 7.2, once in 168 tests); such a test fails after ten
minutes.

Needs root, and Debian's packages debootstrap and qemu-user-static (whose rule for the kernel it registers, if nobody
did). 1.3 GB. A Debian that is in DIR already is used again; without DIR all is deleted.
"""

import argparse
import json
import math
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import httpx2
import trio

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.support.llm_server import serve_llm, text_reply
from tests.support.plugins.models import models_dir
from tests.support.repository import REPOSITORY
from tests.support.server import Server, served, write_home
from tests.support.waiting import HANG_S, until
from tests.system.machine import fetch_wheels, make_root

EMULATOR = "qemu-aarch64"
CPU = "cortex-a76"
RULE = Path("/usr/lib/binfmt.d", f"{EMULATOR}.conf")
KERNEL = Path("/proc/sys/fs/binfmt_misc")
NEEDED = ("debootstrap", "unshare", "mount", "chroot")
PACKAGES = "python3,python3-venv,libgomp1"
TESTING = ("pytest", "pytest-trio", "hypothesis")
COSINE = 0.999
"""The least that the vectors of both machines may have in common."""
TEXTS = (
    "Hello.",
    "My cat is called Mosya; she is eleven years old and does not like strangers.",
    "Кошку зовут Мося, ей одиннадцать лет, чужих она не любит.",
    "Пароль от вайфая на даче: малина2019",
    "Anna is allergic to nuts, so no walnut cake on Thursday.",
    "У Ани аллергия на орехи, поэтому в четверг без орехового торта.",
    "Der Zug nach Krakau fährt um 8:40 Uhr von Gleis 3.",
    "def mean(values): return sum(values) / len(values)",
    "192.168.1.17 – 2026-11-23T09:45:00+03:00 – 3 × 4,50 € = 13,50 €",
    "会議は木曜日の午後三時からです。",
    "👍",
    "Картофель посадили третьего мая, сорт Гала; морковь взошла через две недели. " * 20,
)
TALK = {TEXTS[2]: "the name of the cat", TEXTS[4]: "у Ани аллергия на орехи"}
"""What is said in the chat, and what finds it in the other language."""


class Failed(Exception):
    """A step went wrong."""


class Emulated:
    """A Debian for arm64 in a folder.

    Args:
        root: that folder.
        shared: folders that its programs see under the same path as this machine's.
    """

    def __init__(self, root: Path, *shared: Path) -> None:
        self.root = root
        self._shared = (*shared, Path("/dev"), Path("/proc"))

    def command(self, *words: str) -> tuple[str, ...]:
        """How this machine starts a command there; it is one process, and its mounts go with it."""
        mounts = "".join('mount --mkdir --rbind "$1" "$root$1" && shift && ' for _ in self._shared)
        script = f'root=$1; shift; {mounts}exec chroot "$root" "$@"'
        within = [str(self.root), *map(str, self._shared)]
        environ = ["PATH=/opt/klaw/bin:/usr/sbin:/usr/bin", "LANG=C.UTF-8", "HOME=/root", f"QEMU_CPU={CPU}"]
        return ("unshare", "--mount", "sh", "-c", script, "sh", *within, "env", "-i", *environ, *words)

    def run(self, *words: str) -> str:
        """What a command prints. Raises Failed."""
        done = subprocess.run(self.command(*words), capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Failed(f"{' '.join(words)[:200]}: exit code {done.returncode}\n{(done.stdout + done.stderr)[-4000:]}")
        return done.stdout.strip()


@contextmanager
def step(name: str) -> Iterator[list[str]]:
    """Print a step when it is done, with what it appended to the list."""
    begin, told = time.monotonic(), list[str]()
    yield told
    print(f"{name:<8} {time.monotonic() - begin:6.0f} s   {', '.join(told)}", flush=True)


def missing() -> str:
    """Why this cannot run here; empty if it can."""
    if os.geteuid() != 0:
        return "only root may mount and change the root folder"
    absent = [each for each in NEEDED if shutil.which(each) is None]
    if absent:
        return f"not installed: {', '.join(absent)} (apt install debootstrap)"
    if platform.machine() == "aarch64" or (KERNEL / EMULATOR).exists():
        return ""
    if not RULE.exists():
        return "not installed: qemu's user mode (apt install qemu-user-static)"
    if not (KERNEL / "register").exists():
        subprocess.run(["mount", "-t", "binfmt_misc", "binfmt_misc", str(KERNEL)], check=False, capture_output=True)
    if not (KERNEL / "register").exists():
        return "this kernel has no binfmt_misc, which starts the emulator"
    (KERNEL / "register").write_text(RULE.read_text())
    return ""


def install(debian: Emulated, wheels: Path, requirements: Path) -> None:
    """With the versions that Klaw is tested with, see docs/operations.md. Raises Failed."""
    (wheel,) = wheels.glob("klaw-*.whl")
    pip = ["/opt/klaw/bin/pip", "install", "--quiet", "--no-index", "-f", str(wheels)]
    debian.run("rm", "-rf", "/opt/klaw")
    debian.run("python3", "-m", "venv", "/opt/klaw")
    debian.run(*pip, "--require-hashes", "-r", str(requirements))
    debian.run(*pip, f"{wheel}[all]", *TESTING)
    debian.run("/opt/klaw/bin/pip", "check")


async def vectors(server: Server) -> list[list[float]]:
    """What a server makes of the texts."""
    url = f"http://127.0.0.1:{server.config['gateway']['port']}/v1/embeddings"
    async with httpx2.AsyncClient(trust_env=False, timeout=HANG_S) as http:

        async def ask(text: str) -> httpx2.Response | None:
            answer = await http.post(url, json={"input": text})
            return answer if answer.status_code == 200 else None

        return [(await until(lambda text=text: ask(text))).json()["data"][0]["embedding"] for text in TEXTS]


def cosine(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(map(float.__mul__, one, other)) / math.sqrt(sum(x * x for x in one) * sum(x * x for x in other))


async def talk(debian: Emulated, server: Server) -> None:
    """One chat, and searches that find by its meaning what was said. Raises Failed."""

    async def say(*words: str) -> str:
        command = debian.command("klaw", *words, "--home", str(server.home))
        return (await trio.run_process(command, capture_stdout=True)).stdout.decode()

    for text in TALK:
        answer = await say("chat", text, "--url", server.url)
        if answer != "Ясно: I see.\n":
            raise Failed(f"{text!r} was answered with {answer!r}")
    await server.status_when(lambda now: now["embedder"]["embedded"] >= len(TALK))
    for text, query in TALK.items():
        found = json.loads(await say("search", query, "--role", "user", "--json"))["results"][0]["snippet"]
        if found != text:
            raise Failed(f"a search for {query!r} finds {found!r}")


async def serve(debian: Emulated, scratch: Path, models: Path) -> None:
    """Chat there, and compare its vectors with ours. Raises Failed."""
    async with AsyncExitStack() as running:
        llm = await running.enter_async_context(serve_llm())
        llm.respond = lambda _request: text_reply("Ясно:", " I see.")
        home = write_home(scratch / "home", llm=llm.url, embedding={"enabled": True})
        server = await running.enter_async_context(served(home, start=False))
        server.program = debian.command("klaw")
        with step("start"):
            await server.start()
        with step("chat") as told:
            await talk(debian, server)
            told.append(f"{len(TALK)} answers, each message found by its meaning in the other language")
        with step("vectors") as told:
            there = await vectors(server)
            async with served(write_home(scratch / "here", models=models)) as here:
                alike = sorted(map(cosine, there, await vectors(here)))
            told.append(f"{len(TEXTS)} texts, cosine at least {alike[0]:.5f}, mean {sum(alike) / len(alike):.5f}")
            if alike[0] < COSINE:
                raise Failed(f"the vectors differ: cosines {alike}")
        with step("stop"):
            if code := await server.terminate():
                raise Failed(f"the server ended with exit code {code}:\n{server.stderr[-4000:]}")


def test(debian: Emulated, scratch: Path, checkout: Path, tests: Sequence[str]) -> str:
    """Run tests with the installed wheel; what pytest says in the end. Raises Failed."""
    pytest = ["/opt/klaw/bin/python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "hang_s=600", *tests]
    command = debian.command("env", "-C", str(checkout), f"KLAW_TEST_MODELS={scratch / 'home' / 'models'}", *pytest)
    log = scratch / "tests.log"
    with log.open("w") as output:
        code = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, check=False).returncode
    if code != 0:
        raise Failed(f"exit code {code}\n{log.read_text()[-4000:]}")
    return log.read_text().splitlines()[-1]


def run(scratch: Path, options: argparse.Namespace) -> None:
    """All steps. Raises Failed."""
    models = options.models.resolve()
    debian, wheels, checkout = Emulated(scratch / "root", scratch, models), scratch / "wheels", scratch / "checkout"
    for each in (wheels, checkout, scratch / "home", scratch / "here"):
        shutil.rmtree(each, ignore_errors=True)
        each.mkdir(parents=True)
    with step("debian") as told:
        if not (debian.root / "usr").is_dir() or (debian.root / "debootstrap").is_dir():
            make_root(debian.root, options.release, "--arch=arm64", packages=PACKAGES)
        version = (debian.root / "etc/debian_version").read_text().strip()
        told.append(f"{version}, {debian.run('uname', '-m')}, {debian.run('python3', '--version')}")
    with step("fetch") as told:
        fetch_wheels(wheels, debian.root, "aarch64", *TESTING)
        told.append(f"{len(list(wheels.iterdir()))} wheels")
        listed = ["git", "ls-files", "tests", "pyproject.toml", "requirements.txt"]
        files = subprocess.run(listed, cwd=REPOSITORY, check=True, capture_output=True, text=True).stdout.splitlines()
        subprocess.run(["cp", "-a", "--parents", *files, str(checkout)], cwd=REPOSITORY, check=True)
    with step("install") as told:
        install(debian, wheels, checkout / "requirements.txt")
        told.append(debian.run("klaw", "--version"))
    with step("models") as told:
        debian.run("klaw", "models", "pull", "--from", str(models), "--home", str(scratch / "home"))
        found = json.loads(debian.run("klaw", "models", "list", "--verify", "--json", "--home", str(scratch / "home")))
        told += [f"{each['id']} {each['state']}" for each in found["models"]]
    trio.run(serve, debian, scratch, models)
    with step("tests") as told:
        told.append(test(debian, scratch, checkout, options.tests))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scratch", type=Path, metavar="DIR", help="work here, and leave it")
    parser.add_argument("--release", default="bookworm", help="of Debian (default: bookworm)")
    parser.add_argument(
        "--models", type=Path, default=models_dir(), metavar="DIR", help="pulled models (default: .models)"
    )
    parser.add_argument("--tests", nargs="+", default=["tests/store"], metavar="PATH", help="default: tests/store")
    options = parser.parse_args()
    if reason := missing():
        print(f"cannot run: {reason}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="klaw-arm64-") as name:
        run((options.scratch or Path(name)).resolve(), options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
