"""Make requirements.txt and requirements-dev.txt from pyproject.toml: exact versions with their hashes (`make lock`).

One version of each package for every Python that Klaw runs on, so the files hold for all machines. What is locked
already stays, unless ``--upgrade`` is given. ``--check`` changes nothing: it asks the package index whether the files
are what this program would make, and whether each Python and machine below finds a wheel of everything.
"""

import argparse
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
RUNTIME, DEV = "requirements.txt", "requirements-dev.txt"
PYTHONS = ("3.11.2", "3.12", "3.13")
"""Debian 12 has 3.11.2, Debian 13 has 3.13."""
PLATFORMS = ("x86_64-manylinux_2_36", "aarch64-manylinux_2_36")
"""With the C library of Debian 12, the oldest system that Klaw is tested on."""


HEAD = """\
# Exact versions and hashes of what Klaw is tested with, made by `make lock`. Nothing is built from source while it is
# installed: that would fetch and run what is not listed here.
--only-binary :all:
"""


def uv(*arguments: str, stdin: str = "") -> None:
    command = [sys.executable, "-m", "uv", *arguments, "--system-certs", "--quiet", "--no-progress"]
    subprocess.run(command, input=stdin, text=True, check=True, cwd=REPOSITORY)


def lock(output: Path, inputs: Sequence[str], more: Sequence[str], stdin: str = "") -> None:
    """What the output file has is preferred to newer versions."""
    options = ["--universal", "--fork-strategy", "fewest", "--generate-hashes", "--no-annotate", "--no-header"]
    uv("pip", "compile", *inputs, *options, *more, "--output-file", str(output), stdin=stdin)
    output.write_text(HEAD + output.read_text())


def locked(path: Path) -> list[str]:
    """Names of the packages in a file."""
    return [line.partition("==")[0] for line in path.read_text().splitlines() if "==" in line and line[0].isalnum()]


def make(folder: Path, more: Sequence[str]) -> None:
    """Both files; those of ``folder`` are replaced."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    # The build's own dependencies too: they run with the user's rights, and without isolation they are not fetched.
    build = "\n".join(project["build-system"]["requires"])
    runtime, dev = folder / RUNTIME, folder / DEV
    lock(runtime, ["pyproject.toml", "-", "--extra", "local", "--extra", "mcp", "--extra", "push"], more, build)
    without = [option for name in locked(runtime) for option in ("--no-emit-package", name)]
    lock(dev, ["pyproject.toml", "--extra", "dev", "--constraints", str(runtime), *without], more)
    dev.write_text(f"{dev.read_text()}-r {RUNTIME}\n")


def check() -> None:
    """Raises CalledProcessError or SystemExit with what is wrong."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for each in (RUNTIME, DEV):
            (folder / each).write_text((REPOSITORY / each).read_text())
        make(folder, [])
        for each in (RUNTIME, DEV):
            if (folder / each).read_text() != (REPOSITORY / each).read_text():
                raise SystemExit(f"{each} does not fit pyproject.toml: run `make lock`")
        for python in PYTHONS:
            for platform in PLATFORMS:
                options = ["--python-version", python, "--python-platform", platform, "--target", str(folder / "none")]
                uv("pip", "install", "--dry-run", "--no-build", "--require-hashes", *options, "-r", DEV)
                print(f"Python {python} on {platform}: all found")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions that pyproject.toml allows")
    parser.add_argument("--check", action="store_true", help="change nothing; fail when something does not fit")
    options = parser.parse_args()
    try:
        if options.check:
            check()
        else:
            make(REPOSITORY, ["--upgrade"] if options.upgrade else [])
    except subprocess.CalledProcessError as error:
        return int(error.returncode)  # uv has said why
    return 0


if __name__ == "__main__":
    sys.exit(main())
