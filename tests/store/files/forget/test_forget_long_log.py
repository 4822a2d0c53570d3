"""Cleaning a long log: others are served meanwhile, and what they add to it stays."""

import json
import os
import shutil
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import pytest
import trio

from klaw.actor.threads import Threads
from klaw.domain.forget import FORGOTTEN
from klaw.domain.message import MessageKind, Role
from klaw.errors import StorageError
from klaw.memory.forget import take_out
from klaw.store.engine import log_rewrite, meta
from klaw.store.engine.commit_log import LogEntry
from klaw.store.engine.journal import Journal
from klaw.store.engine.log_files import record_of
from klaw.store.engine.transaction import Transaction
from klaw.store.forget import execute, reach
from klaw.store.forget import logs as forget_logs
from klaw.store.forget.logs import Cleaner
from klaw.store.kinds import facts, messages
from klaw.store.store import Store
from tests.support.facts import fact
from tests.support.forgetting import forgetter, holding
from tests.support.reindexing import differing, digests_of, run
from tests.support.stores import new, running_store
from tests.support.topics import ANNA, say
from tests.support.turns import record

SECRET = "the password of the shed is Kanarienvogel-5521, tell nobody"
STEP = 2_000
LOG = "conversations/a/2026-01-01.jsonl"


class Between(Threads):
    """Threads that do something between the steps of a rewriting."""

    def __init__(self, between: Callable[[], Any]) -> None:
        super().__init__("files", 2)
        self.between = between

    async def run(self, function: Callable[..., Any], *args: Any, abandon: bool = False) -> Any:
        found = await super().run(function, *args, abandon=abandon)
        if getattr(function, "__name__", "") == "step":
            await self.between()
        return found


def drafts(root: Path) -> list[Path]:
    return list(root.rglob("*.new"))


async def long_past(store: Store) -> None:
    await say(store, SECRET)
    batch = [new(f"row number {number} of the peas", user="anna") for number in range(400)]
    await store.writer.run(messages.append, batch)
    await say(store, f"you said: {SECRET}")


async def test_the_writer_does_little_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_rewrite, "STEP_BYTES", STEP)
    monkeypatch.setattr(forget_logs, "STEP_BYTES", STEP)
    looked: Counter[str] = Counter()
    line_of = Cleaner.line_of

    def counting(self: Cleaner, path: str) -> Callable[[bytes], bytes]:
        cleaned = line_of(self, path)

        def count(line: bytes) -> bytes:
            looked[threading.current_thread().name.split()[0]] += 1
            return cleaned(line)

        return count

    said: list[str] = []

    async def between() -> None:
        said.append(f"meanwhile number {len(said)}")
        await say(store, said[-1])

    monkeypatch.setattr(Cleaner, "line_of", counting)
    async with running_store(tmp_path) as store:
        await long_past(store)
        tool = forgetter(store, tmp_path)
        tool.files = Between(between)
        await tool.forget(await tool.find("main#1", ANNA))
    assert looked["klaw"] > 800
    assert sum(looked.values()) - looked["klaw"] < 40
    assert len(said) > 50
    assert holding(tmp_path, SECRET) == {}
    (log,) = (tmp_path / "conversations").rglob("*.jsonl")
    told = [record_of(line) for line in log.read_bytes().splitlines()]
    assert [each["seq"] for each in told] == list(range(1, 403 + len(said)))
    assert [each["content"] for each in told[402:]] == said
    assert [FORGOTTEN in each["metadata"] for each in told[:3]] == [True, False, False]
    before = digests_of(tmp_path / "klaw.db")
    assert differing(run(tmp_path)) == set()
    assert digests_of(tmp_path / "klaw.db") == before


async def test_a_cancelled_forgetting_leaves_no_draft_and_the_next_start_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_rewrite, "STEP_BYTES", STEP)
    async with running_store(tmp_path) as store:
        await long_past(store)
        tool = forgetter(store, tmp_path)
        with trio.CancelScope() as scope:

            async def between() -> None:
                scope.cancel()

            tool.files = Between(between)
            await tool.forget(await tool.find("main#1", ANNA))
        assert scope.cancelled_caught
        assert drafts(tmp_path) == []
        await say(store, "and life goes on")
    async with running_store(tmp_path):
        pass
    assert holding(tmp_path, SECRET) == {}


async def test_a_draft_that_a_kill_left_goes_with_the_next_start(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        await long_past(store)
        tool = forgetter(store, tmp_path)
        wanted = await tool.find("main#1", ANNA)
        store.journal.is_read = True
        with pytest.raises(StorageError, match="a reindex is reading"):
            await tool.forget(wanted)
        (log,) = (tmp_path / "conversations").rglob("*.jsonl")
        log.with_name(f".{log.name}.new").write_text(SECRET)
    async with running_store(tmp_path):
        pass
    assert holding(tmp_path, SECRET) == {}


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Journal:
    monkeypatch.setattr(log_rewrite, "STEP_BYTES", 16)
    found = Journal(tmp_path, checkpoint_bytes=1 << 20)
    found.lock()
    found.open()
    found.append([LogEntry(LOG, f"line {number}") for number in range(10)])
    found.keep()
    return found


def test_what_was_taken_back_is_not_taken_in(tmp_path: Path, journal: Journal) -> None:
    """A group whose transaction failed stands in the log while another thread reads it."""
    rewrite = journal.begin_rewrite(LOG, lambda line: line.upper())
    rewrite.step()
    journal.append([LogEntry(LOG, "was refused")])
    while rewrite.left:
        rewrite.step()
    journal.rollback()
    journal.append([LogEntry(LOG, "a line " + "x" * 100)])
    journal.keep()
    assert not journal.exchange(rewrite, most=16)
    assert (tmp_path / LOG).read_text().startswith("line 0\n")
    while rewrite.left:
        rewrite.step()
    assert journal.exchange(rewrite, most=16)
    rewrite.close()
    journal.append([LogEntry(LOG, "and on")])
    journal.close()
    lines = [*(f"LINE {number}" for number in range(10)), "A LINE " + "X" * 100, "and on"]
    assert (tmp_path / LOG).read_text().splitlines() == lines
    assert [each.name for each in (tmp_path / LOG).parent.iterdir()] == [Path(LOG).name]


@pytest.mark.parametrize("what", ["replaced", "shortened", "closed"])
def test_what_cannot_be_exchanged_stays_as_it_is(tmp_path: Path, journal: Journal, what: str) -> None:
    full = tmp_path / LOG
    rewrite = journal.begin_rewrite(LOG, lambda line: line.upper())
    rewrite.step()
    if what == "replaced":
        full.rename(tmp_path / "away")
        shutil.copy(tmp_path / "away", full)
    elif what == "shortened":
        os.truncate(full, 3)
    else:
        rewrite.close()
    before = full.read_bytes()
    with pytest.raises(OSError, match=r"replaced|Invalid|canceled"):
        journal.exchange(rewrite)
    rewrite.close()
    assert full.read_bytes() == before
    assert [each.name for each in full.parent.iterdir()] == [full.name]
    journal.release()


async def test_the_writer_does_not_look_again_at_what_a_reader_has_found(tmp_path: Path) -> None:
    """Of 50,000 messages that takes seconds."""
    async with running_store(tmp_path) as store:
        await long_past(store)
        tool = forgetter(store, tmp_path)
        wanted = await tool.find("chat:main", ANNA)
        read: list[int] = []
        by_rowids = messages.by_rowids

        def counting(connection: Any, rowids: Any) -> Any:
            if threading.current_thread().name.split()[0] != "klaw" and not connection.readonly("main"):
                read.append(len(rowids))
            return by_rowids(connection, rowids)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(messages, "by_rowids", counting)
            await tool.forget(wanted)
        assert max(read) <= take_out.AT_ONCE


@pytest.mark.parametrize(
    ("what", "current"),
    [
        ("said elsewhere", True),
        ("said in it", False),
        ("sent elsewhere", False),
        ("shown elsewhere", False),
        ("file elsewhere", False),
        ("fact", True),
        ("turn", False),
    ],
)
async def test_what_was_found_is_known_to_have_changed(tmp_path: Path, what: str, current: bool) -> None:
    async with running_store(tmp_path) as store:
        await long_past(store)
        tool = forgetter(store, tmp_path)
        wanted = await tool.find("chat:main", ANNA)
        found = (await tool.preview(wanted)).reach
        assert await store.readers.run(reach.is_current, found)
        add = partial(store.writer.run, messages.append)
        match what:
            case "said elsewhere":
                await add([new("another chat", user="anna", chat="other")])
                await add([new("another user", user="boris", role=Role.SYSTEM, kind=MessageKind.COMMAND)])
            case "said in it":
                await say(store, "one more")
            case "sent elsewhere":
                await add([new("sent", user="anna", chat="other", role=Role.ASSISTANT, sent_from="t1")])
            case "shown elsewhere":
                await add([new("shown", user="anna", chat="other", role=Role.SYSTEM, kind=MessageKind.COMMAND)])
            case "file elsewhere":
                await add([new("look", user="anna", chat="other", files=[{"sha256": "0" * 64}])])
            case "fact":
                await store.writer.run(facts.put, fact("Anna has a shed", user="anna"), "new")
            case "turn":
                message = (await store.readers.run(messages.by_rowids, [wanted.rowids[0]]))[0]
                await add([], record(message))
        assert await store.readers.run(reach.is_current, found) == current


async def test_what_waits_for_its_logs_is_kept_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long forgetting has thousands of entries, and each transaction writes its own only; a list of them, as earlier
    versions kept it, is read too."""
    monkeypatch.setattr(take_out, "AT_ONCE", 100)
    async with running_store(tmp_path) as store:
        await long_past(store)
        tool = forgetter(store, tmp_path)
        store.journal.is_read = True
        with pytest.raises(StorageError):
            await tool.forget(await tool.find("chat:main", ANNA))
        store.journal.is_read = False
        waiting = await store.readers.run(execute.pending)
        assert [len(each.messages) for each in waiting] == [100, 100, 100, 100, 2]
        rows = await store.readers.run(_meta, "forget_pending:*")
        assert len(rows) == 5
        await store.writer.run(_as_earlier, rows)
        assert await store.readers.run(execute.pending) == waiting
    async with running_store(tmp_path) as store:
        assert await store.readers.run(execute.pending) == []
    assert holding(tmp_path, SECRET) == {}


def _meta(connection: apsw.Connection, pattern: str) -> list[tuple[str, str]]:
    return connection.execute("SELECT key, value FROM meta WHERE key GLOB ? ORDER BY key", (pattern,)).fetchall()


def _as_earlier(tx: Transaction, rows: list[tuple[str, str]]) -> None:
    several = sorted((json.loads(value) for _, value in rows), key=lambda each: each["entry"])
    for key, _ in rows:
        meta.remove(tx.connection, key)
    meta.put(tx.connection, "forget_pending", json.dumps(several))


async def test_who_reads_the_database_meanwhile_is_no_obstacle(tmp_path: Path) -> None:
    """A backup looks at one moment of it for a while, in another process; the write-ahead log is emptied later."""
    async with running_store(tmp_path) as store:
        await long_past(store)
        tool = forgetter(store, tmp_path)
        wanted = await tool.find("main#1", ANNA)
        reader = apsw.Connection(str(tmp_path / "klaw.db"), flags=apsw.SQLITE_OPEN_READONLY)
        reader.execute("BEGIN; SELECT count(*) FROM messages").fetchall()
        await tool.forget(wanted, everywhere=True)
        assert await tool.compactor.wait_for_news(0)
        assert await store.readers.run(execute.pending) == []
        with pytest.raises(StorageError, match="another process reads"):
            await tool.compact_files(vacuum=True)
        assert await store.readers.run(meta.owes_compaction)
        reader.close()
        await tool.compact_files(vacuum=True)
        assert not await store.readers.run(meta.owes_compaction)
        assert holding(tmp_path, SECRET) == {}
