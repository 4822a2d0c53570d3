"""Booting a Debian in a container, and running commands in it. Blocks."""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.support.repository import REPOSITORY
from tests.support.server import free_port
from tools.make_dist import build

PACKAGES = "systemd,systemd-sysv,dbus,python3,python3-venv,libgomp1,procps,util-linux,bubblewrap,nodejs,ca-certificates"
HOME = "/var/lib/klaw"
PATH = "PATH=/usr/sbin:/usr/bin:/opt/klaw/bin"
BOOT_S = 300.0


def make_root(root: Path, release: str, *options: str, packages: str = PACKAGES) -> None:
    """Make a Debian from this machine's own package source."""
    command = ["debootstrap", "--variant=minbase", f"--include={packages}", *options, release, str(root)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]


def fetch_wheels(folder: Path, root: Path, machine: str, *more: str) -> None:
    """Klaw's wheel and all that it needs on such a Debian, and ``more`` packages, for a machine without network."""
    build(folder)
    python = (root / "usr/bin/python3").readlink().name.removeprefix("python")
    systems = ["manylinux2014", *(f"manylinux_2_{minor}" for minor in range(17, 37))]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:", "--python-version", python]
    command += [f"--platform={each}_{machine}" for each in systems]
    command += ["--dest", str(folder), "-r", str(REPOSITORY / "requirements.txt")]
    command += ["-c", str(REPOSITORY / "requirements-dev.txt"), *more]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


def until(found: Callable[[], Any], seconds: float = BOOT_S) -> Any:
    """What a question answers once that is true."""
    end = time.monotonic() + seconds
    while not (answer := found()):
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.3)
    return answer


class Machine:
    """A container with a systemd of its own; it shares the network with this machine, and nothing else."""

    def __init__(self, root: Path, wheels: Path) -> None:
        self.root, self._wheels = root, wheels
        self._leader = 0
        self.port = free_port()

    @contextmanager
    def booted(self) -> Iterator["Machine"]:
        shutil.copytree(self._wheels, self.root / "wheels", dirs_exist_ok=True)
        command = ["systemd-nspawn", "--quiet", "--directory", str(self.root), "--register=no", "--keep-unit", "--boot"]
        quiet = subprocess.DEVNULL
        with subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet) as container:
            try:
                self._leader = until(lambda: self._child_of(container.pid))
                until(lambda: self.asked("systemctl", "is-system-running") in ("running", "degraded"))
                yield self
            finally:
                self.run("systemctl", "poweroff", check=False)
                try:
                    container.wait(60)
                except subprocess.TimeoutExpired:
                    container.kill()

    @staticmethod
    def _child_of(pid: int) -> int:
        """The container's PID 1, as this machine numbers it."""
        said = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False).stdout.split()
        for each in said:
            with suppress(OSError):  # one that has just ended
                if Path(f"/proc/{each}/comm").read_text() in ("systemd\n", "init\n"):
                    return int(each)
        return 0

    def run(self, *command: str, check: bool = True, text: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command in the machine as root."""
        inside = ["nsenter", "--target", str(self._leader), "--all", "env", "-i", PATH, "LANG=C.UTF-8"]
        done = subprocess.run([*inside, *command], capture_output=True, text=True, check=False, input=text or "")
        if check and done.returncode != 0:
            log = self.asked("journalctl", "--unit=klaw", "--lines=20", "--no-pager")
            raise AssertionError(f"{command}: {done.stdout[-2000:]}{done.stderr[-2000:]}\n{log}")
        return done

    def asked(self, *command: str) -> str:
        """What a command says, whether it succeeds or not."""
        return self.run(*command, check=False).stdout.strip()

    def klaw(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return self.run("klaw", "--home", HOME, *words, check=check)

    def show(self, name: str, unit: str = "klaw") -> str:
        """A property of a unit."""
        return self.asked("systemctl", "show", "--value", "--property", name, unit)

    @property
    def pid(self) -> int:
        return int(self.show("MainPID") or 0)

    def active(self) -> bool:
        return self.show("ActiveState") == "active"

    def answers(self) -> bool:
        """Whether the server can be asked."""
        return self.active() and self.klaw("status", "--json", check=False).returncode in (0, 3)

    def configure(self, **sections: Any) -> None:
        """Write engine.yaml; the next start takes it."""
        config = {"gateway": {"port": self.port}, "processing": {"debounceMs": 20}, "embedding": {"enabled": False}}
        path = self.root / HOME.lstrip("/") / "config" / "engine.yaml"
        path.parent.mkdir(mode=0o700, exist_ok=True)
        path.write_text(json.dumps({**config, **sections}))
        self.run("chown", "-R", "klaw:klaw", f"{HOME}/config")

    def drop_in(self, unit: str, text: str) -> None:
        """Change a unit as `systemctl edit` does."""
        folder = self.root / "etc/systemd/system" / f"{unit}.d"
        folder.mkdir(exist_ok=True)
        (folder / "test.conf").write_text(text)
        self.run("systemctl", "daemon-reload")

    def restart(self) -> None:
        self.run("systemctl", "restart", "klaw")
        until(self.answers)

    def install(self) -> None:
        """Install Klaw and its service."""
        self.run("python3", "-m", "venv", "/opt/klaw")
        (wheel,) = (self.root / "wheels").glob("klaw-*.whl")
        offline = ["--no-index", "-f", "/wheels"]
        self.run("/opt/klaw/bin/pip", "install", "--quiet", *offline, f"/wheels/{wheel.name}[mcp]")
        self.run("klaw", "service", "install", "--no-models", "--with", "node-mcp", "--with", "bubblewrap")
        self.configure()
        self.run("systemctl", "start", "klaw")
        until(self.answers)
