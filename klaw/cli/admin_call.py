"""Asking a running server through its admin socket: blocking, in HTTP/1.0 by hand, since the library would take longer
to load than the server to answer."""

import json
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from klaw.config.paths import Paths
from klaw.errors import KlawError, Problem

TIMEOUT_S = 15.0
_READ_BYTES = 65_536
OLDER = (
    "the running server is older than this klaw command: restart it (`systemctl restart klaw`, or stop it and start"
    " `klaw serve`)"
)


class NoServer(KlawError):
    """Nobody answers on the socket."""

    absent = False
    """There is none, as far as this machine knows."""


class RefusedByServer(KlawError):
    """The server answered with an error; ``problems`` names every wrong field."""

    def __init__(self, code: str, message: str, problems: Sequence[Problem] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.problems = tuple(problems)


def call(
    paths: Paths, operation: str, *, timeout_s: float = TIMEOUT_S, asker: object = None, **args: object
) -> dict[str, Any]:
    """Carry out an operation with ``args``, without those that are None. ``asker``: as whom, if not as the operator
    (``user`` and ``client``). Raises NoServer: there is none, or it does not answer; RefusedByServer."""
    asked: dict[str, object] = {"operation": operation, "args": {k: v for k, v in args.items() if v is not None}}
    asked |= {"as": asker} if asker is not None else {}
    status, content = _exchange(paths, json.dumps(asked).encode(), timeout_s)
    try:
        answer = dict(json.loads(content))
        if status == 200:
            return answer
        problems = [Problem(str(each["field"]), str(each["message"])) for each in answer.get("errors", ())]
        error = RefusedByServer(str(answer["code"]), str(answer["detail"]), problems)
    except (ValueError, KeyError, TypeError):
        if status == 200:
            raise NoServer(f"the server for {_home(paths)} hung up in its answer") from None
        if not content.strip():
            raise NoServer(f"what answers at {paths.admin_socket} is not a Klaw server") from None
        error = RefusedByServer(f"http_{status}", content.decode(errors="replace").strip())
    raise error


def _exchange(paths: Paths, body: bytes, timeout_s: float) -> tuple[int, bytes]:
    head = f"POST /api/v1/call HTTP/1.0\r\nHost: klaw\r\nContent-Length: {len(body)}\r\n\r\n"
    answer = bytearray()
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(timeout_s)
            connection.connect(str(paths.admin_socket))
            connection.sendall(head.encode() + body)
            while part := connection.recv(_READ_BYTES):
                answer += part
                if answer.startswith(b"{"):
                    raise RefusedByServer("wrong_version", OLDER)
    except (FileNotFoundError, ConnectionRefusedError) as error:
        start = _of_service(paths) or "start it with `klaw serve`"
        none = NoServer(f"no server is running for {_home(paths)}: {start}")
        none.absent = True
        raise none from error
    except PermissionError as error:
        raise NoServer(f"{paths.admin_socket} belongs to another user: run this as that user or as root") from error
    except TimeoutError as error:
        raise NoServer(f"the server for {_home(paths)} does not answer") from error
    except OSError as error:
        raise NoServer(f"the server for {_home(paths)} hung up ({error.strerror or type(error).__name__})") from error
    if not answer:
        raise NoServer(f"the server for {_home(paths)} hung up without an answer")
    first, _, content = answer.partition(b"\r\n\r\n")
    version, _, status = first.partition(b" ")
    if not version.startswith(b"HTTP/1.") or not status[:3].isdigit():
        raise NoServer(f"what answers at {paths.admin_socket} is not a Klaw server")
    return int(status[:3]), bytes(content)


def _of_service(paths: Paths) -> str:
    """The hint on a machine with a service: how to start it, or where its home is."""
    from klaw.service.units import ServiceRefused, owner_and_home

    with suppress(ServiceRefused, OSError):
        place = Path(owner_and_home()[1])
        if paths.data_dir == Paths.resolve(place).data_dir:
            return "start it with `systemctl start klaw`"
        if not paths.data_dir.exists():
            return f"that of the service is asked with --home {place}"
    return ""


def _home(paths: Paths) -> str:
    """The installation's name for people: the folder that ``--home`` gave, else the data folder."""
    return str(paths.data_dir.parent if paths.data_dir.parent == paths.runtime_dir.parent else paths.data_dir)
