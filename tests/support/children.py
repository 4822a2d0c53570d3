"""Child processes of a server or of a test, which may be stopped as if their work took hours."""

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from tests.support.waiting import until


def children(module: str, parent: int | None = None) -> list[int]:
    """The processes of a parent (this process) that run a module."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            born_of = (each / "stat").read_text("utf-8").rpartition(")")[2].split()[1]
            command = (each / "cmdline").read_bytes().split(b"\0")
            if int(born_of) == (parent or os.getpid()) and module.encode() in command:
                found.append(int(each.name))
    return found


@asynccontextmanager
async def stopped(module: str, parent: int | None = None) -> AsyncIterator[None]:
    """The first child that runs a module; it goes on behind the block."""
    [pid] = await until(lambda: children(module, parent))
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
