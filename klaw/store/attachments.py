"""Files of messages on the disk: kept by their SHA-256 in ``attachments/`` below each user's part of the data folder.

A file that was not sent yet is called ``SHA256.new``; the message that refers to it makes it ``SHA256``. What was not
sent within ``UNSENT_S`` the actor ``store.attachments`` removes, by the names alone: a database that lost messages
cannot make Klaw delete their files.
"""

import hashlib
import os
import secrets
import stat
from collections.abc import AsyncIterable, Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import BinaryIO, TypeVar, TypeVarTuple

import structlog
import trio

from klaw import atomic_file
from klaw.actor.clock import Clock
from klaw.actor.failure import error_class
from klaw.actor.supervisor import ActorSpec, TaskStarted, Vitals
from klaw.actor.threads import Threads
from klaw.config import safe_open
from klaw.config.paths import USERS_FOLDER, below_of_user
from klaw.config.safe_open import OpenedFile
from klaw.config.schema import AttachmentsConfig
from klaw.domain.attachment import HEAD_BYTES, Attachment, clean_name, sniff
from klaw.domain.names import UserId
from klaw.errors import AttachmentRefused, StorageFull

FOLDER = "attachments"
UNSENT_S = 86_400.0
SWEEP_S = 3_600.0
DISCARD_S = 5.0
PIECE_BYTES = 1 << 20
LEAST_BYTES = 16_384
"""Each file counts as so much at least, so that their number is limited too."""
NEW, PART = ".new", ".part"
_HEX = frozenset("0123456789abcdef")
_DRAFT = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

T = TypeVar("T")
Args = TypeVarTuple("Args")

log = structlog.get_logger("klaw.attachments")


def unknown() -> AttachmentRefused:
    """The same whether somebody else has such a file or nobody."""
    return AttachmentRefused("unknown_file", "you have no such file, or it was removed: upload it again")


@contextmanager
def opened(data_dir: Path, user: UserId, sha256: str) -> Iterator[OpenedFile]:
    """A user's file, sent or not. Blocks. Raises AttachmentRefused: ``unknown_file``; OSError."""
    if len(sha256) != 64 or not _HEX.issuperset(sha256):
        raise unknown()
    with ExitStack() as stack:
        for name in (sha256, sha256 + NEW):
            with suppress(FileNotFoundError):
                file = stack.enter_context(safe_open.opened(data_dir, below_of_user(user, f"{FOLDER}/{name}")))
                break
        else:
            raise unknown()
        yield file


def mark_sent(data_dir: Path, user: UserId, digests: Iterable[str]) -> None:
    """A message refers to the files. Blocks. Raises AttachmentRefused: ``unknown_file``; OSError."""
    with _folder(data_dir, user) as folder:
        for sha256 in digests:
            try:
                os.rename(sha256 + NEW, sha256, src_dir_fd=folder, dst_dir_fd=folder)
            except FileNotFoundError:
                if not _size(folder, sha256):
                    raise unknown() from None
        os.fsync(folder)


def remove(data_dir: Path, user: UserId, digests: Iterable[str]) -> None:
    """Remove files, durably. Blocks. Raises OSError."""
    with suppress(FileNotFoundError), safe_open.opened_folder(data_dir, below_of_user(user, FOLDER)) as folder:
        for name in (each for sha256 in digests for each in (sha256, sha256 + NEW)):
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder)
        os.fsync(folder)


class FileDraft:
    """A file that is being kept. Blocks; see ``Attachments.in_thread``."""

    def __init__(self, data_dir: Path, user: UserId, name: str, limits: AttachmentsConfig) -> None:
        """Raises AttachmentRefused: ``files_full``; OSError."""
        self._data_dir, self._user, self._limits = data_dir, user, limits
        self.name = clean_name(name)
        self.size = 0
        self._digest = hashlib.sha256()
        self._head = b""
        self._file = secrets.token_hex(16) + PART
        with _folder(data_dir, user) as folder:
            sizes = (_size(folder, name) for name in os.listdir(folder))  # noqa: PTH208  of a descriptor
            self._used = sum(max(size, LEAST_BYTES) for size in sizes)
            self._fd = os.open(self._file, _DRAFT, 0o600, dir_fd=folder)

    def add(self, piece: bytes) -> None:
        """Raises AttachmentRefused: ``file_too_large``, ``files_full``; OSError."""
        size = self.size + len(piece)
        if size > self._limits.max_file_bytes:
            most = self._limits.max_file_bytes
            raise AttachmentRefused(
                "file_too_large", f"a file has at most {most:,} bytes here (attachments.maxFileBytes)"
            )
        if self._used + size > self._limits.max_user_bytes:
            raise AttachmentRefused(
                "files_full",
                f"your files may take {self._limits.max_user_bytes:,} bytes here (attachments.maxUserBytes): forget"
                " messages with files that you do not need",
            )
        view = memoryview(piece)
        while view:
            view = view[os.write(self._fd, view) :]
        self._digest.update(piece)
        self._head += piece[: HEAD_BYTES - len(self._head)]
        self.size = size

    def keep(self) -> Attachment:
        """Make it durable under its SHA-256. Raises AttachmentRefused: ``empty_file``; OSError."""
        if not self.size:
            raise AttachmentRefused("empty_file", "the file is empty")
        sha256 = self._digest.hexdigest()
        os.fsync(self._fd)
        with _folder(self._data_dir, self._user) as folder:
            if _size(folder, sha256) != self.size:
                os.rename(self._file, sha256 + NEW, src_dir_fd=folder, dst_dir_fd=folder)
            os.fsync(folder)
        for path in Path(below_of_user(self._user, FOLDER)).parents:  # the folder itself may be new
            atomic_file.sync(self._data_dir / path)
        return Attachment(sha256=sha256, name=self.name, type=sniff(self._head), bytes=self.size)

    def discard(self) -> None:
        """Close it and remove the draft, if it was not kept. Idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            with suppress(OSError), _folder(self._data_dir, self._user) as folder:
                os.unlink(self._file, dir_fd=folder)


class Attachments:
    """Files of all users; what takes a user reaches that user's alone."""

    def __init__(self, data_dir: Path, limits: AttachmentsConfig, clock: Clock) -> None:
        self.limits = limits
        self._data_dir, self._clock = data_dir, clock
        self._threads = Threads("attachments", 2)

    async def keep(self, user: UserId, name: str, pieces: AsyncIterable[bytes]) -> Attachment:
        """Keep a file durably; a message may refer to it for a day. The same file again is kept once. Raises
        AttachmentRefused: ``file_too_large``, ``files_full``, ``empty_file``; StorageFull."""
        draft = await self.begin(user, name)
        try:
            async for piece in pieces:
                await self.in_thread(draft.add, piece)
            return await self.in_thread(draft.keep)
        finally:
            with trio.move_on_after(DISCARD_S, shield=True):
                await self.in_thread(draft.discard)

    async def take(self, user: UserId, name: str, opened: Callable[[], AbstractContextManager[BinaryIO]]) -> Attachment:
        """Keep a file of this machine; see ``keep``."""

        def work() -> Attachment:
            draft = FileDraft(self._data_dir, user, name, self.limits)
            try:
                with opened() as file:
                    while piece := file.read(PIECE_BYTES):
                        draft.add(piece)
                return draft.keep()
            finally:
                draft.discard()

        return await self.in_thread(work)

    async def begin(self, user: UserId, name: str) -> FileDraft:
        """Keep a file in pieces; ``discard`` the draft in the end. Raises AttachmentRefused, StorageFull."""
        return await self.in_thread(FileDraft, self._data_dir, user, name, self.limits)

    async def find(self, user: UserId, sha256: str, name: str = "") -> Attachment:
        """A user's file, sent or not. Raises AttachmentRefused: ``unknown_file``."""

        def look() -> Attachment:
            with opened(self._data_dir, user, sha256) as file:
                kind = sniff(file.head(HEAD_BYTES))
                return Attachment(sha256=sha256, name=clean_name(name), type=kind, bytes=file.info.st_size)

        return await self.in_thread(look)

    async def read(self, user: UserId, sha256: str, offset: int = 0, limit: int | None = None) -> bytes:
        """Bytes of a user's file. Raises AttachmentRefused: ``unknown_file``."""

        def read() -> bytes:
            with opened(self._data_dir, user, sha256) as file:
                os.lseek(file.fd, min(offset, file.info.st_size), os.SEEK_SET)
                return file.head(file.info.st_size if limit is None else limit)

        return await self.in_thread(read)

    async def in_thread(self, function: Callable[[*Args], T], *args: *Args) -> T:
        """Call what blocks, such as a draft's methods. Raises StorageFull, and what the function raises."""
        try:
            return await self._threads.run(function, *args)
        except OSError as error:
            log.warning("attachment_failed", error=error_class(error))
            raise StorageFull("the disk is full, read-only or damaged: the file cannot be kept or read") from error

    # -- the actor -------------------------------------------------------------------------------------------------

    def spec(self) -> ActorSpec:
        return ActorSpec(name="store.attachments", run=self.run, stop_budget_s=1)

    async def run(self, vitals: Vitals, task_status: TaskStarted) -> None:
        """Remove what was never sent, until cancelled."""
        task_status.started()
        while True:
            vitals.doing("looking for files that were never sent")
            try:
                removed = await self._threads.run(sweep, self._data_dir, self._clock.now() - UNSENT_S)
            except OSError as error:
                log.warning("sweep_failed", error=error_class(error))
            else:
                if removed:
                    log.info("unsent_files_removed", count=removed)
            vitals.doing("idle")
            await trio.sleep(SWEEP_S)


def sweep(data_dir: Path, before: float) -> int:
    """Remove what was kept before a time and not sent. Returns how many files that were. Blocks. Raises OSError."""
    removed = 0
    for _, folder, name in _files(data_dir):
        with suppress(FileNotFoundError):  # it is being sent
            old = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime < before
            if old and name.endswith((NEW, PART)):
                os.unlink(name, dir_fd=folder)
                removed += 1
    return removed


def sent(data_dir: Path) -> dict[str, int]:
    """Sizes of all users' sent files, by their paths below the data folder. Blocks. Raises OSError."""
    found = _files(data_dir)
    return {f"{below}/{name}": _size(folder, name) for below, folder, name in found if not name.endswith((NEW, PART))}


def is_whole(data_dir: Path, path: str) -> bool:
    """Whether a file has the SHA-256 that it is called by. Blocks. Raises OSError."""
    with safe_open.opened(data_dir, path) as file, os.fdopen(file.fd, "rb", closefd=False) as content:
        return hashlib.file_digest(content, "sha256").hexdigest() == PurePosixPath(path).name


def path_of(user: UserId, sha256: str) -> str:
    return below_of_user(user, f"{FOLDER}/{sha256}")


def _files(data_dir: Path) -> Iterator[tuple[str, int, str]]:
    """Path and descriptor of the folder, and name, of every file of every user."""
    for below in (FOLDER, *(f"{USERS_FOLDER}/{each.name}/{FOLDER}" for each in data_dir.glob(f"{USERS_FOLDER}/*"))):
        with suppress(FileNotFoundError, safe_open.NotPlain), safe_open.opened_folder(data_dir, below) as folder:
            for name in os.listdir(folder):  # noqa: PTH208  of a descriptor
                yield below, folder, name


def _size(folder: int, name: str) -> int:
    """Size of a regular file; 0 when it does not exist."""
    with suppress(FileNotFoundError):
        info = os.stat(name, dir_fd=folder, follow_symlinks=False)
        return info.st_size if stat.S_ISREG(info.st_mode) else 0
    return 0


@contextmanager
def _folder(data_dir: Path, user: UserId) -> Iterator[int]:
    with safe_open.opened_folder(data_dir, below_of_user(user, FOLDER), make=True) as folder:
        yield folder
