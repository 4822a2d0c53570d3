"""This process: limits for a child that may be attacked by what it is given, which does not outlive its parent; and
what the C library does with free memory. Imports nothing heavy: the child's start is part of each call.
"""

import fcntl
import os
import resource
import signal
from contextlib import suppress
from typing import Any

OPEN_FILES = 32
STACK_BYTES = 64 * 1024 * 1024
"""Parsers of deeply nested documents recurse in C."""
_ARENA_MAX = -8
"""``M_ARENA_MAX`` of malloc.h."""


def limit(memory_bytes: int, cpu_s: int, *, nice: int) -> None:
    """Set the limits of this process. Memory is what it allocates, not what it maps."""
    with suppress(OSError):
        os.nice(nice)
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:  # noqa: PTH123 - no file of ours
        score.write("1000")  # when memory is short, this goes first
    for kind, most in (
        (resource.RLIMIT_DATA, memory_bytes),
        (resource.RLIMIT_AS, memory_bytes * 4),
        (resource.RLIMIT_CPU, cpu_s),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, OPEN_FILES),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_STACK, STACK_BYTES),
    ):
        hard = resource.getrlimit(kind)[1]
        value = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (value, value))


def die_with_parent() -> None:
    """From now on the closing of standard input ends this process."""
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(0, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(0, fcntl.F_SETFL, fcntl.fcntl(0, fcntl.F_GETFL) | os.O_ASYNC | os.O_NONBLOCK)
    with suppress(BlockingIOError):
        if not os.read(0, 1):  # closed before
            os._exit(1)


def use_one_arena() -> None:
    """Let all threads take their memory from one place; to be called before there are any. glibc gives each a place of
    its own, and what a run of the embedding model leaves free at the end of that one cannot be given back: 15 to 35 MB.
    """
    _call("mallopt", _ARENA_MAX, 1)


def give_back() -> None:
    """Return free memory to the system. A run over a long text leaves 50 MB of it between what is in use: glibc keeps
    that, because it might be asked for again. Takes a few milliseconds."""
    _call("malloc_trim", 0)


def _call(name: str, *arguments: int) -> None:
    """Call a function of glibc; another C library may not have it."""
    import ctypes

    function: Any = getattr(ctypes.CDLL(None), name, None)
    if function is not None:
        function(*arguments)
