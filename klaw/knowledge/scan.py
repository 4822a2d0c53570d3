"""Looks at a watched folder: which files there are, and what has changed since they were read. Blocks.

Only regular files below the folder count. No link is followed, and nothing that is hidden is looked at; each folder is
opened from the one above it, so none can be exchanged for a link meanwhile.
"""

import os
import stat
import time
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path

import attrs

from klaw.config import safe_open
from klaw.domain.knowledge import DocumentState
from klaw.store.kinds.knowledge.documents import KnownDocument

MAX_FOLDERS = 20_000
MAX_DEPTH = 64
PAUSE_EVERY = 200
"""Names between two short pauses: other threads must get their turn."""
PAUSE_S = 0.001

FolderIdentity = tuple[int, int]
"""Device and inode."""


@attrs.frozen
class ScannedFile:
    """A regular file as it is in its folder."""

    size: int
    stamp: str


@attrs.frozen(kw_only=True)
class FolderScan:
    """What there is in a folder."""

    files: Mapping[str, ScannedFile]
    """By the path below the folder, with ``/``."""
    folders: Mapping[str, int]
    """Likewise; the folder itself is "". On which device each is: another one is another file system in its place."""
    empty: Collection[str]
    """Folders in which there is nothing: perhaps a disk is not mounted."""
    unreadable: Collection[str]
    """Folders that could not be looked into: nobody knows what there is in them."""
    left_out: Mapping[str, int]
    """How much of what is no document: ``hidden``, ``link``, ``special``, ``name`` (no UTF-8)."""
    more: bool
    """There are more files than may be."""


@attrs.frozen(kw_only=True)
class FolderChanges:
    """What is to be done after a look."""

    wait: Collection[str]
    """To be read, or read again."""
    gone: Collection[str]


class _FolderWalk:
    """One look."""

    def __init__(self, most: int, private: Collection[FolderIdentity]) -> None:
        self.files: dict[str, ScannedFile] = {}
        self.folders: dict[str, int] = {}
        self.empty: list[str] = []
        self.unreadable: list[str] = []
        self.left_out: Counter[str] = Counter()
        self.more = False
        self._most, self._private = most, private
        self._seen = 0

    def folder(self, descriptor: int, below: str) -> list[str]:
        """Note an open folder and its files. Returns the folders in it."""
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
            if (info.st_dev, info.st_ino) in self._private:
                self.left_out["hidden"] += 1
            else:
                inner.append(path)
        elif not stat.S_ISREG(info.st_mode):
            self.left_out["link" if stat.S_ISLNK(info.st_mode) else "special"] += 1
        elif len(self.files) < self._most:
            self.files[path] = ScannedFile(info.st_size, stamp(info))
        else:
            self.more = True


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
    """Look at all that is below a folder.

    Args:
        root: links on the way to it are followed.
        private: folders that nobody may read here: Klaw's own.

    Raises:
        OSError: the folder is not there, or cannot be read.
    """
    walk = _FolderWalk(most, private)
    with safe_open.opened_folder(root) as top:
        waiting = walk.folder(top, "")[::-1]
        while waiting and not walk.more:
            below = waiting.pop()
            if len(walk.folders) >= MAX_FOLDERS or below.count("/") >= MAX_DEPTH:
                walk.more = True
                break
            try:
                with safe_open.opened_folder(root, below) as folder:
                    waiting += walk.folder(folder, below)[::-1]
            except FileNotFoundError:
                continue
            except OSError:
                walk.unreadable.append(below)
    return FolderScan(
        files=walk.files,
        folders=walk.folders,
        empty=walk.empty,
        unreadable=walk.unreadable,
        left_out=dict(walk.left_out),
        more=walk.more,
    )


def emptied(found: FolderScan, known: Mapping[str, KnownDocument], before: Mapping[str, int]) -> set[str]:
    """Folders that are empty, of which documents were read, and not on the device where they were seen: perhaps it is
    not mounted.

    Args:
        before: the device of each folder that was seen since the start.
    """
    gone = {below for below in found.empty if found.folders[below] != before.get(below)}
    read = (name for name, each in known.items() if each.state is not DocumentState.FAILED) if gone else ()
    above = (name.split("/")[:-1] for name in read)
    return gone & {"/".join(parts[:depth]) for parts in above for depth in range(len(parts) + 1)}


def compare(
    found: FolderScan, known: Mapping[str, KnownDocument], *, kept: Collection[str] = (), again: bool = False
) -> FolderChanges:
    """What has changed since the documents were read.

    Args:
        kept: folders whose documents stay although they are not there.
        again: also what failed is to be read again, and what looks as before is to be compared.
    """
    wait = [name for name, file in found.files.items() if again or _changed(file, known.get(name))]
    stay = (*found.unreadable, *kept)
    gone = [name for name in known if name not in found.files and not any(_is_in(name, each) for each in stay)]
    return FolderChanges(wait=wait, gone=gone)


def _changed(file: ScannedFile, before: KnownDocument | None) -> bool:
    return before is None or (before.state is not DocumentState.WAITING and before.stamp != file.stamp)


def _is_in(name: str, folder: str) -> bool:
    return not folder or name == folder or name.startswith(f"{folder}/")
