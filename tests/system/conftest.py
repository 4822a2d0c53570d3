"""A machine with a real systemd as PID 1: a Debian made by debootstrap, booted by systemd-nspawn.

It takes minutes and root, so `make test-system` asks for it; without that, and where it cannot run, its tests skip.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.repository import REPOSITORY
from tests.system.machine import Machine, make_root
from tools.make_dist import build

NEEDED = ("debootstrap", "systemd-nspawn", "nsenter")


def missing() -> str:
    """Why the machine cannot run here; empty if it can."""
    if "KLAW_TEST_SYSTEM" not in os.environ:
        return "takes minutes and root: `make test-system` runs it"
    if os.geteuid() != 0:
        return "only root may boot a container"
    absent = [each for each in NEEDED if shutil.which(each) is None]
    return f"not installed: {', '.join(absent)} (apt install debootstrap systemd-container)" if absent else ""


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with Klaw's wheel and all that it needs, for a machine without network."""
    if reason := missing():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("wheels")
    build(folder)
    download = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:", "--dest", str(folder)]
    subprocess.run([*download, "--require-hashes", "-r", str(REPOSITORY / "requirements.txt")], check=True)
    return folder


@pytest.fixture(scope="session")
def machine(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A booted machine on which Klaw was installed as docs/operations.md says, and its service made and started."""
    root = Path(os.environ.get("KLAW_TEST_ROOT") or tmp_path_factory.mktemp("machine") / "root")
    if not (root / "usr").is_dir():
        make_root(root, "bookworm")
    with Machine(root, wheels).booted() as booted:
        booted.install()
        yield booted
