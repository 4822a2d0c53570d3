"""Putting a backup in place. All of it is made ready beside where it belongs, and moved there by renames: the data
folder last, so a kill leaves it whole or not there, and the same command again does the rest."""

import os
import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import attrs

from klaw import atomic_file
from klaw.backup import folder as folders
from klaw.backup.create import CHUNK_BYTES, Tell
from klaw.backup.folder import BackupRefused
from klaw.backup.manifest import CONFIG, DATA, WORKSPACE, BackupItem, BackupManifest, BrokenBackup
from klaw.backup.verify import paths_below, problem_of
from klaw.config import safe_open
from klaw.config.paths import Paths


@attrs.frozen
class RestoreFolder:
    """A folder that is put in place by one rename."""

    target: Path
    items: Sequence[tuple[BackupItem, str]]
    """Files with their paths below ``target``."""

    @property
    def draft(self) -> Path:
        return self.target.with_name(f".{self.target.name}.restoring")

    def is_empty(self) -> bool:
        return not self.target.exists() or (self.target.is_dir() and not any(self.target.iterdir()))

    def is_done(self) -> bool:
        """By a restore that was cut off behind it."""
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
