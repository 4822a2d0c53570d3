"""How long tests wait for what must come."""

import inspect
from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

HANG_S = 600.0
"""Deadline against hanging only, for waits in real time: at least ten times what any of them takes on two idle cores.
No test says with it how quick something is."""

T = TypeVar("T")


async def first_line(stream: trio.abc.ReceiveStream) -> bytes:
    """What a process says first, up to its line end or to its own end: one reading may bring less."""
    said = b""
    async for part in stream:
        said += part
        if b"\n" in said:
            break
    return said


async def until(found: Callable[[], T | Awaitable[T]], every_s: float = 0.01) -> T:
    """Wait for what another process, a thread or an actor does without telling the test: until ``found`` says something
    true, and return that."""
    with trio.fail_after(HANG_S):
        while True:
            value = found()
            if inspect.isawaitable(value):
                value = await value
            if value:
                return value
            await trio.sleep(every_s)
