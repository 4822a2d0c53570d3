"""Actor ``admin.socket``: the unix socket through which whoever runs the server looks into it.

One JSON request and one JSON answer a line, any number on a connection: ``{"command": "actors", "args": {}}`` ->
``{"ok": true, "result": ...}`` or ``{"ok": false, "error": {"code": ..., "message": ...}}``. The folder and the socket
are private, and the peer must be our own user or root. It has no mailbox: nobody inside sends it anything.
"""

import errno
import json
import os
import socket as stdlib_socket
import stat
import struct
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import attrs
import structlog
import trio

from klaw.actor.failure import error_class, where
from klaw.actor.supervisor import ActorSpec, Started, Vitals
from klaw.actor.threads import read_input
from klaw.config.paths import ensure_private_dir
from klaw.convert import REQUESTS, Bounds
from klaw.domain.names import UserId
from klaw.errors import ActorStopped, ActorTooSlow, BadValue, KlawError, Problem, StorageError
from klaw.json_input import read_json
from klaw.operations.handler import Caller
from klaw.operations.operation import OperationError, UserName
from klaw.operations.perform import Call, operations, read

ACTOR_NAME = "admin.socket"
MAX_LINE_BYTES = 1 << 20
"""Longest request, without its line end."""
MAX_CONNECTIONS = 8
"""More are told so and closed: an operator and a monitor need two."""
MAX_CLIENT = 64
IDLE_S = 300.0
"""A connection without a request for so long is closed."""
WRITE_S = 10.0
"""A peer that does not take its answer in this time is closed."""
PROBE_S = 2.0
"""How long a server that may live behind an existing socket has to accept."""
_BACKLOG = 16
_READ_BYTES = 16_384
_CREDENTIALS = struct.Struct("3i")  # struct ucred: pid, uid, gid

Perform: TypeAlias = Callable[[Call], Awaitable[dict[str, Any]]]
"""Carries out a request; ``operations.perform`` does."""
log = structlog.get_logger("klaw.admin")


class SocketTaken(KlawError):
    """A live server answers on the socket's path, or something that is no socket is there."""


def spec(path: Path, perform: Perform, uids: frozenset[int] | None = None) -> ActorSpec:
    """How the supervisor runs it. ``uids``: whose processes may connect, if not ``allowed_uids()``."""
    return ActorSpec(name=ACTOR_NAME, run=partial(run, path=path, perform=perform, uids=uids))


async def run(
    vitals: Vitals, task_status: Started, *, path: Path, perform: Perform, uids: frozenset[int] | None = None
) -> None:
    """Serve until cancelled. The socket's file is removed in the end.

    Raises:
        SocketTaken: the path is in use.
        ConfigError: its folder cannot be made private.
        OSError: the socket cannot be made.
    """
    ensure_private_dir(path.parent)
    if _is_there(path):
        if await _answers(path):
            raise SocketTaken(f"another Klaw server answers at {path}")
        _remove(path)
        log.info("stale_socket_removed", path=str(path))
    listener, inode = _listen(path)
    try:
        task_status.started()
        log.info("admin_listening", path=str(path))
        await trio.serve_listeners(_Server(vitals, perform, uids or allowed_uids()).serve, [listener])
    finally:
        _remove(path, inode)


def _is_there(path: Path) -> bool:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return False
    if not stat.S_ISSOCK(mode):
        raise SocketTaken(f"{path} is not a socket: move it away")
    return True


async def _answers(path: Path) -> bool:
    """Whether a live server is behind the socket. One whose queue is too full to connect counts as live."""
    with trio.move_on_after(PROBE_S), trio.socket.socket(stdlib_socket.AF_UNIX, stdlib_socket.SOCK_STREAM) as probe:
        try:
            await probe.connect(str(path))
        except OSError as error:
            if error.errno in (errno.ECONNREFUSED, errno.ENOENT):
                return False
            raise
    return True


def _listen(path: Path) -> tuple[trio.SocketListener, int]:
    """The listener, and the inode of its file."""
    listener = stdlib_socket.socket(stdlib_socket.AF_UNIX, stdlib_socket.SOCK_STREAM)
    try:
        listener.bind(str(path))
        # The folder keeps others out in the moment before this; umask would change the whole process.
        path.chmod(0o600)
        listener.listen(_BACKLOG)
        return trio.SocketListener(trio.socket.from_stdlib_socket(listener)), path.stat().st_ino
    except BaseException:
        listener.close()
        raise


def _remove(path: Path, inode: int | None = None) -> None:
    """Remove the file; with an inode only if it is that one, because another server may have put its own there."""
    try:
        if inode is None or path.stat().st_ino == inode:
            path.unlink()
    except FileNotFoundError:
        pass


def allowed_uids() -> frozenset[int]:
    """Whose processes may connect: our own user's, and root's."""
    return frozenset({os.geteuid(), 0})


def _peer_uid(connection: trio.socket.SocketType) -> int:
    raw = connection.getsockopt(stdlib_socket.SOL_SOCKET, stdlib_socket.SO_PEERCRED, _CREDENTIALS.size)
    _pid, uid, _gid = _CREDENTIALS.unpack(raw)
    return int(uid)


class _Server:
    """The connections of one incarnation."""

    def __init__(self, vitals: Vitals, perform: Perform, uids: frozenset[int]) -> None:
        self._vitals = vitals
        self._perform = perform
        self._uids = uids
        self._open = 0

    async def serve(self, stream: trio.SocketStream) -> None:
        """One connection. Whatever happens on it concerns nobody else."""
        self._count(1)
        try:
            if (uid := _peer_uid(stream.socket)) not in self._uids:
                log.warning("admin_peer_refused", uid=uid)
            elif self._open > MAX_CONNECTIONS:
                await _send(stream, _refusal("busy", f"at most {MAX_CONNECTIONS} connections at the same time"))
            else:
                await self._talk(stream)
        except trio.BrokenResourceError:
            pass  # the peer has gone
        except Exception as error:  # noqa: BLE001 - a connection's failure is not the socket's
            log.error("admin_connection_failed", error=error_class(error), where=where(error))
        finally:
            self._count(-1)
            await trio.aclose_forcefully(stream)

    def _count(self, more: int) -> None:
        self._open += more
        self._vitals.doing(f"{self._open} connections")

    async def _talk(self, stream: trio.SocketStream) -> None:
        lines, line = Lines(stream), None
        while True:
            with trio.move_on_after(IDLE_S) as idle:
                line = await lines.next()
            if idle.cancelled_caught or line is None or not await _send(stream, await self._answer(line)):
                return

    async def _answer(self, line: bytes) -> dict[str, Any]:
        if len(line) > MAX_LINE_BYTES:
            return _refusal("line_too_long", f"a request has at most {MAX_LINE_BYTES} bytes")
        try:
            request = await read_input(len(line), parse, line)
            with trio.move_on_after(request.operation.deadline_s):
                return {"ok": True, "result": await self._perform(request)}
            return _refusal("too_slow", f"no answer within {request.operation.deadline_s:g} s")
        except OperationError as error:
            return _refusal(error.code, str(error), error.problems)
        except (trio.TooSlowError, ActorTooSlow):
            return _refusal("too_slow", "a part of the server did not answer in time")
        except ActorStopped:
            return _refusal("unavailable", "a part of the server is stopped")
        except StorageError as error:
            return _refusal("storage", str(error))
        except Exception as error:  # noqa: BLE001 - the operator is told and the socket goes on
            log.error("admin_command_failed", error=error_class(error), where=where(error))
            return _refusal("internal", f"an internal error occurred ({error_class(error)}); the log has its place")


def parse(line: bytes) -> Call:
    """Read one request: ``{"command": NAME, "args": {...}}``. Errors never quote a value.

    ``as`` may say as whom: ``{"user": NAME, "client": PROGRAM}``, who then may no more than this user may.

    Raises:
        OperationError: ``bad_json``, ``bad_request``, ``unknown_command``, ``bad_args``, or what is wrong with fields.
    """
    try:
        tree = read_json(line)
    except (ValueError, RecursionError):
        # From None: the error's text quotes the line.
        raise OperationError("bad_json", "a request is one JSON object in one line of UTF-8") from None
    if not isinstance(tree, dict):
        raise OperationError("bad_request", "a request is a JSON object")
    if set(tree) - {"command", "args", "as"}:
        text = f"a request has the fields command, args and as only, and this has {len(tree)}"
        raise OperationError("bad_request", text)
    name, args = tree.get("command"), tree.get("args", {})
    if not isinstance(name, str):
        text = "command: must be a text" if "command" in tree else "command: is required"
        raise OperationError("bad_request", text)
    if name not in operations():
        known = ", ".join(operations())
        raise OperationError("unknown_command", f"command: there is no such command; known are {known}")
    if not isinstance(args, dict):
        raise OperationError("bad_request", "args: must be an object")
    call = read(operations()[name], args)
    return attrs.evolve(call, caller=_caller(tree["as"])) if "as" in tree else call


@attrs.frozen(kw_only=True)
class _As:
    user: UserName
    client: Annotated[str, Bounds(1, MAX_CLIENT)] | None = None


def _caller(given: Any) -> Caller:
    try:
        named = REQUESTS.read(given, _As)
    except BadValue as error:
        problems = [Problem(f"as.{each.path}".rstrip("."), each.message) for each in error.problems]
        raise OperationError("bad_request", problems=problems) from None
    return Caller(user=UserId(named.user), client=named.client)


class Lines:
    """Splits a stream into lines.

    Args:
        stream: read from; never more than one line and one read is kept.
    """

    def __init__(self, stream: trio.abc.ReceiveStream) -> None:
        self._stream = stream
        self._buffer = bytearray()

    async def next(self) -> bytes | None:
        """The next line without its end; None at the end of the stream, where an unfinished line is dropped.

        Of a line over ``MAX_LINE_BYTES`` only one byte more than that is kept, the rest is read and forgotten.

        Raises:
            trio.BrokenResourceError: the peer has gone.
        """
        kept: bytearray | None = None
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            if kept is None and len(self._buffer) > MAX_LINE_BYTES:
                kept = self._buffer[: MAX_LINE_BYTES + 1]
            if kept is not None:
                self._buffer.clear()
            searched = len(self._buffer)
            part = await self._stream.receive_some(_READ_BYTES)
            if not part:
                return None
            self._buffer += part
        line = bytes(self._buffer[:end] if kept is None else kept)
        del self._buffer[: end + 1]
        return line


async def _send(stream: trio.SocketStream, answer: dict[str, Any]) -> bool:
    """Send one answer. False when the peer does not take it."""
    # ASCII with escapes: one line, and no control character, whatever names it holds.
    data = json.dumps(answer, separators=(",", ":"), default=str).encode() + b"\n"
    with trio.move_on_after(WRITE_S) as scope:
        await stream.send_all(data)
    return not scope.cancelled_caught


def _refusal(code: str, message: str, problems: Sequence[Problem] = ()) -> dict[str, Any]:
    error: dict[str, Any] = {"code": code, "message": message}
    if problems:
        error["problems"] = [{"field": problem.path, "message": problem.message} for problem in problems]
    return {"ok": False, "error": error}
