"""Read, list and find files beneath a root. Blocks; run it in a thread.

A glob pattern is followed one folder at a time: ``*``, ``?``, ``[…]`` in a name, ``**`` for any number of folders. Its
state is the set of positions in the pattern, so that many ``**`` cost no more than one.
"""

import fnmatch
import heapq
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Literal

import attrs

from klaw.errors import NotThere, ToolRefused
from klaw.toolbox.files.beneath import (
    MAX_DEPTH,
    FilePlace,
    Root,
    is_text_name,
    open_regular,
    opened_folder,
    parts_of,
    refuse,
)


@attrs.frozen
class Pattern:
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
        """The state after one more name of the path."""
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


MAX_FILE_BYTES = 1_000_000
MAX_LOOKED_AT = 20_000
"""Names that one listing or search looks at, to bound its time."""

Kind = Literal["file", "folder", "link", "other"]


@attrs.frozen(kw_only=True)
class FolderEntry:
    path: str
    """Relative to the root."""
    kind: Kind
    size: int
    """Bytes; 0 for what is no file."""
    modified: float
    """Seconds since 1970."""


@attrs.frozen(kw_only=True)
class FoundFiles:
    """Entries in the order of their paths."""

    entries: tuple[FolderEntry, ...]
    more: int
    """How many were left off."""
    hidden: int
    """How many names are closed to tools, or are no text."""
    incomplete: bool
    """There were too many names to look at all of them."""


def read_bytes(root: Root, path: str, limit: int = MAX_FILE_BYTES) -> bytes:
    """The whole content of a regular file.

    Raises:
        NotThere
        ToolRefused: it is no regular file, too large, or closed.
    """
    with root.resolve(path) as place:
        return read_place(place, limit)[0]


def read_place(place: FilePlace, limit: int) -> tuple[bytes, os.stat_result]:
    """The content of a resolved file, and its status when it was opened."""
    fd, info = open_regular(place)
    with os.fdopen(fd, "rb") as file:
        if info.st_size > limit:
            raise ToolRefused(f"{place.path}: {info.st_size} bytes, the limit is {limit}")
        try:
            data = file.read(limit + 1)
        except OSError as error:
            refuse(place.path, error)
    if len(data) > limit:
        raise ToolRefused(f"{place.path}: more than {limit} bytes")
    return data, info


def list_folder(root: Root, path: str, limit: int) -> FoundFiles:
    """The names in a folder. A root that was never made is empty. Raises as ``read_bytes``."""
    return _collect(_folder_entries(root, path), limit)


def find(root: Root, pattern: str, limit: int) -> FoundFiles:
    """Files (not folders) whose path fits a pattern. Links are listed, but not followed. Raises ToolRefused."""
    return _collect(_matching(root, Pattern.parse(pattern)), limit)


_Name = FolderEntry | None
"""What a folder holds; None for a name that is not shown."""


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


def _folder_entries(root: Root, path: str) -> Iterator[_Name]:
    try:
        with root.resolve(path) as place, opened_folder(place) as fd:
            yield from _entries(root, fd, place.path)
    except NotThere:
        if path.strip("./"):
            raise


def _matching(root: Root, pattern: Pattern) -> Iterator[_Name]:
    try:
        with root.resolve("") as place, opened_folder(place) as fd:
            yield from _search(root, fd, "", pattern, pattern.start(), 0)
    except NotThere:
        return


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
    """What an open folder holds; None for a name that is closed to tools or no text."""
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
                kind = _kind(info.st_mode)
                size = info.st_size if kind == "file" else 0
                yield FolderEntry(
                    path=f"{path}/{item.name}" if path else item.name, kind=kind, size=size, modified=info.st_mtime
                )
    except OSError as error:
        refuse(path, error)


def _kind(mode: int) -> Kind:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "folder"
    return "link" if stat.S_ISLNK(mode) else "other"
