"""Writing a file so that a reader, or a power cut, sees the old content or the new one and nothing between. Blocks."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def create(
    path: str | Path, data: bytes, *, folder: int | None = None, mode: int = 0o600, owner: tuple[int, int] | None = None
) -> None:
    """Make a new file and write it through to the disk; ``path`` is its path, or its name in ``folder``, an open
    folder. The umask does not count. ``owner``: ids of user and group, if they are not this process's. Raises
    FileExistsError: something has this name; OSError."""
    with os.fdopen(os.open(path, _NEW, 0o600, dir_fd=folder), "wb") as file:
        file.write(data)
        file.flush()
        if owner is not None and owner != (os.geteuid(), os.getegid()):
            os.fchown(file.fileno(), *owner)
        if mode != 0o600:
            os.fchmod(file.fileno(), mode)
        os.fsync(file.fileno())


def replace(
    path: str | Path, data: bytes, *, folder: int | None = None, mode: int = 0o600, owner: tuple[int, int] | None = None
) -> None:
    """Like ``create``, but replaces what has the name, also a link. Raises OSError: nothing was changed."""
    path = Path(path)
    draft = path.with_name(f".{path.name}.new")
    with suppress(FileNotFoundError):
        os.unlink(draft, dir_fd=folder)  # of a process that was killed
    try:
        create(draft, data, folder=folder, mode=mode, owner=owner)
        os.rename(draft, path, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        with suppress(OSError):
            os.unlink(draft, dir_fd=folder)
        raise
    if folder is not None:
        os.fsync(folder)
    else:
        sync(path.parent)


def sync(path: str | Path, fsync: Callable[[int], None] = os.fsync) -> None:
    """Make a file's content, or the names in a folder, durable. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fsync(descriptor)
    finally:
        os.close(descriptor)
