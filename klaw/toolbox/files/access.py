"""Read, list, find and write files beneath a root. Blocks; run it in a thread.

Of a file that is written, a reader, or a power cut, sees the old content or the new one and nothing between. It keeps
its mode; a link is never written through, because the path was resolved.
"""

import errno
import fnmatch
import heapq
import os
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Literal, TypeAlias

import attrs

from klaw import atomic_file
from klaw.config.safe_open import OpenedFile, open_plain
from klaw.errors import NotThere, ToolRefused
from klaw.toolbox.files.beneath import MAX_DEPTH, FilePlace, Root, is_text_name, opened_folder, parts_of, refuse

MAX_FILE_BYTES = 1_000_000
MAX_LOOKED_AT = 20_000
"""Names that one listing or search looks at, to bound its time."""
NEW_FILE_MODE = 0o600
_TEMPORARY = ".klaw-"
_NO_HARD_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
"""What a disk without them answers (FAT, some network disks)."""

FileKind: TypeAlias = Literal["file", "folder", "link", "other"]
Mode: TypeAlias = Literal["create", "replace", "append"]
_KINDS: Mapping[int, FileKind] = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}


@attrs.frozen
class Pattern:
    """A glob pattern, followed one folder at a time: ``*``, ``?``, ``[…]`` in a name, ``**`` for any number of folders.
    Its state is the set of positions in the pattern, so that many ``**`` cost no more than one."""

    parts: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> "Pattern":
        """Raises ToolRefused: it is empty, absolute, or goes upwards."""
        parts = parts_of(text)
        if not parts or ".." in parts:
            raise ToolRefused("pattern: name files beneath the workspace, for instance **/*.md; no '..'")
        return cls(parts)

    def start(self) -> frozenset[int]:
        return self._with_empty(frozenset({0}))

    def step(self, state: frozenset[int], name: str) -> frozenset[int]:
        after = set()
        for position in state:
            if position == len(self.parts):
                continue
            if self.parts[position] == "**":
                after.add(position)
            elif fnmatch.fnmatchcase(name, self.parts[position]):
                after.add(position + 1)
        return self._with_empty(after)

    def _with_empty(self, state: Iterable[int]) -> frozenset[int]:
        """``**`` also stands for no folder at all."""
        found = set(state)
        for position, part in enumerate(self.parts):
            if position in found and part == "**":
                found.add(position + 1)
        return frozenset(found)

    def matches(self, state: frozenset[int]) -> bool:
        return len(self.parts) in state


@attrs.frozen(kw_only=True)
class FolderEntry:
    path: str
    """Relative to the root."""
    kind: FileKind
    size: int
    """Bytes; 0 for what is no file."""
    modified: float
    """Unix seconds."""


@attrs.frozen(kw_only=True)
class FoundFiles:
    entries: tuple[FolderEntry, ...] = ()
    """Sorted by path; ``more`` were left off."""
    more: int = 0
    hidden: int = 0
    """How many names are closed to tools, or are no text."""
    incomplete: bool = False
    """There were too many names to look at all of them."""


def read_bytes(root: Root, path: str, limit: int = MAX_FILE_BYTES) -> bytes:
    """The content of a regular file. Raises NotThere; ToolRefused: it is something else, too large, or closed."""
    with root.resolve(path) as place:
        return read_place(place, limit)[0]


def read_place(place: FilePlace, limit: int) -> tuple[bytes, os.stat_result]:
    """The content of a resolved file, and its status when it was opened."""
    try:
        fd, info = open_plain(place.name or ".", place.folder)
        try:
            return OpenedFile(fd=fd, info=info).read(limit), info
        finally:
            os.close(fd)
    except OSError as error:
        refuse(place.path, error)


def list_folder(root: Root, path: str, limit: int) -> FoundFiles:
    """The names in a folder. A root that was never made is empty. Raises as ``read_bytes``."""
    try:
        with root.resolve(path) as place, opened_folder(place) as fd:
            return _collect(_entries(root, fd, place.path), limit)
    except NotThere:
        if path.strip("./"):
            raise
        return FoundFiles()


def find(root: Root, pattern: str, limit: int) -> FoundFiles:
    """Files (not folders) whose path fits a pattern. Links are listed, but not followed. Raises ToolRefused."""
    parsed = Pattern.parse(pattern)
    try:
        with root.resolve("") as place, opened_folder(place) as fd:
            return _collect(_search(root, fd, "", parsed, parsed.start(), 0), limit)
    except NotThere:
        return FoundFiles()


_Name: TypeAlias = FolderEntry | None
"""What a folder holds; None for a name that is closed to tools or no text."""


def _collect(names: Iterator[_Name], limit: int) -> FoundFiles:
    entries: list[FolderEntry] = []
    hidden = 0
    incomplete = False
    for looked_at, entry in enumerate(names):
        if looked_at == MAX_LOOKED_AT:
            incomplete = True
            break
        if entry is None:
            hidden += 1
        elif entry.path:
            entries.append(entry)
    shown = heapq.nsmallest(limit, entries, key=lambda entry: entry.path)
    return FoundFiles(entries=tuple(shown), more=len(entries) - len(shown), hidden=hidden, incomplete=incomplete)


_PASSED = FolderEntry(path="", kind="other", size=0, modified=0)
"""A name that was looked at and does not match."""


def _search(root: Root, fd: int, path: str, pattern: Pattern, state: frozenset[int], depth: int) -> Iterator[_Name]:
    for entry in _entries(root, fd, path):
        if entry is None:
            yield _PASSED  # a count of hidden names would tell what the pattern was not allowed to find
            continue
        name = entry.path.rpartition("/")[2]
        after = pattern.step(state, name)
        if entry.kind != "folder":
            yield entry if pattern.matches(after) else _PASSED
            continue
        yield _PASSED
        if not after or depth >= MAX_DEPTH:
            continue
        # What is gone, replaced or closed meanwhile is left out.
        with suppress(ToolRefused), opened_folder(FilePlace(folder=fd, name=name, path=entry.path)) as inner:
            yield from _search(root, inner, entry.path, pattern, after, depth + 1)


def _entries(root: Root, fd: int, path: str) -> Iterator[_Name]:
    try:
        with os.scandir(fd) as found:
            for item in found:
                if not is_text_name(item.name) or root.is_closed(item.name, top=not path):
                    yield None
                    continue
                try:
                    info = item.stat(follow_symlinks=False)
                except OSError:
                    continue  # gone meanwhile
                kind = _KINDS.get(stat.S_IFMT(info.st_mode), "other")
                size = info.st_size if kind == "file" else 0
                yield FolderEntry(
                    path=f"{path}/{item.name}" if path else item.name, kind=kind, size=size, modified=info.st_mtime
                )
    except OSError as error:
        refuse(path, error)


def write(root: Root, path: str, data: bytes, mode: Mode) -> str:
    """Write a file; missing folders are made. Returns its path beneath the root.

    ``create`` refuses an existing file, ``replace`` and ``append`` need none. Raises ToolRefused: nothing was changed.
    """
    _check_size(path, data)  # before a folder is made for nothing
    root.check_changeable(root.where(path))  # and before one is made in what is kept
    with root.resolve(path, make=True) as place:
        root.check_changeable(place.path)
        info = None if mode == "create" else _status(place)
        if info is None:
            put(place, data, NEW_FILE_MODE)
        elif mode == "append":
            old, info = read_place(place, MAX_FILE_BYTES)
            _exchange(place, old + data, info)
        else:
            _exchange(place, data, info)
        return place.path


def change(root: Root, path: str, function: Callable[[bytes, str], bytes]) -> str:
    """Replace an existing file's content by a function of it. Returns its path beneath the root. Raises NotThere;
    ToolRefused: it must not be changed, or somebody else changed it meanwhile; nothing was written."""
    with root.resolve(path) as place:
        root.check_changeable(place.path)
        data, info = read_place(place, MAX_FILE_BYTES)
        _exchange(place, function(data, place.path), info)
        return place.path


def put(place: FilePlace, data: bytes, permissions: int, *, replaces: os.stat_result | None = None) -> None:
    """Make ``data`` the content of a resolved place, durably. Of the mode bits, set-uid and the like are dropped.
    Refused when another file than ``replaces`` (None: any) has the name, or that one was changed."""
    _check_name(place)
    temporary = f"{_TEMPORARY}{secrets.token_hex(8)}"
    try:
        try:
            atomic_file.create(temporary, data, folder=place.folder, mode=permissions & 0o777)
            _check_unchanged(place, replaces)
            if replaces is not None or not _linked(place, temporary):
                os.rename(temporary, place.name, src_dir_fd=place.folder, dst_dir_fd=place.folder)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=place.folder)
        os.fsync(place.folder)
    except OSError as error:
        refuse(place.path, error)


def _linked(place: FilePlace, temporary: str) -> bool:
    """Give a new file its name; False where the disk has no hard links. Raises FileExistsError, as no rename does."""
    try:
        os.link(temporary, place.name, src_dir_fd=place.folder, dst_dir_fd=place.folder, follow_symlinks=False)
    except OSError as error:
        if error.errno in _NO_HARD_LINKS:
            return False
        raise
    return True


def _exchange(place: FilePlace, data: bytes, old: os.stat_result) -> None:
    """Give an existing file a new content. Raises ToolRefused."""
    if not stat.S_ISREG(old.st_mode):
        raise ToolRefused(f"{place.path}: is not a regular file")
    if not old.st_mode & 0o200:  # a rename would replace it too
        raise ToolRefused(f"{place.path}: is read-only; its owner does not want it changed")
    _check_size(place.path, data)
    put(place, data, stat.S_IMODE(old.st_mode), replaces=old)


def _status(place: FilePlace) -> os.stat_result | None:
    _check_name(place)
    try:
        return os.stat(place.name, dir_fd=place.folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _check_name(place: FilePlace) -> None:
    if not place.name:
        raise ToolRefused(f"{place.path or '.'}: is a folder")


def _check_unchanged(place: FilePlace, replaces: os.stat_result | None) -> None:
    old, now = ((each.st_ino, each.st_mtime_ns, each.st_size) if each else None for each in (replaces, _status(place)))
    if old is None and now is not None:
        instead = "change it with file_patch, or write it with mode replace or append"
        raise ToolRefused(f"{place.path}: exists already; {instead}")
    if old != now:
        raise ToolRefused(f"{place.path}: was changed by somebody else meanwhile; read it again")


def _check_size(path: str, data: bytes) -> None:
    if len(data) > MAX_FILE_BYTES:
        raise ToolRefused(f"{path}: would have {len(data)} bytes, the limit is {MAX_FILE_BYTES}")
