"""Making a backup beside a running server: logs up to a mark, and the other files as they are; hard links share what
has not changed with the backup before. When a log was rewritten meanwhile, because something was forgotten, the next
round begins with a new mark. The database is left out: it is made again from the logs, and as a file it would still
hold what was forgotten."""

import errno
import hashlib
import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import attrs

import klaw
from klaw import atomic_file
from klaw.actor.clock import iso
from klaw.backup import folder as folders
from klaw.backup.folder import CONFIG, DATA, DRAFT, MAX_DEPTH, WORKSPACE, BackupItem, BackupManifest, BackupRefused
from klaw.config.paths import Paths
from klaw.store import attachments, migrations, originals
from klaw.store.backup_mark import Marker, digests_at
from klaw.store.engine.commit_log import COMMIT_LOG, LOG_FOLDERS
from klaw.store.engine.journal import LOCK_FILE
from klaw.store.kinds.summaries import COPIES

ROUNDS = 10
"""Marks, until no log was rewritten while they were copied."""
PAUSE_S = 2.0
SETTLED_NS = 2_000_000_000
"""A file that was changed less than this before it was copied may change again without another time."""
CHUNK_BYTES = 1 << 20
_SECRET = re.compile(r"tokens\.json|\.(env|key|pem)(?![a-z])", re.IGNORECASE)
"""In the name of a file of the configuration, also of an editor's copy: ``klaw.env~``."""
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC

Tell = Callable[[int, int], None]
"""Called with how many files are done, of how many."""


class LogMoved(Exception):
    """A log is not what it was at the mark."""


def create(
    paths: Paths,
    folder: Path,
    marker: Marker,
    *,
    secrets: bool,
    whole: bool = False,
    tell: Tell = lambda _done, _total: None,
) -> tuple[Path, BackupManifest]:
    """Make a backup. Returns its folder, and what it holds. Raises BackupRefused: nothing is left of it; StorageError.
    ``marker`` says how far the store is; ``secrets`` also copies tokens and files of the environment; ``whole`` shares
    nothing with the backup before."""
    if not paths.data_dir.is_dir():
        raise BackupRefused(f"there is nothing to back up: {paths.data_dir} does not exist")
    if folder.resolve().is_relative_to(paths.workspace.resolve()):
        raise BackupRefused(f"{folder} is in the workspace, which is backed up itself: choose another folder")
    if folder.resolve() in (paths.data_dir.resolve(), paths.config_dir.resolve()):
        raise BackupRefused(f"{folder} is backed up itself: choose another folder")
    with folders.os_errors_refused(folder), folders.locked(folder):
        draft = BackupDraft(folder, whole=whole)
        try:
            return _made(paths, folder, marker, draft, secrets=secrets, tell=tell)
        finally:
            shutil.rmtree(draft.root, ignore_errors=True)


def _made(
    paths: Paths, folder: Path, marker: Marker, draft: "BackupDraft", *, secrets: bool, tell: Tell
) -> tuple[Path, BackupManifest]:
    for number in range(ROUNDS):
        if number:
            time.sleep(PAUSE_S)
        at = iso(time.time())
        mark, digests = digests_at(paths.database, marker)
        sources = [
            *(CopiedFile(paths.data_dir / path, f"{DATA}/{path}", size=size) for path, size in mark.logs.items()),
            *_others(paths, folder, secrets=secrets),
        ]
        try:
            draft.take_all(sources, tell)
        except LogMoved:
            continue
        now = marker(False)
        if (now.server, now.rewrites) == (mark.server, mark.rewrites):
            break
    else:
        raise BackupRefused("logs are being rewritten, because something is forgotten: try again later")
    made = BackupManifest(
        klaw=klaw.__version__,
        schema=migrations.latest(),
        time=at,
        order=folders.after(draft.newest, at),
        last=mark.last,
        digests=digests,
        forgetting=mark.forgetting and bool(mark.last),
        secrets=secrets,
        left_out=tuple(draft.left_out),
        new_bytes=draft.new_bytes,
        items=tuple(sorted(draft.items.values(), key=lambda item: item.path)),
    )
    return draft.keep(made), made


@attrs.frozen
class CopiedFile:
    file: Path
    path: str
    size: int | None = None
    """Bytes of a log at the mark; None: the whole file."""


def _others(paths: Paths, folder: Path, *, secrets: bool) -> Iterator[CopiedFile]:
    """What is no log: files of messages and knowledge bases, core memory, the configuration, the workspace."""
    # Any of them may be behind a link, and inside another one: what is compared are their real places.
    named = (paths.data_dir, paths.config_dir, paths.workspace, folder)
    data, config, workspace, _ = real = [each.resolve() for each in named]
    others = {*real, *(each.parent.resolve() / each.name for each in named)}
    kept = data / originals.FOLDER
    made = (data / originals.UPLOADS, *kept.glob(f"*{originals.GRAPH}"))
    for file in _below(data, {*others, *made, *(data / each for each in (*LOG_FOLDERS, COPIES))}):
        unsent = file.parent.name == attachments.FOLDER and file.suffix in (attachments.NEW, attachments.PART)
        database = file.parent == data and file.name.startswith(paths.database.name)
        if not (unsent or database or file.name in (COMMIT_LOG, LOCK_FILE)):
            yield CopiedFile(file, f"{DATA}/{file.relative_to(data).as_posix()}")
    for file in _below(config, others):
        if secrets or not _SECRET.search(file.name):
            source = file.resolve() if file == config / paths.config_file.name else file
            yield CopiedFile(source, f"{CONFIG}/{file.relative_to(config).as_posix()}")
    for file in _below(workspace, others):
        yield CopiedFile(file, f"{WORKSPACE}/{file.relative_to(workspace).as_posix()}")


def _below(root: Path, without: set[Path]) -> Iterator[Path]:
    """All files and links below a folder, in order, and folders that cannot be read or lie too deep; links are not
    followed."""
    closed: list[Path] = []
    for name, inner, names in os.walk(root, onerror=lambda error: closed.append(Path(error.filename))):
        here = Path(name)
        inner[:] = sorted(each for each in inner if here / each not in without)
        links = [each for each in inner if (here / each).is_symlink()]
        if len(here.relative_to(root).parts) >= MAX_DEPTH - 2:  # the part and the name come to it
            closed.extend(here / each for each in inner if each not in links)
            inner.clear()
        yield from (here / each for each in sorted([*names, *links]))
    yield from (each for each in closed if each.is_dir())


class BackupDraft:
    def __init__(self, folder: Path, *, whole: bool) -> None:
        self._folder = folder
        self.root = folder / f"{DRAFT}{os.getpid()}"
        earlier = folders.listed(folder)
        self.newest = earlier[-1].order if earlier else ""
        usable = [(each.root, each.manifest.items) for each in earlier if each.manifest is not None and not whole]
        self._before, known = usable[-1] if usable else (folder, ())
        self._known = {item.path: item for item in known}
        self.items: dict[str, BackupItem] = {}
        self.left_out: list[str] = []
        self._new: dict[str, int] = {}
        self._taken: dict[str, str] = {}
        """Folders and files of the backup, in small letters, and what each is for."""
        self.root.mkdir(mode=0o700)

    @property
    def new_bytes(self) -> int:
        return sum(self._new.get(path, 0) for path in self.items)

    def take_all(self, sources: list[CopiedFile], tell: Tell) -> None:
        """Have the sources, and nothing else. Raises LogMoved, OSError."""
        self.left_out = []
        wanted = {each.path for each in sources}
        for path in [path for path in self.items if path not in wanted]:
            self._drop(path)
        for done, each in enumerate(sources, 1):
            tell(done, len(sources))
            self._require_there()
            try:
                each.path.encode()
                self._take(each)
            except FileNotFoundError as error:
                if each.size is not None:
                    raise LogMoved from error
                self._drop(each.path)  # removed since it was listed
            except UnicodeEncodeError:
                self.left_out.append(f"{each.path!a}: its name is not valid UTF-8")
            except OSError as error:  # it cannot be read, or the backups' disk knows no such names or links
                if each.size is not None or error.errno in {*folders.FULL, errno.EROFS}:
                    raise
                self._drop(each.path)
                self.left_out.append(f"{each.path}: {error.strerror}")

    def _require_there(self) -> None:
        """The rest of it must not get under the place of a stick that was pulled. Raises BackupRefused."""
        if not self.root.is_dir():
            gone = f"{self._folder} was moved or taken away while the backup was made"
            raise BackupRefused(f"{gone}: is its disk mounted?")

    def keep(self, manifest: BackupManifest) -> Path:
        os.sync()  # one for all: a fsync of each of thousands of files would keep a card busy for minutes
        self._require_there()
        folders.write_manifest(self.root, manifest)
        name = f"{manifest.time[:19].replace(':', '-')}Z"
        root = self._folder / name
        for number in range(2, 1000):
            if not root.exists():
                break
            root = self._folder / f"{name}.{number}"
        self.root.rename(root)
        atomic_file.sync(self._folder)
        return root

    def _drop(self, path: str) -> None:
        self.items.pop(path, None)
        (self.root / self._place(path)).unlink(missing_ok=True)

    def _place(self, path: str) -> str:
        """Where it is put: disks without capital letters must not take two names for one."""
        parts, place = path.split("/"), ""
        for number, part in enumerate(parts, 1):
            place, meant = f"{place}/{part}".lstrip("/"), "/".join(parts[:number])
            while self._taken.setdefault(place.casefold(), meant) != meant:
                place += "~"
        return place

    def _take(self, source: CopiedFile) -> None:
        path, place = source.path, self._place(source.path)
        target, stored = self.root / place, place if place != path else ""
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        kind = source.file.lstat().st_mode
        if stat.S_ISLNK(kind):
            self._drop(path)
            link = str(source.file.readlink())
            link.encode()
            target.symlink_to(link)
            self.items[path] = BackupItem(path=path, stored=stored, link=link)
            return
        if not stat.S_ISREG(kind):
            self._drop(path)
            is_folder = stat.S_ISDIR(kind)
            what = "a folder that cannot be read or lies too deep" if is_folder else "a device, a socket or a pipe"
            self.left_out.append(f"{path}: it is no file, but {what}")
            return
        descriptor = os.open(source.file, _READ)
        try:
            info = os.fstat(descriptor)
            size = info.st_size if source.size is None else source.size
            stamp: tuple[int, ...] = (info.st_size, info.st_mtime_ns, info.st_ino)
            settled = size == info.st_size and time.time_ns() - info.st_mtime_ns > SETTLED_NS
            is_here = path in self.items and self.items[path].source == stamp  # since an earlier round
            if settled and (is_here or self._share(path, stored, stamp)):
                return
            self._drop(path)
            digest = _copied(descriptor, target, size, whole=source.size is None)
        finally:
            os.close(descriptor)
        with suppress(OSError):  # a stick of somebody else's
            os.utime(target, ns=(info.st_mtime_ns, info.st_mtime_ns))
        self._new[path] = target.stat().st_size
        self.items[path] = BackupItem(
            path=path,
            stored=stored,
            size=self._new[path],
            sha256=digest,
            mode=stat.S_IMODE(info.st_mode) & 0o700,
            mtime_ns=info.st_mtime_ns,
            source=stamp if settled else (),
        )

    def _share(self, path: str, stored: str, stamp: tuple[int, ...]) -> bool:
        item = self._known.get(path)
        if item is None or item.source != stamp:
            return False
        self._drop(path)
        try:
            os.link(self._before / item.place, self.root / (stored or path), follow_symlinks=False)
        except OSError:  # another kind of file system, or the backup before has lost it
            return False
        self.items[path] = attrs.evolve(item, stored=stored)
        self._new.pop(path, None)
        return True


def _copied(descriptor: int, target: Path, size: int, *, whole: bool) -> str:
    """Copy the first bytes of a file. Returns their SHA-256. Raises LogMoved, OSError."""
    digest, left = hashlib.sha256(), size
    with target.open("xb") as new:
        while (left or whole) and (data := os.read(descriptor, CHUNK_BYTES if whole else min(left, CHUNK_BYTES))):
            digest.update(data)
            new.write(data)
            left -= len(data)
    if left and not whole:
        raise LogMoved
    return digest.hexdigest()
