"""The files of sources on the disk: what there is in a watched folder, what has changed since it was read, and how a
document's file is opened. Blocks.

Only regular files below a watched folder count. No link is followed, and nothing that is hidden is looked at; each
folder is opened from the one above it, so none can be exchanged for a link meanwhile.
"""

import errno
import os
import stat
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import attrs

from klaw.config import safe_open
from klaw.config.safe_open import OpenedFile
from klaw.domain.knowledge import Document, DocumentState, Source, SourceKind, document_id
from klaw.errors import AttachmentRefused
from klaw.store import attachments, originals
from klaw.store.kinds.knowledge.documents import KnownDocument

MAX_FOLDERS = 20_000
MAX_DEPTH = 64
PAUSE_EVERY = 200
"""Names between two short pauses: other threads must get their turn."""
PAUSE_S = 0.001

FolderIdentity = tuple[int, int]


@attrs.frozen(kw_only=True)
class SourceState:
    """How a source was when it was last looked at."""

    code: str = "ok"
    """``missing``: a folder is not there, and its documents are kept. ``empty``, ``partly_empty``: likewise it, or a
    folder in it, is suddenly empty. ``unreadable``: it, or a folder in it. ``not_allowed``: it may not be read.
    ``too_many``: it has more files than ``kb.maxFiles``. ``gone``, ``unreachable``: a page, whose last copy is kept."""
    text: str = ""
    looked_at: str = ""
    files: int = 0
    left_out: Mapping[str, int] = attrs.Factory(dict)
    """How many names of a folder are no documents: ``hidden``, ``link``, ``special``, ``name`` (no UTF-8)."""

    @property
    def can_be_read(self) -> bool:
        return self.code not in ("missing", "empty", "not_allowed")


@attrs.frozen
class ScannedFile:
    size: int
    stamp: str


@attrs.define
class FolderScan:
    """What there is in a folder. Paths are below it; the folder itself is ""."""

    most: int
    private: Collection[FolderIdentity] = ()
    """Klaw's own folders, which are not read."""
    files: dict[str, ScannedFile] = attrs.field(factory=dict, init=False)
    folders: dict[str, int] = attrs.field(factory=dict, init=False)
    """On which device each is: another one is another file system in its place."""
    empty: list[str] = attrs.field(factory=list, init=False)
    """Folders in which there is nothing: perhaps a disk is not mounted."""
    unreadable: list[str] = attrs.field(factory=list, init=False)
    left_out: Counter[str] = attrs.field(factory=Counter, init=False)
    more: bool = attrs.field(default=False, init=False)
    """There are more files than may be."""
    _seen: int = attrs.field(default=0, init=False)

    def folder(self, descriptor: int, below: str) -> list[str]:
        with os.scandir(descriptor) as entries:
            found = sorted(entries, key=lambda entry: entry.name)  # the same files each time, if there are too many
        inner: list[str] = []
        for entry in found:
            self._seen += 1
            if self._seen % PAUSE_EVERY == 0:
                time.sleep(PAUSE_S)
            self._entry(entry, f"{below}/{entry.name}" if below else entry.name, inner)
        self.folders[below] = os.fstat(descriptor).st_dev
        if all(entry.name.startswith(".") for entry in found):
            self.empty.append(below)
        return inner

    def _entry(self, entry: os.DirEntry[str], path: str, inner: list[str]) -> None:
        try:
            path.encode()
        except UnicodeEncodeError:
            self.left_out["name"] += 1
            return
        if entry.name.startswith("."):
            self.left_out["hidden"] += 1
            return
        try:
            info = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            return
        except OSError:
            self.unreadable.append(path)
            return
        if stat.S_ISDIR(info.st_mode):
            if (info.st_dev, info.st_ino) in self.private:
                self.left_out["hidden"] += 1
            else:
                inner.append(path)
        elif not stat.S_ISREG(info.st_mode):
            self.left_out["link" if stat.S_ISLNK(info.st_mode) else "special"] += 1
        elif len(self.files) < self.most:
            self.files[path] = ScannedFile(info.st_size, stamp(info))
        else:
            self.more = True


def document_of(source: Source, name: str, size: int = 0) -> Document:
    return Document(id=document_id(source.id, name), base=source.base, source=source.id, name=name, size=size)


def stamp(info: os.stat_result) -> str:
    """Changes with a file, and when it comes from elsewhere."""
    return f"{info.st_size}-{info.st_mtime_ns}-{info.st_ctime_ns}"


def place(path: Path) -> FolderIdentity | None:
    """Where a folder is, whatever its name; None: it is not there."""
    try:
        info = path.stat()
    except OSError:
        return None
    return info.st_dev, info.st_ino


def look(root: Path, most: int, private: Collection[FolderIdentity] = ()) -> FolderScan:
    """Look at all that is below a folder; links on the way to it are followed. Raises OSError: it cannot be read."""
    found = FolderScan(most, private)
    with safe_open.opened_folder(root) as top:
        waiting = found.folder(top, "")[::-1]
        while waiting and not found.more:
            below = waiting.pop()
            if len(found.folders) >= MAX_FOLDERS or below.count("/") >= MAX_DEPTH:
                found.more = True
                break
            try:
                with safe_open.opened_folder(root, below) as folder:
                    waiting += found.folder(folder, below)[::-1]
            except FileNotFoundError:
                continue
            except OSError:
                found.unreadable.append(below)
    return found


def emptied(found: FolderScan, known: Mapping[str, KnownDocument], before: Mapping[str, int]) -> set[str]:
    """Empty folders of which documents were read, on another device than ``before``: perhaps that is not mounted."""
    gone = {below for below in found.empty if found.folders[below] != before.get(below)}
    read = (name for name, each in known.items() if each.state is not DocumentState.FAILED) if gone else ()
    above = (name.split("/")[:-1] for name in read)
    return gone & {"/".join(parts[:depth]) for parts in above for depth in range(len(parts) + 1)}


def compare(
    found: FolderScan, known: Mapping[str, KnownDocument], *, kept: Collection[str] = (), again: bool = False
) -> tuple[list[str], list[str]]:
    """What has changed since the documents were read: names to be read, and names that are gone. Documents of folders
    that are ``kept`` stay. With ``again`` all is read again that failed, and what looks as before is compared."""
    wait = [name for name, file in found.files.items() if again or _changed(file, known.get(name))]
    stay = (*found.unreadable, *kept)
    gone = [name for name in known if name not in found.files and not any(_is_in(name, each) for each in stay)]
    return wait, gone


def _changed(file: ScannedFile, before: KnownDocument | None) -> bool:
    return before is None or (before.state is not DocumentState.WAITING and before.stamp != file.stamp)


def _is_in(name: str, folder: str) -> bool:
    return not folder or name == folder or name.startswith(f"{folder}/")


@contextmanager
def original(data_dir: Path, source: Source, document: Document) -> Iterator[OpenedFile]:
    """Open the file that a document is made of. Raises OSError; safe_open.NotPlain: it is no regular file."""
    if source.kind is SourceKind.MESSAGES:
        try:
            with attachments.opened(data_dir, source.user, document.sha256) as file:
                yield file
        except AttachmentRefused:
            raise FileNotFoundError(errno.ENOENT, "no such file") from None
        return
    in_folder = source.kind is SourceKind.FOLDER
    root, name = (Path(source.where), document.name) if in_folder else (data_dir / originals.FOLDER, str(source.id))
    with safe_open.opened(root, name) as file:
        yield file
