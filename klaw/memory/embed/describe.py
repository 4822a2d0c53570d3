"""What a model folder says about itself: from Klaw's manifest, or worked out from the Hugging Face layout."""

import hashlib
from pathlib import Path
from typing import Literal

import attrs

from klaw.errors import ModelError
from klaw.memory.embed.tokens import TOKENIZER_FILE
from klaw.models.manifest import (
    MANIFEST_FILE,
    Calibration,
    ModelManifest,
    Prefixes,
    describe_file,
    find_damage,
    load_manifest,
    read_beside,
    read_json,
)

GRAPH_FILE = "model.onnx"

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
    """An optional file of the layout; {} if it is not there."""
    value = read_json(path)
    return value if isinstance(value, dict) else {}
