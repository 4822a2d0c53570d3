"""Actor ``knowledge.indexer``: keeps the documents of all bases as their sources are.

Whoever changes a source nudges it, and so do the system's watches of folders; besides it looks every
``kb.scanSeconds``. Which documents are to be read is kept in the database, so a kill loses nothing. Each user's are
read one after the other (``ingest``), some of each source in turn, so that a large folder does not hold up an upload.
Users take turns, and no large document keeps those of others waiting. Log lines have ids and codes, never names.
"""

from collections import deque
from collections.abc import Callable, Collection, Mapping
from contextlib import nullcontext
from pathlib import PurePosixPath

import attrs
import structlog
import trio

from klaw.actor.backoff import Backoff, Pauses
from klaw.actor.clock import Clock
from klaw.actor.failure import error_class, where
from klaw.actor.mailbox import Nudge
from klaw.actor.metrics import SECONDS, Metrics
from klaw.actor.supervisor import ActorSpec, TaskStarted, Vitals
from klaw.domain.knowledge import Document, DocumentId, DocumentState, Source, SourceId, SourceKind
from klaw.domain.names import UserId
from klaw.domain.text import span
from klaw.errors import StorageError, StorageFull
from klaw.knowledge.ingest import GoneError, Ingest, NotYetError
from klaw.knowledge.scan import SourceState
from klaw.knowledge.source_scanner import UNWATCHED_S, SourceScanner, Watches
from klaw.knowledge.web_pages import WebPages
from klaw.store.engine.database import Readers
from klaw.store.kinds.knowledge import documents, sources

ACTOR_NAME = "knowledge.indexer"
PAGES_S = 300.0
"""Between two looks whether a page is old enough to be fetched again."""
IN_TURN = 10
"""Documents of a source that are read before another source's, and another user's."""
TURN_S = 10.0
"""After which another user's are read, too."""
AT_ONCE = 2
"""Documents of different users; each may take half a gigabyte."""
LARGE_BYTES = 8 << 20
"""One document larger than this is read at a time: leaves a place for small ones."""
NOT_YET = Backoff(2.0, 60.0)
STORAGE_PAUSE_S = 30.0
COUNT_S = 2.0
BEHIND_S = 3600.0
"""After which ``klaw status`` says that documents wait."""

_PROBLEMS = {
    "missing": "a watched folder is not there: what was read of it is kept",
    "empty": "a watched folder is suddenly empty",
    "partly_empty": "a watched folder is suddenly empty in part",
    "unreadable": "a watched folder cannot be read in full",
    "not_allowed": "a watched folder may no longer be read",
    "too_many": "a watched folder has too many files (kb.maxFiles)",
    "gone": "a page of a knowledge base is gone: its last copy is kept",
    "unreachable": "a page of a knowledge base cannot be reached",
}
"""What ``klaw status`` says of states of sources to everybody: names and numbers belong to their users."""

log = structlog.get_logger("klaw.knowledge")


class Indexer(Nudge):
    """The actor and its handle: a nudge says that sources have changed. ``embed`` is called for new passages."""

    def __init__(
        self,
        *,
        readers: Readers,
        clock: Clock,
        metrics: Metrics,
        ingest: Ingest,
        scanner: SourceScanner,
        pages: WebPages,
        embed: Callable[[], None],
    ) -> None:
        super().__init__()
        self._readers, self._clock, self._embed = readers, clock, embed
        self._ingest, self._scanner, self._pages = ingest, scanner, pages
        self._ingest_at_once = attrs.evolve(ingest, pause_share=0.0)
        self._watches = Watches(self._heard)
        self._sources: dict[SourceId, Source] = {}
        self._changed: set[SourceId] = set()
        """Folders of which something was heard since they were looked at."""
        self._again: set[SourceId] = set()
        self._pages_again: set[SourceId] = set()
        self._to_fetch, self._to_read = Nudge(), Nudge()
        self._users: dict[tuple[UserId, bool], Nudge] = {}
        """For each user with sources: the loop that reads their documents; and of messages' files another one."""
        self._places, self._large = trio.CapacityLimiter(AT_ONCE), trio.CapacityLimiter(1)
        self._of_messages = trio.CapacityLimiter(1)
        self.done = trio.Event()
        """Set, and replaced by another one, when a document was read."""
        self._not_yet: Pauses[DocumentId] = Pauses(NOT_YET)
        self._storage_full = False
        self._waiting_since: float | None = None
        self._counted_at = -float("inf")
        self.counts: Mapping[str, int] = {}
        self._read = metrics.counter("klaw_documents_read_total", "documents of knowledge bases that were read")
        self._failed = metrics.counter("klaw_documents_failed_total", "documents that could not be read")
        self._seconds = metrics.histogram("klaw_document_read_seconds", "to read and store one document", SECONDS)

    def spec(self) -> ActorSpec:
        return ActorSpec(name=ACTOR_NAME, run=self.run, stop_budget_s=6)

    def read_again(self, source: SourceId) -> None:
        """Read again what could not be read of a source, and compare what seems to be as before. Never waits."""
        self._again.add(source)
        self.nudge()

    def state_of(self, source: SourceId) -> SourceState | None:
        return self._scanner.states.get(source) or self._pages.states.get(source)

    def problems(self) -> Mapping[str, str]:
        codes = {state.code for state in (*self._scanner.states.values(), *self._pages.states.values())}
        found = {f"kb_{code}": text for code, text in _PROBLEMS.items() if code in codes}
        if self._watches.failed:
            found["kb_not_watched"] = (
                "the system does not watch all folders of knowledge bases (fs.inotify.max_user_watches,"
                f" max_user_instances): they are looked at every {span(UNWATCHED_S)}"
            )
        if self._storage_full:
            found["kb_storage_full"] = "the disk is full: documents of knowledge bases are not read"
        now = self._clock.now()
        if self._waiting_since is not None and now - self._waiting_since >= BEHIND_S:
            found["kb_behind"] = "documents of knowledge bases have waited to be read for over an hour"
        return found

    async def run(self, vitals: Vitals, task_status: TaskStarted) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watches.run)
            nursery.start_soon(self._read_all, vitals)
            nursery.start_soon(self._fetch_all)
            task_status.started()
            while True:
                try:
                    pause_s = await self._look()
                    self._to_read.nudge()
                except StorageError as error:
                    log.warning("sources_not_looked_at", error=error_class(error))
                    pause_s = STORAGE_PAUSE_S
                await self.wait_for_news(pause_s)

    # -- looking ---------------------------------------------------------------------------------------------------

    async def _look(self) -> float:
        """Look at what is due. Returns in how many seconds more is due. Raises StorageError."""
        await self._scanner.tidy()
        self._sources = {source.id: source for source in await self._readers.run(sources.every)}
        self._scanner.forget(self._sources)
        again = self._again & set(self._sources)
        self._again.clear()
        await self._scanner.files(again)
        self._pages_again |= again
        self._to_fetch.nudge()
        due = float("inf")
        for source in self._sources.values():
            if source.kind is SourceKind.FOLDER:
                due = min(due, await self._look_at_folder(source, again=source.id in again))
        self._watches.set(self._scanner.folders)
        return max(0.0, due - trio.current_time())

    async def _look_at_folder(self, source: Source, *, again: bool) -> float:
        """Look at a folder if it is due. Returns when it is due again."""
        heard = source.id in self._changed or again
        watched = not self._watches.failed
        if self._scanner.due(source.id, heard=heard, watched=watched) <= trio.current_time():
            self._changed.discard(source.id)
            await self._scanner.folder(source, again=again)
            self._to_read.nudge()
        elif again:
            self._again.add(source.id)
        heard = source.id in self._changed or source.id in self._again
        return self._scanner.due(source.id, heard=heard, watched=watched)

    def _heard(self, paths: Collection[str]) -> None:
        """Paths have changed; none: the watches are set, or cannot be."""
        for source in self._sources.values():
            if source.kind is SourceKind.FOLDER and (not paths or _concerns(source.where, paths)):
                self._changed.add(source.id)
        if self._changed:
            self.nudge()

    async def _fetch_all(self) -> None:
        """Fetch the pages that are due; it may take long, so nothing waits for it."""
        while True:
            await self._to_fetch.wait_for_news(PAGES_S)
            again, self._pages_again = self._pages_again, set()
            try:
                if await self._pages.look(again):
                    self.nudge()
            except StorageError as error:
                log.warning("pages_not_fetched", error=error_class(error))

    # -- reading ---------------------------------------------------------------------------------------------------

    async def _read_all(self, vitals: Vitals) -> None:
        self._users.clear()
        async with trio.open_nursery() as nursery:
            while True:
                await self._to_read.wait_for_news()
                for of in set(map(_reader_of, self._sources.values())):
                    if of not in self._users:
                        self._users[of] = Nudge()
                        nursery.start_soon(self._read_of, of, vitals)
                    self._users[of].nudge()

    async def _read_of(self, of: tuple[UserId, bool], vitals: Vitals) -> None:
        while own := [source for source in self._sources.values() if _reader_of(source) == of]:
            try:
                read = 0
                for source in sorted(own, key=lambda each: each.kind is SourceKind.FOLDER):
                    read += await self._read_some(source, vitals)
                await self._count()
                self._storage_full = False
            except StorageError as error:
                self._storage_full = isinstance(error, StorageFull)
                log.warning("documents_not_read", error=error_class(error))
                vitals.doing("waiting for storage")
                await trio.sleep(STORAGE_PAUSE_S)
                continue
            if not read:
                # Else another user's are being read.
                if not self._places.borrowed_tokens and not self._of_messages.borrowed_tokens:
                    vitals.doing("idle")
                await self._users[of].wait_for_news(self._pause_s())
        del self._users[of]

    async def _read_some(self, source: Source, vitals: Vitals) -> int:
        """Read some documents, when it is the user's turn. Returns how many. Raises StorageError."""
        state = self._scanner.states.get(source.id)
        if (state is not None and not state.can_be_read) or (source.kind is SourceKind.WEB and not source.sha256):
            return 0
        now = trio.current_time()
        found = await self._readers.run(documents.waiting, source.id, IN_TURN + self._not_yet.count())
        batch = [document for document in found if not self._not_yet.waits(document.id, now)][:IN_TURN]
        left = deque(batch)
        of_messages = source.kind is SourceKind.MESSAGES
        while left:
            large = not of_messages and left[0].size > LARGE_BYTES
            async with self._large if large else nullcontext(), self._of_messages if of_messages else self._places:
                ends = trio.current_time() + TURN_S
                while left and (large or of_messages or left[0].size <= LARGE_BYTES) and trio.current_time() < ends:
                    if trio.current_time() >= self._counted_at + COUNT_S:
                        await self._count()
                    vitals.doing(f"reading documents: {self.counts[DocumentState.WAITING]} wait")
                    with self._seconds.timed():
                        await self._read_one(source, left.popleft())
        return len(batch)

    async def _read_one(self, source: Source, document: Document) -> None:
        """Read a document; what is wrong with it concerns no other. Raises StorageError."""
        try:
            of_messages = source.kind is SourceKind.MESSAGES  # somebody waits for them
            now = await (self._ingest_at_once if of_messages else self._ingest).read(source, document)
        except NotYetError:
            self._not_yet.fail(document.id, trio.current_time())
            return
        except GoneError:
            now = None
        except StorageError:
            raise
        except Exception as error:  # noqa: BLE001 - one document must not stop the others
            log.error("document_not_read", document=document.id, error=error_class(error), where=where(error))
            now = await self._ingest.give_up(document)
        self._not_yet.succeed(document.id)
        self.done.set()
        self.done = trio.Event()
        if now is None:
            return
        if now.state is DocumentState.READ:
            self._read.add()
            self._embed()
        else:
            self._failed.add()

    async def _count(self) -> None:
        self._counted_at = trio.current_time()
        self.counts = await self._readers.run(documents.counts)
        waiting = self.counts[DocumentState.WAITING]
        if not waiting:
            self._waiting_since = None
        elif self._waiting_since is None:
            self._waiting_since = self._clock.now()

    def _pause_s(self) -> float:
        now = trio.current_time()
        following = self._not_yet.next(now)
        return float("inf") if following is None else following - now


def _reader_of(source: Source) -> tuple[UserId, bool]:
    return source.user, source.kind is SourceKind.MESSAGES


def _concerns(folder: str, paths: Collection[str]) -> bool:
    inside = (each for each in map(PurePosixPath, paths) if each.is_relative_to(folder))
    return any(not any(part.startswith(".") for part in each.relative_to(folder).parts) for each in inside)
