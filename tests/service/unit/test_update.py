"""What an update keeps beside itself, and what becomes of that when it cannot be kept. tests/e2e/test_update.py does it
all."""

import errno
from pathlib import Path
from typing import Any

import pytest

from klaw.config.paths import Paths
from klaw.service import rollback as module
from klaw.service.rollback import KEPT
from klaw.service.update import Release, Update, UpdateRefused
from klaw.store.migrations import latest


class Server:
    """Says what was done with it."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return lambda: self.done.append(name)


def test_a_full_disk_ends_it_with_the_server_running_and_nothing_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths, prefix, server = Paths.resolve(tmp_path / "home"), tmp_path / "env", Server()
    (prefix / "bin").mkdir(parents=True)
    (prefix / "bin" / "klaw").write_text("of now")
    paths.data_dir.mkdir(parents=True)
    paths.database.write_bytes(b"rows")

    def full(source: Path, copy: Path) -> None:
        copy.write_bytes(source.read_bytes()[:1])
        raise OSError(errno.ENOSPC, "No space left on device")

    for name in ("_check", "_problems", "_wait", "_installer"):
        monkeypatch.setattr(Update, name, lambda *_words: {})
    monkeypatch.setattr(module.shutil, "copy2", full)
    release = Release(path=tmp_path / "klaw.whl", version="99.0", schema=latest() + 1)
    update = Update(paths=paths, home=None, control=server, tell=lambda _text: None, prefix=prefix)
    with pytest.raises(UpdateRefused, match="No space left on device"):
        update.run(release, backup=False)
    assert server.done == ["stop", "start", "settle"]
    assert [path.name for path in tmp_path.iterdir() if KEPT in path.name] == []
    assert [path.name for path in paths.data_dir.iterdir()] == ["klaw.db"]
    assert (prefix / "bin" / "klaw").read_text() == "of now"


def test_what_dpkg_put_there_is_left_to_it(tmp_path: Path) -> None:
    release = Release(path=tmp_path / "klaw.whl", version="99.0", schema=latest())
    paths, server = Paths.resolve(tmp_path / "home"), Server()
    update = Update(paths=paths, home=None, control=server, tell=print, prefix=Path("/usr/lib/klaw"))
    with pytest.raises(UpdateRefused, match="apt install"):
        update._check(release)
    assert server.done == []
