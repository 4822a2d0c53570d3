"""Asking a running server through its admin socket; plain blocking code, since a command has nothing else to do."""

import json
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from klaw.config.paths import Paths
from klaw.errors import KlawError, Problem

TIMEOUT_S = 15.0
"""Longer than any command's deadline at the server, which answers by itself."""


class NoServer(KlawError):
    """Nobody answers on the socket."""


class Refused(KlawError):
    """The server answered with an error; ``code`` tells which, ``problems`` every wrong field where there may be
    several."""

    def __init__(self, code: str, message: str, problems: Sequence[Problem] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.problems = tuple(problems)


def call(
    paths: Paths, command: str, *, timeout_s: float | None = None, asker: object = None, **args: object
) -> dict[str, Any]:
    """Ask one thing.

    Args:
        paths: of the server's home.
        command: its name.
        asker: as whom, if not as whoever runs the server: see ``admin.socket.parse``.
        timeout_s: how long to wait for the answer; None: ``TIMEOUT_S``.
        args: its arguments; those that are None are left out.

    Raises:
        NoServer: there is none, or it does not answer.
        Refused: it answered with an error.
    """
    request: dict[str, object] = {
        "command": command,
        "args": {name: value for name, value in args.items() if value is not None},
    }
    request |= {"as": asker} if asker is not None else {}
    line = _exchange(paths, json.dumps(request).encode() + b"\n", timeout_s or TIMEOUT_S)
    try:
        answer = json.loads(line)
        if answer["ok"]:
            return dict(answer["result"])
        refusal = answer["error"]
        problems = [Problem(str(each["field"]), str(each["message"])) for each in refusal.get("problems", ())]
        error = Refused(str(refusal["code"]), str(refusal["message"]), problems)
    except (ValueError, KeyError, TypeError) as problem:
        raise NoServer(f"what answers at {paths.admin_socket} is not a Klaw server") from problem
    raise error


def _exchange(paths: Paths, line: bytes, timeout_s: float) -> bytes:
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(timeout_s)
            connection.connect(str(paths.admin_socket))
            connection.sendall(line)
            with connection.makefile("rb") as reader:
                answer = reader.readline()
    except (FileNotFoundError, ConnectionRefusedError) as error:
        start = _of_service(paths) or "start it with `klaw serve`"
        raise NoServer(f"no server is running for {_home(paths)}: {start}") from error
    except PermissionError as error:
        raise NoServer(f"{paths.admin_socket} belongs to another user: run this as that user or as root") from error
    except TimeoutError as error:
        raise NoServer(f"the server for {_home(paths)} does not answer") from error
    except OSError as error:
        raise NoServer(f"the server for {_home(paths)} hung up ({error.strerror or type(error).__name__})") from error
    if not answer.endswith(b"\n"):
        raise NoServer(f"the server for {_home(paths)} hung up without an answer")
    return answer


def _of_service(paths: Paths) -> str:
    """What to say on a machine with a service: how that is started, or where it is to who has no installation."""
    from klaw.service.units import ServiceRefused, owner_and_home

    with suppress(ServiceRefused, OSError):
        place = Path(owner_and_home()[1])
        if paths.data_dir == Paths.resolve(place).data_dir:
            return "start it with `systemctl start klaw`"
        if not paths.data_dir.exists():
            return f"that of the service is asked with --home {place}"
    return ""


def _home(paths: Paths) -> str:
    """How a person knows the installation: the folder that ``--home`` gave, else the data folder."""
    return str(paths.data_dir.parent if paths.data_dir.parent == paths.runtime_dir.parent else paths.data_dir)
