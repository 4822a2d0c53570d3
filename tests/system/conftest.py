"""A machine with a real systemd as PID 1: a Debian made by debootstrap, booted by systemd-nspawn.

It takes minutes and root, so `make test-system` asks for it; without that, and where it cannot run, its tests skip.
"""

import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.machine import Machine, fetch_wheels, make_root

NEEDED = ("debootstrap", "systemd-nspawn", "nsenter")


def missing() -> str:
    """Why the machine cannot run here; empty if it can."""
    if "KLAW_TEST_SYSTEM" not in os.environ:
        return "takes minutes and root: `make test-system` runs it"
    if os.geteuid() != 0:
        return "only root may boot a container"
    absent = [each for each in NEEDED if shutil.which(each) is None]
    return f"not installed: {', '.join(absent)} (apt install debootstrap systemd-container)" if absent else ""


@pytest.fixture(scope="session", params=["bookworm", "trixie"])
def machine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A booted machine on which Klaw was installed as docs/operations.md says, and its service made and started.

    The folder $KLAW_TEST_ROOTS, if given, keeps what debootstrap made of each release for later runs.
    """
    if reason := missing():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp(request.param)
    fresh = Path(os.environ.get("KLAW_TEST_ROOTS", folder), request.param)
    if not (fresh / "usr").is_dir():
        make_root(fresh, request.param)
    subprocess.run(["cp", "-a", str(fresh), str(folder / "root")], check=True)
    fetch_wheels(folder / "wheels", fresh, platform.machine())
    with Machine(folder / "root", folder / "wheels").booted() as booted:
        booted.install()
        yield booted


@pytest.fixture(autouse=True)
def starts(machine: Machine) -> None:
    """All tests together start the service more often than its unit allows."""
    machine.run("systemctl", "reset-failed")
