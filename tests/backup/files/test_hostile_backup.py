"""A backup that somebody made to do harm: a restore reaches nothing outside of its folders, and says what is wrong."""

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from klaw.backup import folder as manifests
from klaw.backup.folder import BackupItem, BackupManifest, BrokenBackup, chosen
from klaw.backup.restore import differing, restore
from klaw.config.paths import Paths

NAME = "2026-11-20T03-30-00Z"
NOTHING = hashlib.sha256(b"").hexdigest()


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    """The folder of one, without files yet."""
    root: Path = tmp_path / "backups" / NAME
    (root / "workspace").mkdir(parents=True)
    return root


def written(root: Path, *items: BackupItem, **changes: Any) -> None:
    """Put a manifest of these items in it, whatever they are."""
    for name in (manifests.FILE, manifests.DIGEST):
        (root / name).unlink(missing_ok=True)
    about = {"klaw": "0.1.0", "schema": 1, "time": "2026-11-20T03:30:00.000Z", "last": {}, "digests": {}}
    manifests.write_manifest(
        root, BackupManifest(**{**about, "secrets": False, "new_bytes": 0, "items": items, **changes})
    )


def restored(root: Path) -> Paths:
    new = Paths.resolve(root.parent.parent / "new")
    restore(new, *chosen(root.parent, root.name))
    return new


@pytest.mark.parametrize(
    "path",
    [
        *("data/../../etc/passwd", "/etc/passwd", "etc/passwd", "data"),
        *("data//etc/passwd", "data/./passwd", "data/passwd/", "data/a\0b"),
    ],
)
@pytest.mark.parametrize("field", ["path", "stored"])
def test_a_manifest_names_nothing_outside(backup: Path, path: str, field: str) -> None:
    written(backup, BackupItem(**{"path": "data/a", field: path}))
    with pytest.raises(BrokenBackup, match=rf"items\[0\]\.{field}: must be a path"):
        chosen(backup.parent, NAME)


def test_a_link_with_nul_and_a_time_that_is_none_are_refused(backup: Path) -> None:
    written(backup, BackupItem(path="data/a", link="a\0b"))
    with pytest.raises(BrokenBackup, match=r"items\[0\]\.link: must be a path, without NUL"):
        chosen(backup.parent, NAME)
    written(backup, time="yesterday")
    with pytest.raises(BrokenBackup, match="time: must be a time"):
        chosen(backup.parent, NAME)


@pytest.mark.parametrize(
    "below", [BackupItem(path="workspace/a/b", size=0, sha256=NOTHING), BackupItem(path="workspace/a/b", link="c")]
)
def test_nothing_is_made_through_a_link_of_the_backup(backup: Path, tmp_path: Path, below: BackupItem) -> None:
    (tmp_path / "victim").mkdir()
    (backup / "workspace/a").mkdir()
    (backup / "workspace/a/b").touch()
    written(backup, BackupItem(path="workspace/a", link=str(tmp_path / "victim")), below)
    new = restored(backup)
    assert list((tmp_path / "victim").iterdir()) == []
    assert [each.name for each in (new.workspace / "a").iterdir()] == ["b"]


@pytest.mark.parametrize("mode", [0o6777, 0o2755, -1, 2**40 + 0o4777])
def test_a_file_is_only_its_owners(backup: Path, mode: int) -> None:
    (backup / "workspace/a").touch()
    written(backup, BackupItem(path="workspace/a", sha256=NOTHING, mode=mode))
    assert (restored(backup).workspace / "a").stat().st_mode & 0o7777 == 0o700


def test_what_is_no_plain_file_is_not_read(backup: Path) -> None:
    """A pipe gives nothing, a device perhaps without end, and either has the size of an empty file."""
    (backup / "workspace/devices").symlink_to("/dev")
    os.mkfifo(backup / "workspace/pipe")
    for name, why in (("workspace/pipe", "is not a regular file"), ("workspace/devices/null", "lies behind a link")):
        item = BackupItem(path=name, sha256=NOTHING)
        written(backup, item)
        (told,) = differing(backup, [item])
        assert told.startswith(f"{name} {why}")
        with pytest.raises(BrokenBackup, match=f"{name} {why}.*; nothing was restored"):
            restored(backup)
