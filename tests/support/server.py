"""A real server process on a folder of its own: started, killed, restarted.

In a test::

    async with serve_llm() as llm, served(write_home(tmp_path, llm=llm.url)) as server:
        async with connect(server.url) as client:
            ...
        await server.kill()
        await server.start()

The port is chosen before the first start and stays the same, so that clients find the server again. It lies below the
range from which the system takes the ports of outgoing connections: none of these can sit on it while the server is
down.
"""

import json
import os
import random
import signal
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from klaw.cli.admin_call import call
from klaw.config.paths import Paths
from tests.support.forks import Fork
from tests.support.processes import KLAW, completed, start
from tests.support.waiting import HANG_S, until

UNLIMITED = {"connectsPerSecond": 10_000, "userMessagesPerSecond": 100_000, "userBytesPerSecond": 1_000_000_000}
"""Of the gateway: tests say more than a user would, and all of them come from one address."""
READY = b"Klaw listens on "


def free_port() -> int:
    """A loopback port that nobody listens on; workers of pytest-xdist choose from ranges of their own."""
    first = 20_000 + 1_500 * (int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % 8)
    while True:
        port = random.randrange(first, first + 1_500)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port


def write_home(
    home: Path, *, llm: str | None = None, models: Path | None = None, **sections: Mapping[str, Any]
) -> Path:
    """Make a home folder with an engine.yaml that suits tests, and return it. Recall has the time of a busy machine: no
    test depends on whether it was quick.

    Args:
        home: made if it is not there; an engine.yaml in it is replaced.
        llm: base URL of the stub LLM; without one nothing listens there.
        models: folder of pulled models, linked into the home; without one embeddings are off.
        sections: engine.yaml's sections by their names there (``autoRag={"topK": 5}``); what they say wins.
    """
    config: dict[str, Any] = {
        "gateway": {"port": free_port(), "messagesPerSecond": 10_000, "burst": 10_000, **UNLIMITED},
        "processing": {"debounceMs": 20, "debounceMaxMs": 200},
        "routing": {"default": "stub/echo"},
        "providers": {"stub": {"baseUrl": llm or "http://127.0.0.1:9/v1", "maxRetries": 0, "timeoutSeconds": 20}},
        "embedding": {"enabled": models is not None, "gatherSeconds": 0},
        "autoRag": {"timeBudgetMs": 5000},
        "topics": {"enabled": False},
        "logging": {"format": "json"},
    }
    for name, section in sections.items():
        config[name] = {**config.get(name, {}), **section}
    (home / "config").mkdir(parents=True, exist_ok=True, mode=0o700)
    (home / "config" / "engine.yaml").write_text(json.dumps(config, indent=1))
    if models is not None and not (home / "models").exists():
        (home / "models").symlink_to(models)
    return home


def clean_environ() -> dict[str, str]:
    """This process's environment without what would change a Klaw command's behaviour."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("KLAW_", "XDG_", "NOTIFY_"))}


def klaw_command(*arguments: str) -> list[str]:
    """A ``klaw`` command with this Python."""
    return [*KLAW, *arguments]


class DidNotStart(Exception):
    """The server ended, or said nothing, before it listened."""


class Server:
    """A server process that can be started again. Made by ``served``."""

    def __init__(self, home: Path, nursery: trio.Nursery, environ: Mapping[str, str]) -> None:
        self.home = home
        self.config: dict[str, Any] = json.loads((home / "config" / "engine.yaml").read_text())
        self.stdout = b""
        """Of all processes so far."""
        self.process: trio.Process | Fork | None = None
        self.environ = dict(environ)
        """Of the processes to come."""
        self.program: tuple[str, ...] = KLAW
        """What is started; a drill puts something around it."""
        self._nursery = nursery
        self._log_path = home / "server.log"
        self._ready = trio.Event()
        self._read_all = trio.Event()
        self._spawned_at = 0

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.config['gateway']['port']}/ws"

    @property
    def data(self) -> Path:
        return self.home / "data"

    @property
    def database(self) -> Path:
        return self.data / "klaw.db"

    @property
    def stderr(self) -> str:
        """The log of all processes so far."""
        return self._log_path.read_text(errors="replace") if self._log_path.exists() else ""

    def events(self, name: str | None = None) -> list[dict[str, Any]]:
        """The log's events (all, or those of one name); it is written as JSON."""
        found = [json.loads(line) for line in self.stderr.splitlines() if line.startswith("{")]
        return [event for event in found if name is None or event["event"] == name]

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.returncode is None

    async def spawn(self) -> None:
        """Start the process without waiting until it is ready."""
        assert not self.running
        self._ready, self._read_all = trio.Event(), trio.Event()
        self._spawned_at = len(self.stdout)
        reading, writing = os.pipe()
        nothing = os.open(os.devnull, os.O_RDONLY)
        log = os.open(self._log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        command = [*self.program, "serve", "--home", str(self.home)]
        self.process = await start(command, (nothing, writing, log), self.environ)
        self._nursery.start_soon(self._read, trio.lowlevel.FdStream(reading))

    async def ready(self) -> None:
        """Wait until the server listens.

        Raises:
            DidNotStart
        """
        with trio.move_on_after(HANG_S):
            await self._ready.wait()
        if READY not in self.stdout[self._spawned_at :]:
            raise DidNotStart(f"the server did not start:\n{self.stderr[-4000:]}")

    async def start(self) -> None:
        """Start the process and wait until it listens."""
        await self.spawn()
        await self.ready()

    async def status_when(self, reached: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """What ``klaw status`` shows, once it is as wanted; asked over the admin socket."""
        paths = Paths.resolve(self.home, {})

        async def look() -> dict[str, Any]:
            status = await trio.to_thread.run_sync(call, paths, "status")
            return status if reached(status) else {}

        return await until(look, every_s=0.1)

    async def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        await self._end(signal.SIGKILL)

    async def terminate(self) -> int:
        """SIGTERM, and wait for the orderly end. Returns the exit code."""
        return await self._end(signal.SIGTERM)

    async def wait(self) -> int:
        """Wait until the process has ended by itself. Returns the exit code."""
        assert self.process is not None
        with trio.fail_after(HANG_S):
            code = await self.process.wait()
            await self._read_all.wait()
        return code

    async def _end(self, number: int) -> int:
        assert self.process is not None
        if self.process.returncode is None:
            self.process.send_signal(number)
        return await self.wait()

    async def _read(self, stdout: trio.lowlevel.FdStream) -> None:
        ready, read_all = self._ready, self._read_all
        async with stdout:
            async for chunk in stdout:
                self.stdout += chunk
                if b"\n" in self.stdout[self._spawned_at :].partition(READY)[2]:
                    ready.set()
        ready.set()
        read_all.set()


@asynccontextmanager
async def served(home: Path, *, start: bool = True, environ: Mapping[str, str] | None = None) -> AsyncIterator[Server]:
    """A server on a home folder (see ``write_home``), running unless ``start`` is false; stopped in the end, by SIGTERM
    or, if that does not help or the body failed, by SIGKILL."""
    async with trio.open_nursery() as nursery:
        server = Server(home, nursery, {**clean_environ(), **(environ or {})})
        try:
            if start:
                await server.start()
            yield server
            if server.running:
                await server.terminate()
        finally:
            if server.running:
                assert server.process is not None
                server.process.kill()
                with trio.move_on_after(HANG_S, shield=True):
                    await server.process.wait()
            nursery.cancel_scope.cancel(reason="the server is not needed any more")


async def run_klaw(
    *arguments: str, stdin: bytes = b"", environ: Mapping[str, str] | None = None
) -> tuple[int, str, str]:
    """Run a ``klaw`` command to its end. Returns exit code, standard output and standard error."""
    done = await completed(klaw_command(*arguments), stdin, {**clean_environ(), **(environ or {})})
    return done.returncode, done.stdout.decode(), done.stderr.decode()
