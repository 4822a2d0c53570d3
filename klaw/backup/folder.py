"""The folder with backups: one folder for each, named by its time. The name of what is not finished, or is being
removed, begins with ``DRAFT``. Each has a manifest, JSON beside the files: every file with its SHA-256, and how far the
store was; with a digest of its own, so that one flipped byte anywhere is found.
"""

import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

import attrs

from klaw import __version__, atomic_file
from klaw.actor.clock import from_iso, iso
from klaw.config import safe_open
from klaw.convert import JOURNAL, OMIT, Bounds, Check
from klaw.domain.message import Instant
from klaw.errors import BadValue, KlawError
from klaw.store import migrations

FORM = 1
FILE, DIGEST = "manifest.json", "manifest.sha256"
"""The second is as ``sha256sum -c`` reads it."""
CONFIG, WORKSPACE, DATA = "config", "workspace", "data"
PARTS = (CONFIG, WORKSPACE, DATA)
"""Folders in a backup, in the order in which a restore puts them in place: with the last one it is done."""
MAX_MANIFEST = 64 << 20
"""A manifest of this size lists a quarter of a million files."""
MAX_DIGEST = 1_000
MAX_DEPTH = 200
"""Folders within one another. What lies deeper is left out of a backup, and no backup is read that has it."""


class BrokenBackup(KlawError):
    """A backup cannot be used; the text names the file."""


def _inside(path: str) -> str:
    plain = PurePosixPath(path)
    if len(plain.parts) < 2 or plain.parts[0] not in PARTS or ".." in plain.parts or str(plain) != path:
        raise ValueError("must be a path inside the backup")
    if len(plain.parts) > MAX_DEPTH:
        raise ValueError(f"lies in more than {MAX_DEPTH} folders")
    return _name(path)


def _name(path: str) -> str:
    if "\0" in path:
        raise ValueError("must be a path, without NUL")
    return path


@attrs.frozen(kw_only=True)
class BackupItem:
    path: Annotated[str, Check(_inside)]
    stored: Annotated[str, Check(_inside), OMIT] = ""
    """Where it is in the backup, if not at ``path``."""
    size: int = 0
    sha256: str = ""
    mode: int = 0o600
    mtime_ns: Annotated[int, Bounds(-(2**63), 2**63 - 1)] = 0
    link: Annotated[str, Check(_name), OMIT] = ""
    source: Annotated[tuple[int, ...], OMIT] = ()
    """Size, time of the last change in nanoseconds and inode of the file that it was copied from, while these say
    whether it has changed."""

    @property
    def place(self) -> str:
        return self.stored or self.path


@attrs.frozen(kw_only=True)
class BackupManifest:
    form: int = FORM
    klaw: str
    schema: int
    time: Instant
    """When the mark was taken, ISO-8601 UTC: everything that was acknowledged before is in the backup."""
    order: Annotated[Instant, OMIT] = ""
    """What backups are sorted by if the clock was set back since the one before; empty: ``time``."""
    last: Mapping[str, int]
    """The highest numbers at the mark: ``rowid`` of messages, ``turn``, ``change`` of runs, ``entry`` of the memory
    journal; empty when no database could be read."""
    digests: Mapping[str, str]
    """Digests of the database's tables at the mark; empty when they could not be taken."""
    forgetting: Annotated[bool, OMIT] = False
    """Something was being forgotten, and not in all logs yet: they may still hold it."""
    secrets: bool
    left_out: tuple[str, ...] = ()
    """What could not be copied, with the reason."""
    new_bytes: int
    """Not shared with the backup before."""
    items: tuple[BackupItem, ...]

    @property
    def bytes(self) -> int:
        return sum(each.size for each in self.items)


def write_manifest(root: Path, manifest: BackupManifest) -> None:
    """Write it beside the files. Raises OSError, BrokenBackup: it holds too many files to be read again."""
    data = json.dumps(JOURNAL.write(manifest), ensure_ascii=False, indent=1).encode()
    if len(data) > MAX_MANIFEST:
        raise BrokenBackup(f"{len(manifest.items):,} files are too many for a backup: keep fewer in the workspace")
    atomic_file.create(root / FILE, data)
    atomic_file.create(root / DIGEST, f"{hashlib.sha256(data).hexdigest()}  {FILE}\n".encode())
    atomic_file.sync(root)


def _read(root: Path, name: str, most: int) -> bytes:
    try:
        data = safe_open.read(root, name, most)
    except OSError as error:
        raise BrokenBackup(f"{root.name}: {name} cannot be read: {error.strerror or error}") from error
    if data is None:
        raise BrokenBackup(f"{root.name}: {name} is missing")
    return data


def read_manifest(root: Path) -> BackupManifest:
    """Raises BrokenBackup."""
    data, expected = (_read(root, name, most) for name, most in ((FILE, MAX_MANIFEST), (DIGEST, MAX_DIGEST)))
    if expected != f"{hashlib.sha256(data).hexdigest()}  {FILE}\n".encode():
        raise BrokenBackup(f"{root.name}: {FILE} is not as it was written, or {DIGEST} is not")
    try:
        tree = json.loads(data)
        if isinstance(tree, dict) and isinstance(tree.get("form"), int) and tree["form"] > FORM:
            raise BrokenBackup(f"{root.name} was made by a newer Klaw ({tree.get('klaw')}): use that one")
        return JOURNAL.read(tree, BackupManifest)
    except (ValueError, RecursionError, BadValue) as error:
        raise BrokenBackup(f"{root.name}: {FILE} is no manifest of a backup: {error}") from error


# -- the folder -------------------------------------------------------------------------------------------------------

LOCK = ".lock"
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
FAILED = ".failed"
"""Why the last attempt failed; gone after one that did not."""
MADE = ".made"
"""Its modification time says when the last backup was made, in this folder or another one."""
MAX_FAILURE = 500
OLD_S = 8 * 86_400.0
"""The owner hears of a newest backup that is older …"""
AHEAD_S = 86_400.0
"""… and of one whose time is so far in the future, by a clock that was wrong."""
DRAFT = ".draft-"
_FOLDER_NAME = re.compile(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\dZ(\.\d+)?")


class BackupRefused(KlawError):
    """Nothing was done; the text says why and what to do."""


class BackupBusy(BackupRefused):
    """Another one is being made, checked or removed in this folder; it may yet succeed."""


@attrs.frozen(kw_only=True)
class Backup:
    root: Path
    manifest: BackupManifest | None
    problem: str = ""

    @property
    def name(self) -> str:
        return self.root.name

    @property
    def order(self) -> str:
        """A time by which the newest is the last, also where the clock was ahead when others were made."""
        if self.manifest is None:
            return self.name[:11] + self.name[11:].replace("-", ":")
        return self.manifest.order or self.manifest.time


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Have the folder to oneself, without what a kill left half made or half removed. It is made if it is not there,
    but nothing above it, which may be a disk that is missing. Raises BackupBusy, OSError."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except FileNotFoundError as error:
        raise BackupRefused(f"there is no {folder.parent}: is its disk mounted?") from error
    # A stick may know no modes: nothing is demanded of what is there.
    with alone(folder / LOCK, BackupBusy(f"another backup is at work in {folder}: wait for its end")):
        for path in folder.glob(f"{DRAFT}*"):
            shutil.rmtree(path)
        yield


@contextmanager
def alone(path: Path, refusal: KlawError) -> Iterator[None]:
    """Hold the lock of a file, which is made if it is not there, or of a folder that is. Raises ``refusal``: somebody
    else holds it; OSError."""
    flags = os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT
    descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise refusal from error
        yield
    finally:
        os.close(descriptor)


def listed(folder: Path) -> list[Backup]:
    """All backups, the oldest first. Raises OSError."""
    found = []
    for root in folder.iterdir() if folder.is_dir() else []:
        if not _FOLDER_NAME.fullmatch(root.name) or not root.is_dir() or root.is_symlink():
            continue  # a stick may have other folders beside them
        try:
            found.append(Backup(root=root, manifest=read_manifest(root)))
        except BrokenBackup as error:
            found.append(Backup(root=root, manifest=None, problem=str(error)))
    return sorted(found, key=lambda each: (each.order, each.name))


def told(backup: Backup, last_forgetting: int) -> dict[str, Any]:
    """What lists of backups say of one; ``last_forgetting``: ``backup_mark.last_forgetting``."""
    found = backup.manifest
    about: dict[str, Any] = {"name": backup.name, "problem": backup.problem}
    if found is not None:
        about |= {"time": found.time, "klaw": found.klaw, "files": len(found.items), "bytes": found.bytes}
        about |= {"new_bytes": found.new_bytes, "secrets": found.secrets, "left_out": found.left_out}
        about |= {"messages_to": found.last.get("rowid"), "holds_forgotten": holds_forgotten(backup, last_forgetting)}
    return about


def holds_forgotten(backup: Backup, last_forgetting: int) -> bool:
    made = backup.manifest
    return made is not None and (made.forgetting or made.last.get("entry", 0) < last_forgetting)


def after(newest: str, time: str) -> str:
    """``BackupManifest.order`` of a backup that is made at a time, by a clock that may have been set back since the one
    before, whose order is ``newest``; empty for the first one."""
    if newest >= time:
        with suppress(ValueError, OverflowError):  # of a broken one, whose name is no time
            return iso(from_iso(newest) + 1)
    return ""


def newest(folder: Path) -> float | None:
    """When the last backup was made, in Unix seconds. Raises OSError."""
    try:
        return (folder / MADE).stat().st_mtime
    except FileNotFoundError:  # none since Klaw keeps that
        found = next((each.manifest for each in reversed(listed(folder)) if each.manifest is not None), None)
        return from_iso(found.time) if found is not None else None


def is_old(made: float, now: float) -> bool:
    """Whether the last backup is too old. Both in Unix seconds."""
    return not -AHEAD_S <= now - made <= OLD_S


def last(folder: Path) -> dict[str, str | None]:
    """When the last backup was made, and why the last attempt failed; None where nobody knows."""
    with suppress(OSError):
        made = newest(folder)
        return {"made_at": None if made is None else iso(made), "failed": failure(folder)}
    return {"made_at": None, "failed": None}


def failure(folder: Path) -> str | None:
    """Why the last attempt to make a backup failed. Raises OSError."""
    try:
        with (folder / FAILED).open("rb") as file:
            return file.read(MAX_FAILURE).decode("utf-8", "replace")
    except FileNotFoundError:
        return None


def note_failure(folder: Path, why: str) -> None:
    """Keep it until a backup succeeds; a full disk may have no room for it."""
    with suppress(OSError):
        atomic_file.replace(folder / FAILED, why.encode()[:MAX_FAILURE])


@contextmanager
def noting_failure(folder: Path) -> Iterator[None]:
    """Keep in the folder whether and why the body failed, for the doctor and notices: a timer reports to nobody."""
    with suppress(OSError):
        folder.mkdir(mode=0o700, exist_ok=True)
    try:
        yield
    except KlawError as error:
        if not isinstance(error, BackupBusy):
            note_failure(folder, str(error))
        raise
    with suppress(OSError):
        (folder / MADE).touch(mode=0o600)
        (folder / FAILED).unlink(missing_ok=True)


def chosen(folder: Path, name: str | None) -> tuple[Path, BackupManifest]:
    """The backup of a name; without one the newest. Raises BackupRefused: there is no backup, or only a newer Klaw can
    read it; BrokenBackup."""
    if name is None:
        found = listed(folder)
        if not found:
            raise BackupRefused(f"there is no backup in {folder}: make one with klaw backup create")
        if found[-1].problem:
            raise BrokenBackup(f"{found[-1].problem}; older ones can be named: see klaw backup list")
        name = found[-1].name
    elif name in (".", "..") or "/" in name or not (folder / name).is_dir():
        hint = "for the folder with the backups say --from" if "/" in name else "see klaw backup list"
        raise BackupRefused(f"there is no backup {name} in {folder}: {hint}")
    made = read_manifest(folder / name)
    if made.schema > migrations.latest():
        cannot = f"{__version__} cannot read all of its logs: use that one"
        raise BackupRefused(f"{name} was made by Klaw {made.klaw}; {cannot}")
    return folder / name, made


ARCHIVE_BYTES = 1 << 18


def archived(root: Path, manifest: BackupManifest) -> Iterator[bytes]:
    """A backup as a TAR archive, in pieces. Raises OSError: a file of it cannot be read."""
    pieces = bytearray()
    links = {each.place: each.link for each in manifest.items if each.link}
    for path in (FILE, DIGEST, *dict.fromkeys(each.place for each in manifest.items)):
        if path in links:
            entry = tarfile.TarInfo(f"{root.name}/{path}")
            entry.type, entry.linkname = tarfile.SYMTYPE, links[path]
            pieces += entry.tobuf(tarfile.PAX_FORMAT)
            continue
        with safe_open.opened(root, path) as file, os.fdopen(os.dup(file.fd), "rb") as content:
            entry = tarfile.TarInfo(f"{root.name}/{path}")
            entry.size, entry.mode, entry.mtime = file.info.st_size, 0o600, int(file.info.st_mtime)
            pieces += entry.tobuf(tarfile.PAX_FORMAT)
            left = entry.size
            while left and (data := content.read(min(left, ARCHIVE_BYTES))):
                left -= len(data)
                pieces += data
                if len(pieces) >= ARCHIVE_BYTES:
                    yield bytes(pieces)
                    pieces.clear()
            pieces += bytes(left + -entry.size % tarfile.BLOCKSIZE)
    yield bytes(pieces) + bytes(2 * tarfile.BLOCKSIZE)


def remove(backups: Sequence[Backup]) -> None:
    """Remove backups; a kill leaves none that is half there. Raises OSError."""
    for each in backups:
        away = each.root.with_name(f"{DRAFT}{each.name}")
        each.root.rename(away)
        atomic_file.sync(away.parent)
        shutil.rmtree(away)


@contextmanager
def os_errors_refused(folder: Path) -> Iterator[None]:
    """Raise BackupRefused, with one sentence, for what goes wrong with files."""
    try:
        yield
    except OSError as error:
        path = error.filename or folder
        if error.errno in FULL:
            raise BackupRefused(f"the disk of {folder} is full: make room, or see klaw backup prune") from error
        raise BackupRefused(f"cannot use {path}: {error.strerror or type(error).__name__}") from error
