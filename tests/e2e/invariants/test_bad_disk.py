"""Disks, databases and configurations that cannot be used: a clear word, nothing lost, and recovery where it can be."""

import json
import resource
import sqlite3
import subprocess
from contextlib import contextmanager

import pytest
import trio

from klaw.cli.output import EX_CONFIG
from klaw.client.streams import ConnectedEvent
from klaw.errors import RequestRefused
from tests.support.llm_server import echo_reply, serve_llm
from tests.support.server import run_klaw, served, write_home
from tests.support.talking import talking

RUSSIAN = "Проверка связи, приём. "


@contextmanager
def small_disk(folder, size):
    """A file system of its own at a folder; skips where mounting is not allowed."""
    folder.mkdir(mode=0o700)
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size},mode=0700", "tmpfs", folder], capture_output=True
    )
    if done.returncode != 0:
        pytest.skip("needs the right to mount a small file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


async def test_full_disk_refuses_with_a_code_and_goes_on_when_there_is_space(tmp_path):
    """A file system of 3 MB is filled up: the message is refused and said to be kept by nobody, the connection lives;
    after room is made it is taken, and everything acknowledged is there after a restart."""
    async with serve_llm() as llm:
        home = write_home(tmp_path, llm=llm.url)
        with small_disk(home / "data", "3m") as data:
            async with served(home) as server:
                async with talking(server.url) as talk:
                    first = await talk.send(f"{RUSSIAN}Before the disk was full.")
                    await talk.settled(first)
                    _fill(data / "ballast")
                    refused = []
                    for number in range(40):  # what SQLite and the logs had reserved is used up first
                        try:
                            await talk.send(RUSSIAN * 1000, message_id=f"big{number}")
                        except RequestRefused as error:
                            refused.append((number, error))
                            break
                    ((number, error),) = refused
                    assert error.code == "storage_full"
                    assert error.retryable
                    assert "no space" in str(error)
                    connects = [event for event in talk.events if isinstance(event, ConnectedEvent)]
                    assert len(connects) == 1, "the connection lives"
                    (data / "ballast").unlink()
                    again = await talk.send(RUSSIAN * 1000, message_id=f"big{number}")
                    history = await talk.history()
                    assert [message.seq for message in history] == list(range(1, len(history) + 1))
                    await talk.settled(again)
                    history = await talk.history()
                assert server.events("storage_full")
                await server.kill()
                await server.start()
                async with talking(server.url) as talk:
                    kept = [each for each in await talk.history() if "disk_low" not in each.id]
                    assert kept == history
                assert server.events("actor_failed") == []


def _fill(path):
    with path.open("wb", buffering=0) as file:
        for size in (65_536, 4096, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue


async def test_file_size_limit_is_met_like_a_full_disk(tmp_path):
    """The kernel refuses to let a log grow (EFBIG): refused with a code; taken when the limit is lifted."""
    async with serve_llm() as llm, served(write_home(tmp_path, llm=llm.url)) as server, talking(server.url) as talk:
        llm.respond = echo_reply
        for number in range(6):  # the conversation's log grows beyond the server's own output and the commit log
            await talk.send(f"{number} {RUSSIAN * 1000}")
        await talk.settled(6)
        (log,) = server.data.glob("conversations/*/*.jsonl")
        limit = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (log.stat().st_size, limit[1]))
        with pytest.raises(RequestRefused) as refused:
            await talk.send("Does this fit? А это влезет?", message_id="late")
        assert refused.value.code == "storage_full"
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, limit)
        seq = await talk.send("Does this fit? А это влезет?", message_id="late")
        assert await talk.answer_to(await talk.settled(seq)) == "echo: Does this fit? А это влезет?"
        history = await talk.history()
        assert [message.seq for message in history] == list(range(1, len(history) + 1))
        assert sum(message.id == "late" for message in history) == 1
        for line in log.read_bytes().splitlines():
            json.loads(line)  # nothing half-written is left


async def test_read_only_data_folder_is_refused_at_the_start(tmp_path):
    """Exit code 1 and one clear sentence with the path."""
    home = write_home(tmp_path)
    with small_disk(home / "data", "1m") as data:
        await trio.run_process(["mount", "-o", "remount,ro", data])
        code, _, errors = await run_klaw("serve", "--home", str(home))
    assert code == 1
    assert errors.startswith(f"klaw: cannot open {data}"), errors
    assert "Traceback" not in errors


async def test_data_folder_that_is_a_file_is_refused_at_the_start(tmp_path):
    home = write_home(tmp_path)
    (home / "data").write_text("not a folder")
    code, _, errors = await run_klaw("serve", "--home", str(home))
    assert code == EX_CONFIG
    assert errors.startswith("klaw: ")
    assert str(home / "data") in errors
    assert "Traceback" not in errors


async def test_database_of_a_newer_klaw_is_not_touched(tmp_path):
    """The exit code of permanent errors, the reason in words, and the file is as it was."""
    async with serve_llm() as llm:
        home = write_home(tmp_path, llm=llm.url)
        async with served(home) as server, talking(server.url) as talk:
            await talk.ask("hello")
        with sqlite3.connect(server.database) as database:
            database.execute("UPDATE meta SET value = '999' WHERE key = 'schema_version'")
        database.close()
        before = server.database.read_bytes()
        code, _, errors = await run_klaw("serve", "--home", str(home))
    assert code == EX_CONFIG
    assert "newer" in errors
    assert "999" in errors
    assert "Traceback" not in errors
    assert server.database.read_bytes() == before


@pytest.mark.parametrize(
    "content", [b"this is no database, it is a poem " * 400, b"SQLite format 3\0" + b"\xff" * 8000]
)
async def test_damaged_database_is_named_and_can_be_made_anew(tmp_path, content):
    """The exit code of permanent errors with the advice; following it brings everything back from the logs."""
    async with serve_llm() as llm:
        home = write_home(tmp_path, llm=llm.url)
        async with served(home) as server, talking(server.url) as talk:
            await talk.ask("hello / привет")
            history = await talk.history()
        server.database.write_bytes(content)
        code, _, errors = await run_klaw("serve", "--home", str(home))
        assert code == EX_CONFIG
        assert "damaged" in errors
        assert "Traceback" not in errors
        server.database.rename(tmp_path / "away")
        async with served(home) as server, talking(server.url) as talk:
            assert await talk.history() == history


async def test_second_server_on_one_folder_is_refused(tmp_path):
    async with serve_llm() as llm, served(write_home(tmp_path, llm=llm.url)) as server:
        code, _, errors = await run_klaw("serve", "--home", str(server.home))
        assert code == 1
        assert "another Klaw server, a reindex or an import is using this folder" in errors
        async with talking(server.url) as talk:
            await talk.ask("still there?")
            await talk.client.call("health")


async def test_configuration_errors_are_all_listed(tmp_path):
    """The exit code of permanent errors, one line a problem, each with its key path; no secret's value."""
    home = write_home(
        tmp_path,
        autoRag={"enabled": "false", "topK": 3.7, "maxTokens": -1},
        gateway={"port": 99999},
        providers={"stub": {"baseUrl": "http://127.0.0.1:9/v1", "apiKey": "sk-secret-value with spaces"}},
    )
    code, out, errors = await run_klaw("serve", "--home", str(home))
    assert code == EX_CONFIG
    assert out == ""
    lines = errors.splitlines()
    paths = ("autoRag.enabled", "autoRag.topK", "autoRag.maxTokens", "gateway.port", "providers.stub.apiKey")
    for path in paths:
        assert sum(path in line for line in lines) == 1, errors
    assert len(lines) == len(paths)
    assert "sk-secret-value" not in errors
    (home / "config" / "engine.yaml").write_text("{ not: [ yaml")
    code, _, errors = await run_klaw("serve", "--home", str(home))
    assert code == EX_CONFIG
    assert "Traceback" not in errors
