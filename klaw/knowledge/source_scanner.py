"""Scans the sources of all bases: which documents are to be read, and which are gone."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path

import attrs
import structlog
import trio

from klaw.actor.clock import Clock, iso
from klaw.actor.failure import error_class
from klaw.actor.threads import Threads
from klaw.domain.knowledge import Document, Source, SourceId, document_id
from klaw.domain.text import plural
from klaw.knowledge import removal, scan
from klaw.knowledge.ingest import Ingest
from klaw.knowledge.scan import FolderIdentity, FolderScan, SourceState
from klaw.store.engine.database import Readers
from klaw.store.engine.writer import Writer
from klaw.store.kinds.knowledge import document_steps, documents
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

log = structlog.get_logger("klaw.knowledge")


@attrs.define
class _SeenFolder:
    """The last scan of a folder."""

    at: float
    """In trio's time."""
    not_before: float
    paths: frozenset[Path] = frozenset()
    devices: Mapping[str, int] = attrs.Factory(dict)
    """Devices of the folders in it."""


class SourceScanner:
    """Scans sources, one after the other.

    Args:
        allowed: why a folder may not be read; empty when it may. Blocks.
        private: folders that are never read. Blocks.
        scan_s: longest time between two scans of a folder.
    """

    def __init__(
        self,
        *,
        readers: Readers,
        writer: Writer,
        clock: Clock,
        ingest: Ingest,
        originals: Originals,
        allowed: Callable[[Source], str],
        private: Sequence[Path],
        max_files: int,
        scan_s: float,
    ) -> None:
        self._readers, self._writer, self._clock, self._ingest = readers, writer, clock, ingest
        self._originals, self._allowed, self._private = originals, allowed, private
        self._swept_at = -float("inf")
        self._max_files, self._scan_s = max_files, scan_s
        self._threads = Threads("watched folders", 1)
        self._seen: dict[SourceId, _SeenFolder] = {}
        self.states: dict[SourceId, SourceState] = {}
        """States of folders."""

    @property
    def folders(self) -> dict[SourceId, frozenset[Path]]:
        """The folders to watch."""
        return {source: seen.paths for source, seen in self._seen.items()}

    def due(self, source: SourceId, *, heard: bool, watched: bool) -> float:
        """When a folder is to be scanned next.

        Args:
            heard: something has changed.
            watched: the system reports changes.
        """
        seen = self._seen.get(source)
        if seen is None:
            return -float("inf")
        pause_s = self._scan_s if watched else min(self._scan_s, UNWATCHED_S)
        return seen.not_before if heard else max(seen.at + pause_s, seen.not_before)

    async def forget(self, there: Collection[SourceId]) -> None:
        """Only these sources are left. Files that a kill or a client left are removed now and then. Raises
        StorageError."""
        now = self._clock.now()
        if now >= self._swept_at + SWEEP_S:
            self._swept_at = now
            await self._originals.sweep(there, now - LEFT_S)
        for source in [each for each in self._seen if each not in there]:
            del self._seen[source]
            self.states.pop(source, None)

    async def files(self, again: Collection[SourceId]) -> None:
        """Queue the uploaded and fetched files that are not read yet.

        Args:
            again: sources of which failed documents are queued too.

        Raises:
            StorageError: not all could be stored.
        """
        for source in again:
            await self._writer.run(document_steps.wait_again, source)
        found = await self._readers.run(documents.behind)
        await self._wait([_document(source, source.name, source.size) for source in found])
        await removal.sweep(self._readers, self._writer)
        for document in await self._readers.run(documents.renamed, WAIT_AT_ONCE):
            await self._ingest.remove(document)

    async def folder(self, source: Source, *, again: bool = False) -> int:
        """Scan a folder. Returns how many documents are to be read, or are gone.

        Args:
            again: see ``scan.compare``.

        Raises:
            StorageError: not all that was found could be stored.
        """
        begun = trio.current_time()
        root = Path(source.where)
        before = self._seen.get(source.id)
        seen = self._seen[source.id] = _SeenFolder(begun, begun)
        seen.devices = before.devices if before is not None else {}
        state, changed = await self._look(source, root, seen, again=again)
        self.states[source.id] = attrs.evolve(state, looked_at=iso(self._clock.now()))
        ended = trio.current_time()
        seen.at, seen.not_before = ended, ended + (ended - begun) / LOOK_SHARE
        tell = log.info if changed or before is None or again else log.debug
        seconds = round(ended - begun, 2)
        tell("folder_looked_at", source=source.id, state=state.code, files=state.files, count=changed, seconds=seconds)
        return changed

    async def _look(self, source: Source, root: Path, seen: _SeenFolder, *, again: bool) -> tuple[SourceState, int]:
        try:
            refused = await self._threads.run(self._refused, source, root, abandon=True)
            if refused:
                return SourceState(code="not_allowed", text=refused), 0
            found = await self._threads.run(self._scan, root, abandon=True)
        except (FileNotFoundError, NotADirectoryError):
            text = "the folder is not there (a disk that is not mounted?): what was read of it is kept"
            return SourceState(code="missing", text=text), 0
        except OSError as error:
            log.warning("folder_unreadable", source=source.id, error=error_class(error))
            return SourceState(code="unreadable", text=f"the folder cannot be read: {error.strerror or error}"), 0
        known = await self._readers.run(documents.known, source.id)
        kept = set() if again else await self._threads.run(scan.emptied, found, known, seen.devices)
        if "" in kept:
            text = (
                "the folder is empty (a disk that is not mounted?): what was read of it is kept; if it is to be"
                " empty, have the source read again"
            )
            return SourceState(code="empty", text=text), 0
        wait, gone = await self._threads.run(partial(scan.compare, found, known, kept=kept, again=again), abandon=True)
        seen.paths = frozenset(root / below for below in found.folders)
        seen.devices = {below: device for below, device in found.folders.items() if below not in kept}
        await self._wait([_document(source, name, found.files[name].size) for name in wait])
        for name in gone:
            await self._ingest.remove(known[name].id)
        return _state(found, kept, self._max_files), len(wait) + len(gone)

    def _refused(self, source: Source, root: Path) -> str:
        """Why a folder may not be read. Raises OSError: it is not there."""
        root.stat()
        return self._allowed(source)

    def _scan(self, root: Path) -> FolderScan:
        private: list[FolderIdentity] = [place for path in self._private if (place := scan.place(path)) is not None]
        return scan.look(root, self._max_files, private)

    async def _wait(self, found: Sequence[Document]) -> None:
        for at in range(0, len(found), WAIT_AT_ONCE):
            await self._writer.run(document_steps.wait, found[at : at + WAIT_AT_ONCE])


def _state(found: FolderScan, kept: Collection[str], most: int) -> SourceState:
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
        text = f"it has more than {most:,} files (kb.maxFiles), or folders too many or too deep: the rest is left out"
    return SourceState(code=code, text=text, files=len(found.files), left_out=found.left_out)


def _document(source: Source, name: str, size: int) -> Document:
    found = document_id(source.id, name)
    return Document(id=found, base=source.base, source=source.id, name=name, size=size)
