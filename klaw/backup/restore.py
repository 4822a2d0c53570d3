"""Checking a backup, and putting it in place. A check looks at every byte, and whether the database that the logs make
is the one that there was. A restore makes all ready beside where it belongs, and moves it there by renames: the data
folder last, so a kill leaves it whole or not there, and the same command again does the rest."""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, nullcontext
from pathlib import Path, PurePosixPath

import attrs

from klaw import atomic_file
from klaw.backup import folder as folders
from klaw.backup.create import CHUNK_BYTES, Tell
from klaw.backup.folder import CONFIG, DATA, WORKSPACE, BackupItem, BackupManifest, BackupRefused, BrokenBackup
from klaw.config import safe_open
from klaw.config.paths import Paths
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
    messages: int = 0
    """How many the database has that its logs make."""
    compared: bool = False
    """Whether that database is, table by table, the one that there was."""


def verify(folder: Path, root: Path, manifest: BackupManifest, tell: Tell = lambda _done, _total: None) -> VerifyReport:
    """Check a backup: first its files, then, if these are right, the database that is made of its logs in a scratch
    folder: beside it, or where the system has them if the backups' folder cannot be written. Raises BackupRefused."""
    writable = os.access(folder, os.W_OK)
    with folders.os_errors_refused(folder), folders.locked(folder) if writable else nullcontext():
        problems = tuple(differing(root, manifest.items, tell))
        known = {folders.FILE, folders.DIGEST, *(each.place for each in manifest.items)}
        problems += tuple(f"{path} is not in the manifest" for path in paths_below(root) if path not in known)
        found = VerifyReport(name=root.name, files=len(manifest.items), problems=problems)
        if problems:
            return found
        scratch = Path(tempfile.mkdtemp(prefix=folders.DRAFT, dir=folder if writable else None))
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
        if len(Path(name).relative_to(root).parts) > folders.MAX_DEPTH:
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
        for _step in reindex(database, ReindexOptions(), 1):
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


@attrs.frozen
class RestoreFolder:
    target: Path
    items: Sequence[tuple[BackupItem, str]]
    """Files with their paths below ``target``."""

    @property
    def draft(self) -> Path:
        return self.target.with_name(f".{self.target.name}.restoring")

    def is_empty(self) -> bool:
        return not self.target.exists() or (self.target.is_dir() and not any(self.target.iterdir()))

    def is_done(self) -> bool:
        """Whether a restore that was cut off later has put it in place."""
        wanted = {path: item for item, path in self.items}
        return set(paths_below(self.target)) == set(wanted) and not any(
            problem_of(self.target, path, item) for path, item in wanted.items()
        )


def restore(paths: Paths, root: Path, manifest: BackupManifest, tell: Tell = lambda _done, _total: None) -> list[Path]:
    """Put a backup in place of an installation that is not there yet. Returns the folders. Raises BackupRefused: there
    is something already; BrokenBackup: a file is not what it was. Then nothing was put in place."""
    places = _places(paths, manifest)
    above = paths.data_dir.resolve().parent
    with folders.os_errors_refused(paths.data_dir), ExitStack() as stack:
        above.mkdir(mode=0o700, parents=True, exist_ok=True)
        refusal = BackupRefused(f"another restore is at work in {above}: wait for its end")
        stack.enter_context(folders.alone(above, refusal))
        for each in places:
            if not each.is_empty() and not (each is not places[-1] and each.is_done()):
                raise BackupRefused(
                    f"{each.target} is not empty: a restore changes nothing that is there; move it away, or give"
                    " another folder with --home"
                )
        drafts = [each for each in places if each.is_empty()]
        try:
            done = 0
            for place in drafts:
                shutil.rmtree(place.draft, ignore_errors=True)
                place.target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                place.draft.mkdir(mode=0o700)
                # Folders come first, links last: nothing is made through one.
                for _, path in place.items:
                    (place.draft / path).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                for item, path in sorted(place.items, key=lambda each: bool(each[0].link)):
                    done += 1
                    tell(done, len(manifest.items))
                    _copy(root, item, place.draft / path)
            os.sync()
            for place in drafts:
                place.draft.rename(place.target)
                atomic_file.sync(place.target.parent)
        finally:
            for place in drafts:
                shutil.rmtree(place.draft, ignore_errors=True)
    return [each.target for each in places]


def _places(paths: Paths, manifest: BackupManifest) -> list[RestoreFolder]:
    """The data folder last. A folder within another one is put in place with that."""
    named = {CONFIG: paths.config_dir, WORKSPACE: paths.workspace, DATA: paths.data_dir}
    targets = {part: each.resolve() for part, each in named.items()}  # a link to another disk stays
    below: dict[Path, list[tuple[BackupItem, str]]] = {
        each: [] for each in targets.values() if not any(it in each.parents for it in targets.values())
    }
    for item in manifest.items:
        part, _, rest = item.path.partition("/")
        final = targets[part] / rest
        target = next(each for each in below if final.is_relative_to(each))
        below[target].append((item, final.relative_to(target).as_posix()))
    return [RestoreFolder(target, items) for target, items in below.items() if items or target == targets[DATA]]


def _copy(root: Path, item: BackupItem, target: Path) -> None:
    if item.link:
        if not target.is_dir():  # older backups hold a link to the workspace and what is in it
            target.symlink_to(item.link)
        return
    problem = problem_of(root, item.place, item, content=False)
    if problem is None:
        with (
            safe_open.opened(root, item.place) as found,
            os.fdopen(found.fd, "rb", closefd=False) as source,
            target.open("xb") as new,
        ):
            shutil.copyfileobj(source, new, CHUNK_BYTES)
        problem = problem_of(target.parent, target.name, item)
    if problem is not None:
        raise BrokenBackup(f"{root.name}: {item.path} {problem}; nothing was restored")
    target.chmod(item.mode & 0o700)
    os.utime(target, ns=(item.mtime_ns, item.mtime_ns))
