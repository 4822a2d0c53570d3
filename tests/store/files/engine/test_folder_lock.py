"""One process at a time writes to a data folder, whatever somebody removes from it."""

import stat
from pathlib import Path

import pytest

from klaw.doctor.places import is_in_use
from klaw.errors import StorageError
from klaw.store.engine.commit_log import COMMIT_LOG, LogEntry
from klaw.store.engine.journal import LOCK_FILE, Journal
from klaw.store.kinds import messages
from klaw.store.rebuild.values import ReindexRefused
from klaw.store.store import open_store
from tests.support import reindexing
from tests.support.stores import new, running_store


async def test_a_second_server_is_refused_after_commit_log_was_removed(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        await store.writer.run(messages.append, [new("first")])
        (tmp_path / COMMIT_LOG).unlink()
        with pytest.raises(StorageError, match="another Klaw server"):
            async with open_store(tmp_path / "klaw.db", Journal(tmp_path, checkpoint_bytes=1 << 20), readers=1):
                raise AssertionError("two servers on one folder")
        with pytest.raises(ReindexRefused, match="in use"):
            reindexing.run(tmp_path)
        assert is_in_use(tmp_path)
    assert not is_in_use(tmp_path)
    assert (tmp_path / LOCK_FILE).exists(), "the lock's file stays: another one of its name would be another lock"


def test_private_files_lose_a_looser_mode(tmp_path: Path) -> None:
    names = (LOCK_FILE, COMMIT_LOG, "conversations/a/2025-01-01.jsonl")
    (tmp_path / "conversations/a").mkdir(parents=True)
    for name in names:
        (tmp_path / name).touch()
        (tmp_path / name).chmod(0o644)
    journal = Journal(tmp_path, checkpoint_bytes=1 << 20)
    journal.lock()
    journal.open()
    journal.append([LogEntry(names[2], "{}")])
    journal.close()
    assert [_mode(tmp_path / name) for name in names] == [0o600] * 3


async def test_a_database_that_others_may_read_is_closed_to_them(tmp_path: Path) -> None:
    (tmp_path / "klaw.db").touch(mode=0o644)
    async with running_store(tmp_path):
        assert _mode(tmp_path / "klaw.db") == 0o600


def test_a_server_of_an_earlier_klaw_is_seen(tmp_path: Path) -> None:
    """It locks commit.log and nothing else."""
    old = Journal(tmp_path, checkpoint_bytes=1 << 20)
    old.lock()
    (tmp_path / LOCK_FILE).rename(tmp_path / "elsewhere")
    with pytest.raises(BlockingIOError):
        Journal(tmp_path, checkpoint_bytes=1 << 20).lock()
    old.release()


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)
