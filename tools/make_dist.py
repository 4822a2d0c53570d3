"""Build Klaw's wheel into a folder (default: dist/) and check it (`make dist`).

The wheel holds what git knows of the working tree, with its changes, and nothing that merely lies about. The same tree
gives the same bytes: the time in the wheel is that of the last commit, or $SOURCE_DATE_EPOCH.
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=REPOSITORY / "dist")
    wheel = build(parser.parse_args().folder)
    print(f"{wheel}  ({wheel.stat().st_size / 1e6:.1f} MB)")
    return subprocess.run([sys.executable, "-m", "check_wheel_contents", str(wheel)], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
