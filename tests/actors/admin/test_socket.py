"""The admin socket over real unix sockets."""

# ruff: noqa: ASYNC240  the files of a test are looked at in place

import json
import shutil
import socket as stdlib_socket
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest
import trio
import trio.testing

import klaw.admin.socket as admin_socket
from klaw.actor.clock import SystemClock
from klaw.actor.supervisor import ActorState, Supervisor, Vitals
from klaw.admin.socket import SocketTaken
from klaw.api.server import SEND_S, HttpServer
from tests.support.waiting import HANG_S

ANYBODY = 65534


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Answers by the path, so that each kind of outcome can be had."""
    match scope["path"]:
        case "/slow":
            await trio.sleep_forever()
        case "/broken":
            raise ZeroDivisionError("secret text")
        case "/much":
            body = b"x" * 10_000_000
        case path:
            operator = scope["state"]["connection"].operator
            body = f"{path[1:]} for {'the operator' if operator else 'somebody'}".encode()
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


HTTP = HttpServer(lambda: app)


@asynccontextmanager
async def serving(
    path: Path, *, uids: frozenset[int] | None = None, guard_s: float = HANG_S
) -> AsyncIterator[Supervisor]:
    """The actor under a real supervisor."""
    with trio.fail_after(guard_s):
        async with trio.open_nursery() as nursery:
            supervisor = Supervisor(nursery, SystemClock())
            http = HttpServer(lambda: app)
            http._made = http._make()  # in no thread: a test's clock jumps while one works
            await supervisor.start(admin_socket.spec(path, http.serve_operator, uids))
            yield supervisor
            await supervisor.stop(admin_socket.ACTOR_NAME, "the test is over")


class Peer:
    """A client of the socket."""

    opened: ClassVar[list["Peer"]] = []

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self._buffer = b""

    @classmethod
    async def connect(cls, path: Path) -> "Peer":
        peer = cls(await trio.open_unix_socket(str(path)))
        cls.opened.append(peer)
        return peer

    async def ask(self, path: str = "/status") -> bytes:
        await self.stream.send_all(f"GET {path} HTTP/1.1\r\nHost: klaw\r\n\r\n".encode())
        return await self.answer()

    async def answer(self) -> bytes:
        """The body of an answer."""
        head = b""
        while b"\r\n\r\n" not in self._buffer:
            await self._read()
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
        while len(self._buffer) < length:
            await self._read()
        body, self._buffer = self._buffer[:length], self._buffer[length:]
        return body

    async def _read(self) -> None:
        part = await self.stream.receive_some(65_536)
        assert part, "the server hung up"
        self._buffer += part

    async def hung_up(self) -> bool:
        try:
            return await self.stream.receive_some(1) == b""
        except trio.BrokenResourceError:
            return True


@pytest.fixture
async def path(home: Path) -> AsyncIterator[Path]:
    yield home / "run" / "admin.sock"
    for peer in Peer.opened:
        peer.stream.socket.close()
    Peer.opened.clear()


async def test_folder_and_socket_are_private_and_the_socket_goes_in_the_end(path: Path) -> None:
    path.parent.mkdir(mode=0o755)
    async with serving(path):
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not path.exists()


async def test_many_requests_on_one_connection_are_the_operators(path: Path) -> None:
    async with serving(path):
        peer = await Peer.connect(path)
        assert await peer.ask("/actors") == b"actors for the operator"
        assert await peer.ask("/status") == b"status for the operator"


async def test_an_older_command_is_told_that_it_is_older(path: Path) -> None:
    """It sends JSON in lines, and shows the message of what it is answered."""
    async with serving(path):
        peer = await Peer.connect(path)
        await peer.stream.send_all(b'{"command": "status", "args": {}}\n')
        line = b""
        while not line.endswith(b"\n"):
            line += await peer.stream.receive_some()
        told = json.loads(line)
        assert (told["ok"], told["error"]["code"]) == (False, "wrong_version")
        assert "older than the running server" in told["error"]["message"]
        assert await peer.hung_up()


async def test_a_stale_socket_is_replaced(path: Path) -> None:
    """A server that was killed leaves its file behind."""
    path.parent.mkdir()
    with stdlib_socket.socket(stdlib_socket.AF_UNIX) as left_behind:
        left_behind.bind(str(path))
    async with serving(path):
        assert await (await Peer.connect(path)).ask()


async def test_a_live_server_is_left_alone(path: Path) -> None:
    async with serving(path):
        with pytest.raises(SocketTaken, match="another Klaw server answers"):
            await admin_socket.run(
                Vitals(SystemClock()), Unstarted(), path=path, serve=HttpServer(lambda: app).serve_operator
            )
        assert await (await Peer.connect(path)).ask()


async def test_a_file_that_is_no_socket_is_not_removed(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("mine")
    with pytest.raises(SocketTaken, match="is not a socket"):
        await admin_socket.run(
            Vitals(SystemClock()), Unstarted(), path=path, serve=HttpServer(lambda: app).serve_operator
        )
    assert path.read_text() == "mine"


async def test_another_servers_socket_is_not_removed_in_the_end(path: Path) -> None:
    async with serving(path):
        path.rename(path.with_name("moved"))
        with stdlib_socket.socket(stdlib_socket.AF_UNIX) as other:
            other.bind(str(path))
    assert path.exists()


class Unstarted:
    def started(self, value: object = None) -> None:
        raise AssertionError("it must not start")


async def test_other_users_are_turned_away(path: Path, log_events: list[dict[str, Any]]) -> None:
    """By the uid that the kernel tells, not by what the peer says."""
    async with serving(path, uids=frozenset({ANYBODY})):
        assert await (await Peer.connect(path)).hung_up()
    assert any(event["event"] == "admin_peer_refused" for event in log_events)


async def test_a_process_of_another_user_gets_nothing(home: Path, path: Path) -> None:
    """Even where somebody opened folder and socket to all."""
    script = (
        "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]);"
        "s.sendall(b'GET / HTTP/1.0\\r\\n\\r\\n'); sys.stdout.buffer.write(s.recv(99))"
    )
    async with serving(path):
        home.chmod(0o711)
        path.parent.chmod(0o711)
        path.chmod(0o666)
        python = shutil.which("python3", path="/usr/bin:/usr/local/bin")
        if python is None:
            pytest.skip("needs a Python that every user can run")
        try:
            done = await trio.run_process(
                [python, "-I", "-c", script, str(path)],
                user=ANYBODY,
                capture_stdout=True,
                capture_stderr=True,
                check=False,
            )
        except PermissionError:
            pytest.skip("only root can run a process as another user")
    assert done.stdout == b""
    assert done.returncode == 0 or b"ConnectionResetError" in done.stderr or b"BrokenPipeError" in done.stderr


async def test_too_many_connections_are_told_so(path: Path) -> None:
    """And there is room again when one leaves."""
    async with serving(path):
        peers = [await Peer.connect(path) for _ in range(admin_socket.MAX_CONNECTIONS)]
        for peer in peers:
            assert await peer.ask()
        extra = await Peer.connect(path)
        assert b"at most 8 connections" in await extra.answer()
        assert await extra.hung_up()
        await peers[0].stream.aclose()
        await trio.testing.wait_all_tasks_blocked()
        assert await (await Peer.connect(path)).ask()


async def test_an_idle_connection_is_closed(path: Path, autojump_clock: trio.testing.MockClock) -> None:
    async with serving(path, guard_s=10 * admin_socket.FIRST_S):
        assert await (await Peer.connect(path)).hung_up()


async def test_a_peer_that_takes_no_answer_is_closed(path: Path, autojump_clock: trio.testing.MockClock) -> None:
    async with serving(path, guard_s=10 * SEND_S) as supervisor:
        deaf = await Peer.connect(path)
        await deaf.stream.send_all(b"GET /much HTTP/1.1\r\nHost: klaw\r\n\r\n")
        await trio.sleep(2 * SEND_S)
        (report,) = supervisor.report()
        assert report.activity == "0 connections"


async def test_a_peer_that_goes_in_the_middle_of_a_request_is_no_error(
    path: Path, log_events: list[dict[str, Any]]
) -> None:
    async with serving(path) as supervisor:
        peer = await Peer.connect(path)
        await peer.stream.send_all(b"GET /sta")
        await peer.stream.aclose()
        assert await (await Peer.connect(path)).ask()
        assert supervisor.state(admin_socket.ACTOR_NAME) is ActorState.RUNNING
    assert not [event for event in log_events if event["log_level"] == "error"]


async def test_a_stop_ends_running_commands(path: Path) -> None:
    """A cancelled actor leaves neither socket nor connection."""
    async with serving(path):
        peer = await Peer.connect(path)
        await peer.stream.send_all(b"GET /slow HTTP/1.1\r\nHost: klaw\r\n\r\n")
        await trio.testing.wait_all_tasks_blocked()
    assert await peer.hung_up()
    assert not path.exists()
