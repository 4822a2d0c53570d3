"""How a server ends that cannot start: 78 when another start is no use, 1 when it may be, and what the journal gets."""

import os
import socket
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from klaw.cli.output import EX_CONFIG
from tests.support.repository import REPOSITORY
from tests.support.server import clean_environ, klaw_command, served, write_home


def serve(home: Path) -> tuple[int, str]:
    """Its exit code and its errors, as systemd's journal gets them."""
    theirs, ours = socket.socketpair()  # as systemd connects a service to the journal
    with theirs, ours:
        found = os.fstat(theirs.fileno())
        environ = {**clean_environ(), "JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}"}
        command = klaw_command("serve", "--home", str(home))
        done = subprocess.run(command, stderr=theirs, env=environ, cwd=REPOSITORY, check=False, timeout=300)
        theirs.close()
        with ours.makefile("r", encoding="utf-8") as reader:
            return done.returncode, reader.read()


def broken_configuration(home: Path) -> None:
    (home / "config" / "engine.yaml").write_text('{"gateway": {"port": "eighty"}}')


def broken_tokens(home: Path) -> None:
    (home / "config" / "tokens.json").write_text("{}")


def newer_database(home: Path) -> None:
    (home / "data").mkdir()
    with closing(sqlite3.connect(home / "data" / "klaw.db")) as connection:
        connection.execute("CREATE TABLE meta(key TEXT PRIMARY KEY, value)")
        connection.execute("INSERT INTO meta VALUES ('schema_version', '99999')")
        connection.commit()


def damaged_database(home: Path) -> None:
    (home / "data").mkdir()
    (home / "data" / "klaw.db").write_bytes(b"no database" * 1000)


@pytest.mark.parametrize("spoil", [broken_configuration, broken_tokens, newer_database, damaged_database])
def test_what_another_start_does_not_mend(tmp_path: Path, spoil: object) -> None:
    home = write_home(tmp_path)
    assert callable(spoil)
    spoil(home)
    code, errors = serve(home)
    assert code == EX_CONFIG, errors
    assert "<3>klaw: " in errors
    assert "Traceback" not in errors


def test_a_taken_port_may_be_free_at_the_next_start(tmp_path: Path) -> None:
    home = write_home(tmp_path)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        write_home(tmp_path, gateway={"port": taken.getsockname()[1]})
        code, errors = serve(home)
    assert code == 1
    assert "<3>klaw: gateway.port: cannot listen on 127.0.0.1" in errors


async def test_a_second_server_may_be_alone_at_the_next_start(tmp_path: Path) -> None:
    async with served(write_home(tmp_path)):
        code, errors = serve(tmp_path)
    assert code == 1
    assert "<3>klaw: cannot open" in errors


def test_log_lines_carry_their_priority(tmp_path: Path) -> None:
    """And tell why a model was not loaded."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        embedding = {"enabled": True, "path": str(tmp_path / "none")}
        _code, errors = serve(write_home(tmp_path, embedding=embedding, gateway={"port": port}))
    lines = errors.splitlines()
    assert lines
    assert all(line[:3] in ("<3>", "<4>", "<6>") for line in lines), errors
    for line in lines:
        if line[3:].startswith("{"):
            level = {"<3>": "error", "<4>": "warning", "<6>": "info"}[line[:3]]
            assert f'"level": "{level}"' in line
    (unusable,) = (line for line in lines if '"state": "no_model"' in line)
    assert unusable.startswith("<4>")
    assert str(tmp_path / "none") in unusable


def test_a_terminal_that_does_not_know_all_letters_gets_the_others(tmp_path: Path) -> None:
    environ = {**clean_environ(), "PYTHONIOENCODING": "latin-1"}
    command = klaw_command("init", "--yes", "--dry-run", "--home", str(tmp_path / "дом"))
    done = subprocess.run(command, env=environ, cwd=REPOSITORY, capture_output=True, check=False, timeout=300)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"/???/workspace" in done.stdout
