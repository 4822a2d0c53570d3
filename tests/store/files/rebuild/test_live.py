"""A reindex beside a store at work: what it takes along, what it refuses, and who notices."""

import errno
import os
import shutil
import signal
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import apsw
import attrs
import pytest
import trio

from klaw.errors import ActorStopped, StorageFull
from klaw.store.engine import vector_model
from klaw.store.kinds import messages
from klaw.store.kinds.inventory import count_messages
from klaw.store.rebuild import building
from klaw.store.rebuild.actor import Reindexer, hand_over
from klaw.store.rebuild.reconcile import LOG_KINDS
from klaw.store.rebuild.values import ReindexOptions, ReindexRefused
from klaw.store.search import vectors
from klaw.store.search import vectors as stored_vectors
from klaw.store.store import Store
from tests.support.processes import SCRIPT, completed
from tests.support.reindexing import MODEL, digests_of, ended, filled, reached, reindexing_store, run, talk, unit, until
from tests.support.stores import new, running_store
from tests.support.waiting import HANG_S
from tests.support.writing import instead

OPTIONS = ReindexOptions()


async def checked(root: Path) -> None:
    """The database of a stopped store has what the logs have."""
    (root / "klaw.db.old").unlink(missing_ok=True)
    (root / "klaw.db.old-wal").unlink(missing_ok=True)
    before = digests_of(root / "klaw.db")
    report = run(root)
    assert report.swapped, report.tables
    assert digests_of(root / "klaw.db") == before
    assert report.tally.conflicts == 0


async def test_what_comes_in_meanwhile_is_in_the_new_database(tmp_path: Path) -> None:
    """Messages, turns and vectors before, during and after; rows, vectors and digests are complete."""
    await filled(tmp_path, rounds=60)
    async with reindexing_store(tmp_path) as (store, reindexer):
        await reindexer.start(OPTIONS)
        number = 0
        while reindexer.status.state == "running":
            number += 1
            await talk(store, rounds=3, seed=100 + number)
        status = await ended(reindexer)
        assert status.error is None
        assert status.report is not None
        assert status.report.swapped
        assert all(table.same for table in status.report.tables)
        await talk(store, rounds=5, seed=3)
        embedded = await store.readers.run(vectors.count_embedded)
        assert await store.readers.run(count_messages) > 120
        assert store.database.is_open
    assert digests_of(tmp_path / "klaw.db.old")
    await checked(tmp_path)
    async with running_store(tmp_path) as store:
        assert await store.readers.run(vectors.count_embedded) == embedded, "every vector was taken along"


async def test_lines_that_are_taken_back_are_not_taken_along(tmp_path: Path) -> None:
    """The disk is full now and then: refused messages were in the logs for a moment, and are in no database."""
    await filled(tmp_path, rounds=60)
    calls = 0

    def fsync(descriptor: int) -> None:
        nonlocal calls
        calls += 1
        if calls % 3 == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    refused = 0
    async with reindexing_store(tmp_path, fsync=fsync, checkpoint_bytes=1 << 30) as (store, reindexer):
        for _ in range(2):
            await reindexer.start(OPTIONS)
            while reindexer.status.state == "running":
                try:
                    await store.writer.run(messages.append, [new("a text / текст " * 20, chat="чат 1")])
                except StorageFull:
                    refused += 1
            status = await ended(reindexer)
            assert status.report is not None, status.error
            assert status.report.swapped
            (tmp_path / "klaw.db.old").unlink()
        calls = -1_000_000
    assert refused > 3
    await checked(tmp_path)


async def test_a_query_that_runs_goes_on_with_the_old_file(tmp_path: Path) -> None:
    """And the next one on the same connection reads the new file, which has the newest message."""
    await filled(tmp_path)
    running, go_on = threading.Event(), threading.Event()

    def slow(connection):
        with connection:
            before = count_messages(connection)
            running.set()
            assert go_on.wait(30)
            return before, count_messages(connection)

    async with reindexing_store(tmp_path) as (store, reindexer), trio.open_nursery() as nursery:
        found = []

        async def read() -> None:
            found.append(await store.readers.run(slow))

        nursery.start_soon(read)
        await trio.to_thread.run_sync(running.wait)
        await store.writer.run(messages.append, [new("while it runs", chat="чат 1")])
        await reindexer.start(OPTIONS)
        await reached(reindexer, "swap")
        await until((tmp_path / "klaw.db.old").exists)
        (after,) = await store.writer.run(messages.append, [new("after the swap", chat="чат 1")])
        go_on.set()
        status = await ended(reindexer)
        assert status.report is not None, status.error
        assert status.report.swapped
        await until(lambda: bool(found))
        assert found[0][0] == found[0][1]
        for _ in range(3):
            counts = [await store.readers.run(count_messages) for _ in range(2)]
            assert counts == [found[0][0] + 2] * 2
        assert await store.readers.run(messages.by_rowids, [after.message.rowid]) == [after.message]
    assert digests_of(tmp_path / "klaw.db.old")["messages"] != digests_of(tmp_path / "klaw.db")["messages"]
    await checked(tmp_path)


class Outrunning:
    """Writes two messages for each that the reindex reads, however quick either is."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store = store
        self.written = self.read = 0
        put = LOG_KINDS[0].store

        def counted(connection: apsw.Connection, record: Any) -> bool:
            self.read += 1
            time.sleep(0.001)
            return put(connection, record)

        monkeypatch.setattr(building, "LOG_KINDS", (attrs.evolve(LOG_KINDS[0], store=counted), *LOG_KINDS[1:]))

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(self._client, f"чат {number}")

    async def _client(self, chat: str) -> None:
        while True:
            if self.written < 2 * self.read:
                self.written += 1
                await self.store.writer.run(messages.append, [new("калитка в саду / the garden gate " * 5, chat=chat)])
            else:
                await trio.sleep(0.001)


async def test_writing_that_outruns_each_pass_is_taken_in_by_the_swap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a pass reads what was written, twice as much is written: it ends all the same, and nobody is refused."""
    await filled(tmp_path, rounds=8)
    async with reindexing_store(tmp_path) as (store, reindexer), trio.open_nursery() as nursery:
        clients = Outrunning(store, monkeypatch)
        nursery.start_soon(clients.run)
        await reindexer.start(OPTIONS)
        status = await ended(reindexer)
        assert status.report is not None, status.error
        assert status.report.swapped
        assert clients.written > 100, "they wrote more than there was"
        nursery.cancel_scope.cancel(reason="enough was written")
    await checked(tmp_path)


async def test_the_last_step_takes_in_whatever_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A burst just before the swap, of more than a pass thinks little: the writer's stop takes it in."""
    await filled(tmp_path)
    outcomes = []
    async with reindexing_store(tmp_path) as (store, reindexer):

        async def swap(real, *args, **kwargs):
            await talk(store, rounds=200, seed=50)
            outcomes.append(await real(*args, **kwargs))
            return outcomes[-1]

        instead(store.writer, hand_over, swap)
        await reindexer.start(OPTIONS)
        status = await ended(reindexer)
        assert status.report is not None, status.error
        assert status.report.swapped
        assert outcomes == [None]
        left = await store.readers.run(vectors.unembedded, 0, 1_000)
        assert left, "what came in with the burst the embedder makes"
        await store.writer.run(stored_vectors.store, MODEL, [(each.rowid, unit(each.rowid)) for each in left])
        embedded = await store.readers.run(vectors.count_embedded)
    await checked(tmp_path)
    async with running_store(tmp_path) as store:
        assert await store.readers.run(vectors.count_embedded) == embedded


async def test_another_model_in_the_middle(tmp_path: Path) -> None:
    """The vectors of the new one are taken along, those of the old one are not."""
    await filled(tmp_path)
    async with reindexing_store(tmp_path) as (store, reindexer):
        await reindexer.start(OPTIONS)
        await reached(reindexer, "compare")
        await stored_vectors.prepare(store.writer, "another", 8)
        await store.writer.run(stored_vectors.store, "another", [(1, unit(1)), (2, unit(2))])
        status = await ended(reindexer)
        assert status.report is not None, status.error
        assert status.report.swapped
        assert await store.readers.run(vector_model.current) == ("another", 8)
        assert await store.readers.run(vectors.count_embedded) == 2
        assert await store.writer.run(stored_vectors.store, "another", [(3, unit(3))]) == 1
        assert await store.writer.run(stored_vectors.store, MODEL, [(4, unit(4))]) == 0


async def forge(store: Store) -> None:
    """Change a row behind everybody's back, as damage would."""
    await store.database.run(lambda c: c.execute("UPDATE messages SET content = 'подделка' WHERE rowid = 5"))


async def test_differences_are_refused_until_accepted(tmp_path: Path) -> None:
    await filled(tmp_path)
    async with reindexing_store(tmp_path) as (store, reindexer):
        await forge(store)
        await reindexer.start(OPTIONS)
        status = await ended(reindexer)
        assert status.report is not None
        assert not status.report.swapped
        table, traits = [table for table in status.report.tables if not table.same]
        assert traits.name == "traits", "they follow from the content"
        assert (table.name, table.differing, table.examples) == ("messages", 1, ("5",))
        assert not (tmp_path / "klaw.db.old").exists()
        await reindexer.start(ReindexOptions(accept_differences=True))
        status = await ended(reindexer)
        assert status.report is not None, status.error
        assert status.report.swapped
        assert status.report.tally.reused > 0
        (message,) = await store.readers.run(messages.by_rowids, [5])
        assert message.content != "подделка"
    await checked(tmp_path)


async def test_a_difference_in_the_newest_rows_is_seen_at_the_swap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(tmp_path)
    async with reindexing_store(tmp_path) as (store, reindexer):

        async def swap(real, *args, **kwargs):
            (late,) = await store.writer.run(messages.append, [new("late")])
            await store.database.run(
                lambda c: c.execute("UPDATE messages SET content = 'x' WHERE rowid = ?", (late.message.rowid,))
            )
            return await real(*args, **kwargs)

        instead(store.writer, hand_over, swap)
        await reindexer.start(OPTIONS)
        status = await ended(reindexer)
        assert status.report is not None
        assert not status.report.swapped
        assert "newest rows" in str(status.report.reason)
        assert (await store.writer.run(messages.append, [new("goes on")]))[0].message.seq > 0


async def stuck(reindexer: Reindexer) -> None:
    reindexer.slice_s = 0.0  # a pause after every step
    await reindexer.start(OPTIONS)
    await reached(reindexer, "messages")


async def test_one_at_a_time_and_it_can_be_stopped(tmp_path: Path) -> None:
    """A second one is refused with the place of the first; after a stop the next goes on with what was built."""
    await filled(tmp_path, rounds=200)
    async with reindexing_store(tmp_path) as (store, reindexer):
        await stuck(reindexer)
        with pytest.raises(ReindexRefused, match=r"running already \(at messages, \d+ %\)"):
            await reindexer.start(OPTIONS)
        assert await reindexer.cancel()
        assert reindexer.status.state == "cancelled"
        assert not await reindexer.cancel()
        assert (tmp_path / "klaw.db.reindex").exists()
        reindexer.slice_s = 0.02
        await store.writer.run(messages.append, [new("in between")])
        await reindexer.start(OPTIONS)
        status = await ended(reindexer)
        assert status.report is not None
        assert status.report.swapped
        assert status.report.tally.reused > 0
        with pytest.raises(AssertionError):
            assert (await _again(reindexer)).report is not None
        assert "--drop-old" in str(reindexer.status.error)


async def _again(reindexer: Reindexer):
    await reindexer.start(OPTIONS)
    return await ended(reindexer)


async def test_a_store_that_stops_in_the_middle_stops(tmp_path: Path) -> None:
    """The server's stop does not wait for a reindex, and leaves no connection open."""
    await filled(tmp_path, rounds=200)
    with trio.fail_after(HANG_S):
        async with reindexing_store(tmp_path) as (_store, reindexer):
            await stuck(reindexer)
        with pytest.raises(ActorStopped):
            await reindexer.start(OPTIONS)
    await checked(tmp_path)


async def test_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it begins, and when the disk fills up under it: it stops and says so, and the server has its space."""
    await filled(tmp_path, rounds=100)
    free = 0
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: SimpleNamespace(free=free))
    async with reindexing_store(tmp_path) as (store, reindexer):
        free = 0
        status = await _again(reindexer)
        assert status.state == "failed"
        assert "make room first; nothing was changed" in str(status.error)
        free = 1 << 40
        await reindexer.start(OPTIONS)
        await reached(reindexer, "messages")
        free = 0
        status = await ended(reindexer)
        assert status.state == "failed"
        assert "what it has is kept in klaw.db.reindex" in str(status.error)
        free = 1 << 40
        await store.writer.run(messages.append, [new("still writing")])
        status = await _again(reindexer)
        assert status.report is not None
        assert status.report.swapped


CHILD = """
import os, signal, sys
from pathlib import Path
import structlog, trio
from klaw.store.rebuild.values import ReindexOptions
from klaw.store.kinds import messages
from tests.support.stores import new
from tests.support.reindexing import ended, reindexing_store, talk

root, step = Path(sys.argv[1]), int(sys.argv[2])
names = ("rename", "replace", "unlink")
seen = 0

def counted(method):
    def change(self, *args, **kwargs):
        global seen
        if self.name.startswith("klaw.db"):
            seen += 1
            if seen == step:
                os.kill(os.getpid(), signal.SIGKILL)
        return method(self, *args, **kwargs)
    return change

for name in names:
    setattr(Path, name, counted(getattr(Path, name)))

async def main():
    async with reindexing_store(root) as (store, reindexer):
        await reindexer.start(ReindexOptions())
        number = 0
        while reindexer.status.state == "running":
            number += 1
            (stored,) = await store.writer.run(messages.append, [new(f"{number} привет", chat="live", id=f"k{number}")])
            os.write(1, f"{stored.message.seq}\\n".encode())

structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
trio.run(main)
"""


@pytest.mark.parametrize("step", range(1, 11))
def test_a_server_killed_anywhere_in_the_swap_loses_nothing(tmp_path: Path, step: int) -> None:
    """SIGKILL before each change of the folder; every acknowledged message is there once, and nothing was rebuilt."""
    trio.run(filled, tmp_path)
    done = trio.run(completed, [*SCRIPT, CHILD, str(tmp_path), str(step)])
    acknowledged = [int(line) for line in done.stdout.split()]
    assert acknowledged == list(range(1, len(acknowledged) + 1))
    if done.returncode == 0:
        assert step > 8, "the swap has at least so many steps"
    else:
        assert done.returncode == -signal.SIGKILL

    async def look() -> None:
        async with running_store(tmp_path) as store:
            assert store.opened.reconciled.messages < 20, "the last ones at most"
            found = await store.readers.run(messages.after, new(chat="live").chat, 0, 100_000)
            assert [message.seq for message in found] == list(range(1, len(found) + 1))
            assert len(found) >= len(acknowledged)

    trio.run(look)
    trio.run(checked, tmp_path)


async def test_a_damaged_database_in_use_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It cannot be compared while the server runs: the text says what can be done, and what was built is used."""
    await filled(tmp_path, rounds=100)

    async with reindexing_store(tmp_path) as (store, reindexer):
        drop_index = "DROP TABLE messages_fts_docsize"
        await store.database.run(lambda c: c.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0))
        await store.database.run(lambda c: c.execute(drop_index))
        status = await _again(reindexer)
        assert status.state == "failed"
        assert "stop the server and run `klaw reindex --accept-differences`" in str(status.error)
    report = run(tmp_path, accept=True)
    assert report.swapped
    assert report.tally.reused > 0
    await checked(tmp_path)
