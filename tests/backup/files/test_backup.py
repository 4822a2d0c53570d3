"""Backups of an installation that no server uses: what is in them, what is shared, what is found broken, restoring."""

import hashlib
import os
import signal
import socket
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from klaw.backup import create as making
from klaw.backup import folder as folders
from klaw.backup import folder as manifests
from klaw.backup.create import create
from klaw.backup.folder import BackupItem, BackupRefused, BrokenBackup, chosen, listed
from klaw.backup.folder import told as told_of
from klaw.backup.restore import differing, paths_below, restore, verify
from klaw.cli.main import main
from klaw.config.paths import Paths
from klaw.errors import StorageError
from klaw.store.backup_mark import BackupMark, digests_at, last_forgetting, mark, mark_offline
from tests.e2e.invariants.test_bad_disk import small_disk
from tests.support.backups import SECRET, checked, live, made, marker, names
from tests.support.forgetting import forgetter, holding
from tests.support.processes import SCRIPT, completed
from tests.support.reindexing import digests_of, run
from tests.support.stores import running_store
from tests.support.topics import ANNA, say


def test_one_made_while_something_is_forgotten_may_still_hold_it(paths: Paths) -> None:
    def forgetting(logs: bool) -> BackupMark:
        return attrs.evolve(marker(paths)(logs), forgetting=True)

    root, made = create(paths, paths.backups_dir, forgetting, secrets=False)
    assert made.last["entry"] >= last_forgetting(paths.database)
    assert (made.forgetting, manifests.read_manifest(root).forgetting) == (True, True)
    again, later = create(paths, paths.backups_dir, marker(paths), secrets=False)
    assert (later.forgetting, "forgetting" in (again / manifests.FILE).read_text()) == (False, False)
    told = [told_of(each, last_forgetting(paths.database))["holds_forgotten"] for each in listed(paths.backups_dir)]
    assert told == [True, False]


def test_secrets_are_not_in_it_under_other_names_either(paths: Paths) -> None:
    kept = ["notes.md", "env.json", "keys.md", "a.envelope"]
    secret = ["klaw.env~", ".env.local", "#klaw.env#", ".klaw.env.swp", "KEY.PEM", "cloud.key.bak", "tokens.json.old"]
    for name in (*kept, *secret):
        (paths.config_dir / name).write_text("sk-secret-1")
    root, found = made(paths)
    assert {each.name for each in (root / "config").iterdir()} == {"engine.yaml", *kept}
    assert len(made(paths, secrets=True)[1].items) == len(found.items) + len(secret) + 3


def test_what_is_in_it(paths: Paths) -> None:
    os.mkfifo(paths.workspace / "pipe")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(paths.workspace / "socket"))
        root, found = made(paths)
    assert {each.partition(":")[0] for each in found.left_out} == {"workspace/pipe", "workspace/socket"}
    in_config = {each for each in names(found) if each.startswith("config/")}
    assert in_config == {"config/engine.yaml"}
    assert {"workspace/SOUL.md", "workspace/skills/run.sh", "workspace/outside"} <= names(found)
    of_data = {each.split("/")[1] for each in names(found) if each.startswith("data/")}
    assert of_data == {"conversations", "turns", "users"}
    files = [each for each in names(found) if "/attachments/" in each]
    assert [hashlib.sha256(b"what stands in the file").hexdigest()] == [each.rpartition("/")[2] for each in files]
    assert next(each.link for each in found.items if each.path == "workspace/outside") == "/etc"
    assert found.digests.keys() >= {"messages", "turns", "facts", "topics"}
    assert set(paths_below(root)) == {*names(found), "manifest.json", "manifest.sha256"}
    assert all(path.stat().st_mode & 0o077 == 0 for path in (root, paths.backups_dir))
    assert not found.secrets
    with_secrets = made(paths, secrets=True)[1]
    assert names(with_secrets) - names(found) == {*("config/tokens.json", "config/.tokens.json.new", "config/klaw.env")}
    assert with_secrets.secrets
    verified = verify(paths.backups_dir, *chosen(paths.backups_dir, None))
    assert (verified.problems, verified.compared, verified.messages) == ((), True, found.last["rowid"])
    assert [each.name for each in paths.backups_dir.glob(".*")] == [".lock"]


async def test_the_next_one_shares_what_has_not_changed(paths: Paths) -> None:
    first, _ = made(paths)
    async with running_store(paths.data_dir) as store:
        await say(store, "one more")
    (paths.workspace / "SOUL.md").write_text("Ты другой помощник")
    (paths.workspace / "skills" / "run.sh").unlink()
    second, found = made(paths)
    changed = {each for each in names(found) if (second / each).lstat().st_ino != (first / each).lstat().st_ino}
    assert "workspace/outside" in changed
    assert {each.split("/")[0] for each in changed} == {"workspace", "data"}
    (log,) = (each for each in changed if each.startswith("data/"))
    assert log.startswith("data/conversations/anna")
    assert not (second / "workspace/skills/run.sh").exists()
    assert found.new_bytes == sum((second / each).stat().st_size for each in (log, "workspace/SOUL.md"))
    assert checked(paths, first.name) == checked(paths, second.name) == []


def test_where_nothing_can_be_shared_it_is_copied(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    made(paths)
    monkeypatch.setattr(os, "link", lambda *_args, **_kwargs: (_ for _ in ()).throw(PermissionError(1, "no")))
    _, found = made(paths)
    assert found.new_bytes == found.bytes
    assert checked(paths) == []


def test_on_a_stick_without_modes_links_and_some_names(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    """As FAT has it."""
    (paths.workspace / "what?.md").write_text("no name for FAT")
    open_file = Path.open

    def refused(*_args: object, **_kwargs: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    def opened(self: Path, *args: Any, **kwargs: Any) -> Any:
        if "?" in self.name:
            raise OSError(22, "Invalid argument")
        return open_file(self, *args, **kwargs)

    for place, name in ((os, "fchmod"), (Path, "chmod"), (Path, "symlink_to"), (os, "link")):
        monkeypatch.setattr(place, name, refused)
    monkeypatch.setattr(Path, "open", opened)
    paths.backups_dir.mkdir(mode=0o777)
    _, found = create(paths, paths.backups_dir, marker(paths), secrets=False)
    wanted = ("workspace/outside: Operation not permitted", "workspace/what?.md: Invalid argument")
    assert tuple(sorted(found.left_out)) == wanted
    assert list(differing(chosen(paths.backups_dir, None)[0], found.items)) == []


def test_names_that_differ_in_capital_letters_only_fit_on_a_disk_that_knows_none(paths: Paths, tmp_path: Path) -> None:
    for name in ("Заметки/a.md", "заметки/a.md", "заметки/A.md", "заметки/b.md"):
        (paths.workspace / name).parent.mkdir(exist_ok=True)
        (paths.workspace / name).write_text(name)
        os.utime(paths.workspace / name, ns=(1_760_000_000_000_000_000,) * 2)
    first = made(paths)[1]
    root, found = made(paths)
    assert [each.place for each in found.items] == [each.place for each in first.items]
    stored = [path.casefold() for path in paths_below(root)]
    folders_of_them = {path.rpartition("/")[0] for path in paths_below(root)}
    assert len({*stored}) == len(stored)
    assert len({path.casefold() for path in folders_of_them}) == len(folders_of_them)
    assert found.new_bytes == 0
    assert checked(paths) == []
    new = Paths.resolve(tmp_path / "new")
    restore(new, root, found)
    for name in ("Заметки/a.md", "заметки/a.md", "заметки/A.md", "заметки/b.md"):
        assert (new.workspace / name).read_text() == name


async def test_a_forgetting_that_was_under_way_is_finished_after_a_restore(paths: Paths, tmp_path: Path) -> None:
    """The mark is between taking it out of the database and cleaning the logs."""
    async with running_store(paths.data_dir) as store:
        tool = forgetter(store, paths.data_dir)
        store.journal.is_read = True
        with pytest.raises(StorageError):
            await tool.forget(await tool.find("main#1", ANNA))

        def marked(logs: bool) -> BackupMark:
            return trio.from_thread.run(partial(store.writer.run_alone, mark, logs=logs))

        make = partial(create, paths, paths.backups_dir, marked, secrets=False)
        root, found = await trio.to_thread.run_sync(make)
    assert holding(root, SECRET) != {}
    assert found.digests == {}
    new = Paths.resolve(tmp_path / "new")
    restore(new, root, found)
    async with running_store(new.data_dir):
        pass
    assert holding(new.data_dir, SECRET) == {}


def test_what_changed_a_moment_ago_is_not_taken_for_unchanged(paths: Paths) -> None:
    """Its time may be the same when it changes once more."""
    (paths.workspace / "SOUL.md").write_text("one")
    made(paths)
    now = (paths.workspace / "SOUL.md").stat().st_mtime_ns
    (paths.workspace / "SOUL.md").write_text("two")
    os.utime(paths.workspace / "SOUL.md", ns=(now, now))
    root, _ = made(paths)
    assert (root / "workspace/SOUL.md").read_text() == "two"


def test_one_made_while_the_clock_was_ahead_is_not_the_newest_for_ever(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = ["2026-11-20T03:30:00.000Z", "2031-01-01T00:00:00.500Z", "2026-11-21T03:30:00.000Z"]
    times += ["2026-11-21T03:30:00.000Z"]  # two in the same millisecond
    roots = []
    for time in times:
        monkeypatch.setattr(making, "iso", lambda _now, time=time: time)
        roots.append(made(paths, whole=len(roots) == 2)[0])
    assert [each.root for each in listed(paths.backups_dir)] == roots
    assert chosen(paths.backups_dir, None)[0] == roots[-1]
    assert [each.name[:4] for each in roots] == ["2026", "2031", "2026", "2026"]
    assert main(["--home", str(paths.data_dir.parent), "backup", "prune", "--keep", "2"]) == 0
    assert [each.root for each in listed(paths.backups_dir)] == roots[2:]
    (roots[3] / "manifest.json").write_text("{}")
    monkeypatch.setattr(making, "iso", lambda _now: "2026-11-22T03:30:00.000Z")
    later = made(paths)[0]
    assert [each.root for each in listed(paths.backups_dir)][-1] == later


def test_one_flipped_byte_anywhere_is_found(paths: Paths) -> None:
    root, found = made(paths)
    for path in sorted(names(found)):
        file = root / path
        if file.is_symlink():
            continue
        data = file.read_bytes()
        file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        assert checked(paths) == [f"{path} has another content than was written"]
        file.write_bytes(data)
        file.rename(root / "away")
        assert set(checked(paths)) == {f"{path} is missing", "away is not in the manifest"}
        (root / "away").rename(file)
    assert checked(paths) == []
    for name in ("manifest.json", "manifest.sha256"):
        data = (root / name).read_bytes()
        for at in (0, len(data) // 2, len(data) - 2):
            (root / name).write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
            (backup,) = listed(paths.backups_dir)
            assert (backup.manifest, "is not as it was written" in backup.problem) == (None, True)
            with pytest.raises(BrokenBackup, match=root.name):
                checked(paths, root.name)
        (root / name).write_bytes(data)


def test_logs_that_make_another_database_are_found(paths: Paths) -> None:
    """All digests of files are right; but a message says something else, and another one is not there."""
    root, found = made(paths)
    (path,) = (each for each in names(found) if "anna%3Amain" in each)
    lines = (root / path).read_bytes().splitlines(keepends=True)
    for changed, problem in (
        ([*lines[:-1], lines[-1].replace(b"look at", b"look in")], "the table of messages"),
        (lines[:-1], "its logs end at rowid"),
    ):
        (root / path).write_bytes(b"".join(changed))
        digest, size = hashlib.sha256(b"".join(changed)).hexdigest(), len(b"".join(changed))
        items = [attrs.evolve(each, sha256=digest, size=size) if each.path == path else each for each in found.items]
        for name in ("manifest.json", "manifest.sha256"):
            (root / name).unlink()
        manifests.write_manifest(root, attrs.evolve(found, items=tuple(items)))
        assert any(each.startswith(problem) for each in checked(paths)), problem


def test_it_is_restored_elsewhere(paths: Paths, tmp_path: Path) -> None:
    before = digests_of(paths.database)
    root, found = made(paths)
    new = Paths.resolve(tmp_path / "new")
    assert restore(new, root, found) == [new.config_dir, new.workspace, new.data_dir]
    assert (new.workspace / "SOUL.md").read_text() == "Ты помощник"
    assert (new.workspace / "skills/run.sh").stat().st_mode & 0o777 == 0o700
    assert str((new.workspace / "outside").readlink()) == "/etc"
    run(new.data_dir)
    after = digests_of(new.database)
    assert {name for name in before if before[name] != after[name]} <= {"vectors"}
    with pytest.raises(BackupRefused, match="data is not empty: a restore changes nothing"):
        restore(new, root, found)


def test_a_workspace_inside_the_data_folder_is_restored_with_it(paths: Paths, tmp_path: Path) -> None:
    root, found = made(paths)
    new = Paths.resolve(None, {"HOME": str(tmp_path / "new"), "XDG_RUNTIME_DIR": str(tmp_path)})
    assert new.workspace.parent == new.data_dir
    new.data_dir.parent.mkdir(parents=True)
    new.data_dir.parent.chmod(0o755)
    assert restore(new, root, found) == [new.config_dir, new.data_dir]
    assert [each.stat().st_mode & 0o777 for each in (new.data_dir, new.data_dir.parent)] == [0o700, 0o755]
    assert (new.workspace / "SOUL.md").read_text() == "Ты помощник"
    again, second = create(new, new.backups_dir, marker(new), secrets=False)
    assert names(second) - names(found) == {"data/core_memory.json"} & names(second)
    assert names(found) <= names(second)
    assert again.parent == new.data_dir.parent / "klaw-backups"


def test_a_workspace_behind_a_link_is_backed_up_once_and_restored(tmp_path: Path) -> None:
    def at(home: str) -> Paths:
        return Paths.resolve(None, {"HOME": str(tmp_path / home), "XDG_RUNTIME_DIR": str(tmp_path)})

    old, new = at("old"), at("new")
    trio.run(live, old.data_dir)
    (tmp_path / "документы ws").mkdir()
    (tmp_path / "документы ws" / "SOUL.md").write_text("Ты помощник")
    old.workspace.symlink_to(tmp_path / "документы ws")
    root, found = create(old, old.backups_dir, marker(old), secrets=False)
    assert "workspace/SOUL.md" in names(found)
    assert "data/workspace" not in names(found)
    both = attrs.evolve(
        found, items=(*found.items, BackupItem(path="data/workspace", link="/nowhere"))
    )  # as older ones have
    restore(new, root, both)
    assert (new.workspace / "SOUL.md").read_text() == "Ты помощник"


def test_backups_inside_what_is_backed_up_are_not_in_it_whatever_links_lead_there(paths: Paths, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(paths.data_dir)
    (tmp_path / "home link").symlink_to(tmp_path / "home")
    through = Paths.resolve(tmp_path / "home link")
    sizes = set()
    for used, folder in ((paths, tmp_path / "link/mine"), (through, paths.data_dir / "mine")) * 2:
        sizes.add(len(create(used, folder, marker(paths), secrets=False)[1].items))
    assert len(sizes) == 1
    for folder in (tmp_path / "link", paths.config_dir):
        with pytest.raises(BackupRefused, match="is backed up itself"):
            create(paths, folder, marker(paths), secrets=False)


def test_a_data_folder_behind_a_link_stays_on_its_disk(paths: Paths, tmp_path: Path) -> None:
    root, found = made(paths)
    new = Paths.resolve(tmp_path / "new")
    (tmp_path / "new").mkdir()
    (tmp_path / "ssd").mkdir()
    new.data_dir.symlink_to(tmp_path / "ssd" / "data")
    restore(new, root, found)
    assert new.data_dir.is_symlink()
    assert (tmp_path / "ssd/data/conversations").is_dir()


def test_a_newest_backup_that_cannot_be_used_is_not_passed_over(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    old, _ = made(paths)
    new, _ = made(paths)
    with monkeypatch.context() as patch:
        patch.setattr(folders.migrations, "latest", lambda: 1)
        with pytest.raises(BackupRefused, match=r"made by Klaw .* cannot read all of its logs"):
            chosen(paths.backups_dir, None)
    (new / "manifest.json").write_text("{}")
    with pytest.raises(BrokenBackup, match=r"is not as it was written.*older ones can be named"):
        chosen(paths.backups_dir, None)
    assert chosen(paths.backups_dir, old.name)[0] == old
    (old / "workspace/SOUL.md").unlink()
    os.mkfifo(old / "workspace/SOUL.md")
    with pytest.raises(BrokenBackup, match=r"workspace/SOUL\.md is not a regular file"):
        restore(Paths.resolve(paths.data_dir.parent / "new"), *chosen(paths.backups_dir, old.name))


def test_two_restores_at_once_do_not_mix(paths: Paths, tmp_path: Path) -> None:
    root, found = made(paths)
    new, refused = Paths.resolve(tmp_path / "new"), []

    def meanwhile(done: int, total: int) -> None:
        if done == total // 2:
            with pytest.raises(BackupRefused, match="another restore is at work") as error:
                restore(new, root, found)
            refused.append(error)

    restore(new, root, found, meanwhile)
    assert len(refused) == 1
    assert set(paths_below(new.workspace)) == {path[10:] for path in names(found) if path.startswith("workspace/")}


def test_a_restore_that_was_cut_off_goes_on(paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed(BaseException):
        pass

    root, found = made(paths)
    new = Paths.resolve(tmp_path / "new")
    rename, left = Path.rename, 2

    def renamed(self: Path, target: Path) -> Path:
        nonlocal left
        left -= 1
        if left < 0:
            raise Killed
        return rename(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", renamed)
        with pytest.raises(Killed):
            restore(new, root, found)
    assert new.workspace.exists()
    assert not new.data_dir.exists()
    (new.workspace / "mine.md").write_text("somebody's")
    with pytest.raises(BackupRefused, match="workspace is not empty"):
        restore(new, root, found)
    (new.workspace / "mine.md").unlink()
    assert restore(new, root, found)[-1] == new.data_dir
    assert new.data_dir.exists()


@pytest.mark.parametrize("broken", ["flipped", "missing"])
def test_nothing_broken_is_put_in_place(paths: Paths, tmp_path: Path, broken: str) -> None:
    root, found = made(paths)
    file = root / "workspace/SOUL.md"
    file.write_text("x") if broken == "flipped" else file.unlink()
    new = Paths.resolve(tmp_path / "new")
    with pytest.raises(BrokenBackup, match=r"workspace/SOUL\.md"):
        restore(new, root, found)
    assert [each for each in (tmp_path / "new").iterdir() if each.name != "run"] == []


@pytest.mark.parametrize("goes_on", [False, True])
def test_a_log_that_is_rewritten_meanwhile_is_copied_again(
    paths: Paths, monkeypatch: pytest.MonkeyPatch, goes_on: bool
) -> None:
    """The second mark says that one was; the file that was copied says what was to be forgotten."""
    monkeypatch.setattr(making, "PAUSE_S", 0)
    (log,) = paths.conversations.rglob("anna%3Amain/*.jsonl")
    count = 0

    def mark(logs: bool) -> BackupMark:
        nonlocal count
        found = attrs.evolve(mark_offline(paths.database), server="1", rewrites=count)
        if not logs and (goes_on or count == 0):
            log.write_bytes(log.read_bytes().replace(SECRET.encode(), b"-" * len(SECRET)))
            count += 1
            return attrs.evolve(found, rewrites=count)
        return found

    monkeypatch.setattr(making, "digests_at", lambda _database, marker: (marker(True), {}))
    if goes_on:
        with pytest.raises(BackupRefused, match="something is forgotten: try again later"):
            create(paths, paths.backups_dir, mark, secrets=False)
        assert [each.name for each in paths.backups_dir.iterdir()] == [".lock"]
    else:
        root, _ = create(paths, paths.backups_dir, mark, secrets=False)
        assert holding(root, SECRET) == {}


def test_a_log_that_is_shorter_than_it_was_is_not_taken(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(making, "PAUSE_S", 0)

    def mark(_logs: bool) -> BackupMark:
        found = mark_offline(paths.database)
        return attrs.evolve(found, logs={path: size + 1 for path, size in found.logs.items()})

    with pytest.raises(BackupRefused, match="try again later"):
        create(paths, paths.backups_dir, mark, secrets=False)


def test_digests_are_of_the_moment_of_the_mark(paths: Paths) -> None:
    """Something is written between two looks, so they are of the third mark."""
    marks = 0

    def mark(logs: bool) -> BackupMark:
        nonlocal marks
        marks += 1
        return attrs.evolve(mark_offline(paths.database), server="1", writes=min(marks, 5), last={"rowid": marks})

    found, digests = digests_at(paths.database, mark)
    assert found.last["rowid"] == 5
    assert digests.keys() >= {"messages", "words"}
    assert digests_at(paths.database, partial(_busy, paths))[1] == {}


def _busy(paths: Paths, _logs: bool) -> BackupMark:
    return attrs.evolve(mark_offline(paths.database), writes=os.urandom(4)[0] << 40 | int.from_bytes(os.urandom(4)))


def test_a_damaged_database_is_no_obstacle(paths: Paths) -> None:
    paths.database.write_bytes(b"x" * 100_000)
    _, found = made(paths)
    assert (found.digests, found.last) == ({}, {})
    verified = verify(paths.backups_dir, *chosen(paths.backups_dir, None))
    assert (verified.problems, verified.compared, verified.messages > 20) == ((), False, True)


async def test_who_holds_what_was_forgotten_is_known(paths: Paths) -> None:
    root, before = made(paths)
    assert last_forgetting(paths.database) == 0
    async with running_store(paths.data_dir) as store:
        tool = attrs.evolve(forgetter(store, paths.data_dir), backups=paths.backups_dir)
        proof = await tool.forget(await tool.find("main#1", ANNA), everywhere=True)
        assert [(each.path, each.kind) for each in proof.before.aside] == [(str(root), "backup")]
        own = await tool.preview(await tool.find("main#2", ANNA))
        assert own.aside == ()
    assert holding(root, SECRET) != {}
    after = made(paths)[1]
    assert before.last["entry"] < last_forgetting(paths.database) <= after.last["entry"]


def test_what_is_broken_is_not_shared_for_ever(paths: Paths) -> None:
    root, _ = made(paths)
    (root / "workspace/SOUL.md").write_text("Ты помощниц")
    made(paths)
    assert [each.partition(" ")[0] for each in checked(paths)] == ["workspace/SOUL.md"]
    _, found = made(paths, whole=True)
    assert checked(paths) == []
    assert found.new_bytes == found.bytes


def test_two_at_once_are_refused_and_leftovers_removed(paths: Paths) -> None:
    made(paths)
    (paths.backups_dir / "photos").mkdir()
    left = paths.backups_dir / f"{folders.DRAFT}7"
    (left / "data").mkdir(parents=True)
    assert len(listed(paths.backups_dir)) == 1
    with folders.locked(paths.backups_dir), pytest.raises(BackupRefused, match="another backup is at work"):
        made(paths)
    made(paths)
    assert not left.exists()


def test_where_backups_cannot_be(paths: Paths, tmp_path: Path) -> None:
    with pytest.raises(BackupRefused, match="is in the workspace"):
        create(paths, paths.workspace / "backups", marker(paths), secrets=False)
    with pytest.raises(BackupRefused, match="there is nothing to back up"):
        create(Paths.resolve(tmp_path / "none"), tmp_path / "to", marker(paths), secrets=False)
    with pytest.raises(BackupRefused, match=f"there is no {tmp_path}/stick: is its disk mounted"):
        create(paths, tmp_path / "stick" / "backups", marker(paths), secrets=False)
    (tmp_path / "file").write_text("x")
    with pytest.raises((BackupRefused, Exception), match="file"):
        create(paths, tmp_path / "file", marker(paths), secrets=False)


@pytest.mark.parametrize("another", [False, True])
@pytest.mark.parametrize("at", [3, 13])
def test_a_stick_that_is_pulled_gets_no_half_backup_in_its_place(
    paths: Paths, tmp_path: Path, at: int, another: bool
) -> None:
    folder = tmp_path / "stick" / "backups"
    folder.parent.mkdir()

    def tell(done: int, _total: int) -> None:
        if done == at:
            folder.parent.rename(tmp_path / "pulled")
            folder.parent.mkdir()
            if another:
                folder.mkdir()

    with pytest.raises(BackupRefused, match="moved or taken away while the backup was made: is its disk mounted"):
        create(paths, folder, marker(paths), secrets=False, tell=tell)
    assert list(folder.parent.rglob("*")) == [folder] * another
    assert listed(tmp_path / "pulled" / "backups") == []


def test_a_full_disk_is_told_and_nothing_is_left(paths: Paths, tmp_path: Path) -> None:
    (paths.workspace / "large").write_bytes(os.urandom(3_000_000))
    with small_disk(tmp_path / "stick", "2m") as stick:
        with pytest.raises(BackupRefused, match=f"the disk of {stick} is full: make room"):
            create(paths, stick, marker(paths), secrets=False)
        assert [each.name for each in stick.iterdir()] == [".lock"]
        (paths.workspace / "large").unlink()
        root, _ = create(paths, stick, marker(paths), secrets=False)
        assert list(differing(root, chosen(stick, None)[1].items)) == []
        with pytest.raises(BackupRefused, match=r"cannot be checked here: .* MiB are free"):
            checked(attrs.evolve(paths, backups_dir=stick), root.name)


_KILLED = """
import os, signal, sys
from pathlib import Path
from klaw.backup.create import create
from klaw.config.paths import Paths
from klaw.store.backup_mark import mark_offline

paths, left, done = Paths.resolve(sys.argv[1]), int(sys.argv[2]), 0

def around(function):
    def counted(*args, **kwargs):
        global done
        for found in (None, function):
            done += 1
            if done > left:
                os.kill(os.getpid(), signal.SIGKILL)
            if found is not None:
                result = found(*args, **kwargs)
        return result
    return counted

mark_offline(paths.database)
for name in ("open", "link", "fsync", "sync", "utime"):
    setattr(os, name, around(getattr(os, name)))
for place, name in ((Path, "rename"), (Path, "open")):
    setattr(place, name, around(getattr(place, name)))
create(paths, paths.backups_dir, lambda logs: mark_offline(paths.database), secrets=False)
print(done)
"""


def test_a_kill_at_any_step_leaves_no_half_backup(paths: Paths) -> None:
    _, whole = made(paths)
    (paths.workspace / "SOUL.md").write_text("Ты другой помощник")
    root = str(paths.data_dir.parent)

    def kill_at(steps: int) -> tuple[int, int]:
        done = trio.run(completed, [*SCRIPT, _KILLED, root, str(steps)])
        assert done.returncode in (0, -signal.SIGKILL), done.stderr
        return done.returncode, int(done.stdout or 0)

    code, steps = kill_at(1_000_000)
    assert code == 0
    assert steps > 50
    for at in (5, *range(20, steps, steps // 5), *range(steps - 14, steps, 2)):
        before = len(listed(paths.backups_dir))
        assert kill_at(at)[0] == -signal.SIGKILL
        found = listed(paths.backups_dir)
        assert [each.problem for each in found if each.problem] == []
        assert before <= len(found) <= before + 1
        if len(found) > before:
            assert found[-1].manifest is not None
            assert names(found[-1].manifest) == names(whole)
            assert list(differing(found[-1].root, found[-1].manifest.items)) == []
    root_made, found_made = made(paths)
    assert names(found_made) == names(whole)
    assert [each.name for each in paths.backups_dir.glob(".*")] == [".lock"]
    assert checked(paths, root_made.name) == []
