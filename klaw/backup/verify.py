"""Checking a backup: every byte, and whether the database that its logs make is the one that there was."""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path, PurePosixPath

import attrs

from klaw.backup import folder as folders
from klaw.backup.create import Tell
from klaw.backup.folder import DRAFT, BackupRefused
from klaw.backup.manifest import DATA, DIGEST, FILE, MAX_DEPTH, BackupItem, BackupManifest
from klaw.config import safe_open
from klaw.errors import StorageError, StorageFull
from klaw.store import migrations
from klaw.store.backup_mark import read_made
from klaw.store.engine.commit_log import LOG_FOLDERS
from klaw.store.rebuild.offline import reindex
from klaw.store.rebuild.values import ReindexOptions, ReindexRefused

NOT_COMPARED = frozenset({"turn"})
"""The one of the highest numbers that has a meaning in one database file only."""


@attrs.frozen(kw_only=True)
class VerifyReport:
    name: str
    files: int
    problems: tuple[str, ...]
    """Empty if it is as it was made."""
    messages: int = 0
    """In the database that its logs make."""
    compared: bool = False
    """Whether that database is, table by table, the one that there was."""


def verify(folder: Path, root: Path, manifest: BackupManifest, tell: Tell = lambda _done, _total: None) -> VerifyReport:
    """Check a backup: first its files, then, if these are right, the database that is made of its logs in a scratch
    folder: beside it, or where the system has them if the backups' folder cannot be written. Raises BackupRefused."""
    writable = os.access(folder, os.W_OK)
    with folders.os_errors_refused(folder), folders.locked(folder) if writable else nullcontext():
        problems = tuple(differing(root, manifest.items, tell))
        known = {FILE, DIGEST, *(each.place for each in manifest.items)}
        problems += tuple(f"{path} is not in the manifest" for path in paths_below(root) if path not in known)
        found = VerifyReport(name=root.name, files=len(manifest.items), problems=problems)
        if problems:
            return found
        scratch = Path(tempfile.mkdtemp(prefix=DRAFT, dir=folder if writable else None))
        try:
            return _rebuilt(root, manifest, scratch, found)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def differing(root: Path, items: Sequence[BackupItem], tell: Tell = lambda _done, _total: None) -> Iterator[str]:
    for done, item in enumerate(items, 1):
        tell(done, len(items))
        if (problem := problem_of(root, item.place, item)) is not None:
            yield f"{item.place} {problem}"


def problem_of(root: Path, path: str, item: BackupItem, *, content: bool = True) -> str | None:
    """What is wrong with a file below a folder; nothing is read through links. ``content``: it is also read."""
    folder, _, name = path.rpartition("/")
    try:
        if item.link:
            with safe_open.opened_folder(root, folder) as parent:
                return None if os.readlink(name, dir_fd=parent) == item.link else "is another link"
        with safe_open.opened(root, path) as found:
            size = found.info.st_size
            if size != item.size:
                return f"has {size:,} bytes instead of {item.size:,}"
            with os.fdopen(found.fd, "rb", closefd=False) as file:
                if content and hashlib.file_digest(file, "sha256").hexdigest() != item.sha256:
                    return "has another content than was written"
    except FileNotFoundError:
        return "is missing"
    except safe_open.NotPlain as error:
        return str(error)
    except OSError as error:
        return f"cannot be read: {error.strerror or type(error).__name__}"
    return None


def paths_below(root: Path) -> Iterator[str]:
    """Every file and link below a folder, relative to it, and folders that lie too deep to be of a backup."""
    for name, inner, names in os.walk(root):
        if len(Path(name).relative_to(root).parts) > MAX_DEPTH:
            yield Path(name).relative_to(root).as_posix()
            inner.clear()
        for each in (*names, *(each for each in inner if Path(name, each).is_symlink())):
            yield Path(name, each).relative_to(root).as_posix()


def _rebuilt(root: Path, manifest: BackupManifest, scratch: Path, found: VerifyReport) -> VerifyReport:
    for item in manifest.items:
        parts = PurePosixPath(item.path).parts
        if parts[0] == DATA and parts[1] in LOG_FOLDERS and not item.link:
            target = scratch.joinpath(*parts[1:])
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(root / item.place, target)
    database = scratch / "klaw.db"
    try:
        for _step in reindex(database, ReindexOptions(), lambda: None, 1):
            pass
        made = read_made(database)
    except (ReindexRefused, StorageFull) as error:
        raise BackupRefused(f"{root.name} cannot be checked here: {error}") from error
    except StorageError as error:
        return attrs.evolve(found, problems=(f"no database can be made of its logs: {error}",))
    wanted = {name: each for name, each in manifest.last.items() if name not in NOT_COMPARED}
    less = {name: each for name, each in wanted.items() if made.last.get(name) != each}
    problems = [f"its logs end at {name} {made.last.get(name)} instead of {each}" for name, each in less.items()]
    compared = manifest.schema == migrations.latest() and bool(manifest.digests)
    if compared:
        tables = [name for name, each in manifest.digests.items() if made.digests.get(name) != each]
        problems += [f"the table of {name} is not the one that there was" for name in tables]
    return attrs.evolve(found, problems=tuple(problems), messages=made.messages, compared=compared)
