"""Quick news of watched folders, by the system's watches (inotify). Full looks find what these miss."""

import threading
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import structlog
import trio

from klaw.actor.failure import error_class
from klaw.actor.mailbox import Nudge
from klaw.actor.threads import Threads

MAX_WATCHED = 4_000
"""Folders. The system gives a user's programs together 8,192 to some 100,000 watches."""
DEBOUNCE_MS = 1_600
STEP_MS = 400
STOP_MS = 1_000
"""How long the thread may outlive its listener."""
RETRY_S = 300.0
"""After this time another attempt is made."""

log = structlog.get_logger("klaw.knowledge")


class Watches:
    """Watches folders, not those below them, so that no link is followed.

    Args:
        on_change: called with paths that have changed; with none when watching has begun, or is not possible.
    """

    def __init__(self, on_change: Callable[[Collection[str]], None]) -> None:
        self._on_change = on_change
        self._news = Nudge()
        self._folders: frozenset[Path] = frozenset()
        self.failed = False
        """The system has no watches left for these folders."""

    def set(self, folders: Collection[Path]) -> None:
        """Watch these from now on."""
        if self._folders != frozenset(folders):
            self._folders = frozenset(folders)
            self.failed = self.failed and bool(folders)
            self._news.nudge()

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            async with trio.open_nursery() as nursery:
                if self._folders:
                    nursery.start_soon(self._watch, sorted(self._folders))
                await self._news.wait_for_news()
                nursery.cancel_scope.cancel(reason="other folders are to be watched")

    async def _watch(self, folders: list[Path]) -> None:
        while True:
            reason = "too_many"
            if len(folders) <= MAX_WATCHED:
                reason = await self._watch_until_it_fails(folders)
            log.warning("folders_not_watched", reason=reason, count=len(folders))
            self.failed = True
            self._on_change(())
            await trio.sleep(RETRY_S)

    async def _watch_until_it_fails(self, folders: list[Path]) -> str:
        """Returns a code that says why it failed."""
        threads, stop = Threads("watching folders", 1), threading.Event()
        news = _changes([str(folder) for folder in folders], stop)
        first = True
        try:
            while (changed := await threads.run(next, news, None, abandon=True)) is not None:
                self.failed = False
                if changed or first:
                    self._on_change(changed)
                first = False
        except (OSError, RuntimeError) as error:
            return error_class(error)  # the text names the folder
        finally:
            stop.set()
        return "ended"


def _changes(folders: list[str], stop: threading.Event) -> Iterator[set[str]]:
    """Paths as they change; blocks for ``STOP_MS`` at most. Raises OSError, RuntimeError: the folders
    cannot be watched."""
    from watchfiles import watch  # loads its library

    # With ignore_permission_denied it would ignore every error, also that there are no watches left.
    for found in watch(
        *folders,
        watch_filter=None,
        debounce=DEBOUNCE_MS,
        step=STEP_MS,
        stop_event=stop,
        rust_timeout=STOP_MS,
        yield_on_timeout=True,
        raise_interrupt=False,
        recursive=False,
    ):
        yield {path for _, path in found}
