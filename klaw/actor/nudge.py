"""Waking a loop that found nothing to do: many nudges before it looks again are one."""

import trio


class Nudge:
    """A flag for one loop that anybody sets, and whether that loop has nothing left to do. Handles of actors that find
    their work in the database inherit it."""

    def __init__(self) -> None:
        self._news = trio.Event()
        self._idle = trio.Event()

    def nudge(self) -> None:
        """Say that there may be something to do. Never waits."""
        self._news.set()
        if self._idle.is_set():
            self._idle = trio.Event()

    async def wait_for_news(self, seconds: float = float("inf")) -> bool:
        """For the loop, when it has nothing to do: return after a nudge or after a while, and whether there was one."""
        if not self._news.is_set():
            self._idle.set()
        with trio.move_on_after(seconds):
            await self._news.wait()
        there = self._news.is_set()
        self._news = trio.Event()
        return there

    async def wait_idle(self) -> None:
        """Return when the loop has nothing to do and waits for a nudge."""
        await self._idle.wait()
