"""A reindex that is killed: at any point there is a whole database, and the next run goes on."""

import shutil
import signal
from contextlib import suppress
from pathlib import Path

import apsw
import pytest
import trio

from klaw.errors import StorageError
from klaw.store.engine import traits
from klaw.store.engine.set_aside import FOLDER
from klaw.store.kinds import messages
from klaw.store.rebuild import files, offline
from klaw.store.rebuild.offline import drop
from klaw.store.rebuild.values import ReindexRefused
from tests.e2e.invariants.test_bad_disk import small_disk
from tests.support.processes import SCRIPT, completed
from tests.support.reindexing import digests_of, filled, run
from tests.support.stores import new, running_store

CHILD = """
import os, signal, sys
from pathlib import Path
from klaw.store.rebuild import offline
from tests.support.reindexing import run

offline.SLICE_S = 0.0  # a transaction for every record
phase, count = sys.argv[2], int(sys.argv[3])

def see(step):
    global count
    if step.phase == phase:
        count -= 1
        if count == 0:
            os.kill(os.getpid(), signal.SIGKILL)

run(Path(sys.argv[1]), see=see)
"""


def killed(root: Path, phase: str, count: int) -> None:
    """Reindex in a process that kills itself at the given report of a phase."""
    done = trio.run(completed, [*SCRIPT, CHILD, str(root), phase, str(count)])
    assert done.returncode == -signal.SIGKILL


def test_a_reindex_that_is_killed_again_and_again_goes_on_where_it_was(tmp_path: Path) -> None:
    """SIGKILLs in every phase; the server that starts in between finds its database as it was."""
    trio.run(filled, tmp_path)
    before = digests_of(tmp_path / "klaw.db")
    for phase, count in (("scan", 1), ("messages", 30), ("turns", 5), ("vectors", 1), ("compare", 1)):
        killed(tmp_path, phase, count)
        assert (tmp_path / "klaw.db.reindex").exists()
        assert digests_of(tmp_path / "klaw.db") == before
    report = run(tmp_path)
    assert report.swapped
    assert report.tally.reused > 0
    assert report.tally.messages == 0, "all messages were there"
    assert report.vectors.taken_over == 0, "and all vectors"
    assert digests_of(tmp_path / "klaw.db") == before


def test_messages_after_the_kill_are_in_the_new_database_too(tmp_path: Path) -> None:
    trio.run(filled, tmp_path)
    killed(tmp_path, "messages", 50)

    async def more() -> None:
        async with running_store(tmp_path) as store:
            await store.writer.run(messages.append, [new("later / позже", chat="чат 1")])
            await store.writer.run(messages.append, [new("a new chat", chat="новый")])

    trio.run(more)
    before = digests_of(tmp_path / "klaw.db")
    report = run(tmp_path)
    assert report.swapped
    assert report.tally.reused >= 49
    assert digests_of(tmp_path / "klaw.db") == before


@pytest.mark.parametrize("change", ["content", "no JSON", "gone", "damaged", "other state"])
def test_what_an_interrupted_run_left_is_not_believed(tmp_path: Path, change: str) -> None:
    """Rows that the logs do not have, or a file that is no database: begun again, and right in the end."""
    trio.run(filled, tmp_path)
    before = digests_of(tmp_path / "klaw.db")
    killed(tmp_path, "turns", 1)
    left = tmp_path / "klaw.db.reindex"
    if change == "damaged":
        left.write_bytes(b"not a database" * 999)
    else:
        connection = apsw.Connection(str(left))
        traits.register(connection)
        match change:
            case "content":
                connection.execute("UPDATE messages SET content = 'forged' WHERE rowid = 2")
            case "no JSON":
                connection.execute("PRAGMA ignore_check_constraints = ON")
                connection.execute("UPDATE messages SET metadata = '{' WHERE rowid = 2")
            case "gone":
                connection.execute("UPDATE messages SET rowid = 77777, seq = 999, id = 'x' WHERE rowid = 3")
            case "other state":
                connection.execute("UPDATE meta SET value = '{}' WHERE key = 'reindex'")
        connection.close()
    assert run(tmp_path).swapped
    assert digests_of(tmp_path / "klaw.db") == before
    assert change != "no JSON" or not (tmp_path / FOLDER).exists(), "nothing is wrong with the line"


class Killed(BaseException):
    """Stands for SIGKILL between two system calls."""


@pytest.mark.parametrize("with_wal", [False, True])
@pytest.mark.parametrize("step", range(1, 11))
def test_a_swap_that_is_cut_off_anywhere_is_finished_by_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int, with_wal: bool
) -> None:
    """Before each change of the folder in turn; the start finds one whole database under the right name."""
    trio.run(filled, tmp_path)
    before = digests_of(tmp_path / "klaw.db")
    if with_wal:  # as where readers still have the old database open
        for suffix in ("-wal", "-shm"):
            (tmp_path / f"klaw.db{suffix}").touch()
        monkeypatch.setattr(offline, "_close", lambda _live: None)
    changes = 0

    def counted(method):
        def change(self, *args, **kwargs):
            nonlocal changes
            changes += self.name.startswith("klaw.db")
            if changes == step:
                raise Killed
            return method(self, *args, **kwargs)

        return change

    with monkeypatch.context() as patched:
        real = offline._put_in_place

        def swap(building, places):
            for name in ("rename", "replace", "unlink"):
                patched.setattr(Path, name, counted(getattr(Path, name)))
            real(building, places)

        patched.setattr(offline, "_put_in_place", swap)
        with suppress(Killed):
            run(tmp_path)
    assert changes >= min(step, 8)

    async def start() -> None:
        async with running_store(tmp_path) as store:
            assert store.opened.reconciled.messages == 0, "the database was whole, not made by the start"

    trio.run(start)
    assert digests_of(tmp_path / "klaw.db") == before
    assert not (tmp_path / "klaw.db.new").exists()
    decided = (tmp_path / "klaw.db.old").exists()
    assert decided != (tmp_path / "klaw.db.reindex").exists()
    if decided:
        assert digests_of(tmp_path / "klaw.db.old") == before
        drop(tmp_path / "klaw.db")
    assert run(tmp_path).swapped


# -- space ------------------------------------------------------------------------------------------------------------


def test_a_disk_without_room_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    trio.run(filled, tmp_path / "data")
    with small_disk(tmp_path / "small", "8m") as small:
        root = small / "data"
        shutil.copytree(tmp_path / "data", root)
        with pytest.raises(ReindexRefused, match=r"needs \d+ MiB in .* and \d MiB are free"):
            run(root)
        assert not list(root.glob("klaw.db.*"))


def test_a_disk_that_gets_full_keeps_what_was_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error with advice; the database is as it was; with room again, the next run goes on."""
    monkeypatch.setattr(files, "RESERVE_BYTES", 0)
    monkeypatch.setattr(offline, "SLICE_S", 0.0)
    trio.run(lambda: filled(tmp_path / "data", rounds=300))
    before = digests_of(tmp_path / "data" / "klaw.db")
    with small_disk(tmp_path / "small", "8m") as small:
        root = small / "data"
        shutil.copytree(tmp_path / "data", root)
        filled_up = []

        def fill(step) -> None:
            if step.phase == "messages" and step.done == 100 and not filled_up:
                filled_up.append(small / "ballast")
                with filled_up[0].open("wb", buffering=0) as file:
                    try:
                        while True:
                            file.write(b"x" * 4096)
                    except OSError:
                        pass

        with pytest.raises(StorageError, match="disk is full; what was built is kept in klaw"):
            run(root, see=fill)
        filled_up[0].unlink()
        assert digests_of(root / "klaw.db") == before
        report = run(root)
        assert report.swapped
        assert report.tally.reused > 0
        assert digests_of(root / "klaw.db") == before
