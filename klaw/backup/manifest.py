"""What a backup holds: every file with its SHA-256, and how far the store was. JSON beside the files, with a digest of
its own, so that one flipped byte anywhere is found."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Annotated

import attrs

from klaw import atomic_file
from klaw.actor.clock import from_iso
from klaw.config import safe_open
from klaw.convert import JOURNAL, OMIT, Bounds, Check
from klaw.errors import BadValue, KlawError

FORM = 1
FILE, DIGEST = "manifest.json", "manifest.sha256"
"""The second is as ``sha256sum -c`` reads it."""
CONFIG, WORKSPACE, DATA = "config", "workspace", "data"
PARTS = (CONFIG, WORKSPACE, DATA)
"""Folders in a backup, in the order in which a restore puts them in place: with the last one it is done."""
MAX_BYTES = 64 << 20
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


def _time(text: str) -> str:
    try:
        from_iso(text)
    except ValueError:
        raise ValueError("must be a time") from None
    return text


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
    time: Annotated[str, Check(_time)]
    """When the mark was taken, ISO-8601 UTC: everything that was acknowledged before is in the backup."""
    order: Annotated[str, Check(_time), OMIT] = ""
    """By what it comes after the backup before, if the clock was set back in between; empty: by ``time``."""
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


def write(root: Path, manifest: BackupManifest) -> None:
    """Raises OSError, BrokenBackup: it holds too many files to be read again."""
    data = json.dumps(JOURNAL.write(manifest), ensure_ascii=False, indent=1).encode()
    if len(data) > MAX_BYTES:
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


def read(root: Path) -> BackupManifest:
    """Raises BrokenBackup."""
    data, expected = (_read(root, name, most) for name, most in ((FILE, MAX_BYTES), (DIGEST, MAX_DIGEST)))
    if expected != f"{hashlib.sha256(data).hexdigest()}  {FILE}\n".encode():
        raise BrokenBackup(f"{root.name}: {FILE} is not as it was written, or {DIGEST} is not")
    try:
        tree = json.loads(data)
        if isinstance(tree, dict) and isinstance(tree.get("form"), int) and tree["form"] > FORM:
            raise BrokenBackup(f"{root.name} was made by a newer Klaw ({tree.get('klaw')}): use that one")
        return JOURNAL.read(tree, BackupManifest)
    except (ValueError, RecursionError, BadValue) as error:
        raise BrokenBackup(f"{root.name}: {FILE} is no manifest of a backup: {error}") from error
