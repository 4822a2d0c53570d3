"""EmbeddingModel on the real model: any text gives a unit vector, batching changes nothing, damage is a ModelError."""

import json
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from klaw.errors import ModelError
from klaw.memory.embed.model import EmbeddingModel
from klaw.memory.embed.passage import RECIPE

ODD_TEXTS = {
    "empty": "",
    "white space": " \n\t ",
    "NUL": "a\0b",
    "only NUL": "\0",
    "lone high surrogate": "a\ud83d b",
    "lone low surrogate": "\ude00",
    "split pair": "\ud83d\ude00",
    "joiner": "\u200d\u200d",
    "unknown script": "𐎀𐎁𐎂",
    "one long word": "ы" * 3000,
}


@pytest.fixture(scope="module")
def model(embedding_model_dir: Path) -> Iterator[EmbeddingModel]:
    loaded = EmbeddingModel.load(embedding_model_dir, threads=2)
    yield loaded
    loaded.close()


@pytest.fixture
def copy(embedding_model_dir: Path, tmp_path: Path) -> Path:
    """A folder of one's own; its files are links, so replace them, never write into them."""
    folder = tmp_path / embedding_model_dir.name
    folder.mkdir()
    for path in embedding_model_dir.iterdir():
        (folder / path.name).symlink_to(path)
    return folder


def _replace(path: Path, data: bytes) -> None:
    path.unlink()
    path.write_bytes(data)


def _edit_manifest(folder: Path, **embedding: object) -> None:
    raw = json.loads((folder / "manifest.json").read_text())
    raw["embedding"] |= embedding
    _replace(folder / "manifest.json", json.dumps(raw).encode())


@pytest.mark.parametrize("text", ODD_TEXTS.values(), ids=ODD_TEXTS)
def test_any_text_gives_a_unit_vector(model: EmbeddingModel, text: str) -> None:
    vectors = model.embed([text], kind="query")
    assert (vectors.shape, vectors.dtype) == ((1, 384), np.float32)
    assert np.isclose(np.linalg.norm(vectors), 1.0, atol=1e-5)


def test_no_texts_give_no_vectors(model: EmbeddingModel) -> None:
    assert model.embed([], kind="passage").shape == (0, 384)


def test_a_split_surrogate_pair_means_its_character(model: EmbeddingModel) -> None:
    split, whole = model.embed(["hi \ud83d\ude00", "hi 😀"], kind="query")
    assert np.allclose(split, whole, atol=1e-4)


def test_vectors_do_not_depend_on_the_company(model: EmbeddingModel) -> None:
    """Order is kept, and padding next to longer texts changes next to nothing."""
    texts = ["Where is the key?", "Ключ под ковриком. " * 40, "да", "The key is under the mat.", "鍵はマットの下。"]
    together = model.embed(texts, kind="passage")
    alone = np.concatenate([model.embed([text], kind="passage") for text in texts])
    assert (together * alone).sum(axis=1).min() > 0.9999


def test_meaning_crosses_languages(model: EmbeddingModel) -> None:
    (query,) = model.embed(["Where did I put the key?"], kind="query")
    passages = model.embed(["Ключ лежит под ковриком.", "Суп стоит в холодильнике.", "ok"], kind="passage")
    assert int((passages @ query).argmax()) == 0


def test_query_and_passage_differ(model: EmbeddingModel) -> None:
    text = ["The key is under the mat."]
    assert not np.allclose(model.embed(text, kind="query"), model.embed(text, kind="passage"), atol=1e-3)


def test_the_batch_limit_changes_no_vector(embedding_model_dir: Path, model: EmbeddingModel) -> None:
    small = EmbeddingModel.load(embedding_model_dir, threads=1, batch_tokens=16)
    texts = [f"message number {at} сообщение" for at in range(20)]
    assert (small.embed(texts, kind="passage") * model.embed(texts, kind="passage")).sum(axis=1).min() > 0.9999
    small.close()


def test_threads_may_share_a_model(model: EmbeddingModel) -> None:
    texts = [f"text {at}" for at in range(8)]
    expected = [model.embed([text], kind="query") for text in texts]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda text: model.embed([text], kind="query"), texts))
    assert np.allclose(np.concatenate(found), np.concatenate(expected), atol=1e-5)


def test_a_closed_model_refuses(embedding_model_dir: Path) -> None:
    loaded = EmbeddingModel.load(embedding_model_dir, threads=1)
    loaded.close()
    loaded.close()
    with pytest.raises(ModelError, match="closed"):
        loaded.embed(["x"], kind="query")


def test_the_id_names_the_model_and_changes_with_what_shapes_a_vector(model: EmbeddingModel, copy: Path) -> None:
    same = EmbeddingModel.load(copy, threads=1)
    _edit_manifest(copy, prefixes={"query": "q: ", "passage": "p: "})
    other = EmbeddingModel.load(copy, threads=1)
    assert model.model_id.startswith("multilingual-e5-small@2+")
    assert same.model_id == model.model_id != other.model_id


def test_the_calibration_does_not_change_the_id(model: EmbeddingModel, copy: Path) -> None:
    _edit_manifest(copy, calibration={"random_cosine": 0.5, "recipe": RECIPE})
    loaded = EmbeddingModel.load(copy, threads=1)
    assert (loaded.random_cosine, loaded.model_id) == (0.5, model.model_id)


def test_a_wrong_dimension_is_refused(copy: Path) -> None:
    _edit_manifest(copy, dimension=768)
    with pytest.raises(ModelError, match=r"says dimension 768, model\.onnx gives 384"):
        EmbeddingModel.load(copy, threads=1)


@pytest.mark.parametrize("name", ["model.onnx", "model.onnx.data", "sentencepiece.model"])
def test_a_missing_or_cut_file_is_named(copy: Path, name: str) -> None:
    data = (copy / name).read_bytes()
    _replace(copy / name, data[: len(data) // 2])
    with pytest.raises(ModelError, match=f"{name} has .* bytes, expected .*klaw models pull"):
        EmbeddingModel.load(copy, threads=1)
    (copy / name).unlink()
    with pytest.raises(ModelError, match=f"{name} is missing"):
        EmbeddingModel.load(copy, threads=1)


@pytest.mark.parametrize("name", ["model.onnx", "sentencepiece.model"])
def test_a_corrupt_file_of_the_right_size_is_named(copy: Path, name: str) -> None:
    _replace(copy / name, b"\xff" * (copy / name).stat().st_size)
    with pytest.raises(ModelError, match=name):
        EmbeddingModel.load(copy, threads=1)


def test_a_language_model_is_refused(copy: Path) -> None:
    raw = json.loads((copy / "manifest.json").read_text())
    del raw["embedding"]
    _replace(copy / "manifest.json", json.dumps(raw).encode())
    with pytest.raises(ModelError, match="not an embedding model"):
        EmbeddingModel.load(copy, threads=1)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="absent: no such model folder"):
        EmbeddingModel.load(tmp_path / "absent", threads=1)


def test_without_a_manifest_defaults_are_derived(copy: Path, model: EmbeddingModel) -> None:
    """The prefixes come from the name, the rest from the files; the calibration is measured."""
    (copy / "manifest.json").unlink()
    loaded = EmbeddingModel.load(copy, threads=2)
    text = ["Ключ под ковриком."]
    assert np.allclose(loaded.embed(text, kind="query"), model.embed(text, kind="query"), atol=1e-5)
    assert (loaded.dimension, loaded.max_tokens) == (384, 512)
    assert 0.6 < loaded.random_cosine < 0.85
    renamed = copy.with_name("other")
    shutil.move(copy, renamed)
    assert EmbeddingModel.load(renamed, threads=2).model_id.startswith("other@local+")
