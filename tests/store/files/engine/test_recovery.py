"""Invariant durable-ack: whatever is lost or torn on the way, the next start has every acknowledged message once."""

import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest
import trio

from klaw.domain.message import MessageKind, Role
from klaw.errors import SchemaTooNew, StorageError
from klaw.store import migrations
from klaw.store.engine.commit_log import COMMIT_LOG, LogEntry
from klaw.store.engine.connect import prepare_writer
from klaw.store.engine.journal import Journal
from klaw.store.kinds import messages, turns
from klaw.store.search import fulltext
from tests.support.repository import REPOSITORY
from tests.support.stores import new, running_store
from tests.support.turns import record

TEXTS = ["The cat sleeps", "Кошка спит", "dogs bark"]


async def fill(root: Path) -> None:
    async with running_store(root) as store:
        for text in TEXTS:
            await store.writer.run(messages.append, [new(text)])
        (asked,) = await store.writer.run(messages.append, [new("other chat", chat="b")])
        await store.writer.run(messages.append, [new("answer", chat="b", role=Role.ASSISTANT)], record(asked.message))
        await store.writer.run(messages.append, [new("", role=Role.SYSTEM, kind=MessageKind.SESSION_BREAK)])


async def contents(root: Path) -> dict[str, list[object]]:
    async with running_store(root) as store:
        found: dict[str, list[object]] = {}
        for name in ("main", "b"):
            chat = new(chat=name).chat
            found[name] = [
                (m.rowid, m.seq, m.id, m.content, m.segment)
                for m in await store.readers.run(messages.after, chat, 0, 99)
            ]
            found[name] += [await store.readers.run(messages.session, chat)]
            last = await store.readers.run(turns.last, chat)
            found[name] += [last.id if last else None]
        return found


def logs(root: Path) -> list[Path]:
    return sorted((root / "conversations").rglob("*.jsonl"))


async def test_a_lost_database_is_rebuilt_from_the_logs(tmp_path: Path) -> None:
    await fill(tmp_path)
    before = await contents(tmp_path)
    for name in ("klaw.db", "klaw.db-wal", "klaw.db-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    assert await contents(tmp_path) == before


async def test_a_rebuilt_database_finds_by_full_text(tmp_path: Path) -> None:
    await fill(tmp_path)
    (tmp_path / "klaw.db").unlink()
    async with running_store(tmp_path) as store:
        for word, text in (("cats", TEXTS[0]), ("кошкой", TEXTS[1])):
            (hit,) = (await store.readers.run(fulltext.scores, [word], "c1", (0, 99), 99)).best(5)
            (found,) = await store.readers.run(messages.by_rowids, [hit.rowid])
            assert found.content == text


async def test_messages_that_only_the_logs_have_are_inserted(tmp_path: Path) -> None:
    """As after a crash between the journal's fsync and the database's commit."""
    await fill(tmp_path)
    copy = tmp_path.with_name(f"{tmp_path.name}-copy")
    shutil.copytree(tmp_path, copy)
    async with running_store(tmp_path) as store:
        await store.writer.run(messages.append, [new("newest")])
    after = await contents(tmp_path)
    shutil.rmtree(copy / "conversations")
    shutil.copytree(tmp_path / "conversations", copy / "conversations")
    assert await contents(copy) == after


async def test_a_message_that_a_clock_gone_back_put_into_an_older_log_is_inserted(tmp_path: Path) -> None:
    """The newest message stands in the log of the day before; only that log has something the database lacks."""
    day = 86_400.0
    async with running_store(tmp_path) as store:
        await store.writer.run(messages.append, [new("first", at=20 * day)])
        await store.writer.run(messages.append, [new("second", at=21 * day)])
    copy = tmp_path.with_name(f"{tmp_path.name}-copy")
    shutil.copytree(tmp_path, copy)
    async with running_store(tmp_path) as store:
        await store.writer.run(messages.append, [new("third, but the clock says yesterday", at=20 * day + 5)])
    after = await contents(tmp_path)
    shutil.rmtree(copy / "conversations")
    shutil.copytree(tmp_path / "conversations", copy / "conversations")
    assert await contents(copy) == after


async def test_lines_of_the_commit_log_are_put_back_into_the_logs(tmp_path: Path) -> None:
    """As after a power cut: the commit log was fsynced, the logs themselves were not."""
    journal = Journal(tmp_path, checkpoint_bytes=1 << 20)
    journal.lock()
    journal.open()
    journal.append([LogEntry("conversations/a/1.jsonl", '{"n":1}'), LogEntry("conversations/b/1.jsonl", '{"n":2}')])
    journal.keep()
    commit_log = (tmp_path / COMMIT_LOG).read_bytes()
    journal.close()
    (tmp_path / "conversations/b/1.jsonl").unlink()
    (tmp_path / "conversations/a/1.jsonl").write_text('{"n"')  # torn
    (tmp_path / COMMIT_LOG).write_bytes(commit_log + b"conversations/a/1.jsonl\t{torn")
    again = Journal(tmp_path, checkpoint_bytes=1 << 20)
    again.lock()
    assert again.open() == 2
    again.close()
    assert (tmp_path / "conversations/a/1.jsonl").read_text() == '{"n":1}\n'
    assert (tmp_path / "conversations/b/1.jsonl").read_text() == '{"n":2}\n'
    assert (tmp_path / COMMIT_LOG).read_bytes() == b""


def test_of_a_group_a_kill_leaves_all_or_nothing(tmp_path: Path, log_events: list[dict[str, Any]]) -> None:
    """Whole groups before it count, whatever is in the logs; nothing of the last one is there."""
    with closing(Journal(tmp_path, checkpoint_bytes=1 << 20)) as journal:
        journal.lock()
        journal.open()
        journal.append([LogEntry("conversations/a/1.jsonl", '{"n":1}'), LogEntry("turns/1.jsonl", '{"n":2}')])
        journal.append([LogEntry("conversations/a/1.jsonl", '{"n":3}'), LogEntry("turns/1.jsonl", '{"n":4}')])
        commit_log = (tmp_path / COMMIT_LOG).read_bytes()
    for name in ("conversations/a/1.jsonl", "turns/1.jsonl"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / COMMIT_LOG).write_bytes(commit_log[: commit_log.rindex(b"turns")])
    with closing(Journal(tmp_path, checkpoint_bytes=1 << 20)) as again:
        again.lock()
        assert again.open() == 2
    assert (tmp_path / "conversations/a/1.jsonl").read_text() == '{"n":1}\n'
    assert (tmp_path / "turns/1.jsonl").read_text() == '{"n":2}\n'
    assert [each["count"] for each in log_events if each["event"] == "half_group_dropped"] == [1]


def test_nothing_is_in_a_log_that_the_commit_log_has_not_made_durable(tmp_path: Path) -> None:
    """A kill while the commit log is written leaves the logs as they were."""
    seen: list[bool] = []

    def fsync(descriptor: int) -> None:
        if Path(f"/proc/self/fd/{descriptor}").readlink().name == COMMIT_LOG:
            seen.append((tmp_path / "turns/1.jsonl").exists())
        os.fsync(descriptor)

    with closing(Journal(tmp_path, checkpoint_bytes=1 << 20, fsync=fsync)) as journal:
        journal.lock()
        journal.append([LogEntry("turns/1.jsonl", '{"n":1}')])
        assert seen
        assert not any(seen)


def test_what_a_killed_process_wrote_is_made_durable_before_the_commit_log_is_emptied(tmp_path: Path) -> None:
    """A kill leaves the lines in the page cache only: a power cut after the next start would take them."""
    synced: list[str] = []

    def fsync(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        os.fsync(descriptor)

    killed = Journal(tmp_path, checkpoint_bytes=1 << 20)
    killed.lock()
    killed.append([LogEntry("conversations/a/1.jsonl", '{"n":1}')])
    killed.release()
    with closing(Journal(tmp_path, checkpoint_bytes=1 << 20, fsync=fsync)) as journal:
        journal.lock()
        assert journal.open() == 0
    assert {"1.jsonl", "a", "conversations"} <= set(synced[: synced.index(COMMIT_LOG)])


def test_a_damaged_commit_log_cannot_write_elsewhere(tmp_path: Path) -> None:
    root = tmp_path / "data"
    root.mkdir()
    (root / COMMIT_LOG).write_bytes(b"../evil.jsonl\tx\n/etc/evil\tx\nno tab\na/\0b\tx\n\xff/b\tx\n")
    journal = Journal(root, checkpoint_bytes=1 << 20)
    journal.lock()
    assert journal.open() == 0
    journal.close()
    assert list(tmp_path.rglob("*evil*")) == []


async def test_a_torn_last_line_is_skipped_and_the_next_begins_anew(
    tmp_path: Path, log_events: list[dict[str, object]]
) -> None:
    await fill(tmp_path)
    log = next(path for path in logs(tmp_path) if "main" in path.parent.name)
    with log.open("a") as file:
        file.write('{"rowid": 99, "id": "torn')
    async with running_store(tmp_path) as store:
        (stored,) = await store.writer.run(messages.append, [new("after the tear", at=float(1_760_000_100))])
    if log == tmp_path / messages.message_path(stored.message):
        assert json.loads(log.read_text().splitlines()[-1])["content"] == "after the tear"
    assert any(event["event"] == "malformed_line" for event in log_events)


@pytest.mark.parametrize("line", ["not json", "[1, 2]", '{"rowid": "x"}', '{"rowid": 1}', "\ufffd\ufffd", "null"])
async def test_malformed_lines_are_skipped(tmp_path: Path, line: str) -> None:
    await fill(tmp_path)
    before = await contents(tmp_path)
    for log in logs(tmp_path):
        log.write_text(log.read_text() + line + "\n")
    (tmp_path / "klaw.db").unlink()
    assert await contents(tmp_path) == before


async def test_a_second_server_is_refused(tmp_path: Path) -> None:
    async with running_store(tmp_path):
        with pytest.RaisesGroup(StorageError, allow_unwrapped=True, flatten_subgroups=True):
            async with running_store(tmp_path):
                pass


async def test_a_newer_schema_is_refused_untouched(tmp_path: Path) -> None:
    await fill(tmp_path)
    connection = apsw.Connection(str(tmp_path / "klaw.db"))
    prepare_writer(connection)
    connection.execute("UPDATE meta SET value = '999' WHERE key = 'schema_version'")
    connection.close()
    with pytest.RaisesGroup(SchemaTooNew, allow_unwrapped=True, flatten_subgroups=True):
        async with running_store(tmp_path):
            pass


async def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "klaw.db").write_bytes(b"this is no database, but it is long enough to look like one" * 100)
    with pytest.raises(StorageError, match=r"klaw\.db: the database file is damaged"):
        async with running_store(tmp_path):
            pass


def test_migrations_bring_every_earlier_version_to_the_same_schema() -> None:
    def schema(connection: apsw.Connection) -> set[tuple[str, str]]:
        return set(connection.execute("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL"))

    fresh = apsw.Connection(":memory:")
    prepare_writer(fresh)
    migrations.migrate(fresh)
    for version in range(migrations.latest()):
        old = apsw.Connection(":memory:")
        prepare_writer(old)
        for number, script in migrations.scripts().items():
            if number <= version:
                old.execute(script)
        if version:
            old.execute("INSERT INTO meta VALUES ('schema_version', ?)", (str(version),))
        assert migrations.migrate(old) == (version, migrations.latest())
        assert schema(old) == schema(fresh)


CHILD = """
import os, sys, trio
from contextlib import closing
from pathlib import Path
from typing import Any
from klaw.store.kinds import messages
from tests.support.stores import new, running_store

async def main():
    async with running_store(Path(sys.argv[1])) as store:
        async def client(name):
            number = 0
            while True:
                number += 1
                message = new("text", id=f"{name}-{number}", chat=name)
                await store.writer.run(messages.append, [message])
                os.write(1, f"{name}-{number}\\n".encode())
        async with trio.open_nursery() as nursery:
            for name in "abcd":
                nursery.start_soon(client, name)

trio.run(main)
"""


async def test_sigkill_loses_no_acknowledged_message(tmp_path: Path) -> None:
    """Kill a real process in the middle of its writes, three times; what it printed as stored is there once."""
    acknowledged: list[str] = []
    for round_number in range(3):
        process = subprocess.Popen(  # noqa: ASYNC220 - it only forks; what blocks is read in threads
            [sys.executable, "-c", CHILD, str(tmp_path / "data")],
            stdout=subprocess.PIPE,
            cwd=REPOSITORY,
            env={**os.environ, "KLAW_ROUND": str(round_number)},
        )
        assert process.stdout is not None
        lines = [await trio.to_thread.run_sync(process.stdout.readline) for _ in range(40)]
        process.send_signal(signal.SIGKILL)
        rest = await trio.to_thread.run_sync(process.stdout.read)
        process.wait()
        process.stdout.close()
        acknowledged += [line.decode().strip() for line in lines]
        acknowledged += [line.decode() for line in rest.split(b"\n")[:-1]]
    async with running_store(tmp_path / "data") as store:
        for name in "abcd":
            found = await store.readers.run(messages.after, new(chat=name).chat, 0, 100_000)
            assert [message.seq for message in found] == list(range(1, len(found) + 1))
            ids = [message.id for message in found]
            assert len(ids) == len(set(ids))
            assert {text for text in acknowledged if text.startswith(name)} <= set(ids)


def test_what_a_cut_off_group_left_hides_no_line_of_the_commit_log(tmp_path: Path) -> None:
    """Its lines stand in a log behind those that the commit log has: none of these is put back a second time."""
    path = "memory/2026-11.jsonl"
    journal = Journal(tmp_path, checkpoint_bytes=1 << 20)
    journal.lock()
    journal.open()
    journal.append([LogEntry(path, json.dumps({"entry": number})) for number in (1, 2)])
    journal.keep()
    journal.release()  # as a kill leaves it
    before = (tmp_path / path).read_text()
    (tmp_path / path).write_text(before + json.dumps({"entry": 3, "value": "x" * 5_000}) + "\n")
    again = Journal(tmp_path, checkpoint_bytes=1 << 20)
    again.lock()
    assert again.open() == 0
    again.close()
    entries = [json.loads(line)["entry"] for line in (tmp_path / path).read_text().splitlines()]
    assert entries == [1, 2, 3]
