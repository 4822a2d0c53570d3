"""`klaw service install` and `uninstall` on a folder that stands for a machine."""

import json
import os
import pwd
import shutil
from collections.abc import Callable
from pathlib import Path, PurePosixPath

import pytest

from klaw.cli.main import main
from klaw.models.manifest import CATALOGUE
from klaw.service import install as installing
from klaw.service.install import Machine, readable_copy, this_program
from klaw.service.units import ServiceRefused

UNITS = "etc/systemd/system"
pytestmark = pytest.mark.skipif(shutil.which("systemctl") is None, reason="needs systemctl (Debian package systemd)")


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """With the units that set the clock."""
    root = tmp_path / "machine"
    units = root / "usr/lib/systemd/system"
    units.mkdir(parents=True)
    for name in ("systemd-timesyncd.service", "systemd-time-wait-sync.service"):
        (units / name).write_text("[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=sysinit.target\n")
    return root


@pytest.fixture
def service(machine: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    def run(*words: str) -> tuple[int, str]:
        program = ("--program", "/opt/klaw/bin/klaw") if words[0] == "install" else ()
        code = main(["service", *words, *program, "--root", str(machine)])
        return code, capsys.readouterr().out

    return run


def tree(folder: Path) -> dict[str, tuple[int, bytes]]:
    found = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return {str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes()) for path in found}


def test_it_makes_what_is_missing_and_a_second_time_nothing(
    machine: Path, service: Callable[..., tuple[int, str]]
) -> None:
    code, said = service("install", "--with", "bubblewrap", "--workspace", "/srv/workspace")
    assert code == 0
    modes = {"var/lib/klaw": 0o700, "srv/workspace": 0o700, "etc/klaw": 0o755, "etc/klaw/klaw.env": 0o600}
    assert {name: (machine / name).stat().st_mode & 0o7777 for name in modes} == modes
    for name in ("klaw.service", "klaw-backup.service", "klaw-backup.timer", "klaw.service.d/bubblewrap.conf"):
        assert f"made     /{UNITS}/{name}\n" in said
    enabled = machine / UNITS
    for wants in ("multi-user.target.wants/klaw.service", "timers.target.wants/klaw-backup.timer"):
        assert (enabled / wants).is_symlink()
    assert (enabled / "sysinit.target.wants/systemd-time-wait-sync.service").is_symlink()
    assert str((machine / "var/lib/klaw/workspace").readlink()) == "/srv/workspace"
    before = tree(machine)
    code, said = service("install", "--with", "bubblewrap", "--workspace", "/srv/workspace")
    assert (code, tree(machine)) == (0, before)
    assert {line.split()[0] for line in said.splitlines()} == {"same", "skipped", "All"}
    assert said.endswith("All was there already.\n")


def test_a_dry_run_writes_nothing(machine: Path, service: Callable[..., tuple[int, str]]) -> None:
    before = tree(machine)
    code, said = service("install", "--dry-run", "--with", "node-mcp")
    assert (code, tree(machine)) == (0, before)
    assert said.startswith("dry run: nothing is done\n")
    assert f"made     /{UNITS}/klaw.service.d/node-mcp.conf\n" in said


def test_an_edited_unit_stays_and_the_difference_is_shown(
    machine: Path, service: Callable[..., tuple[int, str]]
) -> None:
    service("install")
    unit = machine / UNITS / "klaw.service"
    edited = unit.read_text().replace("RestartSec=2\n", "RestartSec=9\n")
    unit.write_text(edited)
    code, said = service("install")
    assert (code, unit.read_text()) == (1, edited)
    assert "\n-RestartSec=9\n+RestartSec=2\n" in said
    assert "RestartSec=2\n" in unit.with_name("klaw.service.new").read_text()
    service("uninstall")
    assert {each.name for each in unit.parent.glob("klaw.service*")} == {"klaw.service.edited"}


def test_a_unit_of_an_older_klaw_is_brought_up_to_date(machine: Path, service: Callable[..., tuple[int, str]]) -> None:
    from klaw.service.units import SYSTEM, marked, text_of

    service("install")
    unit, path = machine / UNITS / "klaw.service", SYSTEM / "klaw.service"
    unit.write_text(marked(path, text_of("klaw.service").replace("RestartSec=2\n", "RestartSec=3\n")))
    code, said = service("install")
    assert (code, f"changed  {path}\n" in said) == (0, True)
    assert "RestartSec=2\n" in unit.read_text()


def test_user_and_home_of_the_first_time_stay(machine: Path, service: Callable[..., tuple[int, str]]) -> None:
    service("install", "--user", "bot", "--home", "/srv/klaw")
    before = tree(machine)
    assert service("install")[0] == 0
    assert tree(machine) == before
    assert "User=bot\n" in (machine / UNITS / "klaw.service").read_text()


def test_for_a_user_who_may_not_use_the_home_no_unit_is_changed(
    machine: Path, service: Callable[..., tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    service("install")
    before = tree(machine)
    monkeypatch.setattr(installing, "_user", lambda *_words: (12345, 12345))
    code, said = service("install", "--user", "bot", "--with", "node-mcp")
    mine = pwd.getpwuid(os.geteuid()).pw_name
    assert (code, f"failed   /var/lib/klaw  (belongs to {mine}, not to 12345: name another one" in said) == (1, True)
    assert tree(machine) == before


def test_a_workspace_that_is_there_is_not_shadowed_in_silence(
    machine: Path, service: Callable[..., tuple[int, str]]
) -> None:
    service("install")
    (machine / "var/lib/klaw/workspace").mkdir()
    (machine / "var/lib/klaw/workspace/SOUL.md").write_text("Ты помощник")
    code, said = service("install", "--workspace", "/srv/workspace")
    assert (code, "and the service /srv/workspace: move what is in it there" in said) == (0, True)
    (machine / "var/lib/klaw/workspace/SOUL.md").unlink()
    assert service("install", "--workspace", "/srv/workspace")[0] == 0
    assert (machine / "var/lib/klaw/workspace").is_symlink()
    service("uninstall")
    service("install")  # it is remembered
    assert "KLAW_WORKSPACE=/srv/workspace" in (machine / UNITS / "klaw.service.d/workspace.conf").read_text()


def test_keys_that_others_can_read_are_told(machine: Path, service: Callable[..., tuple[int, str]]) -> None:
    service("install")
    (machine / "etc/klaw/klaw.env").chmod(0o644)
    code, said = service("install")
    assert (code, "others can read it: chmod 600 /etc/klaw/klaw.env" in said) == (1, True)


def test_a_program_behind_a_link_into_a_home_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "home/bin").mkdir(parents=True)
    (tmp_path / "home/bin/klaw").touch()
    (tmp_path / "opt").symlink_to("home")
    monkeypatch.setattr("klaw.service.units.is_hidden", lambda path: path.is_relative_to(tmp_path / "home"))
    monkeypatch.setattr("sys.prefix", str(tmp_path / "opt"))
    with pytest.raises(ServiceRefused, match="does not see"):
        this_program()


def test_a_masked_unit_and_a_full_or_strange_disk_are_told(
    machine: Path, service: Callable[..., tuple[int, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    unit = machine / UNITS / "klaw.service"
    unit.parent.mkdir(parents=True)
    unit.symlink_to("/dev/null")
    code, said = service("install")
    assert (code, "klaw.service  (is masked: systemctl unmask klaw.service)" in said) == (1, True)
    unit.unlink()
    unit.mkdir()
    assert service("install", "--home", "/srv")[0] == 1
    assert main(["service", "install", "--root", str(machine), "--program", "/opt/klaw/bin/klaw"]) == 1
    assert f"klaw: {unit}: Is a directory" in capsys.readouterr().err


def test_units_of_a_debian_package_are_used(machine: Path, service: Callable[..., tuple[int, str]]) -> None:
    from klaw.service.units import text_of

    for name in ("klaw.service", "klaw-backup.service", "klaw-backup.timer"):
        (machine / "usr/lib/systemd/system" / name).write_text(text_of(name))
    code, said = service("install")
    assert (code, "klaw.service  (of the Debian package)" in said) == (0, True)
    assert not (machine / UNITS / "klaw.service").exists()
    assert (machine / UNITS / "multi-user.target.wants/klaw.service").is_symlink()


def test_uninstalling_leaves_data_and_what_others_wrote(machine: Path, service: Callable[..., tuple[int, str]]) -> None:
    service("install", "--with", "bubblewrap")
    (machine / "var/lib/klaw/data").mkdir()
    own = machine / UNITS / "klaw.service.d/override.conf"
    own.write_text("[Service]\nNice=5\n")
    timer = machine / UNITS / "klaw-backup.timer"
    timer.write_text(timer.read_text().replace("03:30", "04:30"))
    code, said = service("uninstall")
    assert (code, "stays in /var/lib/klaw (user klaw)" in said) == (0, True)
    left = {name for name in tree(machine) if name.startswith(UNITS)}
    assert left == {f"{UNITS}/klaw.service.d/override.conf", f"{UNITS}/klaw-backup.timer.edited"}
    assert (machine / "var/lib/klaw/data").is_dir()
    assert (machine / "etc/klaw/klaw.env").is_file()
    assert not (machine / UNITS / "multi-user.target.wants/klaw.service").is_symlink()
    assert service("uninstall")[0] == 1


def test_the_report_for_programs(machine: Path, service: Callable[..., tuple[int, str]]) -> None:
    answer = json.loads(service("install", "--json")[1])
    assert (answer["well"], answer["user"], answer["home"]) == (True, "klaw", "/var/lib/klaw")
    assert {step["outcome"] for step in answer["steps"]} <= {"made", "done", "skipped"}


@pytest.mark.parametrize(
    "words", [["--with", "nonsense"], ["--from", "/no/such/folder"], ["--user", "a b"], ["--workspace", "/srv/a b"]]
)
def test_wrong_arguments_change_nothing(
    machine: Path, service: Callable[..., tuple[int, str]], words: list[str]
) -> None:
    before = tree(machine)
    assert service("install", *words)[0] in (1, 2)
    assert tree(machine) == before


def test_a_program_that_the_service_cannot_see_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.prefix", "/home/pi/.local/pipx/venvs/klaw")
    with pytest.raises(ServiceRefused, match=r"does not see /home/pi/.local/pipx/venvs/klaw/bin/klaw: .*PIPX_HOME"):
        this_program()


def test_without_systemd_or_root_it_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(installing.shutil, "which", lambda _name: None)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert main(["service", "install", "--program", "/opt/klaw/bin/klaw"]) == 1
    assert "systemd is not installed; only root may do this: use sudo" in capsys.readouterr().err


def test_models_of_a_stick_are_readable_for_the_service_and_nothing_else_is(tmp_path: Path) -> None:
    first, second = (spec.id for spec in CATALOGUE)
    (tmp_path / first).mkdir()
    (tmp_path / first / "manifest.json").write_text("{}")
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "key").write_text("secret")
    (tmp_path / first / "link").symlink_to(tmp_path / "private" / "key")
    (tmp_path / second).symlink_to(tmp_path / "private")
    user = 12345 if os.geteuid() == 0 else os.geteuid()
    with readable_copy(tmp_path, user) as copy:
        found = {str(path.relative_to(copy)): path.stat().st_uid for path in copy.rglob("*")}
        assert found == {first: user, f"{first}/manifest.json": user}
        assert copy.stat().st_mode & 0o777 == 0o700
    assert not copy.exists()


def test_this_program_is_the_one_of_this_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("klaw.service.units.is_hidden", lambda _path: False)
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    with pytest.raises(ServiceRefused, match="there is no"):
        this_program()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "klaw").touch()
    assert this_program() == PurePosixPath(tmp_path / "bin" / "klaw")


def test_a_program_that_is_not_there_is_a_failed_step() -> None:
    machine = Machine()
    assert not machine.run("no-such-program-of-klaw", what="user klaw")
    assert (machine.well, machine.steps[0].outcome, machine.steps[0].what) == (False, "failed", "user klaw")
