"""What is put on a machine: units for one installation, which systemd accepts and finds closed."""

import re
import shutil
import subprocess
import sys
from pathlib import Path, PurePosixPath

import pytest

from klaw.service.units import (
    SYSTEM,
    UNITS,
    ServiceInstallation,
    ServiceRefused,
    is_hidden,
    is_untouched,
    marked,
    text_of,
    time_sync,
    told,
)
from tests.support.repository import REPOSITORY
from tests.support.waiting import HANG_S

PROGRAM = PurePosixPath("/opt/klaw/bin/klaw")
HERE = PurePosixPath(sys.executable)
WORST_EXPOSURE = 16
"""Tenths, as systemd-analyze takes them."""


def test_the_files_are_those_of_conf() -> None:
    for name in (*UNITS, "klaw.env.example"):
        assert text_of(name) == (REPOSITORY / "conf" / name).read_text(encoding="utf-8")
        assert ServiceInstallation(program=PROGRAM).unit(name) == text_of(name)


@pytest.mark.parametrize(
    ("user", "home", "lines"),
    [
        ("klaw", "/var/lib/bot", ["StateDirectory=bot", "WorkingDirectory=%S/bot", "ProtectHome=yes"]),
        ("bot", "/srv/klaw", ["User=bot", "ReadWritePaths=/srv/klaw", "WorkingDirectory=/srv/klaw"]),
        ("pi", "/home/pi/klaw", ["User=pi", "ProtectHome=tmpfs", "BindPaths=/home/pi/klaw"]),
    ],
)
def test_another_user_and_home(user: str, home: str, lines: list[str]) -> None:
    wanted = ServiceInstallation(program=PurePosixPath("/usr/lib/klaw/bin/klaw"), user=user, home=PurePosixPath(home))
    for name in ("klaw.service", "klaw-backup.service"):
        text = wanted.unit(name)
        assert set(lines) <= set(text.splitlines())
        assert "/opt/klaw" not in re.sub("#.*", "", text)
        assert text.count("ProtectHome=") == text.count("User=") == 1
        assert not re.search(r"/var/lib/klaw|%S/klaw", text)
        assert told(text) == (user, PurePosixPath(home))


def test_what_is_installed_is_read_back() -> None:
    assert told(text_of("klaw.service")) == told("") == ("klaw", PurePosixPath("/var/lib/klaw"))


@pytest.mark.parametrize(
    ("named", "value"),
    [
        ("user", "root"),
        ("user", "a b"),
        ("user", "x\nExecStart=/bin/sh"),
        ("home", PurePosixPath("srv/klaw")),
        ("home", PurePosixPath("/srv/my klaw")),
        ("home", PurePosixPath("/srv/%h")),
        ("workspace", PurePosixPath("/srv/x\nUser=root")),
        ("program", PurePosixPath("/opt/klaw;x")),
    ],
)
def test_names_that_a_unit_would_misread_are_refused(named: str, value: object) -> None:
    with pytest.raises(ServiceRefused):
        ServiceInstallation(**{"program": PROGRAM, named: value})


def test_an_edited_file_is_told_from_ours() -> None:
    path = SYSTEM / "klaw.service"
    text = marked(path, text_of("klaw.service"))
    assert is_untouched(text)
    assert not is_untouched(text.replace("RestartSec=2", "RestartSec=9"))
    assert not is_untouched(text_of("klaw.service"))
    head, _, rest = text.partition("\n")
    assert is_untouched(f"# In other words: {head[-64:]}\n{rest}")  # of another version of Klaw
    assert "systemctl edit klaw-backup`" in marked(SYSTEM / "klaw-backup.service.d" / "workspace.conf", "x")


def test_what_the_sandbox_hides() -> None:
    hidden = ["/home/pi/.local/bin/klaw", "/root", "/tmp/venv/bin/klaw", "/run/user/1000/klaw"]
    assert all(is_hidden(Path(each)) for each in hidden)
    assert not any(is_hidden(Path(each)) for each in ("/opt/klaw", "/usr/bin/python3", "/homes/x", "/run/klaw"))


ALL = {"extras": ("node-mcp", "bubblewrap"), "workspace": PurePosixPath("/srv/workspace")}


@pytest.mark.parametrize(
    "more",
    [{}, ALL, {"home": PurePosixPath("/srv/klaw")}, {"home": PurePosixPath("/home/pi/klaw"), "user": "games"}],
    ids=["plain", "all drop-ins", "another home", "a home in /home"],
)
def test_systemd_accepts_what_is_written(tmp_path: Path, more: dict[str, object]) -> None:
    """Without a warning, units and drop-ins alike."""
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("needs systemd-analyze (Debian package systemd)")
    for path, text in ServiceInstallation(program=HERE, **more).files().items():  # type: ignore[arg-type]  # the program need be there
        place = tmp_path / path.relative_to(SYSTEM)
        place.parent.mkdir(exist_ok=True)
        place.write_text(marked(path, text), encoding="utf-8")
    done = subprocess.run(
        [analyze, "--man=no", "verify", *(str(tmp_path / name) for name in UNITS)],
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG_S,
        env={"PATH": "/usr/bin:/bin", "SYSTEMD_UNIT_PATH": f"{tmp_path}:"},
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_sandbox_is_as_closed_as_promised(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("needs systemd-analyze (Debian package systemd)")
    for name in ("klaw.service", "klaw-backup.service"):
        (tmp_path / name).write_text(ServiceInstallation(program=HERE).unit(name), encoding="utf-8")
        command = [analyze, "security", "--offline=true", "--no-pager", f"--threshold={WORST_EXPOSURE}"]
        done = subprocess.run(
            [*command, str(tmp_path / name)], capture_output=True, text=True, check=False, timeout=HANG_S
        )
        assert done.returncode == 0, done.stdout[-200:] + done.stderr


def test_waiting_for_the_time_ends() -> None:
    """A board without network must start, too."""
    ((path, text),) = time_sync("systemd-time-wait-sync.service").items()
    assert path == SYSTEM / "systemd-time-wait-sync.service.d" / "klaw.conf"
    assert "TimeoutStartSec=90\n" in text
