"""Forgetting the files that tools wrote for what is forgotten. All functions block.

Long results that Klaw kept go always. A file that a call made, and that still is what the call wrote, goes when that
was asked for; any other stays and is named: somebody else's words may be in it. Links are not followed.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path, PurePosixPath

from klaw.domain.forget import Thing, beginning
from klaw.domain.names import LOCAL_USER, UserId
from klaw.domain.task import run_folder, task_name
from klaw.store.forget_cleaner import record_of
from klaw.store.records import CONVERSATIONS
from klaw.store.sql.derivation import FileMade, RunText, effects_of

MAX_BYTES = 1_100_000
"""Tools write files up to 1 MB."""
OWNERS = "users"
"""The folder of the other users' folders, which is not the user local's."""


def of_runs(data_dir: Path, user: UserId, runs: Sequence[RunText]) -> list[FileMade]:
    """What runs wrote, by their transcripts."""
    found: list[FileMade] = []
    for run in runs:
        day = run.started_at[:10]
        path = data_dir / CONVERSATIONS / run_folder(user, task_name(run.task)) / f"{day}.jsonl"
        found += effects_of(_said(path, run.id)).files if path.is_file() else ()
    return found


def _said(path: Path, run: str) -> Iterator[tuple[str, str, str, dict[str, object]]]:
    mark = f'"run":"{run}"'.encode()
    with path.open("rb") as file:
        for record in (record_of(line) for line in file if mark in line):
            if record is not None and isinstance(record.get("metadata"), dict):
                yield str(record["role"]), str(record["type"]), str(record["content"]), record["metadata"]


def things(folder: Path, user: UserId, files: Sequence[FileMade], *, with_facts: bool) -> list[Thing]:
    """The files that are there, and what becomes of them."""
    found = []
    for file in files:
        data = _read(folder, user, file.path)
        if data is None:
            continue
        whole = file.content is not None and data == file.content.encode("utf-8", "replace")
        found.append(
            Thing(
                kind="file",
                name=file.path,
                text="" if file.own else beginning(data[:4_000].decode("utf-8", "replace")),
                goes=file.own or (whole and with_facts),
                remedy="" if file.own or whole else "a tool wrote a part of it: edit it, or delete it",
            )
        )
    return found


def remove(folder: Path, user: UserId, files: Sequence[FileMade], *, with_facts: bool) -> None:
    """Remove those that go. Raises OSError."""
    going = {each.name for each in things(folder, user, files, with_facts=with_facts) if each.goes}
    for file in files:
        if file.path in going:
            with _opened(folder, user, file.path) as (parent, name):
                if parent is not None:
                    os.unlink(name, dir_fd=parent)


@contextmanager
def _opened(folder: Path, user: UserId, path: str) -> Iterator[tuple[int | None, str]]:
    """The open folder of a path, and the name in it; None when it is not below the user's folder, or a link is on the
    way."""
    parts = PurePosixPath(path).parts
    bad = not parts or path.startswith("/") or any(part in ("..", "") or "\0" in part for part in parts)
    if bad or (user == LOCAL_USER and parts[0] == OWNERS):
        yield None, ""
        return
    with ExitStack() as stack:
        try:
            parent = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(os.close, parent)
            for part in parts[:-1]:
                parent = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
                stack.callback(os.close, parent)
        except OSError:
            yield None, ""
            return
        yield parent, parts[-1]


def _read(folder: Path, user: UserId, path: str) -> bytes | None:
    """A regular file's bytes; None when there is none that a tool may have written."""
    with _opened(folder, user, path) as (parent, name):
        if parent is None:
            return None
        try:
            file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent)
        except OSError:
            return None
        with os.fdopen(file, "rb") as opened:
            return opened.read(MAX_BYTES) if stat.S_ISREG(os.fstat(opened.fileno()).st_mode) else None
