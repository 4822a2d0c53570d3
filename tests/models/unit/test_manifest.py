"""json: every error names the file and the key."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from klaw.errors import ModelError
from klaw.models.manifest import CATALOGUE, FileEntry, ModelManifest, find_damage, load_manifest, write_manifest

SPEC = CATALOGUE[0]
MANIFEST = ModelManifest(
    id=SPEC.id,
    version=SPEC.version,
    source=SPEC.source,
    files={"model.onnx": FileEntry(bytes=1, sha256="0" * 64)},
    embedding=SPEC.embedding,
)


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    write_manifest(tmp_path, MANIFEST)
    assert load_manifest(tmp_path) == MANIFEST


def _drop_id(raw: dict[str, Any]) -> None:
    del raw["id"]


CASES: dict[str, Callable[[dict[str, Any]], None]] = {
    "id: is required": _drop_id,
    "version": lambda raw: raw.update(version=1),
    "unknown field; known are id": lambda raw: raw.update(extra=1),
    "embedding.dimension": lambda raw: raw["embedding"].update(dimension=384.0),
    "'dimension' must be >= 1": lambda raw: raw["embedding"].update(dimension=0),
    "embedding.max_tokens": lambda raw: raw["embedding"].update(max_tokens=True),
    "embedding.pooling": lambda raw: raw["embedding"].update(pooling="max"),
    "embedding.normalise": lambda raw: raw["embedding"].update(normalise=False),
    "embedding.calibration.random_cosine": lambda raw: raw["embedding"]["calibration"].update(random_cosine="0.7"),
    "'random_cosine' must be < 1": lambda raw: raw["embedding"]["calibration"].update(random_cosine=1),
    "files": lambda raw: raw.update(files=["model.onnx"]),
    "must have the form [0-9a-f]{64}": lambda raw: raw["files"]["model.onnx"].update(sha256="?"),
}


@pytest.mark.parametrize("named", CASES)
def test_a_wrong_manifest_is_an_error_that_names_file_and_key(tmp_path: Path, named: str) -> None:
    write_manifest(tmp_path, MANIFEST)
    raw = json.loads((tmp_path / "manifest.json").read_text())
    CASES[named](raw)
    (tmp_path / "manifest.json").write_text(json.dumps(raw))
    with pytest.raises(ModelError) as caught:
        load_manifest(tmp_path)
    assert named in str(caught.value)
    assert str(tmp_path / "manifest.json") in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '"x"', "\udcff"])
def test_what_is_not_a_json_object_is_a_model_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ModelError, match=r"manifest\.json"):
        load_manifest(tmp_path)


def test_a_missing_manifest_is_a_model_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"manifest\.json: the file is missing"):
        load_manifest(tmp_path)


def test_a_file_that_is_missing_is_damage(tmp_path: Path) -> None:
    assert find_damage(tmp_path, MANIFEST, verify=False) == "model.onnx is missing"


def test_the_catalogue_is_consistent() -> None:
    """Ids are unique folder names, and an embedding model says how it embeds."""
    specs = CATALOGUE
    assert len({spec.id for spec in specs}) == len(specs)
    assert all((spec.embedding is not None) == (spec.kind == "embedding") for spec in specs)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda path: path.write_bytes(b"[" * 100_000), "cannot be read as JSON"),
        (lambda path: os.truncate(os.open(path, os.O_CREAT | os.O_WRONLY), 1 << 40), "has more than 16 MiB"),
        (os.mkfifo, "is not a file"),
    ],
)
def test_a_manifest_of_any_size_costs_little(tmp_path: Path, make, says: str) -> None:
    """26.B4"""
    make(tmp_path / "manifest.json")
    with pytest.raises(ModelError, match=f"manifest.json: {says}"):
        load_manifest(tmp_path)
