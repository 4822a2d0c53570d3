"""Scans the sources of all bases: which documents are to be read, and which are gone. The system's watches (inotify)
give quick news of folders; scans find what these miss."""

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import attrs
import structlog
import trio

from klaw.actor.clock import Clock, iso
from klaw.actor.failure import error_class
from klaw.actor.mailbox import Nudge
from klaw.actor.threads import Threads
from klaw.domain.knowledge import Document, Source, SourceId
from klaw.domain.text import plural
from klaw.knowledge import scan
from klaw.knowledge.ingest import Ingest
from klaw.knowledge.scan import FolderScan, SourceState
from klaw.memory.forget.take_out import sweep_documents
from klaw.store.attachments import UNSENT_S
from klaw.store.engine.database import Readers
from klaw.store.engine.writer import Writer
from klaw.store.kinds.knowledge import document_steps, documents, message_files, sources
from klaw.store.originals import Originals

WAIT_AT_ONCE = 50
"""Documents that one step of the writer adds."""
UNWATCHED_S = 60.0
"""Between two scans of a folder that the system does not watch."""
LOOK_SHARE = 0.05
"""Largest share of the time that scanning a folder takes, however often it changes."""
SWEEP_S = 3600.0
"""Between two searches for files that belong to no source."""
LEFT_S = 86_400.0
"""Age at which such files are removed: an upload may take a day."""

MAX_WATCHED = 4_000
"""Folders. The system gives a user's programs together 8,192 to some 100,000 watches."""
WATCH_DEBOUNCE_MS = 1_600
WATCH_STEP_MS = 400
WATCH_STOP_MS = 1_000
"""How long the thread may outlive its listener."""
WATCH_RETRY_S = 300.0

log = structlog.get_logger("klaw.knowledge")


@attrs.define
class _SeenFolder:
    """The last scan of a folder. Times are Trio's."""

    at: float
    not_before: float
    paths: frozenset[Path] = frozenset()
    devices: Mapping[str, int] = attrs.Factory(dict)


@attrs.define(kw_only=True, eq=False)
class SourceScanner:
    readers: Readers
    writer: Writer
    clock: Clock
    ingest: Ingest
    originals: Originals
    allowed: Callable[[Source], str]
    """Says why a folder may not be read; empty when it may. Blocks."""
    private: Sequence[Path]
    """Folders that are never read."""
    max_files: int
    scan_s: float
    states: dict[SourceId, SourceState] = attrs.field(factory=dict, init=False)
    _seen: dict[SourceId, _SeenFolder] = attrs.field(factory=dict, init=False)
    _swept_at: float = attrs.field(default=-float("inf"), init=False)
    _threads: Threads = attrs.field(factory=lambda: Threads("watched folders", 1), init=False)

    @property
    def folders(self) -> set[Path]:
        return {path for seen in self._seen.values() for path in seen.paths}

    def due(self, source: SourceId, *, heard: bool, watched: bool) -> float:
        """When a folder is to be scanned next: something was ``heard`` of it, or could be where it is ``watched``."""
        seen = self._seen.get(source)
        if seen is None:
            return -float("inf")
        pause_s = self.scan_s if watched else min(self.scan_s, UNWATCHED_S)
        return seen.not_before if heard else max(seen.at + pause_s, seen.not_before)

    async def tidy(self) -> None:
        """Now and then queue files of messages that nobody queued, and remove what belongs to nothing. Raises
        StorageError."""
        now = self.clock.now()
        if now < self._swept_at + SWEEP_S:
            return
        self._swept_at = now
        for user, files in (await self.readers.run(message_files.untaken)).items():
            await self.writer.run(message_files.take_up, user, files, iso(now))
        await self.writer.run(message_files.drop, await self.readers.run(message_files.unsent, iso(now - UNSENT_S)))
        there = {each.id for each in await self.readers.run(sources.every)}
        await self.originals.sweep(there, now - LEFT_S)

    def forget(self, there: Collection[SourceId]) -> None:
        """Forget all but these sources."""
        for source in [each for each in self._seen if each not in there]:
            del self._seen[source]
            self.states.pop(source, None)

    async def files(self, again: Collection[SourceId]) -> None:
        """Queue uploaded and fetched files that are not read; of ``again`` also failed ones. Raises StorageError."""
        for source in again:
            await self.writer.run(document_steps.wait_again, source)
        found = await self.readers.run(documents.behind)
        await self._wait([scan.document_of(source, source.name, source.size) for source in found])
        await sweep_documents(self.readers, self.writer)
        for document in await self.readers.run(documents.renamed, WAIT_AT_ONCE):
            await self.ingest.remove(document)

    async def folder(self, source: Source, *, again: bool = False) -> None:
        """Scan a folder; for ``again`` see ``scan.compare``. Raises StorageError."""
        begun = trio.current_time()
        before = self._seen.get(source.id)
        seen = self._seen[source.id] = _SeenFolder(begun, begun)
        seen.devices = before.devices if before is not None else {}
        state, changed = await self._look(source, seen, again=again)
        self.states[source.id] = attrs.evolve(state, looked_at=iso(self.clock.now()))
        ended = trio.current_time()
        seen.at, seen.not_before = ended, ended + (ended - begun) / LOOK_SHARE
        tell = log.info if changed or before is None or again else log.debug
        seconds = round(ended - begun, 2)
        tell("folder_looked_at", source=source.id, state=state.code, files=state.files, count=changed, seconds=seconds)

    async def _look(self, source: Source, seen: _SeenFolder, *, again: bool) -> tuple[SourceState, int]:
        try:
            found = await self._threads.run(self._scan, source, abandon=True)
        except (FileNotFoundError, NotADirectoryError):
            text = "the folder is not there (a disk that is not mounted?): what was read of it is kept"
            return SourceState(code="missing", text=text), 0
        except OSError as error:
            log.warning("folder_unreadable", source=source.id, error=error_class(error))
            return SourceState(code="unreadable", text=f"the folder cannot be read: {error.strerror or error}"), 0
        if isinstance(found, str):
            return SourceState(code="not_allowed", text=found), 0
        known = await self.readers.run(documents.known, source.id)
        kept = set() if again else await self._threads.run(scan.emptied, found, known, seen.devices)
        if "" in kept:
            text = (
                "the folder is empty (a disk that is not mounted?): what was read of it is kept; if it is to be"
                " empty, have the source read again"
            )
            return SourceState(code="empty", text=text), 0
        wait, gone = await self._threads.run(partial(scan.compare, found, known, kept=kept, again=again), abandon=True)
        seen.paths = frozenset(Path(source.where, below) for below in found.folders)
        seen.devices = {below: device for below, device in found.folders.items() if below not in kept}
        await self._wait([scan.document_of(source, name, found.files[name].size) for name in wait])
        for name in gone:
            await self.ingest.remove(known[name].id)
        return _state(found, kept), len(wait) + len(gone)

    def _scan(self, source: Source) -> FolderScan | str:
        """What there is in a folder, or why it may not be read. Raises OSError: it is not there."""
        root = Path(source.where)
        root.stat()
        if refused := self.allowed(source):
            return refused
        private = [place for path in self.private if (place := scan.place(path)) is not None]
        return scan.look(root, self.max_files, private)

    async def _wait(self, found: Sequence[Document]) -> None:
        for at in range(0, len(found), WAIT_AT_ONCE):
            await self.writer.run(document_steps.wait, found[at : at + WAIT_AT_ONCE])


def _state(found: FolderScan, kept: Collection[str]) -> SourceState:
    code, text = "ok", ""
    if kept:
        text = (
            f"{plural(len(kept), 'folder in it is', 'folders in it are')} empty (a disk that is not mounted?): what was"
            " read there is kept; if this is right, have the source read again"
        )
        code = "partly_empty"
    elif found.unreadable:
        code, text = "unreadable", f"{len(found.unreadable)} of the folders in it cannot be read"
    elif found.more:
        code = "too_many"
        limit = f"more than {found.most:,} files (kb.maxFiles), or folders too many or too deep"
        text = f"it has {limit}: the rest is left out"
    return SourceState(code=code, text=text, files=len(found.files), left_out=found.left_out)


# -- watching folders --------------------------------------------------------------------------------------------------


class Watches:
    """Watches folders, not those below them, so that no link is followed. ``on_change`` is called with paths that have
    changed; with none when watching has begun, or is not possible."""

    def __init__(self, on_change: Callable[[Collection[str]], None]) -> None:
        self._on_change = on_change
        self._news = Nudge()
        self._folders: frozenset[Path] = frozenset()
        self.failed = False
        """The system has no watches left for these folders."""

    def set(self, folders: Collection[Path]) -> None:
        if self._folders != frozenset(folders):
            self._folders = frozenset(folders)
            self.failed = self.failed and bool(folders)
            self._news.nudge()

    async def run(self) -> None:
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
            await trio.sleep(WATCH_RETRY_S)

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
    """Paths as they change; blocks for ``WATCH_STOP_MS`` at most. Raises OSError, RuntimeError: it is impossible."""
    from watchfiles import watch  # loads its library

    # With ignore_permission_denied it would ignore every error, also that there are no watches left.
    for found in watch(
        *folders,
        watch_filter=None,
        debounce=WATCH_DEBOUNCE_MS,
        step=WATCH_STEP_MS,
        stop_event=stop,
        rust_timeout=WATCH_STOP_MS,
        yield_on_timeout=True,
        raise_interrupt=False,
        recursive=False,
    ):
        yield {path for _, path in found}
