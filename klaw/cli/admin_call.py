"""Asking a running server through its admin socket; plain blocking code, since a command has nothing else to do."""

import json
import os
import shlex
import shutil
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from klaw.client.text_width import harmless
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


def call(paths: Paths, command: str, *, timeout_s: float | None = None, **args: object) -> dict[str, Any]:
    """Ask one thing.

    Args:
        paths: of the server's home.
        command: its name.
        timeout_s: how long to wait for the answer; None: ``TIMEOUT_S``.
        args: its arguments; those that are None are left out.

    Raises:
        NoServer: there is none, or it does not answer.
        Refused: it answered with an error.
    """
    request = {"command": command, "args": {name: value for name, value in args.items() if value is not None}}
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
        raise NoServer(f"no server is running for {_home(paths)}: start it with `klaw serve`") from error
    except PermissionError as error:
        raise NoServer(f"{paths.admin_socket} belongs to another user: run this as that user or as root") from error
    except TimeoutError as error:
        raise NoServer(f"the server for {_home(paths)} does not answer") from error
    except OSError as error:
        raise NoServer(f"the server for {_home(paths)} hung up ({error.strerror or type(error).__name__})") from error
    if not answer.endswith(b"\n"):
        raise NoServer(f"the server for {_home(paths)} hung up without an answer")
    return answer


def _home(paths: Paths) -> str:
    """How a person knows the installation: the folder that ``--home`` gave, else the data folder."""
    return str(paths.data_dir.parent if paths.data_dir.parent == paths.runtime_dir.parent else paths.data_dir)


# -- output ----------------------------------------------------------------------------------------------------------


def program() -> str:
    """How to call this program in another terminal of the same folder."""
    called = Path(sys.argv[0])
    found = shutil.which("klaw")
    if called.name != "klaw" or (found and Path(found).resolve() == called.resolve()):
        return "klaw"
    return shlex.quote(os.path.relpath(called))


def print_json(value: object) -> None:
    print(json.dumps(value, ensure_ascii=False, indent=2))


def line(text: str) -> str:
    """One harmless line of foreign text: line ends become spaces."""
    return " ".join(harmless(text).split("\n"))


def fail(error: KlawError) -> int:
    """Say what went wrong; returns the exit code."""
    print(f"klaw: {line(str(error))}", file=sys.stderr)
    return 1


def table(rows: list[list[str]], *, right: frozenset[int] = frozenset()) -> list[str]:
    """Lines with aligned columns; ``right`` names the columns that are flush right. The last column is not padded."""
    from klaw.client.text_width import width

    if not rows:
        return []
    widths = [max(width(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = []
        for column, cell in enumerate(row):
            padding = " " * (widths[column] - width(cell))
            cells.append(padding + cell if column in right else cell + padding)
        lines.append("  ".join(cells).rstrip())
    return lines
