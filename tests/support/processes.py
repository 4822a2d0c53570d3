"""Child processes of tests with this Python. Those that would import most of Klaw are forked from one that has it."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress

import trio

from tests.support.forks import Fork, Zygote
from tests.support.repository import REPOSITORY
from tests.support.waiting import HANG_S

KLAW = (sys.executable, "-m", "klaw")
SCRIPT = (sys.executable, "-c")
zygote: Zygote | None = None
"""Only in tests (``plugins/forking.py``)."""


async def start(command: Sequence[str], streams: Sequence[int], environ: Mapping[str, str]) -> trio.Process | Fork:
    """Start a command in the repository: a fork if it is a ``klaw`` command or a script, and has the variables for
    Python itself (``PYTHON…``) that this process has.

    Args:
        streams: descriptors of its standard input, output and error, which are closed here.
    """
    stdin, stdout, stderr = streams
    forked = (*command[:3],) == KLAW or (*command[:2],) == SCRIPT
    try:
        if zygote is not None and forked and _for_python(environ) == _for_python(os.environ):
            return zygote.fork(command, streams, environ)
        return await trio.lowlevel.open_process(
            command, stdin=stdin, stdout=stdout, stderr=stderr, cwd=REPOSITORY, env=environ
        )
    finally:
        for each in streams:
            os.close(each)


async def start_silent(command: Sequence[str], environ: Mapping[str, str] = os.environ) -> trio.Process | Fork:
    """Start a command that is told nothing and whose words go nowhere."""
    return await start(command, [os.open(os.devnull, os.O_RDWR) for _ in range(3)], environ)


async def completed(
    command: Sequence[str], stdin: bytes = b"", environ: Mapping[str, str] = os.environ
) -> "subprocess.CompletedProcess[bytes]":
    """Run a command to its end."""
    (given, giving), (reading_out, told_out), (reading_err, told_err) = (os.pipe() for _ in range(3))
    process = await start(command, (given, told_out, told_err), environ)
    out, err = bytearray(), bytearray()
    try:
        with trio.fail_after(HANG_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_give, giving, stdin)
                nursery.start_soon(_take, reading_out, out)
                nursery.start_soon(_take, reading_err, err)
            return subprocess.CompletedProcess(command, await process.wait(), bytes(out), bytes(err))
    finally:
        process.kill()


async def _give(pipe: int, content: bytes) -> None:
    async with trio.lowlevel.FdStream(pipe) as stream:
        with suppress(trio.BrokenResourceError):  # the process has ended
            await stream.send_all(content)


async def _take(pipe: int, into: bytearray) -> None:
    async with trio.lowlevel.FdStream(pipe) as stream:
        async for part in stream:
            into += part


def _for_python(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if name.startswith("PYTHON")}
