"""Attaching a file of this machine to the next message."""

import stat
from pathlib import Path, PurePath

from klaw.actor.threads import Threads
from klaw.client.client import Client
from klaw.domain.attachment import PICTURES
from klaw.errors import RequestRefused
from klaw.wire.files import FileOfMessage

ATTACH = "/attach"
"""What is typed before a file's name; never sent."""
_threads = Threads("attach", 1)


def label(file: FileOfMessage) -> str:
    """A file in one line."""
    return f"[{'picture' if file.type in PICTURES else 'file'} {file.name}]"


async def attach(client: Client, path: str) -> FileOfMessage:
    """Have the server keep a file.

    Raises:
        RequestRefused: it cannot be read, or the server does not take it; the text says why.
        ConnectionLost, ServerRefused, ServerUnreachable, ClientClosed
    """
    most = client.welcome.limits.max_file_bytes if client.welcome else None
    if most is None:
        raise RequestRefused("unknown_type", "this server takes no files")
    return await client.upload(PurePath(path).name, await _threads.run(_read, path, most, abandon=True))


def _read(name: str, most: int) -> bytes:
    path = Path(name)
    try:
        path = path.expanduser()
        info = path.stat()
        if not stat.S_ISREG(info.st_mode):
            raise RequestRefused("no_file", f"{path} is not a regular file")
        if info.st_size > most:
            raise RequestRefused("file_too_large", f"{path} has {info.st_size:,} bytes: at most {most:,}")
        return path.read_bytes()
    except (OSError, RuntimeError, ValueError) as error:
        raise RequestRefused(
            "no_file", f"{path} cannot be read: {getattr(error, 'strerror', None) or error}"
        ) from error
