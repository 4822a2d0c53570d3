"""A database that is missing is made by the start with the means of a reindex, and told about while it lasts."""

import signal
import subprocess
import sys
from pathlib import Path

import apsw
import pytest
import trio

from klaw.store.engine.journal import Journal
from klaw.store.rebuild import offline
from klaw.store.rebuild.building import Building
from klaw.store.rebuild.files import Places
from klaw.store.rebuild.offline import is_missing
from klaw.store.rebuild.values import Progress
from klaw.store.store import open_store
from tests.support.reindexing import digests_of, filled, run
from tests.support.stores import running_store

DATABASE = ("klaw.db", "klaw.db-wal", "klaw.db-shm")


def files(root: Path) -> list[str]:
    return sorted(path.name for path in root.glob("klaw.db*"))


def lose(root: Path) -> None:
    for name in DATABASE:
        (root / name).unlink(missing_ok=True)


KILLED = """
import sys, time
from pathlib import Path
from klaw.store.rebuild import offline
from klaw.store.rebuild.building import Building
from klaw.store.rebuild.files import Places

places = Places(Path(sys.argv[1]))
for step in offline._made_anew(places, Building(places, slice_s=0)):
    if step.phase == "messages" and step.done > 60:
        print("there", flush=True)
        time.sleep(600)
"""


def kill_in_the_middle(root: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", KILLED, str(root / "klaw.db")], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"there\n"
        child.send_signal(signal.SIGKILL)


async def test_the_start_and_the_command_make_the_same_database(tmp_path: Path) -> None:
    await filled(tmp_path, vectors=False)
    before = digests_of(tmp_path / "klaw.db")
    lose(tmp_path)
    async with running_store(tmp_path) as store:
        assert store.opened.reconciled.messages > 60
    assert files(tmp_path) == ["klaw.db"]
    assert digests_of(tmp_path / "klaw.db") == before
    assert run(tmp_path).swapped


async def test_messages_are_not_inserted_one_transaction_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await filled(tmp_path, rounds=60, vectors=False)
    lose(tmp_path)
    commits = 0
    connect = Building._connect

    def counting(building: Building) -> None:
        connect(building)
        building.connection.set_commit_hook(count)

    def count() -> bool:
        nonlocal commits
        commits += 1
        return False

    monkeypatch.setattr(Building, "_connect", counting)
    async with running_store(tmp_path) as store:
        messages = store.opened.reconciled.messages
    assert 0 < commits < messages / 2


async def test_what_is_far_behind_is_caught_up_in_batches(tmp_path: Path) -> None:
    """An old copy of the database with today's logs."""
    await filled(tmp_path, rounds=1, vectors=False)
    old = (tmp_path / "klaw.db").read_bytes()
    await filled(tmp_path, rounds=60, seed=2, vectors=False)
    after = digests_of(tmp_path / "klaw.db")
    lose(tmp_path)
    (tmp_path / "klaw.db").write_bytes(old)
    async with running_store(tmp_path) as store:
        assert store.opened.reconciled.messages > 100
    assert digests_of(tmp_path / "klaw.db") == after


async def test_a_start_that_was_killed_goes_on(tmp_path: Path) -> None:
    await filled(tmp_path, rounds=150, vectors=False)
    before = digests_of(tmp_path / "klaw.db")
    lose(tmp_path)
    kill_in_the_middle(tmp_path)
    assert not (tmp_path / "klaw.db").exists()
    async with running_store(tmp_path) as store:
        assert store.opened.reconciled.reused > 0
    assert digests_of(tmp_path / "klaw.db") == before


async def test_a_cancelled_start_keeps_what_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await filled(tmp_path, vectors=False)
    lose(tmp_path)
    monkeypatch.setattr(offline, "SLICE_S", 0)
    with trio.CancelScope() as scope:
        async with open_store(
            tmp_path / "klaw.db",
            Journal(tmp_path, checkpoint_bytes=1 << 20),
            readers=1,
            report=lambda _: scope.cancel(),
        ):
            raise AssertionError("cancelled before")
    assert (tmp_path / "klaw.db.reindex").exists()
    async with running_store(tmp_path):
        assert not (tmp_path / "klaw.db.reindex").exists()


async def test_progress_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log_events: list[dict]) -> None:
    await filled(tmp_path, vectors=False)
    lose(tmp_path)
    monkeypatch.setattr(offline, "SLICE_S", 0)
    monkeypatch.setattr(offline, "REPORT_S", 0)
    seen: list[Progress] = []
    journal = Journal(tmp_path, checkpoint_bytes=1 << 20)
    async with open_store(tmp_path / "klaw.db", journal, readers=1, report=seen.append):
        pass
    assert {"messages", "turns", "swap"} <= {step.phase for step in seen}
    assert any(step.percent not in (0, 100) for step in seen)
    assert [event["state"] for event in log_events if event["event"] == "making_database"][-1] == "swap"


async def test_an_older_database_beside_is_kept(tmp_path: Path) -> None:
    await filled(tmp_path, vectors=False)
    lose(tmp_path)
    (tmp_path / "klaw.db").touch()
    (tmp_path / "klaw.db.old").write_text("kept by a person")
    async with running_store(tmp_path):
        assert (tmp_path / "klaw.db.old").read_text() == "kept by a person"


async def test_what_is_missing(tmp_path: Path) -> None:
    places = Places(tmp_path / "klaw.db")
    assert not is_missing(places), "nothing was ever said"
    await filled(tmp_path, rounds=2)
    assert not is_missing(places)
    (tmp_path / "klaw.db").write_bytes(b"damaged" * 1000)
    assert not is_missing(places), "a damaged file may hold what somebody wants to look at"
    lose(tmp_path)
    assert is_missing(places)
    connection = apsw.Connection(str(tmp_path / "klaw.db"))
    connection.pragma("journal_mode", "wal")
    connection.close()
    assert (tmp_path / "klaw.db").stat().st_size > 0
    assert is_missing(places), "a header only: all else was in a write-ahead log that is gone"
