"""The files of messages and of knowledge bases against what names them."""

import time
from collections.abc import Sequence
from typing import Protocol

import attrs

from klaw.config.paths import Paths
from klaw.doctor.judge import Finding, ok, problem, warning
from klaw.domain.text import listed, plural
from klaw.store import attachments, originals
from klaw.store.kinds.attachments import named
from klaw.store.kinds.knowledge import sources
from klaw.store.store import read_offline

SECOND_LOOK_S = 1.0
"""A running server keeps a file before its message is stored, and removes it before its message is forgotten."""


@attrs.frozen(kw_only=True)
class FilesChecked:
    """What was found."""

    named: int
    """Files that messages name."""
    missing: Sequence[str]
    """Messages whose file does not exist."""
    damaged: Sequence[str]
    """Messages whose file is not what was sent."""
    of_nobody: Sequence[str]
    """Paths of files that no message names."""


class Compare(Protocol):
    def __call__(self, paths: Paths, *, whole: bool) -> FilesChecked:
        """Compare files with what names them. Raises OSError, StorageError."""
        ...


def check_files(paths: Paths, *, whole: bool, running: bool, settled: bool) -> list[Finding]:
    """Look at all files of messages and of knowledge bases.

    Args:
        whole: read every file; else its size must do.
        running: a server may change them meanwhile.
        settled: the database has all messages; else nothing is said of files that none names.

    Raises:
        StorageError: the database cannot be read.
    """
    findings = []
    for kind in (MESSAGES, BASES):
        try:
            found = kind.compared(paths, whole=whole)
            if running and (found.missing or found.of_nobody):
                time.sleep(SECOND_LOOK_S)
                found = kind.compared(paths, whole=whole)
        except OSError as error:
            text = f"they cannot be read: {error.strerror or 'something there is no plain file'}"
            findings.append(problem(kind.what, text, f"correct owner and mode of {paths.data_dir / kind.folder}"))
        else:
            found = found if settled else attrs.evolve(found, of_nobody=())
            findings += judge_files(kind, found, paths, whole=whole)
    return findings


def _of_bases(paths: Paths, *, whole: bool) -> FilesChecked:
    there, wanted = originals.every(paths.data_dir), read_offline(paths.database, sources.kept_files)
    return FilesChecked(
        named=len(wanted),
        missing=[source for source in wanted if source not in there],
        damaged=[
            source
            for source, (size, sha256) in wanted.items()
            if source in there
            and (there[source] != size or (whole and not originals.is_whole(paths.data_dir, source, sha256)))
        ],
        of_nobody=sorted(there.keys() - wanted),
    )


def _of_messages(paths: Paths, *, whole: bool) -> FilesChecked:
    there, wanted = attachments.sent(paths.data_dir), read_offline(paths.database, named)
    damaged = [
        message
        for path, (size, message) in wanted.items()
        if path in there and (there[path] != size or (whole and not attachments.is_whole(paths.data_dir, path)))
    ]
    return FilesChecked(
        named=len(wanted),
        missing=[message for path, (_, message) in wanted.items() if path not in there],
        damaged=damaged,
        of_nobody=sorted(there.keys() - wanted),
    )


@attrs.frozen(kw_only=True)
class _FileKind:
    """Files that one kind of thing names."""

    what: str
    of: str
    named_by: str
    folder: str
    todo: str
    compared: Compare


MESSAGES = _FileKind(
    what="files",
    of="messages",
    named_by="message",
    folder=attachments.FOLDER,
    todo="put it back from a backup of attachments/ and users/, or send the same file to the chat again; without it"
    " `klaw forget CHAT#NUMBER` removes the message",
    compared=_of_messages,
)
BASES = _FileKind(
    what="knowledge",
    of="knowledge bases",
    named_by="source",
    folder=originals.FOLDER,
    todo="put it back from a backup of knowledge/; without it `klaw kb remove SOURCE` removes the source, and"
    " `klaw kb add BASE FILE` adds the file again",
    compared=_of_bases,
)


def judge_files(kind: _FileKind, found: FilesChecked, paths: Paths, *, whole: bool) -> list[Finding]:
    """The findings about the files of one kind. Pure."""
    todo = kind.todo
    findings = []
    if found.missing:
        text = f"{plural(len(found.missing), 'file')} of {kind.of} not there: {listed(found.missing)}"
        findings.append(problem(kind.what, text, todo))
    if found.damaged:
        text = f"{plural(len(found.damaged), 'file')} of {kind.of} not as they were sent: {listed(found.damaged)}"
        findings.append(problem(kind.what, text, f"delete what is there, then {todo}"))
    if found.of_nobody:
        text = f"{plural(len(found.of_nobody), 'file')} named by no {kind.named_by}: {listed(found.of_nobody)}"
        findings.append(warning(kind.what, text, f"they only take space: delete them in {paths.data_dir}"))
    how = "read" if whole else "their sizes; --full reads them"
    return findings or [ok(kind.what, f"{plural(found.named, 'file')} of {kind.of} in order ({how})")]
