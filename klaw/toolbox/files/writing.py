"""Write files beneath a root so that a reader, or a power cut, sees the old content or the new one and nothing between.

A file keeps its mode; a link is never written through, because the path was resolved. Blocks; run it in a thread.
"""

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Callable
from typing import Literal

from klaw import atomic_file
from klaw.errors import ToolRefused
from klaw.toolbox.files.beneath import FilePlace, Root, refuse
from klaw.toolbox.files.reading import MAX_FILE_BYTES, read_place

Mode = Literal["create", "replace", "append"]

NEW_FILE_MODE = 0o600
"""What the model writes is the user's own."""
_TEMPORARY = ".klaw-"
_NO_HARD_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)

Stamp = tuple[int, int, int]


def write(root: Root, path: str, data: bytes, mode: Mode) -> str:
    """Write a file; missing folders are made. Returns its path beneath the root.

    ``create`` refuses an existing file, ``replace`` and ``append`` need none.

    Raises:
        ToolRefused: nothing was changed.
    """
    _check_size(path, data)  # before a folder is made for nothing
    root.check_changeable(root.where(path))  # and before one is made in what is kept
    with root.resolve(path, make=True) as place:
        root.check_changeable(place.path)
        if mode == "create":
            put(place, data, NEW_FILE_MODE, exclusive=True)
            return place.path
        old, permissions, stamp = _old(place, read=mode == "append")
        new = old + data
        _check_size(place.path, new)
        put(place, new, permissions, unchanged=stamp)
        return place.path


def change(root: Root, path: str, function: Callable[[bytes, str], bytes]) -> str:
    """Replace an existing file's content by a function of it. Returns its path beneath the root.

    Raises:
        NotThere
        ToolRefused: it must not be changed, or somebody else changed it meanwhile; nothing was written.
    """
    with root.resolve(path) as place:
        root.check_changeable(place.path)
        data, info = read_place(place, MAX_FILE_BYTES)
        _check_writable(place.path, info)
        new = function(data, place.path)
        _check_size(place.path, new)
        put(place, new, stat.S_IMODE(info.st_mode), unchanged=_stamp(info))
        return place.path


def put(
    place: FilePlace, data: bytes, permissions: int, *, exclusive: bool = False, unchanged: Stamp | None = None
) -> None:
    """Make ``data`` the content of a resolved place, durably.

    Args:
        place, data: where and what.
        permissions: mode bits; set-uid and the like are dropped.
        exclusive: refuse when the name exists.
        unchanged: refuse when the file is not what it was then.
    """
    if not place.name:
        raise ToolRefused(f"{place.path or '.'}: is a folder")
    temporary = f"{_TEMPORARY}{secrets.token_hex(8)}"
    try:
        try:
            atomic_file.create(temporary, data, folder=place.folder, mode=permissions & 0o777)
            _check_unchanged(place, unchanged)
            if not (exclusive and _linked(place, temporary)):
                if exclusive and _exists(place):
                    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
                os.rename(temporary, place.name, src_dir_fd=place.folder, dst_dir_fd=place.folder)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=place.folder)
        os.fsync(place.folder)
    except FileExistsError:
        raise ToolRefused(
            f"{place.path}: exists already; change it with file_patch, or write it with mode replace or append"
        ) from None
    except OSError as error:
        refuse(place.path, error)


def _linked(place: FilePlace, temporary: str) -> bool:
    """Give the new file its name only if nobody has it; False where the disk has no hard links to do it with."""
    try:
        os.link(temporary, place.name, src_dir_fd=place.folder, dst_dir_fd=place.folder, follow_symlinks=False)
    except OSError as error:
        if error.errno in _NO_HARD_LINKS:
            return False
        raise
    return True


def _exists(place: FilePlace) -> bool:
    try:
        os.stat(place.name, dir_fd=place.folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _old(place: FilePlace, *, read: bool) -> tuple[bytes, int, Stamp | None]:
    """Content (if asked for), mode and stamp of the existing file."""
    if not place.name:
        raise ToolRefused(f"{place.path or '.'}: is a folder")
    if not _exists(place):
        return b"", NEW_FILE_MODE, None
    if read:
        data, info = read_place(place, MAX_FILE_BYTES)
    else:
        data, info = b"", os.stat(place.name, dir_fd=place.folder, follow_symlinks=False)
        if not stat.S_ISREG(info.st_mode):
            raise ToolRefused(f"{place.path}: is not a regular file")
    _check_writable(place.path, info)
    return data, stat.S_IMODE(info.st_mode), _stamp(info)


def _check_writable(path: str, info: os.stat_result) -> None:
    """A rename would replace a read-only file too."""
    if not info.st_mode & 0o200:
        raise ToolRefused(f"{path}: is read-only; its owner does not want it changed")


def _stamp(info: os.stat_result) -> Stamp:
    return info.st_ino, info.st_mtime_ns, info.st_size


def _check_unchanged(place: FilePlace, stamp: Stamp | None) -> None:
    if stamp is None:
        return
    try:
        now = _stamp(os.stat(place.name, dir_fd=place.folder, follow_symlinks=False))
    except FileNotFoundError:
        now = None
    if now != stamp:
        raise ToolRefused(f"{place.path}: was changed by somebody else meanwhile; read it again")


def _check_size(path: str, data: bytes) -> None:
    if len(data) > MAX_FILE_BYTES:
        raise ToolRefused(f"{path}: would have {len(data)} bytes, the limit is {MAX_FILE_BYTES}")
