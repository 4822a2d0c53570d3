"""26.B4: a backup of somebody else's making, and a workspace nested without end, cost little and say what is wrong."""

import hashlib
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from klaw.backup import folder as manifests
from klaw.backup.create import _below
from klaw.backup.folder import MAX_DEPTH, BackupItem, BackupManifest, BrokenBackup, chosen
from klaw.backup.restore import restore, verify
from klaw.config.paths import Paths
from klaw.store import migrations

NAME = "2026-11-25T10-00-00Z"
DATA = b"hello"


def item(path: str, **changes: Any) -> BackupItem:
    return BackupItem(path=path, **{"size": len(DATA), "sha256": hashlib.sha256(DATA).hexdigest(), **changes})


def backup(folder: Path, *items: BackupItem, **changes: Any) -> Path:
    """A backup as its manifest says, without its files."""
    root = folder / NAME
    root.mkdir(parents=True)
    about = {"klaw": "1", "schema": migrations.latest(), "time": "2026-11-25T10:00:00.000Z", "last": {}, "digests": {}}
    manifests.write_manifest(
        root, BackupManifest(**{**about, "secrets": False, "new_bytes": 0, "items": items, **changes})
    )
    return root


def rewritten(root: Path, change: Any) -> None:
    """Another manifest with the digest that belongs to it."""
    tree = json.loads((root / "manifest.json").read_text())
    change(tree)
    signed(root, json.dumps(tree).encode())


def signed(root: Path, data: bytes) -> None:
    (root / "manifest.json").write_bytes(data)
    (root / "manifest.sha256").write_text(f"{hashlib.sha256(data).hexdigest()}  manifest.json\n")


def restored(tmp_path: Path) -> list[Path]:
    root, found = chosen(tmp_path / "backups", NAME)
    return restore(Paths.resolve(tmp_path / "home", {}), root, found)


def nested(root: Path) -> None:
    """1,500 folders, one in another."""
    here = os.open(root, os.O_RDONLY)
    for _ in range(1_500):
        os.mkdir("d", dir_fd=here)
        here, above = os.open("d", os.O_RDONLY, dir_fd=here), here
        os.close(above)
    os.close(here)


def test_a_file_in_thousands_of_folders_is_refused_by_its_place_in_the_manifest(tmp_path: Path) -> None:
    root = backup(tmp_path / "backups", item("workspace/a"))
    rewritten(root, lambda tree: tree["items"][0].update(path="workspace/" + "d/" * 2_000 + "a"))
    with pytest.raises(BrokenBackup, match=r"items\[0\].path: lies in more than 200 folders"):
        restored(tmp_path)


def test_folders_that_no_manifest_names_are_found_however_deep_they_are(tmp_path: Path) -> None:
    root = backup(tmp_path / "backups")
    nested(root)
    _, found = chosen(tmp_path / "backups", NAME)
    (problem,) = verify(tmp_path / "backups", root, found).problems
    assert problem.endswith("/d is not in the manifest")
    subprocess.run(["rm", "-rf", root], check=True)  # what removes the tests' folders is recursive


def test_what_lies_too_deep_is_told_when_a_backup_is_made(tmp_path: Path) -> None:
    root = tmp_path / "workspace"
    root.mkdir()
    (root / "a").write_bytes(DATA)
    nested(root)
    first, deep = _below(root, set())
    assert (first, deep.is_dir()) == (root / "a", True)
    assert manifests._inside(f"workspace/{(deep.parent / 'a').relative_to(root)}")
    subprocess.run(["rm", "-rf", root], check=True)


def test_a_backup_is_not_read_through_links(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "a").write_bytes(DATA)
    root = backup(tmp_path / "backups", item("workspace/in/a"))
    (root / "workspace").mkdir()
    (root / "workspace" / "in").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BrokenBackup, match="workspace/in/a lies behind a link"):
        restored(tmp_path)
    _, found = chosen(tmp_path / "backups", NAME)
    assert "lies behind a link" in verify(tmp_path / "backups", root, found).problems[0]
    assert not (tmp_path / "home" / "workspace").exists()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda path: path.symlink_to("/dev/zero"), "is a link"),
        (os.mkfifo, "is not a regular file"),
        (lambda path: os.truncate(os.open(path, os.O_CREAT | os.O_WRONLY), 1 << 40), "is larger than"),
    ],
)
def test_a_manifest_that_is_no_small_file_is_not_read(tmp_path: Path, make: Any, says: str) -> None:
    root = backup(tmp_path / "backups")
    (root / "manifest.json").unlink()
    make(root / "manifest.json")
    with pytest.raises(BrokenBackup, match=f"manifest.json cannot be read: {says}"):
        restored(tmp_path)


@pytest.mark.parametrize("data", [b"[" * 100_000, b'{"form": ' + b"9" * 5_000 + b"}"])
def test_a_manifest_of_brackets_or_digits_says_what_it_is(tmp_path: Path, data: bytes) -> None:
    root = backup(tmp_path / "backups")
    signed(root, data)
    with pytest.raises(BrokenBackup, match="no manifest of a backup"):
        restored(tmp_path)


def test_a_time_that_no_file_can_have_is_refused(tmp_path: Path) -> None:
    root = backup(tmp_path / "backups", item("workspace/a"))
    rewritten(root, lambda tree: tree["items"][0].update(mtime_ns=10**30))
    with pytest.raises(BrokenBackup, match=r"items\[0\].mtime_ns"):
        restored(tmp_path)


def test_what_can_be_restored_goes_as_deep_as_what_is_backed_up() -> None:
    deepest = "workspace/" + "d/" * (MAX_DEPTH - 2) + "a"
    assert manifests._inside(deepest) == deepest
