"""What is typed at a terminal and never sent: ``/attach FILE`` gives a file of this machine to the next message,
``/open N`` shows a passage that an answer refers to."""

import stat
from pathlib import Path, PurePath

from klaw.actor.threads import Threads
from klaw.client.client import Client
from klaw.domain import context_used
from klaw.domain.attachment import PICTURES
from klaw.domain.context_used import ContextUsed, place_of
from klaw.errors import RequestRefused
from klaw.wire.files import FileOfMessage

ATTACH, OPEN = "/attach", "/open"
_threads = Threads("attach", 1)


def label(file: FileOfMessage) -> str:
    return f"[{'picture' if file.type in PICTURES else 'file'} {file.name}]"


async def attach(client: Client, path: str) -> FileOfMessage:
    """Upload a file.

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


def sources(used: ContextUsed) -> list[str]:
    """The passages that an answer refers to, one a line."""
    return [f"[{each.number}] {place_of(each)}" for each in used.passages if each.cited]


async def passage(client: Client, turn: str, number: str) -> str:
    """A passage as the model was given it for ``turn`` (empty: none).

    Raises:
        RequestRefused: there is no such passage; the text says which there are.
        ConnectionLost, ServerRefused, ServerUnreachable, ClientClosed
    """
    if not turn:
        raise RequestRefused("no_passages", "no answer here refers to a passage")
    used = context_used.read((await client.call("receipt", turn=turn))["receipt"])
    given = {str(each.number): each for each in used.passages} if used is not None else {}
    found = given.get(number.strip("[] "))
    if found is None:
        numbers = f"1 to {len(given)}" if len(given) > 1 else "1"
        raise RequestRefused("no_passage", f"{OPEN} takes the number of a passage: {numbers}")
    return f"[{found.number}] {place_of(found)}\n{found.text}"
