"""Build Klaw's wheel into a folder (default: dist/) and check it (`make dist`).

The wheel holds what git knows of the working tree, with its changes, and nothing that merely lies about. The same tree
gives the same bytes: the time in the wheel is that of the last commit, or $SOURCE_DATE_EPOCH. For the check it is
installed with each Python that Klaw runs on, as far as there is one here, and has to serve and chat.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
WANTED = ("klaw", "conf", "pyproject.toml", "README.md", "LICENSE")
"""conf: klaw/service/ has links into it."""
PYTHONS = ("3.11", "3.12", "3.13")


def build(folder: Path) -> Path:
    """Build the wheel; returns its path."""
    listed = _git("ls-files", "-z", "--cached", "--others", "--exclude-standard", *WANTED).split("\0")
    environ = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch())}
    with tempfile.TemporaryDirectory() as name:
        source, made = Path(name, "source"), Path(name, "made")
        for each in filter(None, listed):
            if os.path.lexists(REPOSITORY / each):  # git still lists what was just deleted
                (source / each).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(REPOSITORY / each, source / each, follow_symlinks=False)
        command = [sys.executable, "-m", "flit_core.wheel", "--outdir", str(made), str(source)]
        subprocess.run(command, check=True, env=environ, stdout=subprocess.DEVNULL)
        (wheel,) = made.glob("*.whl")
        folder.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy(wheel, folder))


def epoch() -> int:
    """The time that is written into what is built, in Unix seconds."""
    return int(os.environ.get("SOURCE_DATE_EPOCH") or _git("log", "-1", "--format=%ct"))


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=REPOSITORY, check=True, capture_output=True, text=True).stdout


def interpreter(version: str) -> str | None:
    """A Python of that version. Those of pyenv count too, whatever version it has been told to use."""
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser().glob(f"versions/{version}.*/bin")
    return shutil.which(f"python{version}", path=os.pathsep.join([*map(str, pyenv), os.environ["PATH"]]))


def check(wheel: Path, python: str) -> None:
    """Install it in a clean environment, with the versions that Klaw is tested with, and run a wheel's tests there.

    Raises:
        CalledProcessError: what went wrong is printed.
    """
    with tempfile.TemporaryDirectory() as name:
        subprocess.run([python, "-m", "venv", "--without-pip", name], check=True)
        pip = [sys.executable, "-m", "pip", "--python", f"{name}/bin/python", "install", "-qq"]
        subprocess.run([*pip, "--require-hashes", "-r", str(REPOSITORY / "requirements.txt")], check=True)
        subprocess.run([*pip, f"{wheel}[all]"], check=True)
        tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/e2e/test_wheel.py"]
        environ = {**os.environ, "KLAW_TEST_INSTALLED": f"{name}/bin"}
        subprocess.run(tests, check=True, cwd=REPOSITORY, env=environ)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=REPOSITORY / "dist")
    wheel = build(parser.parse_args().folder)
    print(f"{wheel}  ({wheel.stat().st_size / 1e6:.1f} MB)")
    try:
        subprocess.run([sys.executable, "-m", "check_wheel_contents", str(wheel)], check=True)
        for version in PYTHONS:
            python = interpreter(version)
            print(f"Python {version}: {python or 'there is none here, so it is not checked'}", flush=True)
            if python is not None:
                check(wheel, python)
    except subprocess.CalledProcessError as error:
        return int(error.returncode)
    return 0


if __name__ == "__main__":
    sys.exit(main())
