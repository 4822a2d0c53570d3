"""Forgetting the files that tools wrote for what is forgotten. All functions block.

Long results that Klaw kept go always. A file that a call made, and that still is what the call wrote, goes when that
was asked for; any other stays and is named: somebody else's words may be in it. Links are not followed.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from klaw.config import guarded
from klaw.config.paths import USERS_FOLDER, below_of_user
from klaw.domain.forget import Thing, beginning
from klaw.domain.names import LOCAL_USER, UserId
from klaw.domain.task import run_folder, task_name
from klaw.store.forget_cleaner import record_of
from klaw.store.records import CONVERSATIONS
from klaw.store.sql.derivation import FileMade, RunText, effects_of

MAX_BYTES = 1_100_000
"""Tools write files up to 1 MB."""


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


def things(workspace: Path, user: UserId, files: Sequence[FileMade], *, with_facts: bool) -> list[Thing]:
    """The files that are there, and what becomes of them."""
    found = []
    for file in files:
        data = _read(workspace, user, file.path)
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


def remove(workspace: Path, user: UserId, files: Sequence[FileMade], *, with_facts: bool) -> None:
    """Remove those that go. Raises OSError."""
    going = {each.name for each in things(workspace, user, files, with_facts=with_facts) if each.goes}
    for file in files:
        if file.path in going:
            folder, _, name = file.path.rpartition("/")
            with guarded.opened_folder(workspace, below_of_user(user, folder)) as parent:
                os.unlink(name, dir_fd=parent)


def _read(workspace: Path, user: UserId, path: str) -> bytes | None:
    """A file's bytes; None when there is none that a tool of the user may have written."""
    if (
        path.startswith("/")
        or "\0" in path
        or (user == LOCAL_USER and PurePosixPath(path).parts[:1] == (USERS_FOLDER,))
    ):
        return None
    try:
        return guarded.read(workspace, below_of_user(user, path), MAX_BYTES)
    except OSError:
        return None
