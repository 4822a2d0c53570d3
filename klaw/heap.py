"""What the C library does with memory that is free. Nothing of it does anything with another library than glibc."""

import ctypes
from typing import Any

_ARENA_MAX = -8
"""``M_ARENA_MAX`` of malloc.h."""


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
    function: Any = getattr(ctypes.CDLL(None), name, None)
    if function is not None:
        function(*arguments)
