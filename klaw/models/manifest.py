"""``manifest.json``: the content of a model folder, its source, and how its vectors are made. A wrong type, a missing
or an unknown key is an error that names the file and the key. Imports nothing heavy."""

import hashlib
import json
import stat
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import attrs
from attrs import validators

from klaw import atomic_file
from klaw.convert import REQUESTS, Bounds
from klaw.errors import BadValue, ModelError

MANIFEST_FILE = "manifest.json"

_READ_BYTES = 1 << 20
MAX_BYTES = 16 << 20
"""Klaw's own JSON files in a model folder have some kB."""

T = TypeVar("T")


@attrs.frozen(kw_only=True)
class FileEntry:
    bytes: int = attrs.field(validator=validators.ge(0))
    sha256: Annotated[str, Bounds(pattern="[0-9a-f]{64}")]


@attrs.frozen(kw_only=True)
class SourceEntry:
    package: str
    version: str
    member: str
    sha256: str


@attrs.frozen(kw_only=True)
class Prefixes:
    """What stands before each text that the model reads."""

    query: str = ""
    passage: str = ""


@attrs.frozen(kw_only=True)
class Calibration:
    """Measured properties of a model's vectors. They shape no vector, so they are no part of the model's id."""

    random_cosine: float = attrs.field(validator=[validators.ge(-1.0), validators.lt(1.0)])
    """Mean cosine of a query and an unrelated passage."""
    deviation: float | None = attrs.field(default=None, validator=validators.optional(validators.ge(0.0)))
    """Standard deviation of one pair."""
    pairs: int | None = attrs.field(default=None, validator=validators.optional(validators.ge(1)))
    recipe: int = attrs.field(default=1, validator=validators.ge(1))
    """Of passages: ``klaw.memory.embed.passage.RECIPE``."""
    texts: Literal["catalogue", "built-in", "own"] = "catalogue"
    """What it was measured with; ``built-in`` and ``own`` by ``klaw models calibrate``."""


@attrs.frozen(kw_only=True)
class EmbeddingEntry:
    dimension: int = attrs.field(validator=validators.ge(1))
    max_tokens: int = attrs.field(validator=validators.ge(8))
    prefixes: Prefixes
    pooling: Literal["mean", "cls"]
    normalise: Literal[True]
    """Klaw stores unit vectors only."""
    calibration: Calibration


@attrs.frozen(kw_only=True)
class ModelManifest:
    """``embedding`` is absent for language models."""

    id: str = attrs.field(validator=validators.min_len(1))
    version: str = attrs.field(validator=validators.min_len(1))
    source: SourceEntry
    files: dict[str, FileEntry] = attrs.field(validator=validators.min_len(1))
    embedding: EmbeddingEntry | None = None

    @property
    def total_bytes(self) -> int:
        return sum(entry.bytes for entry in self.files.values())


def load_manifest(folder: Path) -> ModelManifest:
    """Raises ModelError, which names file and key."""
    return structure(folder / MANIFEST_FILE, ModelManifest)


def structure(path: Path, kind: type[T]) -> T:
    """Raises ModelError, which names file and key."""
    raw = read_json(path)
    if raw is None:
        raise ModelError(f"{path}: the file is missing")
    try:
        return REQUESTS.read(raw, kind)
    except BadValue as wrong:
        raise ModelError(f"{path}: {'; '.join(map(str, wrong.problems))}") from wrong


def read_json(path: Path) -> object:
    """None if there is none. Raises ModelError: it cannot be read, or is too large."""
    try:
        if not path.is_file() and path.exists():
            raise ModelError(f"{path}: is not a file")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise ModelError(f"{path}: has more than {MAX_BYTES >> 20} MiB, too much for it: pull the model again")
        return json.loads(data)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as exc:
        raise ModelError(f"{path}: cannot be read as JSON ({type(exc).__name__})") from exc


def write_manifest(folder: Path, manifest: ModelManifest) -> None:
    write_json(folder / MANIFEST_FILE, manifest)


def write_json(path: Path, value: attrs.AttrsInstance) -> None:
    """Atomic and durable. Raises OSError."""
    raw = attrs.asdict(value, filter=lambda _attribute, each: each is not None)
    atomic_file.replace(path, (json.dumps(raw, indent=2, ensure_ascii=False) + "\n").encode(), mode=0o644)


def describe_file(path: Path) -> FileEntry:
    digest = hashlib.sha256()
    size = 0
    with path.open("rb") as file:
        while chunk := file.read(_READ_BYTES):
            digest.update(chunk)
            size += len(chunk)
    return FileEntry(bytes=size, sha256=digest.hexdigest())


def find_damage(folder: Path, manifest: ModelManifest, *, verify: bool) -> str | None:
    """None: no damage. Sizes are always compared; ``verify`` reads every byte."""
    for name, expected in manifest.files.items():
        path = folder / name
        try:
            info = path.stat()
        except FileNotFoundError:
            return f"{name} is missing"
        if not stat.S_ISREG(info.st_mode):
            return f"{name} is not a file"
        size = info.st_size
        if size != expected.bytes:
            return f"{name} has {size} bytes, expected {expected.bytes}"
        if verify and describe_file(path) != expected:
            return f"{name} has a wrong checksum"
    return None


CALIBRATION_FILE = "calibration.json"


@attrs.frozen(kw_only=True)
class CalibrationFile:
    model: str
    calibration: Calibration


def read_beside(folder: Path, model_id: str) -> Calibration | None:
    """None if there is none for this model. Raises ModelError."""
    path = folder / CALIBRATION_FILE
    if not path.is_file():
        return None
    found = structure(path, CalibrationFile)
    return found.calibration if found.model == model_id else None


def store(folder: Path, model_id: str, calibration: Calibration) -> Path:
    """Keep a calibration with its model; returns the file. Raises ModelError: what was there is still there."""
    path = folder / (MANIFEST_FILE if (folder / MANIFEST_FILE).is_file() else CALIBRATION_FILE)
    try:
        if path.name == CALIBRATION_FILE:
            write_json(path, CalibrationFile(model=model_id, calibration=calibration))
            return path
        manifest = load_manifest(folder)
        if manifest.embedding is None:
            raise ModelError(f"{path}: {manifest.id} is not an embedding model")
        entry = attrs.evolve(manifest.embedding, calibration=calibration)
        write_manifest(folder, attrs.evolve(manifest, embedding=entry))
    except OSError as exc:
        raise ModelError(f"{path}: cannot be written ({exc.strerror or type(exc).__name__})") from exc
    return path
