"""``klaw update`` in an environment of its own: a newer wheel takes over, and one that does not work is taken back."""

import json
import os
import re
import shutil
import signal
import site
import socket
import subprocess
import sys
import time
import venv
import zipfile
from pathlib import Path

import pytest

from klaw import __version__
from klaw.backup.folder import locked
from klaw.config.paths import Paths
from klaw.store.migrations import latest
from tests.support.server import clean_environ, write_home
from tests.support.waiting import HANG_S
from tools.make_dist import build

NEW = "99.0.0"
FINDS = """\
import klaw.doctor.places as _places
_places.check_tokens = lambda _paths: _places.problem("tokens", "broken", "mend it")
"""
MIGRATION = f"klaw/store/migrations/{latest() + 1:03}_later.sql"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Path:
    """A folder with an environment that has Klaw from its wheel and its dependencies from ours, and a home."""
    folder = tmp_path_factory.mktemp("before")
    venv.create(folder / "klaw", with_pip=False)
    (library,) = (folder / "klaw" / "lib").glob("python*/site-packages")
    (library / "dependencies.pth").write_text("\n".join(site.getsitepackages()))
    program = folder / "klaw" / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", str(program), "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([*install, "--ignore-installed", str(wheel)], check=True, timeout=HANG_S)
    serving(program, write_home(folder / "home"), "facts", "add", "Аня живёт в Риге")
    return folder


@pytest.fixture
def python(tmp_path: Path, before: Path) -> Path:
    """Python of the environment of a test's own."""
    shutil.copytree(before / "klaw", tmp_path / "klaw", symlinks=True)
    return tmp_path / "klaw" / "bin" / "python"


@pytest.fixture
def home(tmp_path: Path, before: Path) -> Path:
    return shutil.copytree(before / "home", tmp_path / "home", symlinks=True, ignore=shutil.ignore_patterns("run"))


def newer(wheel: Path, folder: Path, **changes: str) -> Path:
    """A wheel of a later version, with texts put before the text of some modules."""
    made = folder / f"klaw-{NEW}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(made, "w") as new:
        for name in old.namelist():
            text = old.read(name)
            if name == "klaw/__init__.py":
                text = re.sub(rb'__version__ = ".*"', f'__version__ = "{NEW}"'.encode(), text)
            if name.endswith("/METADATA"):
                text = text.replace(f"Version: {__version__}".encode(), f"Version: {NEW}".encode(), 1)
            if name.endswith("/RECORD"):
                text = re.sub(rb",sha256=[^,]*,\d*", b",,", text).replace(
                    b"klaw-%s" % __version__.encode(), b"klaw-%s" % NEW.encode()
                )
            text = changes.get(name, "").encode() + text
            new.writestr(name.replace(f"klaw-{__version__}.dist-info", f"klaw-{NEW}.dist-info"), text)
        new.writestr(MIGRATION, "CREATE TABLE later (id INTEGER PRIMARY KEY) STRICT;")
    return made


def klaw(python: Path, home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [str(python), "-m", "klaw", "--home", str(home), *words]
    return subprocess.run(
        command, cwd="/", env=clean_environ(), capture_output=True, text=True, check=False, timeout=HANG_S
    )


def schema(home: Path) -> int:
    import apsw

    connection = apsw.Connection(str(Paths.resolve(home).database), flags=apsw.SQLITE_OPEN_READONLY)
    return int(connection.execute("SELECT value FROM meta WHERE key = 'schema_version'").get)


def serving(python: Path, home: Path, *words: str) -> str:
    """What a command says while a server runs."""
    command = [str(python), "-m", "klaw", "--home", str(home), "serve"]
    with subprocess.Popen(
        command, cwd="/", env=clean_environ(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as server:
        assert server.stdout is not None
        assert b"listens on" in server.stdout.readline()
        done = klaw(python, home, *words)
        server.terminate()
        server.wait(HANG_S)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_newer_wheel_is_checked_and_takes_over(python: Path, home: Path, wheel: Path, tmp_path: Path) -> None:
    made = newer(wheel, tmp_path)
    checked = json.loads(klaw(python, home, "update", "check", str(made), "--json").stdout)
    assert (checked["installed"], checked["version"], checked["newer"]) == (__version__, NEW, True)
    assert f"from schema {latest()} to {latest() + 1}" in checked["way_back"]
    done = klaw(python, home, "update", "apply", str(made), "--wheels", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert f"Klaw {NEW} answers" in done.stdout
    assert klaw(python, home, "--version").stdout == f"klaw {NEW}\n"
    assert schema(home) == latest() + 1
    assert "Аня живёт в Риге" in serving(python, home, "facts", "list")
    assert not list(tmp_path.glob("*before-update")) + list(Paths.resolve(home).data_dir.glob("*before-update"))
    assert len(json.loads(klaw(python, home, "backup", "list", "--json").stdout)["backups"]) == 1
    again = klaw(python, home, "update", "apply", str(made))
    assert (again.returncode, "nothing to do" in again.stderr) == (1, True)


def test_a_version_that_does_not_work_is_taken_back_with_its_database(
    python: Path, home: Path, wheel: Path, tmp_path: Path
) -> None:
    bad = newer(wheel, tmp_path, **{"klaw/app/serve.py": "raise SystemExit('broken')\n"})
    done = klaw(python, home, "update", "apply", str(bad), "--wheels", str(tmp_path))
    assert done.returncode == 1, done.stdout
    assert f"Klaw {NEW} ended when it was started (broken); Klaw {__version__} is restored" in done.stderr
    assert klaw(python, home, "--version").stdout == f"klaw {__version__}\n"
    assert schema(home) == latest()
    assert "Аня живёт в Риге" in serving(python, home, "facts", "list")
    assert klaw(python, home, "doctor").returncode == 0
    assert not list(tmp_path.glob("klaw.*update"))


def test_a_server_that_cannot_start_at_all_says_why(python: Path, home: Path, wheel: Path, tmp_path: Path) -> None:
    config = Paths.resolve(home).config_file
    made = newer(wheel, tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config.write_text(json.dumps({**json.loads(config.read_text()), "gateway": {"port": taken.getsockname()[1]}}))
        done = klaw(python, home, "update", "apply", str(made), "--wheels", str(tmp_path), "--no-backup")
    in_use = r"ended when it was started \(klaw: gateway.port: cannot listen on [^)]*in use[^)]*\)"
    said = rf"Klaw {NEW} {in_use}; going back to Klaw {__version__}: Klaw {__version__} {in_use}"
    assert re.search(said, done.stderr), done.stderr
    assert klaw(python, home, "--version").stdout == f"klaw {__version__}\n"
    assert schema(home) == latest()


def test_a_model_that_was_missing_before_does_not_stop_an_update_but_a_new_problem_does(
    python: Path, home: Path, wheel: Path, tmp_path: Path
) -> None:
    config = Paths.resolve(home).config_file
    config.write_text(json.dumps({**json.loads(config.read_text()), "embedding": {"enabled": True}}))
    (tmp_path / "bad").mkdir()
    bad = newer(wheel, tmp_path / "bad", **{"klaw/doctor/checkup.py": FINDS})
    for made, code, version in ((bad, 1, __version__), (newer(wheel, tmp_path), 0, NEW)):
        done = klaw(python, home, "update", "apply", str(made), "--wheels", str(tmp_path), "--no-backup")
        assert done.returncode == code, done.stdout + done.stderr
        assert "doctor: embedding_model: " in done.stdout
        assert ("its doctor finds problems: tokens: broken; Klaw" in done.stderr) is bool(code)
        assert ("its doctor finds no new problems" in done.stdout) is not bool(code)
        assert klaw(python, home, "--version").stdout == f"klaw {version}\n"


def test_after_a_kill_the_version_and_database_of_before_are_put_back(
    python: Path, home: Path, wheel: Path, tmp_path: Path
) -> None:
    made = newer(wheel, tmp_path)
    nothing = klaw(python, home, "update", "back")
    assert (nothing.returncode, "there is nothing to go back to" in nothing.stderr) == (1, True)
    command = [str(python), "-m", "klaw", "--home", str(home), "update", "apply", str(made), "--wheels", str(tmp_path)]
    kept = tmp_path / "klaw.before-update"
    with subprocess.Popen(command, cwd="/", env=clean_environ(), start_new_session=True) as update:
        end = time.monotonic() + HANG_S
        while not kept.exists():
            assert update.poll() is None
            assert time.monotonic() < end
            time.sleep(0.01)
        # As the one that is kept: pip is changing the other.
        at_work = klaw(kept / "bin" / "python", home, "update", "back")
        os.killpg(update.pid, signal.SIGKILL)
    assert (at_work.returncode, "another update is at work" in at_work.stderr) == (1, True)
    refused = klaw(kept / "bin" / "python", home, "update", "apply", str(made))
    assert (refused.returncode, "an update was interrupted" in refused.stderr) == (1, True)
    for package in (tmp_path / "klaw" / "lib").glob("python*/site-packages/klaw"):  # pip was at work
        shutil.rmtree(package)
    done = klaw(kept / "bin" / "python", home, "update", "back")
    assert done.returncode == 0, done.stderr
    assert klaw(python, home, "--version").stdout == f"klaw {__version__}\n"
    assert "Аня живёт в Риге" in serving(python, home, "facts", "list")
    assert not list(tmp_path.glob("klaw.*update*")) + list(Paths.resolve(home).data_dir.glob("*before-update*"))


def test_an_update_goes_on_when_its_terminal_goes_away(python: Path, home: Path, wheel: Path, tmp_path: Path) -> None:
    made = newer(wheel, tmp_path)
    ours, theirs = os.openpty()
    command = [str(python), "-m", "klaw", "--home", str(home), "update", "apply", str(made), "--wheels", str(tmp_path)]
    with subprocess.Popen(
        command, cwd="/", env=clean_environ(), stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    ) as update:
        os.close(theirs)
        assert b"doctor" in os.read(ours, 1000)
        os.close(ours)
        update.send_signal(signal.SIGHUP)
        update.wait(HANG_S)
    assert klaw(python, home, "--version").stdout == f"klaw {NEW}\n"


def test_what_is_refused_changes_nothing(python: Path, home: Path, wheel: Path, tmp_path: Path) -> None:
    """What is no whole wheel; a backup that cannot be made, beside one of a wrong clock; data that is damaged."""
    made = newer(wheel, tmp_path)
    whole = made.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 0xFF
    wrong = {
        "klaw-98.0-py3-none-any.whl": (Path(__file__).read_bytes(), "is not a wheel of Klaw"),
        "klaw-97.0-py3-none-any.whl": (whole[:-100], "is not a wheel of Klaw"),
        f"klaw-{NEW}-py3-none-any.whl": (bytes(flipped), "is damaged"),
        f"klaw-{NEW}-py3-none-any (1).whl": (whole, "rename it"),
    }
    for name, (content, said) in wrong.items():
        (tmp_path / name).write_bytes(content)
        done = klaw(python, home, "update", "apply", str(tmp_path / name))
        assert (done.returncode, said in done.stderr) == (1, True), done.stderr
    missing = klaw(python, home, "update", "check", str(tmp_path / "none.whl"))
    assert (missing.returncode, "none.whl cannot be read: No such file" in missing.stderr) == (1, True)
    made.write_bytes(whole)
    backups = Paths.resolve(home).backups_dir
    backups.mkdir()
    (backups / ".made").touch()
    os.utime(backups / ".made", (4_000_000_000, 4_000_000_000))
    with locked(backups):
        done = klaw(python, home, "update", "apply", str(made), "--wheels", str(tmp_path))
    assert (done.returncode, "no backup could be made" in done.stderr) == (1, True), done.stdout
    Paths.resolve(home).database.write_bytes(b"x" * 10_000)
    done = klaw(python, home, "update", "apply", str(made), "--wheels", str(tmp_path))
    assert (done.returncode, "fix them first (klaw doctor): database: " in done.stderr) == (1, True), done.stderr
    assert not [each for each in backups.iterdir() if each.is_dir()]
    assert klaw(python, home, "--version").stdout == f"klaw {__version__}\n"
