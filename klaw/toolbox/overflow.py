"""Where the output of a tool goes that is too long for the model: a file in the user's workspace, which the file tools
can read."""

import os
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from pathlib import Path

import attrs
import structlog

from klaw import atomic_file
from klaw.actor.failure import error_class
from klaw.actor.threads import Threads
from klaw.config import guarded
from klaw.config.paths import below_of_user
from klaw.domain.names import UserId
from klaw.toolbox.spec import ToolContext

FOLDER = "tool-output"
MAX_FILE_BYTES = 1_000_000
"""The file tools read files up to 1 MB."""
MAX_FILES = 200
"""The newest are kept."""
MAX_LOOKED_AT = 20_000
"""Names in the folder; a program can make any number."""

log = structlog.get_logger("klaw.tools")


@attrs.frozen(kw_only=True)
class Kept:
    """What became of an output."""

    path: str
    """Relative to the user's workspace."""
    whole: bool
    """Whether all of it is in the file."""


@attrs.frozen
class Overflow:
    """Writes such files.

    Args:
        files: threads for it.
        workspace: the workspaces' folder.
        new_id: makes file names.
    """

    files: Threads
    workspace: Path
    new_id: Callable[[], str]

    async def keep(self, context: ToolContext, name: str, text: str) -> Kept | None:
        """Write an output to a new file. None when that failed (a full disk): the rest of the output is lost then.

        Cancellation: the file may be there.
        """
        file = f"{name}-{self.new_id()}.txt"
        try:
            whole = await self.files.run(_write, self.workspace, context.user, file, text)
        except OSError as error:
            log.warning("tool_output_not_kept", error=error_class(error))
            return None
        return Kept(path=f"{FOLDER}/{file}", whole=whole)


def _write(workspace: Path, user: UserId, name: str, text: str) -> bool:
    data = text.encode("utf-8", "replace")
    whole = len(data) <= MAX_FILE_BYTES
    if not whole:
        data = data[:MAX_FILE_BYTES].decode("utf-8", "ignore").encode()
    with guarded.opened_folder(workspace, below_of_user(user, FOLDER), make=True) as folder:
        atomic_file.create(name, data, folder=folder)
        _prune(folder)
    return whole


def _prune(folder: int) -> None:
    """Remove the oldest files. Ids grow with time, but the names before them do not, so their times count."""
    with os.scandir(folder) as entries:
        found = sorted(
            (entry.stat(follow_symlinks=False).st_mtime_ns, entry.name)
            for entry in islice(entries, MAX_LOOKED_AT)
            if entry.is_file(follow_symlinks=False) and entry.name.endswith(".txt")
        )
    for _, name in found[:-MAX_FILES]:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folder)
