"""One program from start to end: its output is read while it runs and kept only in part, and nothing of it outlives
the call."""

import os
import signal
import subprocess
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import attrs
import trio

HEAD_BYTES = 600_000
TAIL_BYTES = 300_000
"""Kept of an output: its beginning and its end."""
FLOOD_BYTES = 64 * 1024 * 1024
"""A program that writes more is killed."""
TERM_S = 2.0
"""Between the polite signal and the other one."""
LATE_S = 0.5
"""After a program ended, what it left in the pipe is read for this long: a child of it may hold the pipe open."""
CHUNK_BYTES = 64 * 1024


@attrs.frozen(kw_only=True)
class Ended:
    """How a program ended."""

    code: int
    """The exit code; a negative one is the signal that killed it."""
    output: str
    """Standard output and error as they came; see ``Kept``."""
    duration_s: float
    timed_out: bool
    flooded: bool
    """It wrote more than ``FLOOD_BYTES`` and was killed."""


class Kept:
    """The beginning and the end of an output, in bounded memory."""

    def __init__(self, head: int = HEAD_BYTES, tail: int = TAIL_BYTES) -> None:
        self._head = bytearray()
        self._head_limit = head
        self._tail: deque[bytes] = deque()
        self._tail_limit = tail
        self._tail_size = 0
        self.size = 0
        """Bytes that came."""

    def add(self, data: bytes) -> None:
        self.size += len(data)
        room = self._head_limit - len(self._head)
        self._head += data[:room]
        rest = data[room:] if room else data
        if rest:
            self._tail.append(rest)
            self._tail_size += len(rest)
            while self._tail_size - len(self._tail[0]) >= self._tail_limit:
                self._tail_size -= len(self._tail.popleft())

    def text(self) -> str:
        tail = b"".join(self._tail)[-self._tail_limit :]
        left_out = self.size - len(self._head) - len(tail)
        if not left_out:
            return (bytes(self._head) + tail).decode("utf-8", "replace")
        head, end = bytes(self._head).decode("utf-8", "replace"), tail.decode("utf-8", "replace")
        return f"{head}\n[… {left_out} bytes left out …]\n{end}"


async def run(words: Sequence[str], *, cwd: Path, environment: Mapping[str, str], timeout_s: float) -> Ended:
    """Run a program.

    Args:
        words: the program and its arguments.
        cwd: where.
        environment: all of it.
        timeout_s: it is killed after this.

    Raises:
        OSError: it could not be started.

    Cancellation: its process group is ended, with ``TERM_S`` for an orderly end.
    """
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
    kept = Kept()
    assert process.stdout is not None
    try:
        with trio.move_on_after(timeout_s) as limited:
            await _follow(process, process.stdout, kept)
    finally:
        with trio.move_on_after(TERM_S * 2, shield=True):
            await _end(process)
        with trio.move_on_after(TERM_S, shield=True):
            await process.stdout.aclose()
    return Ended(
        code=process.returncode if process.returncode is not None else -signal.SIGKILL,
        output=kept.text(),
        duration_s=trio.current_time() - begin,
        timed_out=limited.cancelled_caught,
        flooded=kept.size > FLOOD_BYTES,
    )


async def _follow(process: trio.Process, stdout: trio.abc.ReceiveStream, kept: Kept) -> None:
    """Until it ended, or wrote too much."""

    async def read() -> None:
        while data := await stdout.receive_some(CHUNK_BYTES):
            kept.add(bytes(data))
            if kept.size > FLOOD_BYTES:
                nursery.cancel_scope.cancel(reason="the program floods its output")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await process.wait()
        nursery.cancel_scope.deadline = trio.current_time() + LATE_S


async def _end(process: trio.Process) -> None:
    """End what is left of its process group: first the polite way, if it still runs itself."""
    if process.returncode is None:
        _signal(process.pid, signal.SIGTERM)
        with trio.move_on_after(TERM_S):
            await process.wait()
    _signal(process.pid, signal.SIGKILL)
    await process.wait()


def _signal(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):  # nobody is left, or a set-uid program, not ours to end
        os.killpg(group, number)
