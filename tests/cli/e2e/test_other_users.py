"""Files have one owner, whoever runs a command: root leaves none of its own, and strangers get a readable refusal.

Needs root, to be several users, and a Python that these may run.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from klaw.cli.output import EX_CONFIG
from tests.support.repository import REPOSITORY
from tests.support.server import served, write_home

OWNER, STRANGER = 65534, 1
"""nobody and daemon: users of every Debian."""
PACKAGES = os.pathsep.join([str(REPOSITORY), *(path for path in sys.path if path.endswith("site-packages"))])


def _as(uid: int, *command: str, packages: str = PACKAGES) -> subprocess.CompletedProcess[str]:
    environ = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": packages,
        "HOME": "/nonexistent",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return subprocess.run(
        command, user=uid, group=uid, extra_groups=[], capture_output=True, text=True, env=environ, check=False, cwd="/"
    )


@pytest.fixture(scope="module")
def python() -> str:
    """One of this version that other users may run, with this suite's packages."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to be several users")
    probe = f"import sys, klaw, apsw, trio; raise SystemExit(sys.version_info[:2] != {sys.version_info[:2]})"
    for each in (sys.executable, "/usr/bin/python3"):
        try:
            if _as(STRANGER, each, "-c", probe).returncode == 0:
                return each
        except OSError:
            continue
    pytest.skip("needs a Python and packages that other users may read")


@pytest.fixture
def home(python: str) -> Iterator[Path]:
    """An installation of OWNER. Not in pytest's folder: that is closed to others."""
    with tempfile.TemporaryDirectory(prefix="klaw-") as name:
        above = Path(name)
        above.chmod(0o755)
        home = write_home(above / "home")
        home.chmod(0o700)
        for path in (home, *home.rglob("*")):
            os.chown(path, OWNER, OWNER)
        yield home


def klaw(uid: int, python: str, home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return _as(uid, python, "-m", "klaw", *arguments, "--home", str(home))


def foreign(home: Path) -> list[str]:
    paths = (path for part in ("config", "data", "run", "state", "workspace") for path in (home / part).rglob("*"))
    return [str(path) for path in (home, *paths) if path.lstat().st_uid != OWNER]


async def test_what_root_makes_belongs_to_the_owner(home: Path, python: str) -> None:
    """Root's commands before the first start, and the server of the owner after them."""
    for arguments in (["init", "--yes"], ["token", "add", "anna"], ["token", "add", "local"], ["reindex"], ["doctor"]):
        done = klaw(0, python, home, *arguments)
        assert "Traceback" not in done.stderr, arguments
        assert foreign(home) == [], arguments
    assert (home / "config" / "tokens.json").stat().st_mode & 0o777 == 0o600
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        pytest.skip("needs setpriv (Debian package util-linux)")
    async with served(home, start=False, environ={"PYTHONPATH": PACKAGES}) as server:
        ids = (f"--reuid={OWNER}", f"--regid={OWNER}", "--clear-groups")
        server.program = (setpriv, *ids, python, "-m", "klaw")
        await server.start()
        assert await server.terminate() == 0
    assert foreign(home) == []


@pytest.mark.parametrize("name", ["config/tokens.json", "data/klaw.db", "data/klaw.db-wal", "data/commit.log"])
def test_doctor_as_root_names_what_the_owner_cannot_use(home: Path, python: str, name: str) -> None:
    """And the server says the same, with a code that systemd takes for final."""
    assert klaw(OWNER, python, home, "token", "add", "anna").returncode == 0
    (home / "data").mkdir(mode=0o700)
    os.chown(home / "data", OWNER, OWNER)
    file = home / name
    file.touch()
    file.chmod(0o600)
    os.chown(file, 0, 0)
    done = klaw(0, python, home, "doctor")
    assert done.returncode == 1
    assert f"of another user, and not usable: {file}" in done.stdout
    assert "chown -R nobody: " in done.stdout
    done = klaw(OWNER, python, home, "serve")
    assert done.returncode == EX_CONFIG
    assert f"klaw: {file} belongs to root: as root, run `chown -R nobody: {file}`" in done.stderr


def test_a_data_folder_of_root_in_a_home_of_the_owner(home: Path, python: str) -> None:
    (home / "data").mkdir(mode=0o700)
    done = klaw(OWNER, python, home, "serve")
    assert done.returncode == EX_CONFIG, done.stderr
    assert "belongs to root" in done.stderr
    assert "Traceback" not in done.stderr
    done = klaw(0, python, home, "doctor")
    assert (done.returncode, "chown -R nobody: " in done.stdout) == (1, True)


COMMANDS = """
serve
chat
status
actors
doctor
receipt
why main#1
search cat
usage
runs
schedule list
facts list
people list
topics list
forget main#1 --dry-run
reindex
recall-replay --set autoRag.topK=5
config check
config show
token list
token add anna
models list
models pull
mcp list
init --yes
"""


@pytest.mark.parametrize("command", COMMANDS.strip().splitlines())
def test_a_stranger_gets_a_readable_refusal(home: Path, python: str, command: str) -> None:
    done = klaw(STRANGER, python, home, *command.split())
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode != 0
    assert "nobody" in done.stdout + done.stderr, done.stdout + done.stderr
    assert foreign(home) == []


@pytest.mark.parametrize("words", ["token add anna", "backup list"])
def test_a_program_that_the_owner_cannot_read(home: Path, python: str, words: str) -> None:
    """In root's own folder, say: nothing is made, and the text says why."""
    with tempfile.TemporaryDirectory() as closed:
        shutil.copytree(REPOSITORY / "klaw", Path(closed) / "klaw")
        packages = os.pathsep.join([closed, *PACKAGES.split(os.pathsep)[1:]])
        done = _as(0, python, "-m", "klaw", *words.split(), "--home", str(home), packages=packages)
    assert done.returncode == 1
    assert "is for nobody, who may not read this program" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (home / "config" / "tokens.json").exists()


def test_what_root_is_told_of_places_that_the_owner_may_not_use(home: Path, python: str) -> None:
    """Not to give away folders of the system, and not to become root, which it was."""
    (home / "data").mkdir(mode=0o700)
    os.chown(home / "data", OWNER, OWNER)
    with tempfile.TemporaryDirectory(prefix="klaw-") as name:
        stick, closed, foreign = (Path(name) / each for each in ("stick", "closed", "foreign"))
        Path(name).chmod(0o755)
        for each, mode in ((stick, 0o755), (closed, 0o700), (foreign, 0o700)):
            each.mkdir(mode=mode)
        os.chown(foreign, STRANGER, STRANGER)
        told = {
            stick / "backups": f"make a folder for nobody in it (install -d -m 700 -o nobody {stick}/klaw)",
            closed / "inner" / "backups": f"{closed} belongs to root and is closed to nobody",
            foreign: f"{foreign} belongs to daemon and is closed to nobody, the user that this runs as",
        }
        for place, said in told.items():
            done = _as(0, python, "-m", "klaw", "backup", "create", "--to", str(place), "--home", str(home))
            assert (done.returncode, said in done.stderr) == (1, True), done.stderr
            assert "or as root" not in done.stderr
