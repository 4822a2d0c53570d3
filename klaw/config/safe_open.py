"""The one way to a file by its path where a user, a tool or a program can write: never through a link, never in a way
that can wait, and never more of it than is wanted. Links may lead to the folder that a person chose; below it each
folder is opened from the open one before it, so nothing can be exchanged between a look and its use. Blocks."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import TypeAlias

import attrs

from klaw import atomic_file

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# A pipe would block an ordinary open until somebody writes into it.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

Stamp: TypeAlias = tuple[int, int, int, int]
"""Changes with the file."""


class NotPlain(OSError):
    """What has this name is not read. The text says why and names nothing: "is a link", "is larger than 5 bytes"."""

    def __init__(self, why: str) -> None:
        super().__init__(why)


@attrs.frozen(kw_only=True)
class OpenedFile:
    """A regular file, open for reading inside the ``with`` that gave it."""

    fd: int
    info: os.stat_result

    @property
    def stamp(self) -> Stamp:
        return self.info.st_ino, self.info.st_mtime_ns, self.info.st_ctime_ns, self.info.st_size

    def read(self, limit: int) -> bytes:
        """The whole content. Raises NotPlain: it has more than ``limit`` bytes; OSError."""
        data = self.head(limit + 1) if self.info.st_size <= limit else None
        if data is None or len(data) > limit:  # it may grow meanwhile, and files of the system say 0
            raise NotPlain(f"is larger than {limit} bytes")
        return data

    def head(self, limit: int) -> bytes:
        with os.fdopen(self.fd, "rb", closefd=False) as file:
            return file.read(limit)


def open_plain(name: str, folder: int) -> tuple[int, os.stat_result]:
    """Open a regular file of an open folder by its name. The caller closes the descriptor. Raises NotPlain: it is a
    folder, a link, a pipe, a device or a socket; OSError."""
    # Looked at before opening, because opening some devices does something already.
    _check(os.stat(name, dir_fd=folder, follow_symlinks=False))
    fd = os.open(name, _FILE, dir_fd=folder)
    try:
        info = os.fstat(fd)
        _check(info)
    except BaseException:
        os.close(fd)
        raise
    return fd, info


@contextmanager
def opened_folder(root: Path, below: str = "", *, make: bool = False) -> Iterator[int]:
    """Open a folder ``below`` one that a person chose (``root``): links on the way to that are followed, below it no
    part may be a link or ``..``. ``make`` makes what is missing (mode 0700). Gives a descriptor. Raises NotPlain: a
    part is a link, or no folder; OSError."""
    if make:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
    fd = os.open(root, FOLDER & ~os.O_NOFOLLOW)
    try:
        for name in PurePosixPath(below).parts:
            if name == "..":
                raise NotPlain("leads upwards")
            if make:
                with suppress(FileExistsError):
                    os.mkdir(name, 0o700, dir_fd=fd)
            try:
                inner = os.open(name, FOLDER, dir_fd=fd)
            except OSError as error:
                if error.errno in (errno.ENOTDIR, errno.ELOOP):
                    raise NotPlain("lies behind a link, or is not a folder") from None
                raise
            os.close(fd)
            fd = inner
        yield fd
    finally:
        os.close(fd)


@contextmanager
def opened(root: Path, path: str) -> Iterator[OpenedFile]:
    """A regular file below a folder, as with ``opened_folder``. Raises NotPlain: it, or a folder on the way, is a link
    or something else that is not read; OSError."""
    folder, _, name = path.rpartition("/")
    with opened_folder(root, folder) as parent:
        fd, info = open_plain(name, parent)
    try:
        yield OpenedFile(fd=fd, info=info)
    finally:
        os.close(fd)


def read(root: Path, path: str, limit: int) -> bytes | None:
    """The content of a file; None when it does not exist. Raises as ``opened``, and NotPlain for more than ``limit``
    bytes."""
    try:
        with opened(root, path) as file:
            return file.read(limit)
    except FileNotFoundError:
        return None


def replace(root: Path, path: str, data: bytes) -> None:
    """Make ``data`` the content of a file, at once: a reader, or a power cut, sees the old one or the new one. Folders
    are made; what has the name, also a link, is replaced. Raises OSError, NotPlain: nothing was changed."""
    folder, _, name = path.rpartition("/")
    with opened_folder(root, folder, make=True) as parent:
        atomic_file.replace(name, data, folder=parent)


def _check(info: os.stat_result) -> None:
    if stat.S_ISDIR(info.st_mode):
        raise NotPlain("is a folder")
    if stat.S_ISLNK(info.st_mode):
        raise NotPlain("is a link")
    if not stat.S_ISREG(info.st_mode):
        raise NotPlain("is not a regular file (a pipe, device or socket)")
