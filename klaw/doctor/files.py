"""The files of messages against the messages that name them."""

import time
from collections.abc import Sequence

import attrs

from klaw.config.paths import Paths
from klaw.doctor.judge import Finding, listed, ok, problem, warning
from klaw.domain.text import plural
from klaw.store import attachments
from klaw.store.kinds.attachments import named
from klaw.store.store import read_offline

SECOND_LOOK_S = 1.0
"""A running server keeps a file before its message is stored, and removes it before its message is forgotten."""


@attrs.frozen(kw_only=True)
class FilesChecked:
    """What was found."""

    named: int
    """Files that messages name."""
    missing: Sequence[str]
    """Messages whose file is not there …"""
    damaged: Sequence[str]
    """… or is not what was sent."""
    of_nobody: Sequence[str]
    """Paths of files that no message names."""


def check_files(paths: Paths, *, whole: bool, running: bool, settled: bool) -> list[Finding]:
    """Look at all files of messages.

    Args:
        paths: of the installation.
        whole: read every file; else its size must do.
        running: a server may change them meanwhile.
        settled: the database has all messages; else nothing is said of files that none names.

    Raises:
        StorageError: the database cannot be read.
    """
    try:
        found = _compared(paths, whole=whole)
        if running and (found.missing or found.of_nobody):
            time.sleep(SECOND_LOOK_S)
            found = _compared(paths, whole=whole)
    except OSError as error:
        text = f"they cannot be read: {error.strerror or 'something there is no plain file'}"
        return [problem("files", text, f"correct owner and mode of {paths.data_dir / attachments.FOLDER}")]
    return judge_files(found if settled else attrs.evolve(found, of_nobody=()), paths, whole=whole)


def _compared(paths: Paths, *, whole: bool) -> FilesChecked:
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


def judge_files(found: FilesChecked, paths: Paths, *, whole: bool) -> list[Finding]:
    """What it means. Pure."""
    todo = (
        "put it back from a backup of attachments/ and users/, or send the same file to the chat again; without it"
        " `klaw forget CHAT#NUMBER` removes the message"
    )
    findings = []
    if found.missing:
        text = f"{plural(len(found.missing), 'file')} of messages not there: {listed(found.missing)}"
        findings.append(problem("files", text, todo))
    if found.damaged:
        text = f"{plural(len(found.damaged), 'file')} of messages not as they were sent: {listed(found.damaged)}"
        findings.append(problem("files", text, f"delete what is there, then {todo}"))
    if found.of_nobody:
        text = f"{plural(len(found.of_nobody), 'file')} named by no message: {listed(found.of_nobody)}"
        findings.append(warning("files", text, f"they only take space: delete them in {paths.data_dir}"))
    how = "read" if whole else "their sizes; --full reads them"
    return findings or [ok("files", f"{plural(found.named, 'file')} of messages in order ({how})")]
