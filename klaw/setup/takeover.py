"""Take over a workspace of OpenClaw or a similar agent: copy its text files, and report why others are not copied.

Only regular UTF-8 text files that lie in that folder are read, and nothing in it is changed. Secrets are not copied.
What exists in Klaw's workspace is kept. Blocks.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from klaw.config.paths import USERS_FOLDER
from klaw.errors import NotThere, ToolRefused
from klaw.setup.answers import SetupRefused, SetupStep
from klaw.setup.make import FILES
from klaw.toolbox.files import reading, writing
from klaw.toolbox.files.beneath import MAX_DEPTH, Root, is_private
from klaw.toolbox.files.reading import FolderEntry

MAX_FILES = 10_000
MAX_TOTAL_BYTES = 200_000_000

_MARKS = (*FILES, "BOOTSTRAP.md")
"""A folder with one of these is a workspace."""
_NOT_TAKEN = {
    "BOOTSTRAP.md": "the first-run questions of another agent; klaw init asks its own",
    "BOOT.md": "start-up orders of another agent; Klaw has none",
}
_MADE_BY_PROGRAMS = frozenset({"node_modules", "__pycache__", "venv", "dist", "build"})


def find_workspace(folder: Path) -> Path:
    """The folder itself, or ``workspace`` in it. Raises SetupRefused."""
    if not folder.is_dir():
        raise SetupRefused("--from: is not a folder that can be read")
    for candidate in (folder, folder / "workspace"):
        if any((candidate / mark).is_file() for mark in _MARKS):
            return candidate
    raise SetupRefused(f"--from: holds no workspace: none of {', '.join(_MARKS)} is in it or in its workspace/")


def take_over(source: Path, workspace: Path, *, dry_run: bool) -> list[SetupStep]:
    """Copy a workspace.

    Raises:
        SetupRefused: one of the folders lies in the other.
        ToolRefused: Klaw's workspace cannot be written; earlier files are there.
    """
    theirs, ours = (Path(os.path.realpath(path)) for path in (source, workspace))
    if theirs == ours or theirs in ours.parents or ours in theirs.parents:
        raise SetupRefused("--from: is Klaw's own workspace, or one of the two lies in the other")
    return sorted(_copied(source, workspace, dry_run=dry_run), key=lambda step: step.path)


def _copied(source: Path, workspace: Path, *, dry_run: bool) -> Iterator[SetupStep]:
    # Everything is looked at, so that it can be reported, but read under the rules of the file tools.
    seeing, reader = Root(folder=source, show_private=True), Root(folder=source)
    waiting, files, size = [("", 0)], 0, 0
    while waiting:
        folder, depth = waiting.pop()
        try:
            found = reading.list_folder(seeing, folder, reading.MAX_LOOKED_AT)
        except ToolRefused as refused:
            yield SetupStep(path=f"{folder}/", outcome="skipped", why=_reason(refused, folder))
            continue
        if found.hidden:
            yield SetupStep(path=f"{folder}/", outcome="skipped", why=f"{found.hidden} names are no readable text")
        if found.incomplete:
            yield SetupStep(path=f"{folder}/", outcome="skipped", why="it holds too many files to look at all of them")
        for entry in found.entries:
            why = _unwanted(entry)
            if why is None and entry.kind == "folder" and depth < MAX_DEPTH - 1:
                waiting.append((entry.path, depth + 1))
                continue
            if why is None and (files >= MAX_FILES or size >= MAX_TOTAL_BYTES):
                why = f"more than {MAX_FILES} files or {MAX_TOTAL_BYTES // 1_000_000} MB"
            if why is not None:
                slash = "/" if entry.kind == "folder" else ""
                yield SetupStep(path=entry.path + slash, outcome="skipped", why=why)
                continue
            step = _copy(reader, entry.path, Root(folder=workspace), dry_run=dry_run)
            files, size = files + (step.outcome == "taken"), size + entry.size
            yield step


def _unwanted(entry: FolderEntry) -> str | None:
    """Why an entry is not even opened."""
    name = entry.path.rpartition("/")[2]
    if is_private(name):
        return "hidden files and files that look like secrets are never copied"
    if entry.path in _NOT_TAKEN:
        return _NOT_TAKEN[entry.path]
    if entry.path.casefold() == USERS_FOLDER:
        return "Klaw keeps the files of its other users under this name"
    if entry.kind == "folder" and name in _MADE_BY_PROGRAMS:
        return "made by programs"
    if entry.kind == "other":
        return "is a pipe, device or socket"
    return None


def _copy(reader: Root, path: str, target: Root, *, dry_run: bool) -> SetupStep:
    try:
        with reader.resolve(path) as place:
            data, info = reading.read_place(place, reading.MAX_FILE_BYTES)
    except ToolRefused as refused:
        return SetupStep(path=path, outcome="skipped", why=_reason(refused, path))
    if b"\0" in data:
        return SetupStep(path=path, outcome="skipped", why="is binary")
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return SetupStep(path=path, outcome="skipped", why="is not UTF-8 text")
    there = _there(target, path, data)
    if there is not None:
        return there
    if not dry_run:
        with target.resolve(path, make=True) as place:
            # Scripts of skills stay executable, for their owner only.
            writing.put(place, data, writing.NEW_FILE_MODE | (info.st_mode & 0o100), exclusive=True)
    return SetupStep(path=path, outcome="taken")


def _there(target: Root, path: str, data: bytes) -> SetupStep | None:
    """For a file that exists in Klaw's workspace; else None."""
    try:
        same = reading.read_bytes(target, path) == data
    except NotThere:
        return None
    except ToolRefused as refused:
        return SetupStep(path=path, outcome="kept", why=f"what Klaw has there {_reason(refused, path)}")
    return (
        SetupStep(path=path, outcome="same")
        if same
        else SetupStep(path=path, outcome="kept", why="Klaw's own is different")
    )


def _reason(refused: ToolRefused, path: str) -> str:
    return str(refused).removeprefix(f"{path}: ")
