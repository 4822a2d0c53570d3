"""Actor ``memory.files``: keeps the pieces of each user's MEMORY.md and memory/*.md in the index.

It looks at the files every ``SCAN_S`` and when it is nudged. A look costs a stat of each file. The files are their own
source: nothing of them is in the logs; a new database gets them by the next look. No link is followed, so that none
leads into another user's workspace."""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from heapq import nlargest
from itertools import islice
from pathlib import Path

import structlog

from klaw.actor.failure import error_class
from klaw.actor.mailbox import Nudge
from klaw.actor.supervisor import ActorSpec, TaskStarted, Vitals
from klaw.actor.threads import Threads
from klaw.config import safe_open
from klaw.config.paths import below_of_user
from klaw.config.safe_open import NotPlain
from klaw.domain.names import UserId
from klaw.domain.prompt_files import MEMORY_FILE as TOP
from klaw.domain.prompt_files import MEMORY_FOLDER as FOLDER
from klaw.errors import StorageError
from klaw.memory.facts.chunking import chunks_of
from klaw.store.engine.database import Readers
from klaw.store.engine.writer import Writer
from klaw.store.kinds import memory_files
from klaw.store.kinds.memory_files import MemoryFile

ACTOR_NAME = "memory.files"
SCAN_S = 20.0
MAX_BYTES = 1024 * 1024
"""A larger file is left out, as by the file tools."""
MAX_LOOKED_AT = 20_000
"""Names in a user's folder; a program can make any number."""
MAX_FILES = 2_000
"""Files of one user; the newest names are taken (they begin with dates)."""

log = structlog.get_logger("klaw.memory")


class MemoryFiles(Nudge):
    """The actor and its handle: a nudge says that files may have changed. ``embed`` is called when there are new
    pieces."""

    def __init__(self, workspace: Path, writer: Writer, readers: Readers, embed: Callable[[], None]) -> None:
        super().__init__()
        self._workspace, self._writer, self._readers, self._embed = workspace, writer, readers, embed

    def spec(self) -> ActorSpec:
        return ActorSpec(name=ACTOR_NAME, run=self.run, stop_budget_s=2)

    async def run(self, vitals: Vitals, task_status: TaskStarted) -> None:
        threads = Threads("memory files", 1)
        task_status.started()
        while True:
            vitals.doing("looking at memory files")
            try:
                if await self.look(threads):
                    self._embed()
            except StorageError as error:
                log.warning("memory_files_not_indexed", error=error_class(error))
            vitals.doing("idle")
            await self.wait_for_news(SCAN_S)

    async def look(self, threads: Threads) -> int:
        """Bring the index up to the files. Returns how many files had changed. Raises StorageError."""
        known = {(each.user, each.path): each for each in await self._readers.run(memory_files.files)}
        users = await self._readers.run(memory_files.users)
        found = {(each.user, each.path): each for each in await threads.run(find, self._workspace, users, abandon=True)}
        changed = 0
        for key, file in found.items():
            if key in known and known[key].stamp == file.stamp:
                continue
            text = await threads.run(read, self._workspace, file, abandon=True)
            if text is None:
                continue  # it is being changed or cannot be read: the next look sees it again
            pieces = await threads.run(chunks_of, text)
            await self._writer.run(memory_files.put, file, pieces)
            changed += 1
        for key, file in known.items():
            if key not in found:
                await self._writer.run(memory_files.remove, file)
                changed += 1
        if changed:
            log.info("memory_files_indexed", files=changed)
        return changed


def find(workspace: Path, users: list[UserId]) -> list[MemoryFile]:
    """The memory files that there are now. Blocks."""
    found: list[MemoryFile] = []
    for user in users:
        with _opened(workspace, below_of_user(user, "")) as root:
            if root is not None:
                found += _stamped(user, root, TOP, TOP)
        with _opened(workspace, below_of_user(user, FOLDER)) as folder:
            if folder is not None:
                with os.scandir(folder) as entries:
                    names = (entry.name for entry in islice(entries, MAX_LOOKED_AT) if _is_memory(entry.name))
                    newest = nlargest(MAX_FILES, names)
                for name in newest:
                    found += _stamped(user, folder, name, f"{FOLDER}/{name}")
    return found


def read(workspace: Path, file: MemoryFile) -> str | None:
    """A file's text; None when it is not the one of the stamp any more, or cannot be read. Blocks."""
    try:
        with safe_open.opened(workspace, below_of_user(file.user, file.path)) as opened:
            if _stamp(opened.info) != file.stamp:
                return None
            return opened.head(MAX_BYTES).decode("utf-8", "replace").replace("\0", "\ufffd")
    except OSError:
        return None


def _is_memory(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:  # bytes that are no UTF-8
        return False
    return name.endswith(".md") and not name.startswith(".")


def _stamped(user: UserId, folder: int, name: str, path: str) -> list[MemoryFile]:
    try:
        stamp = _stamp(os.stat(name, dir_fd=folder, follow_symlinks=False))
    except OSError:
        stamp = None
    return [MemoryFile(user=user, path=path, stamp=stamp)] if stamp is not None else []


def _stamp(found: os.stat_result) -> str | None:
    """Changes with the file; None for what is no regular file of a usable size."""
    if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_BYTES:
        return None
    return f"{found.st_ino}-{found.st_mtime_ns}-{found.st_ctime_ns}-{found.st_size}"


@contextmanager
def _opened(workspace: Path, below: str) -> Iterator[int | None]:
    """A folder's descriptor for a while; None when it does not exist."""
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(safe_open.opened_folder(workspace, below))
        except (FileNotFoundError, NotPlain):
            folder = None
        except OSError as error:
            log.warning("memory_files_unreadable", error=error_class(error))
            folder = None
        yield folder
