"""What an update keeps: a kill at any step leaves what works, or what can be put back."""

import signal
from pathlib import Path

import trio

from klaw.service.rollback import Rollback
from tests.support.processes import SCRIPT, completed

_KILLED = """
import os, shutil, signal, sys
from pathlib import Path
from klaw import atomic_file
from klaw.service.rollback import Rollback

root, left, done = Path(sys.argv[1]), int(sys.argv[2]), 0

def around(function):
    def counted(*args, **kwargs):
        global done
        done += 1
        if done > left:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*args, **kwargs)
    return counted

kept = Rollback(root / "env", root / "klaw.db")
for place, name in ((Path, "rename"), (Path, "replace"), (Path, "unlink"), (shutil, "copy2"), (atomic_file, "sync"),
                    (shutil, "rmtree"), (os, "mkdir"), (os, "link")):
    setattr(place, name, around(getattr(place, name)))
kept.keep(database=True)
(kept.prefix / "klaw").unlink()
(kept.prefix / "klaw").write_text("new")
for file in kept.copies:
    file.write_text("new")
kept.put_back()
print(done)
"""


def killed(root: Path, step: int) -> int:
    """Keep, change and put back, and be killed before a step. Returns how many there were; 0: it was killed."""
    (root / "env").mkdir(parents=True)
    (root / "env" / "klaw").write_text("old")
    for name in ("klaw.db", "klaw.db-wal"):
        (root / name).write_text("old")
    done = trio.run(completed, [*SCRIPT, _KILLED, str(root), str(step)])
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return int(done.stdout or 0)


def names(folder: Path) -> set[str]:
    return {each.name for each in folder.iterdir()}


def test_a_kill_at_any_step_leaves_what_can_be_put_back(tmp_path: Path) -> None:
    steps = killed(tmp_path / "whole", 1_000)
    assert steps > 20
    assert names(tmp_path / "whole") == {"env", "klaw.db", "klaw.db-wal"}
    for step in range(steps):
        root = tmp_path / str(step)
        assert killed(root, step) == 0
        kept = Rollback(root / "env", root / "klaw.db")
        if kept.is_there():
            kept.put_back()
        assert ((root / "env/klaw").read_text(), (root / "klaw.db").read_text()) == ("old", "old")
        wal = root / "klaw.db-wal"
        assert not wal.exists() or wal.read_text() == "old"
        kept.keep(database=False)  # as the next update does
        kept.drop()
        assert names(root) - {"klaw.db-wal"} == {"env", "klaw.db"}
