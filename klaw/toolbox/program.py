"""One program from start to end, and the sandbox that it runs in: bubblewrap, where it is installed and the system lets
it work. Inside, a program sees the system's programs read-only, an empty /tmp, and the user's workspace, of which it
cannot change what stands in later prompts; no other file, no other process, and no network unless that is allowed.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import attrs
import structlog
import trio

from klaw.config.tools import ExecToolConfig

HEAD_BYTES = 600_000
TAIL_BYTES = 300_000
FLOOD_BYTES = 64 * 1024 * 1024
TERM_S = 2.0
LATE_S = 0.5
"""How long the pipe is read after the program ended: a child of it may hold it open."""
CHUNK_BYTES = 64 * 1024


@attrs.frozen(kw_only=True)
class ProgramResult:
    code: int
    """The exit code; a negative one is the signal that killed it."""
    output: str
    """Standard output and error, interleaved; the middle is left out of a long one."""
    duration_s: float
    timed_out: bool
    flooded: bool
    """It wrote more than ``FLOOD_BYTES`` and was killed."""


class KeptOutput:
    def __init__(self, head: int = HEAD_BYTES, tail: int = TAIL_BYTES) -> None:
        self.size = 0
        self._head, self._head_limit = bytearray(), head
        self._tail, self._tail_limit = bytearray(), tail

    def add(self, data: bytes) -> None:
        self.size += len(data)
        room = self._head_limit - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > 2 * self._tail_limit:
            del self._tail[: -self._tail_limit]

    def text(self) -> str:
        end = self._tail[-self._tail_limit :]
        left_out = self.size - len(self._head) - len(end)
        if not left_out:
            return (self._head + end).decode("utf-8", "replace")
        head, tail = self._head.decode("utf-8", "replace"), end.decode("utf-8", "replace")
        return f"{head}\n[… {left_out} bytes left out …]\n{tail}"


async def run(words: Sequence[str], cwd: Path, environment: Mapping[str, str], *, timeout_s: float) -> ProgramResult:
    """Run a program with this environment alone. Cancelled, it ends the process group. Raises OSError at its start."""
    begin = trio.current_time()
    process = await trio.lowlevel.open_process(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=cwd,
        env=dict(environment),
        start_new_session=True,
    )
    kept = KeptOutput()
    assert process.stdout is not None
    try:
        with trio.move_on_after(timeout_s) as limited:
            await _follow(process, process.stdout, kept)
    finally:
        with trio.move_on_after(TERM_S * 2, shield=True):
            await end_group(process, TERM_S)
        with trio.move_on_after(TERM_S, shield=True):
            await process.stdout.aclose()
    return ProgramResult(
        code=process.returncode if process.returncode is not None else -signal.SIGKILL,
        output=kept.text(),
        duration_s=trio.current_time() - begin,
        timed_out=limited.cancelled_caught,
        flooded=kept.size > FLOOD_BYTES,
    )


async def _follow(process: trio.Process, stdout: trio.abc.ReceiveStream, kept: KeptOutput) -> None:
    async def read() -> None:
        while data := await stdout.receive_some(CHUNK_BYTES):
            kept.add(bytes(data))
            if kept.size > FLOOD_BYTES:
                nursery.cancel_scope.cancel(reason="the program floods its output")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await process.wait()
        nursery.cancel_scope.deadline = trio.current_time() + LATE_S


async def end_group(process: trio.Process, polite_s: float) -> None:
    """End what is left of a process group: first the polite way, if its leader still runs."""
    if process.returncode is None:
        signal_group(process.pid, signal.SIGTERM)
        with trio.move_on_after(polite_s):
            await process.wait()
    signal_group(process.pid, signal.SIGKILL)
    await process.wait()


def signal_group(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):  # nobody is left, or a set-uid program, not ours to end
        os.killpg(group, number)


PROBE_S = 10.0

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64")
_SETTINGS = (
    "/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime", "/etc/passwd",
    "/etc/group", "/etc/nsswitch.conf", "/etc/mime.types", "/etc/ssl", "/etc/ca-certificates", "/etc/pki",
)  # fmt: skip
_NETWORK = ("/etc/resolv.conf", "/etc/hosts", "/etc/services", "/etc/protocols", "/run/systemd/resolve")

log = structlog.get_logger("klaw.tools")


@attrs.define(eq=False)
class Sandbox:
    """Wraps commands. Whether bubblewrap works is tried once."""

    _config: ExecToolConfig
    _program: str | None = attrs.field(factory=lambda: shutil.which("bwrap"))
    _works: bool | None = attrs.field(default=None, init=False)
    _trying: trio.Lock = attrs.field(factory=trio.Lock, init=False)

    async def usable(self) -> bool:
        if self._config.sandbox == "none" or self._program is None:
            return False
        async with self._trying:
            if self._works is None:
                self._works = await self._probe(self._program)
        return self._works

    def wrap(
        self, words: Sequence[str], workspace: Path, kept: Sequence[str] = (), hidden: Path | None = None
    ) -> list[str]:
        """The command that runs ``words`` in the sandbox, in ``workspace``, the only folder that is writable inside. In
        it, ``kept`` files and folders, which exist and are no links, are read-only, and ``hidden`` is empty."""
        assert self._program is not None
        wrapped = [self._program, "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
        if self._config.network:
            wrapped.append("--share-net")
        for path in (*_SYSTEM, *_SETTINGS, *(_NETWORK if self._config.network else ())):
            wrapped += ["--ro-bind-try", path, path]
        wrapped += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]  # noqa: S108 - inside of the sandbox
        wrapped += ["--bind", str(workspace), str(workspace)]
        for name in kept:
            wrapped += ["--ro-bind", str(workspace / name), str(workspace / name)]
        if hidden is not None:
            wrapped += ["--tmpfs", str(hidden)]
        return [*wrapped, "--chdir", str(workspace), "--", *words]

    async def _probe(self, program: str) -> bool:
        """In a container, or where user namespaces are forbidden, it is there and does not work."""
        code: int | None = None
        with suppress(OSError), trio.move_on_after(PROBE_S):
            done = await trio.run_process(
                [program, "--unshare-all", "--cap-drop", "ALL", "--ro-bind", "/", "/", "--proc", "/proc", "true"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                check=False,
            )
            code = done.returncode
        if code != 0:
            log.warning("sandbox_unusable", exit_code=code)
        return code == 0
