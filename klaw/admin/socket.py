"""Actor ``admin.socket``: a Unix socket on which the operator asks the server over HTTP, by the routes of the API.

The folder and the socket are private, and the peer must be the server's own user or root, as the kernel says
(``SO_PEERCRED``).
"""

import errno
import json
import os
import socket as stdlib_socket
import stat
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeAlias

import structlog
import trio

from klaw import __version__
from klaw.actor.failure import error_class, where
from klaw.actor.supervisor import ActorSpec, TaskStarted, Vitals
from klaw.config.paths import ensure_private_dir
from klaw.errors import HttpRefusal, KlawError
from klaw.gateway.handshake import respond

ACTOR_NAME = "admin.socket"
MAX_CONNECTIONS = 8
"""More are refused: an operator and a monitor need two."""
FIRST_S = 60.0
"""A connection that says nothing for this long is closed."""
PROBE_S = 2.0
"""How long a server behind an existing socket has to accept."""
_BACKLOG = 16
_READ_BYTES = 16_384

Serve: TypeAlias = Callable[[trio.SocketStream, bytes], Awaitable[None]]
"""Serves HTTP on a connection of which some bytes were read; ``HttpServer.serve_operator`` does."""
log = structlog.get_logger("klaw.admin")


class SocketTaken(KlawError):
    """A live server answers on the socket's path, or something that is no socket is there."""


def spec(path: Path, serve: Serve, uids: frozenset[int] | None = None) -> ActorSpec:
    """``uids``: whose processes may connect, if not ``allowed_uids()``."""
    return ActorSpec(name=ACTOR_NAME, run=partial(run, path=path, serve=serve, uids=uids))


async def run(
    vitals: Vitals, task_status: TaskStarted, *, path: Path, serve: Serve, uids: frozenset[int] | None = None
) -> None:
    """Serve until cancelled; then the socket's file is removed. Raises SocketTaken; ConfigError: the folder cannot be
    made private; OSError."""
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
        await trio.serve_listeners(_Connections(vitals, serve, uids or allowed_uids()).serve, [listener])
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
    """Whether a live server is behind the socket; one whose queue is too full to connect counts."""
    with trio.move_on_after(PROBE_S), trio.socket.socket(stdlib_socket.AF_UNIX, stdlib_socket.SOCK_STREAM) as probe:
        try:
            await probe.connect(str(path))
        except OSError as error:
            if error.errno in (errno.ECONNREFUSED, errno.ENOENT):
                return False
            raise
    return True


def _listen(path: Path) -> tuple[trio.SocketListener, int]:
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
    """Remove the file; with an inode only if it is that one: another server may have put its own there."""
    with suppress(FileNotFoundError):
        if inode is None or path.stat().st_ino == inode:
            path.unlink()


def allowed_uids() -> frozenset[int]:
    return frozenset({os.geteuid(), 0})


def _peer_uid(connection: trio.socket.SocketType) -> int:
    ucred = struct.Struct("3i")  # pid, uid, gid
    raw = connection.getsockopt(stdlib_socket.SOL_SOCKET, stdlib_socket.SO_PEERCRED, ucred.size)
    return int(ucred.unpack(raw)[1])


class _Connections:
    def __init__(self, vitals: Vitals, serve: Serve, uids: frozenset[int]) -> None:
        self._vitals, self._serve, self._uids = vitals, serve, uids
        self._open = 0

    async def serve(self, stream: trio.SocketStream) -> None:
        """One connection; no error leaves this."""
        self._count(1)
        try:
            if (uid := _peer_uid(stream.socket)) not in self._uids:
                log.warning("admin_peer_refused", uid=uid)
            elif self._open > MAX_CONNECTIONS:
                await respond(stream, HttpRefusal(503, f"at most {MAX_CONNECTIONS} connections at the same time"))
            else:
                await self._talk(stream)
        except* trio.BrokenResourceError:
            pass  # the peer has gone
        except* Exception as failures:  # noqa: BLE001  an error of one connection is not the socket's
            log.error("admin_connection_failed", error=error_class(failures), where=where(failures))
        finally:
            self._count(-1)
            await trio.aclose_forcefully(stream)

    def _count(self, more: int) -> None:
        self._open += more
        self._vitals.doing(f"{self._open} connections")

    async def _talk(self, stream: trio.SocketStream) -> None:
        begun = b""
        with trio.move_on_after(FIRST_S):
            begun = bytes(await stream.receive_some(_READ_BYTES))
        if begun.startswith(b"{"):
            await stream.send_all(_for_older_commands())
        elif begun:
            await self._serve(stream, begun)


def _for_older_commands() -> bytes:
    """An answer that a ``klaw`` command of a version before HTTP understands, which sends JSON in lines."""
    text = f"this klaw command is older than the running server (Klaw {__version__}): use the server's own klaw command"
    return json.dumps({"ok": False, "error": {"code": "wrong_version", "message": text}}).encode() + b"\n"
