"""The service under a real systemd: ready, watched, restarted, stopped, sandboxed, backed up, updated, uninstalled."""

import json
import shutil
import time
from pathlib import Path

from klaw import __version__
from tests.e2e.test_update import NEW, newer
from tests.system.machine import HOME, Machine, until

WATCH = "[Service]\nWatchdogSec=6\n"


def facts(machine: Machine) -> str:
    return machine.klaw("facts", "list").stdout


def test_it_is_ready_and_its_state_is_told(machine: Machine) -> None:
    told = machine.run("klaw", "service", "status").stdout
    assert "active (running)" in told
    assert f"127.0.0.1:{machine.port}" in told
    assert machine.show("StatusText").startswith("listening on ws://")
    machine.klaw("facts", "add", "Аня живёт в Риге")
    assert "Аня живёт в Риге" in facts(machine)
    again = machine.run("klaw", "service", "install", "--no-models", "--with", "node-mcp", "--with", "bubblewrap")
    assert "All was there already." in again.stdout


def test_its_sandbox_scores_as_it_did(machine: Machine) -> None:
    machine.run("mv", "/etc/systemd/system/klaw.service.d", "/srv/drop-ins")
    machine.run("systemctl", "daemon-reload")
    said = machine.asked("systemd-analyze", "security", "--no-pager", "klaw").splitlines()[-1]
    machine.run("mv", "/srv/drop-ins", "/etc/systemd/system/klaw.service.d")
    machine.run("systemctl", "daemon-reload")
    assert float(said.split(":")[1].split()[0]) <= 1.6, said


def test_a_kill_and_a_hang_are_survived(machine: Machine) -> None:
    before = machine.pid
    machine.run("kill", "-KILL", str(before))
    until(lambda: machine.pid not in (0, before) and machine.answers())
    machine.drop_in("klaw.service", WATCH)
    machine.restart()
    before = machine.pid
    machine.run("kill", "-STOP", str(before))
    until(lambda: machine.pid not in (0, before) and machine.answers())
    assert "Аня живёт в Риге" in facts(machine)


def test_a_reload_takes_settings_up_and_refuses_wrong_ones(machine: Machine) -> None:
    def said() -> str:
        return machine.asked("journalctl", "--unit=klaw", "--lines=8", "--no-pager")

    before = machine.pid
    machine.configure(llm={"temperature": 0.25})
    machine.run("systemctl", "reload", "klaw")
    assert "settings_taken_up" in said()
    machine.configure(llm={"temperature": "hot"})
    assert machine.run("systemctl", "reload", "klaw", check=False).returncode != 0
    assert "llm.temperature" in said()
    assert (machine.answers(), machine.pid) == (True, before)
    machine.configure()
    machine.run("systemctl", "reload", "klaw")


def test_it_stops_in_order_and_in_time(machine: Machine) -> None:
    begin = time.monotonic()
    machine.run("systemctl", "stop", "klaw")
    assert time.monotonic() - begin < 180
    assert (machine.show("Result"), machine.show("ExecMainStatus")) == ("success", "0")
    machine.run("systemctl", "start", "klaw")
    until(machine.answers)


def test_a_full_disk_refuses_and_recovers(machine: Machine) -> None:
    machine.run("systemctl", "stop", "klaw")
    machine.run("mkdir", "-p", "/small")
    machine.run("mount", "-t", "tmpfs", "-o", "size=60M", "tmpfs", "/small")
    machine.run("cp", "-a", f"{HOME}/.", "/small/")
    machine.run("mount", "--bind", "/small", HOME)
    machine.run("chown", "klaw:klaw", HOME)
    machine.run("systemctl", "start", "klaw")
    until(machine.answers)
    machine.run("dd", "if=/dev/zero", f"of={HOME}/filler", "bs=64k", check=False)
    refused = machine.klaw("facts", "add", "Не помещается", check=False)
    assert refused.returncode != 0, refused.stdout
    assert "disk" in refused.stderr
    machine.run("rm", f"{HOME}/filler")
    until(lambda: machine.klaw("facts", "add", "Теперь помещается", check=False).returncode == 0)
    machine.run("systemctl", "stop", "klaw")
    machine.run("umount", HOME)
    machine.run("umount", "/small")
    machine.run("systemctl", "start", "klaw")
    until(machine.answers)


def test_a_backup_is_made_by_the_timer(machine: Machine) -> None:
    machine.drop_in(
        "klaw-backup.timer", "[Timer]\nOnCalendar=\nOnCalendar=*:*:0/10\nRandomizedDelaySec=0\nAccuracySec=1\n"
    )
    machine.run("systemctl", "restart", "klaw-backup.timer")
    until(lambda: json.loads(machine.klaw("backup", "list", "--json").stdout)["backups"])
    machine.run("systemctl", "stop", "klaw-backup.timer")
    until(lambda: machine.show("ActiveState", "klaw-backup.service") == "inactive")
    assert machine.show("Result", "klaw-backup.service") == "success"
    machine.klaw("backup", "verify")


def test_an_update_takes_over_and_one_that_does_not_start_is_taken_back(machine: Machine, tmp_path: Path) -> None:
    (wheel,) = (machine.root / "wheels").glob("klaw-*.whl")
    (tmp_path / "bad").mkdir()
    bad = newer(wheel, tmp_path / "bad", **{"klaw/app/serve.py": "raise SystemExit('broken')\n"})
    for made in (bad, newer(wheel, tmp_path)):
        shutil.copy(made, machine.root / "srv")
        done = machine.run("klaw", "update", "apply", f"/srv/{made.name}", "--wheels", "/wheels", check=False)
        until(machine.answers)
        version = json.loads(machine.klaw("status", "--json", check=False).stdout)["version"]
        assert (done.returncode, version) == ((1, __version__) if made == bad else (0, NEW)), done.stdout + done.stderr
        assert "Аня живёт в Риге" in facts(machine)


def test_uninstalling_leaves_the_data(machine: Machine) -> None:
    said = machine.run("klaw", "service", "uninstall").stdout
    assert HOME in said
    assert machine.show("LoadState") == "not-found"
    assert machine.run("ls", f"{HOME}/data/klaw.db").returncode == 0
    machine.run("klaw", "service", "install", "--no-models", "--start")
    until(machine.answers)
    assert "Аня живёт в Риге" in facts(machine)
