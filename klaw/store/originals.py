"""What was uploaded to knowledge bases or fetched for them, on the disk: ``knowledge/SOURCE`` in the data folder.

An upload comes in pieces into ``knowledge/uploads/USER.ID``; the source that is made of it takes its file over. What
became no source is removed by ``sweep``. All functions block; ``Originals`` calls them in threads.
"""

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, TypeVar, TypeVarTuple

import attrs
import structlog

from klaw import atomic_file
from klaw.actor.failure import error_class
from klaw.actor.threads import Threads
from klaw.config import safe_open
from klaw.domain.knowledge import SourceId
from klaw.domain.names import UserId
from klaw.errors import AttachmentRefused, StorageFull

FOLDER = "knowledge"
UPLOADS = f"{FOLDER}/uploads"
GRAPH = ".graph"
"""Behind a source's id: the folder with what was made of its graph."""
UPLOADS_AT_ONCE = 4
"""So many of the largest files a user may be uploading."""
_ID = re.compile(r"[0-9a-f]{8,64}")
_ADD = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC

T = TypeVar("T")
Args = TypeVarTuple("Args")

log = structlog.get_logger("klaw.originals")


@attrs.frozen(kw_only=True)
class KeptOriginal:
    sha256: str
    size: int


def path(data_dir: Path, source: SourceId) -> Path:
    """Where a source's bytes are kept."""
    if not _ID.fullmatch(source):
        raise ValueError("a source's id has only hex digits")
    return data_dir / FOLDER / source


def add(data_dir: Path, user: UserId, upload: str, offset: int, piece: bytes, most: int) -> int:
    """Add a piece to a user's upload, at offset 0 begin it; one that is there already is not added again. Returns how
    many bytes are there now. ``most``: bytes that a file may have. Raises AttachmentRefused: ``unknown_upload``,
    ``bad_offset``, ``file_too_large``, ``files_full``; OSError."""
    name = _name(user, upload)
    with safe_open.opened_folder(data_dir, UPLOADS, make=True) as folder:
        sizes = {each: _size(folder, each) for each in os.listdir(folder) if each.startswith(f"{user}.")}  # noqa: PTH208
        if name not in sizes and offset:
            raise _unknown()
        size = sizes.get(name, 0)
        if name in sizes and size == offset + len(piece):
            return size
        if size != offset:
            raise AttachmentRefused("bad_offset", f"offset: {size} bytes of it are there")
        if size + len(piece) > most:
            raise AttachmentRefused("file_too_large", f"a file has at most {most:,} bytes here (kb.maxFileBytes)")
        if sum(sizes.values()) + len(piece) > UPLOADS_AT_ONCE * most:
            raise AttachmentRefused("files_full", "too many files are being uploaded: finish some, or wait a day")
        fd = os.open(name, _ADD | (0 if name in sizes else os.O_CREAT | os.O_EXCL), 0o600, dir_fd=folder)
        try:
            os.lseek(fd, offset, os.SEEK_SET)
            view = memoryview(piece)
            while view:
                view = view[os.write(fd, view) :]
        finally:
            os.close(fd)
    return offset + len(piece)


def keep(data_dir: Path, user: UserId, upload: str, source: SourceId) -> KeptOriginal:
    """Make an upload a source's file. Raises AttachmentRefused: ``unknown_upload``, ``empty_file``; OSError."""
    name = _name(user, upload)
    try:
        with (
            safe_open.opened(data_dir, f"{UPLOADS}/{name}") as file,
            os.fdopen(file.fd, "rb", closefd=False) as content,
        ):
            if not file.info.st_size:
                raise AttachmentRefused("empty_file", "the file is empty")
            sha256 = hashlib.file_digest(content, "sha256").hexdigest()
            os.utime(file.fd)  # so that it is not taken for one that was left behind
            os.fsync(file.fd)
    except FileNotFoundError:
        raise _unknown() from None
    (data_dir / UPLOADS / name).rename(path(data_dir, source))
    _sync(data_dir)
    return KeptOriginal(sha256=sha256, size=file.info.st_size)


def write(data_dir: Path, source: SourceId, data: bytes) -> KeptOriginal:
    """Keep what was fetched for a source, durably. Raises OSError."""
    safe_open.replace(data_dir, str(path(data_dir, source).relative_to(data_dir)), data)
    return KeptOriginal(sha256=hashlib.sha256(data).hexdigest(), size=len(data))


@contextmanager
def taken_out(data_dir: Path, user: UserId, upload: str) -> Iterator[BinaryIO]:
    """A user's upload, which is removed then. Raises AttachmentRefused: ``unknown_upload``; OSError."""
    name = _name(user, upload)
    try:
        with (
            safe_open.opened(data_dir, f"{UPLOADS}/{name}") as file,
            os.fdopen(file.fd, "rb", closefd=False) as content,
        ):
            (data_dir / UPLOADS / name).unlink()
            yield content
    except FileNotFoundError:
        raise _unknown() from None


def reopened(data_dir: Path, user: UserId, upload: str) -> BinaryIO:
    """A user's upload, which stays. Raises AttachmentRefused: ``unknown_upload``; OSError."""
    try:
        with safe_open.opened(data_dir, f"{UPLOADS}/{_name(user, upload)}") as file:
            return os.fdopen(os.dup(file.fd), "rb")
    except FileNotFoundError:
        raise _unknown() from None


def discard(data_dir: Path, user: UserId, upload: str) -> None:
    """Remove a user's upload, if it is there. Raises AttachmentRefused: ``unknown_upload``; OSError."""
    (data_dir / UPLOADS / _name(user, upload)).unlink(missing_ok=True)


def remove(data_dir: Path, source: SourceId) -> None:
    """Remove what is kept of a source, and what was made of its graph, durably. Raises OSError."""
    kept = path(data_dir, source)
    kept.unlink(missing_ok=True)
    with suppress(FileNotFoundError):
        shutil.rmtree(kept.with_name(source + GRAPH))
    if kept.parent.is_dir():
        _sync(data_dir)


def every(data_dir: Path) -> dict[str, int]:
    """The sizes of all files that are kept, by their sources. Raises OSError."""
    with suppress(FileNotFoundError), safe_open.opened_folder(data_dir, FOLDER) as folder:
        return {each: _size(folder, each) for each in os.listdir(folder) if _ID.fullmatch(each)}  # noqa: PTH208
    return {}


def is_whole(data_dir: Path, source: SourceId, sha256: str) -> bool:
    """Whether what is kept of a source has this SHA-256. Raises OSError."""
    with safe_open.opened(data_dir, f"{FOLDER}/{source}") as file, os.fdopen(file.fd, "rb", closefd=False) as content:
        return hashlib.file_digest(content, "sha256").hexdigest() == sha256


def sweep(data_dir: Path, known: Collection[str], before: float) -> int:
    """Remove uploads, and files and graphs of sources that are not ``known``, older than a time (Unix seconds). Returns
    how many. Raises OSError."""
    removed = 0
    for folder in (data_dir / UPLOADS, data_dir / FOLDER):
        for each in folder.iterdir() if folder.is_dir() else ():
            if each == data_dir / UPLOADS or each.name.partition(".")[0] in known:
                continue
            with suppress(FileNotFoundError):
                if each.lstat().st_mtime < before:
                    shutil.rmtree(each) if each.is_dir() and not each.is_symlink() else each.unlink()
                    removed += 1
    return removed


def _name(user: UserId, upload: str) -> str:
    if not _ID.fullmatch(upload):
        raise _unknown()
    return f"{user}.{upload}"


def _unknown() -> AttachmentRefused:
    return AttachmentRefused("unknown_upload", "there is no such upload, or it is older than a day: begin it again")


def _size(folder: int, name: str) -> int:
    with suppress(FileNotFoundError):
        return os.stat(name, dir_fd=folder, follow_symlinks=False).st_size
    return 0


def _sync(data_dir: Path) -> None:
    for each in (data_dir / FOLDER, data_dir):  # the folder itself may be new
        atomic_file.sync(each)


@attrs.define(eq=False)
class Originals:
    """Runs the functions of the same names in threads; a file may have ``max_bytes``."""

    data_dir: Path
    max_bytes: int
    _threads: Threads = attrs.field(factory=lambda: Threads("originals", 2), init=False)

    async def add(self, user: UserId, upload: str, offset: int, piece: bytes, most: int | None = None) -> int:
        return await self._run(add, self.data_dir, user, upload, offset, piece, most or self.max_bytes)

    async def reopened(self, user: UserId, upload: str) -> BinaryIO:
        return await self._run(reopened, self.data_dir, user, upload)

    async def keep(self, user: UserId, upload: str, source: SourceId) -> KeptOriginal:
        return await self._run(keep, self.data_dir, user, upload, source)

    def taken_out(self, user: UserId, upload: str) -> AbstractContextManager[BinaryIO]:
        """Blocks."""
        return taken_out(self.data_dir, user, upload)

    async def write(self, source: SourceId, data: bytes) -> KeptOriginal:
        return await self._run(write, self.data_dir, source, data)

    async def discard(self, user: UserId, upload: str) -> None:
        await self._run(discard, self.data_dir, user, upload)

    async def remove(self, source: SourceId) -> None:
        await self._run(remove, self.data_dir, source)

    async def sweep(self, known: Collection[str], before: float) -> int:
        return await self._run(sweep, self.data_dir, known, before)

    async def _run(self, function: Callable[[*Args], T], *args: *Args) -> T:
        try:
            return await self._threads.run(function, *args)
        except OSError as error:
            log.warning("original_failed", error=error_class(error))
            raise StorageFull("the disk is full, read-only or damaged: the file cannot be kept") from error
