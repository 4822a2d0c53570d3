"""What ``klaw`` asks about the server itself, and ``klaw receipt``, against a real server and without one."""

import json
import socket
from functools import partial
from pathlib import Path

import pytest
import trio

from klaw import __version__
from klaw.actor import log as logging
from klaw.admin import socket as admin_socket
from klaw.app.app import App, running
from klaw.cli import operations
from klaw.cli.admin_call import TIMEOUT_S, NoServer, RefusedByServer, call
from klaw.cli.main import main
from klaw.config.load import parse
from klaw.config.paths import Paths
from tests.support.admin import ANNA, BORIS, SETTINGS, Commands, fail_a_turn, served
from tests.support.asking import klaw_here


async def test_with_a_server(app: App, home: Path, commands: Commands, capsys: pytest.CaptureFixture[str]) -> None:
    await fail_a_turn(app, ANNA, "Работа", "вопрос")
    await fail_a_turn(app, BORIS, "main", "a question")

    async def said(*words: str, code: int = 0) -> str:
        assert await trio.to_thread.run_sync(main, ["--home", str(home), *words]) == code
        told = capsys.readouterr()
        return told.err if code == 2 else told.out

    async with served(app, commands):
        assert "2 messages, 2 chats, 2 users" in await said("status", code=3)
        assert json.loads(await said("status", "--json", code=3))["version"] == __version__
        tree = await said("actors")
        assert "chat anna:Работа" in tree
        assert "admin.socket" in tree
        assert json.loads(await said("actors", "--json"))["tree"]["name"] == "supervisor"
        assert (await said("health", code=3)).startswith("not everything works\n  ")
        assert json.loads(await said("health", "--json", code=3))["failed_actors"] == []
        assert await said("log") == f"{logging.level()}\n"
        assert "must be one of debug, info, warning, error" in await said("log", "loud", code=2)
        assert "no MCP server is switched on" in await said("mcp", "list")
        assert "chat     boris:main" in await said("receipt")
        assert "chat     anna:Работа" in await said("receipt", "--chat", "Работа", "--user", "anna")
        newest = json.loads(await said("receipt", "--user", "anna", "--json"))
        assert json.loads(await said("receipt", newest["id"], "--json")) == newest
        assert json.loads(await said("receipt", "--chat", "anna:Работа", "--json")) == newest
        assert await trio.to_thread.run_sync(klaw_here, home, "receipt", "nothing") == 1
        assert "there is no such answer" in capsys.readouterr().err
        with pytest.raises(RefusedByServer) as caught:
            await trio.to_thread.run_sync(lambda: call(app.core.paths, "chats_status", chat="nowhere"))
        assert caught.value.code == "unknown_chat"


async def test_watching_ends_when_the_server_goes(
    app: App, home: Path, commands: Commands, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            trio.from_thread.run(app.core.supervisor.stop, admin_socket.ACTOR_NAME, "the test")

    monkeypatch.setattr(operations.time, "sleep", pause)
    async with served(app, commands):
        assert await trio.to_thread.run_sync(main, ["actors", "--watch", "--home", str(home)]) == 1
    printed = capsys.readouterr()
    assert printed.out.count("store.writer") == 2
    assert pauses == [operations.REFRESH_S] * 2
    assert "no server is running" in printed.err


async def test_watching_ends_with_ctrl_c(
    app: App, home: Path, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(operations.time, "sleep", interrupted)
    async with served(app, commands):
        assert await trio.to_thread.run_sync(main, ["actors", "--watch", "--home", str(home)]) == 0


def test_without_a_server(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each command says so in one line, names the home and how to start, and exits with 1."""
    for command in ("status", "actors", "health", "log", "receipt"):
        assert main([command, "--home", str(home)]) == 1
        assert capsys.readouterr().err == f"klaw: no server is running for {home}: start it with `klaw serve`\n"


def test_a_stale_socket_is_no_server(home: Path) -> None:
    paths = Paths.resolve(home, {})
    paths.runtime_dir.mkdir()
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(paths.admin_socket))
    with pytest.raises(NoServer, match="no server is running"):
        call(paths, "status")


async def answering(
    home: Path, answer: bytes, *, timeout_s: float = TIMEOUT_S, error: type[Exception] = NoServer
) -> str:
    """Ask somebody who answers this to everything; returns the error's text."""
    paths = Paths.resolve(home, {})
    paths.runtime_dir.mkdir()

    async def ask() -> str:
        with pytest.raises(error) as caught:
            await trio.to_thread.run_sync(partial(call, paths, "status", timeout_s=timeout_s))
        return str(caught.value)

    listener = trio.socket.socket(socket.AF_UNIX)
    with listener:
        await listener.bind(str(paths.admin_socket))
        listener.listen()
        texts: list[str] = []
        async with trio.open_nursery() as nursery:
            told = trio.Event()

            async def collect() -> None:
                texts.append(await ask())
                told.set()

            nursery.start_soon(collect)
            connection, _ = await listener.accept()
            with connection:
                await connection.recv(1000)
                if answer == b"never":
                    await told.wait()
                else:
                    await connection.send(answer)
        return texts[0]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b"HTTP/1.1 400\n", "is not a Klaw server"),
        (b"[]\n", "is not a Klaw server"),
        (b"220 mail.example ESMTP\r\n", "is not a Klaw server"),
        (b'HTTP/1.1 200 OK\r\n\r\n{"version": ', "hung up in its answer"),
        (b"", "hung up without an answer"),
    ],
)
async def test_somebody_else_on_the_socket(home: Path, answer: bytes, says: str) -> None:
    assert says in await answering(home, answer)


async def test_an_older_server_is_named(home: Path) -> None:
    """It speaks JSON in lines, and takes each line of a request for a bad one."""
    answer = b'{"ok": false, "error": {"code": "bad_json", "message": "a request is one JSON object"}}\n'
    assert "older than this klaw command: restart it" in await answering(home, answer, error=RefusedByServer)


async def test_a_server_that_does_not_answer(home: Path) -> None:
    assert "does not answer" in await answering(home, b"never", timeout_s=0.05)


async def test_receipts_are_read_without_a_server(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same answer as the server's, from the database, which stays as it is."""
    config, _ = parse(SETTINGS, {})
    paths = Paths.resolve(home, {})
    async with running(config, paths) as app:
        await fail_a_turn(app, ANNA, "Работа", "вопрос")
        await fail_a_turn(app, BORIS, "main", "a question")
    before = paths.database.read_bytes()
    assert await trio.to_thread.run_sync(klaw_here, home, "receipt", "--json") == 0
    newest = json.loads(capsys.readouterr().out)
    assert newest["chat"] == "boris:main"
    assert await trio.to_thread.run_sync(klaw_here, home, "receipt", "--chat", "Работа", "--user", "anna") == 0
    assert "chat     anna:Работа" in capsys.readouterr().out
    assert await trio.to_thread.run_sync(klaw_here, home, "receipt", "nothing") == 1
    assert await trio.to_thread.run_sync(klaw_here, home, "receipt", "--chat", "../x") == 2
    refusals = capsys.readouterr().err.splitlines()
    assert refusals[0] == "klaw: there is no such answer"
    assert "a chat name begins with" in refusals[1]
    assert paths.database.read_bytes() == before


def test_a_damaged_database_is_named(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = Paths.resolve(home, {})
    paths.data_dir.mkdir()
    paths.database.write_bytes(b"no database" * 1000)
    assert klaw_here(home, "receipt") == 1
    assert "NotADBError" in capsys.readouterr().err
