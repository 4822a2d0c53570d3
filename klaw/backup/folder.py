"""The folder with backups: one folder for each, named by its time. What is not finished, or is being removed, has a dot
before its name, and nobody takes it for a backup."""

import errno
import fcntl
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import attrs

from klaw import atomic_file
from klaw.actor.clock import from_iso
from klaw.backup import manifest
from klaw.backup.manifest import BrokenBackup, Manifest
from klaw.errors import KlawError

LOCK = ".lock"
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
FAILED = ".failed"
"""Why the last attempt failed; gone after one that did not."""
MAX_FAILURE = 500
OLD_S = 8 * 86_400.0
"""An older newest backup is told."""
DRAFT = ".draft-"
"""Before the name of what is being made or removed."""
_NAME = re.compile(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\dZ(\.\d+)?")


class BackupRefused(KlawError):
    """Nothing was done; the text says why and what to do."""


@attrs.frozen(kw_only=True)
class Backup:
    """One folder of a backup."""

    root: Path
    manifest: Manifest | None
    problem: str = ""
    """Why it cannot be used."""

    @property
    def name(self) -> str:
        return self.root.name


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Have the folder to oneself; made if it is not there.

    Raises:
        BackupRefused: somebody else is at work in it.
        OSError: it cannot be used.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    # A stick may know no modes: nothing is demanded of what is there.
    descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BackupRefused(f"another backup is at work in {folder}: wait for its end") from error
        yield
    finally:
        os.close(descriptor)


def listed(folder: Path) -> list[Backup]:
    """All backups, the oldest first. Raises OSError."""
    found = []
    for root in sorted(folder.iterdir()) if folder.is_dir() else []:
        if not _NAME.fullmatch(root.name) or not root.is_dir() or root.is_symlink():
            continue  # a stick may have other folders beside them
        try:
            found.append(Backup(root=root, manifest=manifest.read(root)))
        except BrokenBackup as error:
            found.append(Backup(root=root, manifest=None, problem=str(error)))
    return found


def newest(folder: Path) -> float | None:
    """When the newest usable backup was made, in Unix seconds. Raises OSError."""
    times = [each.manifest.time for each in listed(folder) if each.manifest is not None]
    return from_iso(max(times)) if times else None


def failure(folder: Path) -> str | None:
    """Why the last attempt to make a backup failed; None when it did not. Raises OSError."""
    try:
        return (folder / FAILED).read_text(encoding="utf-8", errors="replace")[:MAX_FAILURE]
    except FileNotFoundError:
        return None


@contextmanager
def noting_failure(folder: Path) -> Iterator[None]:
    """Keep in the folder why the body failed, for whoever looks later: a timer has nobody to tell it to."""
    try:
        yield
    except KlawError as error:
        with suppress(OSError):
            atomic_file.replace(folder / FAILED, str(error).encode()[:MAX_FAILURE])
        raise
    with suppress(FileNotFoundError):
        (folder / FAILED).unlink()


def chosen(folder: Path, name: str | None) -> tuple[Path, Manifest]:
    """The backup of a name; without one the newest that can be used.

    Raises:
        BackupRefused: there is none.
        BrokenBackup: it cannot be used.
    """
    if name is not None:
        if name in (".", "..") or "/" in name or not (folder / name).is_dir():
            raise BackupRefused(f"there is no backup {name} in {folder}: see klaw backup list")
        return folder / name, manifest.read(folder / name)
    for each in reversed(listed(folder)):
        if each.manifest is not None:
            return each.root, each.manifest
    raise BackupRefused(f"there is no backup in {folder}: make one with klaw backup create")


def clear(folder: Path) -> None:
    """Remove what a kill left half made, or half removed. Raises OSError."""
    for path in folder.glob(f"{DRAFT}*"):
        shutil.rmtree(path)


def remove(backups: Sequence[Backup]) -> None:
    """Remove backups; a kill leaves none that is half there. Raises OSError."""
    for each in backups:
        away = each.root.with_name(f"{DRAFT}{each.name}")
        each.root.rename(away)
        atomic_file.sync(away.parent)
        shutil.rmtree(away)


@contextmanager
def told(folder: Path) -> Iterator[None]:
    """Say in one sentence what went wrong with the files. Raises BackupRefused."""
    try:
        yield
    except OSError as error:
        path = error.filename or folder
        if error.errno in FULL:
            raise BackupRefused(f"the disk of {folder} is full: make room, or see klaw backup prune") from error
        raise BackupRefused(f"cannot use {path}: {error.strerror or type(error).__name__}") from error
